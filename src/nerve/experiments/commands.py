"""The commands `experiment` and `demo`: what they do and what they say."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nerve.checks import did_you_mean, listed, problem
from nerve.cohort import Cohort
from nerve.evaluation.features import NAMED
from nerve.evaluation.results import read_results
from nerve.experiments.collect import runs_table
from nerve.experiments.config import ExperimentConfig, check_methods, load_config, validated
from nerve.experiments.launch import default_jobs
from nerve.experiments.main import Experiment, prepare, reopen
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.screen import RunsProgress, duration, found, show_results, show_scores, show_status
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.files import write_tsv
from nerve.methods import METHODS, load_method, make_method
from nerve.methods.pretrained import find_model, packaged_models
from nerve.protocol import Protocol
from nerve.quality import check_cohort
from nerve.quality.report import Quality
from nerve.report.load import CHECKS
from nerve.terminal import Console


def run(
    config: str | os.PathLike[str],
    out: str,
    launcher: str = "local",
    jobs: int | None = None,
    rehearse: bool = False,
    command: str = "",
) -> list[str]:
    """Run an experiment, or rehearse it, and show its table; returns one line per failed run."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    console = Console(stderr=True)
    console.print(f"Preparing {Path(config).name}: cohorts, folds and runs …", highlight=False)
    experiment = prepare(_wanted(config, rehearse), out)
    with RunsProgress(experiment) as progress:
        results = experiment.run(launcher, jobs, progress, command or typed("experiment", config, "--out", out))
    show_results(results)
    _close(experiment)
    return experiment.failures()


def evaluate(
    cohort: str,
    rows: Sequence[dict[str, Any]],
    protocol: Protocol,
    out: str,
    command: str = "",
    interpret: bool = False,
    quality: Quality | None = None,
    test: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """One cohort through the plan, writer and reader of experiments; returns notes, and a line per failed run.

    With `quality`, the report shows what was checked. Those of `test` are predicted by what is fitted on the first.
    """
    name = _short_name(cohort)
    cohorts = {name: {"path": cohort, **protocol.as_dict()}}
    for path in test:
        other = _short_name(path)
        other = other if other not in cohorts else f"{other[:90]} {len(cohorts) + 1}"
        cohorts[other] = {"path": path, "train_on": name, **protocol.as_dict()}
    config = validated(
        ExperimentConfig,
        {
            "name": name,
            "title": f"Evaluation of {name}",
            "kind": "evaluation",
            "cohorts": cohorts,
            "methods": list(rows),
            "interpret": interpret,
        },
        "nerve evaluate",
    )
    check_methods(config, "--features")
    experiment = prepare(config, out)
    if quality is not None:
        write_tsv(experiment.workspace.folder / CHECKS, quality.table)
    with RunsProgress(experiment) as progress:
        results = experiment.run("local", 1, progress, command)
    show_scores(results)
    for line in found(results):
        Console().print(line, highlight=False, markup=False, soft_wrap=True)
    _close(experiment)
    notes = [one for about in results.about["participants"].values() for one in about["notes"]]
    return list(dict.fromkeys(notes)), experiment.failures()


def check_probe(rows: Sequence[dict[str, Any]], protocol: Protocol, folder: str) -> None:
    """Refuse what --save-model cannot keep, before anything is computed."""
    from nerve.methods.probe import Probe, free_folder

    if len(rows) != 1:
        raise problem("--save-model", f"there are {len(rows)} rows", expected="one of --features: a probe reads one")
    free_folder(folder)
    Probe(probe_encoder(rows[0], protocol), protocol).check()


def save_probe(cohort: str, row: dict[str, Any], protocol: Protocol, folder: str) -> Path:
    """The probe of a row, fitted on all participants of a cohort, in a folder."""
    from nerve.methods.probe import Probe

    return Probe(probe_encoder(row, protocol), protocol).fit(Cohort.load(cohort)).save(folder)


def probe_encoder(row: dict[str, Any], protocol: Protocol) -> Any:
    """What gives the features of a row for anybody: a method, fitted or not."""
    path = Path(row.get("features", ""))
    if "method" not in row:
        if path.is_file() and path.suffix != ".zip":
            raise problem(
                "--save-model", f"{path.name} is a table", expected="features that can be computed for others"
            )
        return load_method(path)
    given = row.get("settings", {})
    settings = {name: value[0] if isinstance(value, list) else value for name, value in given.items()}
    if row["method"] == "pca":
        settings = {"n_components": protocol.n_components} | settings
    method = make_method(row["method"], "small", settings)
    if row["method"] == "covariates" or not hasattr(method, "transform"):
        raise problem(
            "--save-model", f"{row['method']} gives no features", expected="features of FC, raw or tangent, say"
        )
    return method


def _short_name(cohort: str) -> str:
    """What results call a cohort."""
    return re.sub(r"[\\/\0\s]+", " ", Cohort.load(cohort).name).strip()[:100] or "cohort"


def check_usable(cohort: str) -> Quality:
    """Check a cohort and say what is in doubt; one that cannot be what it says is refused."""
    quality = check_cohort(Cohort.load(cohort), progress=True)
    table = quality.table
    for row in table[table["verdict"].isin(["warning", "not usable"])].itertuples(index=False):
        text = " · ".join(str(value) for value in row)
        Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)
    if not quality.usable:
        raise problem(cohort, "it is not usable", remedy="`nerve check` says why, and who would be dropped.")
    return quality


