"""What the commands `evaluate`, `run`, `experiment` and `demo` do and print."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveWarning, problem
from nerve._utils.files import claim, write_tsv
from nerve._utils.privacy import Identifiers, for_screen
from nerve.data.cohort import Cohort
from nerve.data.common_space import bring_together, describe_meeting, meeting_sentences
from nerve.data.quality import check_cohort
from nerve.data.quality.report import Quality
from nerve.data.readers.ids import counted
from nerve.evaluation.evaluate import EvaluatedCohort
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.results import Results
from nerve.experiments.collect import without_secrets, write_texts
from nerve.experiments.config import load_config
from nerve.experiments.evaluate_in_memory import MODELS, evaluate_rows
from nerve.experiments.experiment import RESOLVED_CONFIG, Experiment
from nerve.experiments.method_rows import is_model
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.requested_rows import RequestedRow, request_rows
from nerve.experiments.run_store import FINAL, RunStore
from nerve.experiments.terminal import (
    RunsProgress,
    print_lines,
    show_findings,
    show_paper_table,
    show_scores,
)
from nerve.interpret import interpret_to
from nerve.interpret.output import FOLDER as INTERPRETATION
from nerve.methods import load_method
from nerve.methods.kept_model import KeptModel, free_folder
from nerve.methods.nerve import NERVE
from nerve.report import page
from nerve.report.load import CHECKS
from nerve.report.report_data import ids_of


def run_evaluation(
    cohort: str,
    features: Any,
    protocol: Protocol,
    out: str,
    *,
    test: Sequence[str] = (),
    quality: Quality | None = None,
    parcellation: str | None = None,
) -> None:
    """Evaluate features on a cohort folder, save the results and write the report.

    Parameters
    ----------
    cohort : str
        The folder.
    features : object
        What `nerve.evaluate` takes.
    protocol : Protocol
        How to evaluate.
    out : str
        The folder to write; results that it holds are replaced.
    test : sequence of str
        Folders of other cohorts, predicted by what is fitted on `cohort`.
    quality : Quality, optional
        Of `nerve run`: the report then also shows these checks, and maps of the NERVE row.
    parcellation : str, optional
        All cohorts are resampled to these regions. Without it, a cohort of other regions than the
        first is refused.
    """
    rows = request_rows(features, protocol)
    first = Cohort.load(cohort)
    others = [Cohort.load(path) for path in test]
    if parcellation is not None:
        first, *others = bring_together([first, *others], parcellation)
    folder = claim(out)
    if (folder / RESOLVED_CONFIG).is_file():
        raise problem(folder, "it holds an experiment", remedy="Choose another folder.")
    # Parts of an earlier evaluation in this folder that this one does not always write again.
    shutil.rmtree(folder / MODELS, ignore_errors=True)
    shutil.rmtree(folder / INTERPRETATION, ignore_errors=True)
    (folder / CHECKS).unlink(missing_ok=True)

    pairs: list[tuple[Cohort, Cohort | None]] = [(first, None)]
    pairs += [(other, first) for other in others]
    command = without_secrets(_typed_command())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NerveWarning)
        evaluated = evaluate_rows(rows, pairs, protocol, command=command, folder=folder)
    results = evaluated.results
    results.about["warnings"] = sorted({str(warning.message) for warning in caught})
    for opened in (first, *others):
        opened.check_unchanged()
    meeting = describe_meeting([first, *others])
    if meeting["resampled"]:
        results.about["resampling"] = meeting
    results.save(folder)
    write_texts(folder, results, evaluated.cohorts)
    if quality is not None:
        without_ids = Identifiers(ids_of(first)).removed_from
        write_tsv(folder / CHECKS, quality.table.fillna("").map(without_ids))
        models = [model for model in evaluated.encoders.values() if isinstance(model, NERVE)]
        if models:
            _interpret(folder, models[-1], evaluated.cohorts[0])

    show_scores(results)
    show_findings(results)
    opened_cohorts = {tested.name: tested.cohort for tested in evaluated.cohorts}
    path = page.write_report(folder, opened_cohorts)
    print_lines(f"Tables: {folder / 'tables'}", f"Report: {path}")
    notes = dict.fromkeys(for_screen(note) for note in evaluated.notes)
    print_lines(*(f"note: {note}" for note in notes), stderr=True, style="yellow")
    print_lines(*meeting_sentences(meeting), stderr=True)


def check_usable(cohort: str) -> Quality:
    """Check a cohort folder and print what is in doubt; one that is not usable is refused.

    Parameters
    ----------
    cohort : str
        The folder.

    Returns
    -------
    Quality
        The table of checks.
    """
    quality = check_cohort(Cohort.load(cohort))
    doubtful = quality.table[quality.table["verdict"].isin(["warning", "not usable"])]
    for row in doubtful.itertuples(index=False):
        print_lines(" · ".join(map(str, row)), stderr=True)
    if not quality.usable:
        raise problem(
            cohort, "it is not usable", remedy="`nerve check` says why, and who would be dropped."
        )
    return quality


def model_to_keep(features: Sequence[str], protocol: Protocol, folder: str) -> KeptModel:
    """Make the model that --save-model keeps, before anything is computed.

    Parameters
    ----------
    features : sequence of str
        Those of --features; a kept model predicts from one.
    protocol : Protocol
        How it is fitted.
    folder : str
        Where it will be saved; refused if it is taken.

    Returns
    -------
    KeptModel
        Not fitted.
    """
    if len(features) != 1:
        raise problem(
            "--save-model",
            f"there are {len(features)} rows",
            expected="one of --features: a kept model predicts from one",
        )
    free_folder(folder)
    (requested,) = request_rows(features, protocol)
    model = KeptModel(_encoder_to_keep(requested, protocol), protocol)
    model.check()
    return model


def run_experiment(
    config: str | os.PathLike[str],
    out: str,
    launcher: str = "local",
    jobs: int | None = None,
    rehearse: bool = False,
) -> list[str]:
    """Run an experiment file, or rehearse it, print its table and write the report.

    Parameters
    ----------
    config : path
        The experiment file, or the name of one that comes with the package.
    out : str
        The folder of runs and results.
    launcher : str
        "local" or "slurm".
    jobs : int, optional
        Runs at a time on this machine.
    rehearse : bool
        Whether to run it on small simulated cohorts.

    Returns
    -------
    list of str
        One line per failed run.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    print_lines(f"Preparing {Path(config).name}: cohorts, folds and runs …", stderr=True)
    experiment = _prepare(config, out, rehearse)
    with RunsProgress(experiment) as progress:
        results = experiment.run(launcher, jobs, progress, _typed_command())
    show_paper_table(results)

    cohorts = {name: experiment.cohort(name) for name in experiment.config.cohorts}
    path = page.write_report(experiment.folder, cohorts)
    counts = experiment.counts
    statuses = ", ".join(f"{number} {status}" for status, number in counts.items())
    print_lines(f"{counted(counts.total(), 'run')}: {statuses}")
    print_lines(f"Tables: {experiment.folder / 'tables'}", f"Report: {path}")
    failures = experiment.failures()
    for line in failures:  # last, so that they are seen
        print_lines(f"failed: {line}", style="red")
    return failures


