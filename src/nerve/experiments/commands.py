"""The commands `evaluate`, `run`, `experiment` and `demo`: what they do and what they say."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nerve._utils.errors import did_you_mean, listed, problem
from nerve._utils.files import write_tsv
from nerve._utils.privacy import Identifiers, for_screen, name_in_results, printable_name
from nerve.data.cohort import Cohort
from nerve.data.quality import check_cohort
from nerve.data.quality.report import Quality
from nerve.data.readers.ids import counted
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.results import ResultsFolder, read_results
from nerve.experiments.config import ExperimentConfig, check_methods, load_config, validated
from nerve.experiments.estimate import remaining_seconds
from nerve.experiments.launch import default_jobs
from nerve.experiments.main import Experiment
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.screen import RunsProgress, duration, found, say, show_results, show_scores
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.methods import METHODS, load_method, make_method
from nerve.methods.kept_model import KeptModel, free_folder
from nerve.methods.pretrained import find_model, packaged_models
from nerve.report import page
from nerve.report.load import CHECKS
from nerve.report.results import ids_of

Rows = Sequence[dict[str, Any]]  # as `methods` of an experiment file


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
    rows: Rows,
    protocol: Protocol,
    out: str,
    quality: Quality | None = None,
    test: Sequence[str] = (),
) -> list[str]:
    """One cohort through the plan, writer and reader of experiments; returns one line per failed run.

    With `quality`, as in `nerve run`, the report also shows what was checked and what NERVE relies on. Those of `test`
    are predicted by what is fitted on the first.
    """
    name = _short_name(cohort)
    cohorts = {name: {"path": cohort, **protocol.as_dict()}}
    for path in test:
        other = _short_name(path)
        other = other if other not in cohorts else f"{other[:90]} {len(cohorts) + 1}"
        cohorts[other] = {"path": path, "train_on": name, **protocol.as_dict()}
    content = {
        "name": name,
        "title": f"Evaluation of {name}",
        "kind": "evaluation",
        "interpret": quality is not None,
    }
    config = validated(
        ExperimentConfig, content | {"cohorts": cohorts, "methods": list(rows)}, "nerve evaluate"
    )
    check_methods(config, "--features")
    experiment = _prepared(config, out)
    if quality is not None:
        without_ids = Identifiers(ids_of(experiment.cohort(name))).removed_from
        write_tsv(experiment.folder / CHECKS, quality.table.fillna("").map(without_ids))
    else:
        (experiment.folder / CHECKS).unlink(missing_ok=True)  # of another evaluation in this folder
    results = _done(experiment, "local", 1)
    show_scores(results)
    say(*found(results))
    failures = _close(experiment)
    with_ids = {
        str(note): for_screen(note) for name in cohorts for note in experiment.people(name)[0].notes
    }
    notes = [note for about in results.about["participants"].values() for note in about["notes"]]
    say(
        *(f"note: {with_ids.get(note, note)}" for note in dict.fromkeys(notes)),
        stderr=True,
        style="yellow",
    )
    return failures


def _done(experiment: Experiment, launcher: str, jobs: int | None) -> ResultsFolder:
    """The results of all runs, with the command as it was typed."""
    program = "nerve-bids" if Path(sys.argv[0]).stem == "nerve-bids" else "nerve"
    with RunsProgress(experiment) as progress:
        return experiment.run(launcher, jobs, progress, shlex.join([program, *sys.argv[1:]]))


def kept_probe(rows: Rows, protocol: Protocol, folder: str) -> KeptModel:
    """The probe of the one row, to be fitted; what --save-model cannot keep is refused before anything is computed."""
    if len(rows) != 1:
        raise problem(
            "--save-model",
            f"there are {len(rows)} rows",
            expected="one of --features: a probe reads one",
        )
    free_folder(folder)
    probe = KeptModel(_probe_encoder(rows[0], protocol), protocol)
    probe.check()
    return probe


def _probe_encoder(row: dict[str, Any], protocol: Protocol) -> Any:
    """What gives the features of a row for any participant: a method, fitted or not."""
    path = Path(row.get("features", ""))
    if "method" not in row:
        if path.is_file() and path.suffix != ".zip":
            raise problem(
                "--save-model",
                f"{path.name} is a table",
                expected="features that can be computed for others",
            )
        return load_method(path)
    settings = {name: values[0] for name, values in row.get("settings", {}).items()}
    if row["method"] == "pca":
        settings = {"n_components": protocol.n_components} | settings
    method = make_method(row["method"], "small", settings)
    if row["method"] == "covariates" or not hasattr(method, "transform"):
        raise problem(
            "--save-model",
            f"{row['method']} gives no features",
            expected="features of FC, raw or tangent, say",
        )
    return method


def _short_name(cohort: str) -> str:
    """What results call a cohort."""
    return name_in_results(Cohort.load(cohort).name)


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


def feature_row(name: str) -> dict[str, Any]:
    """What `--features` names: a method, perhaps with settings (tangent:recentre=site), a model or a table."""
    method, *settings = name.split(":")
    if method in METHODS:  # swept over one value, so that the row is called by it
        return {
            "method": method,
            "settings": {key: [value] for key, value in map(_setting, settings)},
        }
    models = packaged_models()
    if Path(name).exists() or name in models:
        return model_row(name)
    raise problem(
        f"--features {name}",
        "there is no such file, folder, method or model",
        expected="a trained model (folder, archive or name of `nerve models list`), a table with participant_id, or "
        f"one of {listed(METHODS, most=30)}",
        remedy=did_you_mean(name, [*METHODS, *models]).strip(),
    )


def _setting(text: str) -> tuple[str, Any]:
    """One setting as YAML reads it."""
    name, sign, value = text.partition("=")
    if not sign:
        raise problem(
            f"--features …:{text}", "there is no '='", expected="settings as tangent:recentre=site"
        )
    return name, yaml.safe_load(value)


def model_row(name: str) -> dict[str, str]:
    """A file or folder, or a model that comes with the package, as a row of an experiment."""
    path = find_model(name)
    return {
        "features": str(path),
        "label": printable_name(path.stem if path.is_file() else path.resolve().name, most=60),
    }


def demo(out: str, jobs: int | None = None) -> list[str]:
    """The packaged experiment on simulated cohorts, and what to do next."""
    failures = run("demo", out, jobs=jobs)
    say(
        *found(read_results(out)),
        "\nOn your own data:",
        "  nerve ingest DERIVATIVES cohort --participants participants.tsv --parcellation schaefer400-17",
        "  nerve check cohort",
        "  nerve pretrain cohort --out run",
        "  nerve evaluate cohort --features raw,pca,run --targets SCORE --covariates age,sex --out results",
        f"\nThe report to open: {Path(out) / 'report.html'}",
    )
    return failures


def plan_only(config: str | os.PathLike[str], out: str, rehearse: bool = False) -> None:
    """Say how many runs there are, how many are done and about how long the others will take."""
    experiment = _prepared(config, out, rehearse)
    counts, kinds = experiment.counts, [task.kind for task in experiment.plan.unique]
    say(*(f"{kinds.count(kind):5d} {kind}" for kind in ("encode", "probe", "train")))
    say(f"{len(kinds):5d} runs, {counts[DONE] + counts[UNAVAILABLE]} done")
    seconds, jobs = remaining_seconds(experiment), default_jobs()
    say(
        f"About {duration(seconds)} of computing on one worker of this machine, {duration(seconds / jobs)} with {jobs} "
        "(a few steps of each kind of run were timed)."
    )


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
