"""The commands `experiment` and `demo`: what they do and what they say."""

from __future__ import annotations

import logging
import os
from importlib.resources import files
from pathlib import Path

from nerve.experiments.collect import runs_table
from nerve.experiments.config import ExperimentConfig, load_config
from nerve.experiments.launch import default_jobs
from nerve.experiments.main import Experiment, prepare, reopen
from nerve.experiments.rehearse import rehearsal
from nerve.experiments.screen import RunsProgress, duration, found, show_results, show_status
from nerve.experiments.store import DONE, UNAVAILABLE
from nerve.terminal import Console


def run(
    config: str | os.PathLike[str], out: str, launcher: str = "local", jobs: int | None = None, rehearse: bool = False
) -> list[str]:
    """Run an experiment, or rehearse it, and show its table; returns one line a failed run."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    console = Console(stderr=True)
    console.print(f"Preparing {Path(config).name}: cohorts, folds and runs …", highlight=False)
    experiment = prepare(_wanted(config, rehearse), out)
    with RunsProgress(experiment) as progress:
        results = experiment.run(launcher, jobs, progress)
    show_results(results["table"])
    _close(experiment)
    return experiment.failures()


def demo(out: str, jobs: int | None = None) -> list[str]:
    """The packaged experiment on simulated cohorts, and what to do next."""
    failures = run(Path(str(files("nerve") / "experiments" / "demo.yaml")), out, "local", jobs)
    console = Console()
    for line in found(Path(out)):
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
        number = sum(task.kind == kind for task in experiment.plan.unique)
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

    folder = experiment.workspace.folder
    page = write_report(folder)
    console = Console()
    counts = experiment.counts
    said = ", ".join(f"{number} {status}" for status, number in counts.items())
    console.print(f"{sum(counts.values())} runs: {said}", highlight=False)
    console.print(f"Tables: {folder / 'tables'}\nReport: {page}", highlight=False, markup=False, soft_wrap=True)
    for line in experiment.failures():
        console.print(f"failed: {line}", highlight=False, markup=False, soft_wrap=True, style="red")
