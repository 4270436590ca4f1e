"""The commands `evaluate`, `run`, `experiment` and `demo`: what they do and what they say."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nerve._utils.errors import NerveWarning, problem
from nerve._utils.files import claim, write_tsv
from nerve._utils.privacy import Identifiers, for_screen, shared_command
from nerve.data.cohort import Cohort
from nerve.data.quality import check_cohort
from nerve.data.quality.report import Quality
from nerve.data.readers.ids import counted
from nerve.evaluation.evaluate import EvaluatedCohort
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.results import Results
from nerve.experiments.config import load_config
from nerve.experiments.evaluate import MODELS, Entry, evaluate_cohorts, recognise
from nerve.experiments.main import SHOWN_OPTIONS, Experiment, write_texts
from nerve.experiments.method_rows import is_model
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.screen import RunsProgress, found, say, show_results, show_scores
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.experiments.workspace import RESOLVED
from nerve.interpret import interpret_to
from nerve.interpret.output import FOLDER as INTERPRETATION
from nerve.methods import METHODS, load_method
from nerve.methods.kept_model import KeptModel, free_folder
from nerve.methods.nerve import NERVE
from nerve.report import page
from nerve.report.load import CHECKS
from nerve.report.report_data import ids_of


def run(
    config: str | os.PathLike[str],
    out: str,
    launcher: str = "local",
    jobs: int | None = None,
    rehearse: bool = False,
) -> list[str]:
    """Run an experiment, or rehearse it, and show its table; returns one line per failed run."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    say(f"Preparing {Path(config).name}: cohorts, folds and runs …", stderr=True)
    experiment = _prepared(config, out, rehearse)
    show_results(_done(experiment, launcher, jobs))
    return _close(experiment)


def evaluate(
    cohort: str,
    features: Any,
    protocol: Protocol,
    out: str,
    *,
    test: Sequence[str] = (),
    quality: Quality | None = None,
) -> None:
    """Evaluate features on a cohort folder, save the results and write the report.

    Parameters
    ----------
    cohort : str
        The folder.
    features : what `nerve.evaluate` takes
    protocol : Protocol
    out : str
        The folder to write; results that it holds are replaced.
    test : sequence of str
        Folders of other cohorts, predicted by what is fitted on `cohort`.
    quality : Quality, optional
        As in `nerve run`: the report then also shows what was checked and what NERVE relies on.
    """
    entries = recognise(features, protocol)
    own = Cohort.load(cohort)
    others = [Cohort.load(path) for path in test]
    folder = claim(out)
    if (folder / RESOLVED).is_file():
        raise problem(folder, "it holds an experiment", remedy="Choose another folder.")
    for name in (MODELS, INTERPRETATION):  # of another evaluation in this folder
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / CHECKS).unlink(missing_ok=True)
    pairs = [(own, None), *((other, own) for other in others)]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", NerveWarning)
        evaluated = evaluate_cohorts(entries, pairs, protocol, command=_command(), folder=folder)
    results = evaluated.results
    results.about["warnings"] = sorted({str(warning.message) for warning in shown})
    for one in (own, *others):
        one.check_unchanged()
    results.save(folder)
    write_texts(folder, results, evaluated.cohorts)
    if quality is not None:
        without_ids = Identifiers(ids_of(own)).removed_from
        write_tsv(folder / CHECKS, quality.table.fillna("").map(without_ids))
        encoders = [one for one in evaluated.encoders.values() if isinstance(one, NERVE)]
        if encoders:
            _interpret(folder, encoders[-1], evaluated.cohorts[0])
    show_scores(results)
    say(*found(results))
    opened = {one.name: one.cohort for one in evaluated.cohorts}
    path = page.write_report(folder, opened)
    say(f"Tables: {folder / 'tables'}", f"Report: {path}")
    notes = [for_screen(note) for note in evaluated.notes]
    say(*(f"note: {note}" for note in dict.fromkeys(notes)), stderr=True, style="yellow")


def _interpret(folder: Path, encoder: NERVE, evaluated: EvaluatedCohort) -> None:
    """Maps of a NERVE model on the cohort that was evaluated."""
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