def count_runs(config: str | os.PathLike[str], out: str, rehearse: bool = False) -> None:
    """Print how many runs an experiment has, and how many are done; nothing is written.

    Parameters
    ----------
    config : path
        The experiment file, or the name of one that comes with the package.
    out : str
        The folder of runs and results.
    rehearse : bool
        Whether it is to be run on small simulated cohorts.
    """
    with tempfile.TemporaryDirectory(prefix="nerve-") as scratch:
        experiment = _prepare(config, scratch, rehearse)
        tasks = experiment.plan.unique_tasks
    runs = RunStore(out)
    statuses = [runs.status(task.id) for task in tasks]
    kinds = [task.kind for task in tasks]
    for kind in ("encode", "predict", "train"):
        print_lines(f"{kinds.count(kind):5d} {kind}")
    done = sum(status in FINAL for status in statuses)
    print_lines(f"{len(kinds):5d} runs, {done} done")


def run_demo(out: str, jobs: int | None = None) -> list[str]:
    """Run the packaged experiment on simulated cohorts, and print what to do next.

    Parameters
    ----------
    out : str
        The folder to write.
    jobs : int, optional
        Runs at a time.

    Returns
    -------
    list of str
        One line per failed run.
    """
    failures = run_experiment("demo", out, jobs=jobs)
    show_findings(Results.load(out))
    print_lines(
        "\nOn your own data:",
        "  nerve ingest DERIVATIVES cohort --participants participants.tsv "
        "--parcellation schaefer400-17",
        "  nerve check cohort",
        "  nerve pretrain cohort --out run",
        "  nerve evaluate cohort --features raw,pca,run --targets SCORE --covariates age,sex "
        "--out results",
        f"\nThe report to open: {Path(out) / 'report.html'}",
    )
    return failures


def _prepare(config: str | os.PathLike[str], out: str, rehearse: bool) -> Experiment:
    """The experiment of a file, or its rehearsal."""
    if rehearse:
        return Experiment.prepare(rehearsal(load_config(config)), out)
    return Experiment.prepare(config, out)


def _typed_command() -> str:
    """The command as it was typed."""
    program = "nerve-bids" if Path(sys.argv[0]).stem == "nerve-bids" else "nerve"
    return shlex.join([program, *sys.argv[1:]])


def _interpret(folder: Path, encoder: NERVE, evaluated: EvaluatedCohort) -> None:
    """Write maps of a NERVE model on the cohort that was evaluated."""
    protocol = evaluated.protocol
    interpret_to(
        folder,
        [encoder],
        evaluated.cohort,
        protocol.targets,
        protocol.covariates,
        n_folds=protocol.n_folds,
        seed=protocol.seed,
        motion=protocol.motion,
    )


def _encoder_to_keep(requested: RequestedRow, protocol: Protocol) -> Any:
    """What makes the features of a row for any participant: a method, fitted or not."""
    if requested.make is None:
        if not is_model(requested.value):
            raise problem(
                "--save-model",
                f"{Path(requested.value).name} is a table",
                expected="features that can be computed for others",
            )
        return load_method(requested.value)
    method = requested.make()
    if requested.value == "covariates" or not hasattr(method, "transform"):
        raise problem(
            "--save-model",
            f"{requested.value} gives no features",
            expected="features of FC, raw or tangent, say",
        )
    if requested.value == "pca" and "n_components" not in requested.settings:
        method.set_params(n_components=protocol.n_components)
    return method
