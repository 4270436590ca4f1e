"""What a person sees in the terminal while an experiment runs, and when it ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pandas as pd
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from nerve.experiments.main import Experiment
from nerve.experiments.plan import Task
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, WAITING
from nerve.files import read_tsv
from nerve.report.table_formats import to_frame
from nerve.report.tables import ResultsTable
from nerve.terminal import Console


class RunsProgress:
    """A bar in a terminal, a line a run in a log."""

    def __init__(self, experiment: Experiment) -> None:
        self.console = Console(stderr=True)
        counts = experiment.counts
        self.total = sum(counts.values())
        self.ended = counts[DONE] + counts[UNAVAILABLE]
        self.began = time.perf_counter()
        self.bar: Progress | None = None
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("{task.fields[now]}", markup=False), console=self.console,
            )  # fmt: skip
            self.row = self.bar.add_task("runs", total=self.total, completed=self.ended, now="")

    def __enter__(self) -> RunsProgress:
        if self.bar:
            self.bar.start()
        elif self.ended:
            self.console.print(f"{self.ended} of {self.total} runs are already done", highlight=False)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, task: Task, status: str) -> None:
        """A run has started, been queued or ended."""
        if status in (DONE, UNAVAILABLE, FAILED):
            self.ended += 1
        if self.bar:
            self.bar.update(self.row, completed=self.ended, now=task.label)
            if status == FAILED:
                self.bar.console.print(f"failed {task.label}", style="red", highlight=False)
        elif status != RUNNING:
            seconds = time.perf_counter() - self.began
            self.console.print(
                f"{seconds:6.0f} s  {self.ended}/{self.total}  {status}: {task.label}", highlight=False, soft_wrap=True
            )


def show_results(table: ResultsTable) -> None:
    """The paper's table in the terminal."""
    frame = to_frame(table)
    shown = Table(title=table.title, caption=table.notes[0] if table.notes else None)
    for name in frame.index.names:
        shown.add_column(str(name))
    for cohort, target in table.headers:
        shown.add_column(f"{cohort}\n{target}", justify="right")
    for row, (_, cells) in zip(table.rows, frame.iterrows(), strict=True):
        shown.add_row(*table.lead(row), *map(str, cells))
    Console(width=None).print(shown)


def show_status(experiment: Experiment, runs: pd.DataFrame) -> None:
    """How many runs wait, run, are done or failed, and which are not simply done."""
    console = Console()
    counts = experiment.counts
    order = (WAITING, RUNNING, DONE, UNAVAILABLE, FAILED)
    console.print(", ".join(f"{counts[name]} {name}" for name in order), highlight=False)
    for row in runs[~runs["status"].isin([DONE, WAITING])].to_dict("records"):
        run_id, status, run, reason = (str(row[name]) for name in ("id", "status", "run", "reason"))
        more = experiment.workspace.store.holder(run_id) if status == RUNNING else reason
        line = f"  {status}: {run}" + (f" ({more})" if more else "")
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def found(folder: Path) -> list[str]:
    """What an experiment found, a sentence a target: the best row, and whether it is clearly better than the next."""
    scores = read_tsv(folder / "scores.tsv")
    comparisons = read_tsv(folder / "comparisons.tsv")
    lines = ["\nWhat was found:"]
    for (cohort, target), part in scores.groupby(["cohort", "target"], sort=False):
        top = comparisons.query("cohort == @cohort and target == @target and best_two")
        if top.empty:
            continue
        row = top.iloc[0]
        p = f"p = {row['p']:.3f}" if row["p"] >= 0.001 else "p < 0.001"
        verdict = "clearly better than" if row["p"] < 0.05 else "not distinguishable from"
        r = part.loc[part["method"] == row["method_a"], "r"].max()
        lines.append(f"  {cohort!s} {target!s}: {row['method_a']} r = {r:.2f}, {verdict} {row['method_b']} ({p})")
    return lines


def duration(seconds: float) -> str:
    """A duration in words.

    Examples
    --------
    >>> duration(42), duration(600), duration(9000), duration(400000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}" if name != "h" else f"{seconds / unit:.1f} h"
    return f"{seconds / 86400:.1f} days"