def _command() -> str:
    """The command as it was typed, without paths."""
    program = "nerve-bids" if Path(sys.argv[0]).stem == "nerve-bids" else "nerve"
    return shared_command(shlex.join([program, *sys.argv[1:]]), SHOWN_OPTIONS, METHODS)


def _done(experiment: Experiment, launcher: str, jobs: int | None) -> Results:
    """The results of all runs, with the command as it was typed."""
    with RunsProgress(experiment) as progress:
        return experiment.run(launcher, jobs, progress, _command())


def kept_probe(features: Sequence[str], protocol: Protocol, folder: str) -> KeptModel:
    """The probe of the one row, to be fitted; what --save-model cannot keep is refused before anything is computed."""
    if len(features) != 1:
        raise problem(
            "--save-model",
            f"there are {len(features)} rows",
            expected="one of --features: a probe reads one",
        )
    free_folder(folder)
    (entry,) = recognise(features, protocol)
    probe = KeptModel(_probe_encoder(entry, protocol), protocol)
    probe.check()
    return probe


def _probe_encoder(entry: Entry, protocol: Protocol) -> Any:
    """What gives the features of a row for any participant: a method, fitted or not."""
    if entry.make is None:
        if not is_model(entry.value):
            raise problem(
                "--save-model",
                f"{Path(entry.value).name} is a table",
                expected="features that can be computed for others",
            )
        return load_method(entry.value)
    method = entry.make()
    if entry.value == "covariates" or not hasattr(method, "transform"):
        raise problem(
            "--save-model",
            f"{entry.value} gives no features",
            expected="features of FC, raw or tangent, say",
        )
    if entry.value == "pca" and "n_components" not in entry.settings:
        method.set_params(n_components=protocol.n_components)
    return method


def check_usable(cohort: str) -> Quality:
    """Check a cohort and say what is in doubt; one that cannot be what it says is refused."""
    quality = check_cohort(Cohort.load(cohort))
    doubtful = quality.table[quality.table["verdict"].isin(["warning", "not usable"])]
    say(*(" · ".join(map(str, row)) for row in doubtful.itertuples(index=False)), stderr=True)
    if not quality.usable:
        raise problem(
            cohort, "it is not usable", remedy="`nerve check` says why, and who would be dropped."
        )
    return quality


def demo(out: str, jobs: int | None = None) -> list[str]:
    """The packaged experiment on simulated cohorts, and what to do next."""
    failures = run("demo", out, jobs=jobs)
    say(
        *found(Results.load(out)),
        "\nOn your own data:",
        "  nerve ingest DERIVATIVES cohort --participants participants.tsv --parcellation schaefer400-17",
        "  nerve check cohort",
        "  nerve pretrain cohort --out run",
        "  nerve evaluate cohort --features raw,pca,run --targets SCORE --covariates age,sex --out results",
        f"\nThe report to open: {Path(out) / 'report.html'}",
    )
    return failures


def plan_only(config: str | os.PathLike[str], out: str, rehearse: bool = False) -> None:
    """Say how many runs there are, and how many are done."""
    experiment = _prepared(config, out, rehearse)
    counts, kinds = experiment.counts, [task.kind for task in experiment.plan.unique]
    say(*(f"{kinds.count(kind):5d} {kind}" for kind in ("encode", "probe", "train")))
    say(f"{len(kinds):5d} runs, {counts[DONE] + counts[UNAVAILABLE]} done")


def _prepared(config: Any, out: str, rehearse: bool = False) -> Experiment:
    """The experiment of a file, or its rehearsal."""
    return Experiment.prepare(rehearsal(load_config(config)) if rehearse else config, out)


def _close(experiment: Experiment) -> list[str]:
    """Write the report and say what is where; failures, which are returned, come last, so that they are seen."""
    cohorts = {name: experiment.cohort(name) for name in experiment.config.cohorts}
    path = page.write_report(experiment.folder, cohorts)
    counts, failures = experiment.counts, experiment.failures()
    said = ", ".join(f"{number} {status}" for status, number in counts.items())
    say(f"{counted(counts.total(), 'run')}: {said}")
    say(f"Tables: {experiment.folder / 'tables'}", f"Report: {path}")
    say(*(f"failed: {line}" for line in failures), style="red")
    return failures