def feature_row(name: str) -> dict[str, Any]:
    """What `--features` names: a method, perhaps with settings (tangent:recentre=site), a model or a table."""
    models = packaged_models()
    if name in METHODS:
        return {"method": name}
    if Path(name).exists() or name in models:
        return model_row(name)
    method, *settings = name.split(":")
    if method in NAMED and settings:  # fields of the protocol, which are not swept
        return {"method": method, "settings": dict(map(_setting, settings)), "label": name}
    if method in METHODS and settings:  # swept over one value, so that the row is called by it
        return {"method": method, "settings": {key: [value] for key, value in map(_setting, settings)}}
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
        raise problem(f"--features …:{text}", "there is no '='", expected="settings as tangent:recentre=site")
    return name, yaml.safe_load(value)


def model_row(name: str) -> dict[str, str]:
    """A file or folder, or a model that comes with the package, as a row of an experiment."""
    path = find_model(name)
    return {"features": str(path), "label": path.stem if path.is_file() else path.resolve().name}


def typed(*words: object) -> str:
    """A command as it would be typed."""
    return shlex.join(["nerve", *map(str, words)])


def demo(out: str, jobs: int | None = None) -> list[str]:
    """The packaged experiment on simulated cohorts, and what to do next."""
    failures = run("demo", out, "local", jobs, command=typed("demo", out))
    console = Console()
    for line in found(read_results(out)):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(
        "\nOn your own data:\n"
        "  nerve ingest DERIVATIVES cohort --participants participants.tsv --parcellation schaefer400-17\n"
        "  nerve check cohort\n"
        "  nerve pretrain cohort --out run\n"
        "  nerve evaluate cohort --features raw,pca,run --targets SCORE --covariates age,sex --out results\n"
        f"\nThe report to open: {Path(out) / 'report.html'}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return failures


def plan_only(config: str | os.PathLike[str], out: str, rehearse: bool = False) -> list[str]:
    """Say how many runs there are, how many are done and about how long the others will take."""
    from nerve.experiments.estimate import remaining_seconds

    experiment = prepare(_wanted(config, rehearse), out)
    counts = experiment.counts
    console = Console()
    for kind in ("encode", "probe", "train"):
        number = sum(task.work.kind == kind for task in experiment.plan.unique)
        console.print(f"{number:5d} {kind}", highlight=False)
    done = counts[DONE] + counts[UNAVAILABLE]
    console.print(f"{sum(counts.values()):5d} runs, {done} done", highlight=False)
    seconds = remaining_seconds(experiment.workspace, experiment.plan)
    jobs = default_jobs()
    console.print(
        f"About {duration(seconds)} of computing on one worker of this machine, {duration(seconds / jobs)} with {jobs} "
        "(a few steps of each kind of run were timed).",
        highlight=False,
        soft_wrap=True,
    )
    return []


def _wanted(config: str | os.PathLike[str], rehearse: bool) -> ExperimentConfig | str | os.PathLike[str]:
    """The experiment of a file, or its rehearsal."""
    return rehearsal(load_config(config)) if rehearse else config


def show(folder: str) -> None:
    """Say how the runs of an experiment stand."""
    experiment = reopen(folder)
    show_status(experiment, runs_table(experiment.workspace, experiment.plan))


def _close(experiment: Experiment) -> None:
    """Write the report and say what is where; failures come last, so that they are seen."""
    from nerve.report.page import write_report

    folder, workspace = experiment.workspace.folder, experiment.workspace
    page = write_report(folder, {name: workspace.cohort(name) for name in workspace.config.cohorts})
    console = Console()
    counts = experiment.counts
    said = ", ".join(f"{number} {status}" for status, number in counts.items())
    console.print(f"{sum(counts.values())} runs: {said}", highlight=False)
    console.print(f"Tables: {folder / 'tables'}\nReport: {page}", highlight=False, markup=False, soft_wrap=True)
    for line in experiment.failures():
        console.print(f"failed: {line}", highlight=False, markup=False, soft_wrap=True, style="red")
