"""What a user sees in the terminal while an experiment runs, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from nerve._utils.console import Console
from nerve._utils.errors import listed
from nerve._utils.privacy import printable
from nerve._utils.progress import above_bars, draws_bars, is_shown, progress_bar, silent
from nerve.evaluation.results import Results
from nerve.evaluation.rows import line_labels, rows_of
from nerve.experiments.main import runs_table
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, WAITING
from nerve.experiments.work import Task
from nerve.experiments.workspace import Workspace
from nerve.report.table_formats import to_text
from nerve.report.tables import paper_table


def say(*lines: str, stderr: bool = False, style: str | None = None) -> None:
    """Print lines, each as wide as it needs to be."""
    for line in lines:
        Console(stderr=stderr, soft_wrap=True).print(line, style=style)


class RunsProgress:
    """
    Shows how many runs of an experiment have ended: a bar, or in a log one line per run.

    A context manager. `launch` calls it whenever a run begins or ends.

    Parameters
    ----------
    workspace : Workspace
        The experiment, before its runs begin.
    """

    def __init__(self, workspace: Workspace) -> None:
        counts = workspace.counts
        self.n_ended = counts[DONE] + counts[UNAVAILABLE]
        self.total = sum(counts.values())
        self.under_way: list[str] = []
        self.began = time.monotonic()

    def __enter__(self) -> RunsProgress:
        if self.n_ended and is_shown():
            say(f"{self.n_ended} of {self.total} runs are already done", stderr=True)
        with silent(not draws_bars()):  # in a log each run has its own line
            self.bar = progress_bar(
                label="experiment", total=self.total, initial=self.n_ended, unit="runs", delay=0
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, task: Task, status: str) -> None:
        """Show that a run has begun or ended."""
        self.under_way = [label for label in self.under_way if label != task.label]
        if status == RUNNING:
            self.under_way.append(task.label)
        if status in (DONE, UNAVAILABLE, FAILED):
            self.n_ended += 1
            self.bar.update()
            if is_shown() and (status == FAILED or not draws_bars()):
                self._write_ended(task, status)
        self.bar.set_postfix_str(printable(listed(self.under_way, most=1)))

    def _write_ended(self, task: Task, status: str) -> None:
        elapsed = duration(time.monotonic() - self.began)
        style = "red" if status == FAILED else None
        with above_bars():
            say(
                f"[{self.n_ended}/{self.total}, {elapsed}] {status}: {task.label}",
                stderr=True,
                style=style,
            )


def show_results(results: Results) -> None:
    """The paper's table in the terminal."""
    table = paper_table(results)
    if table is not None:
        say(to_text(table))


def show_status(workspace: Workspace) -> None:
    """How many runs wait, run, are done or failed, and which are not simply done."""
    counts, runs = workspace.counts, runs_table(workspace)
    say(
        ", ".join(
            f"{counts[name]} {name}" for name in (WAITING, RUNNING, DONE, UNAVAILABLE, FAILED)
        )
    )
    for row in runs[~runs["status"].isin([DONE, WAITING])].to_dict("records"):
        more = workspace.store.holder(row["id"]) if row["status"] == RUNNING else row["reason"]
        say(f"  {row['status']}: {row['run']}" + (f" ({more})" if more else ""))


def found(results: Results) -> list[str]:
    """What was found, a sentence per target: the best method and the next, or the one method and the references."""
    labels, table = line_labels(rows_of(results.rows)), results.comparisons
    lines = []
    for (cohort, target), pairs in (
        table.groupby(["cohort", "target"], sort=False) if len(table) else ()
    ):
        best = pairs[pairs["best_two"]]
        shown = (best if len(best) else pairs).to_dict("records")
        score = f"{'AUC' if shown[0]['metric'] == 'auc' else shown[0]['metric']} = {shown[0]['score_a']:.2f}"
        said = "; ".join(_against(row, labels) for row in shown)
        lines.append(f"  {cohort} {target}: {labels[shown[0]['line_a']]} {score}, {said}")
    return ["\nWhat was found:", *lines] if lines else []


def _against(row: Mapping[Any, Any], labels: Mapping[str, str]) -> str:
    """How a method compares with another, in words."""
    p = f"p = {row['p']:.3f}" if row["p"] >= 0.001 else "p < 0.001"
    clearly = "clearly better than" if row["difference"] > 0 else "clearly worse than"
    verdict = clearly if row["p"] < 0.05 else "not distinguishable from"
    return f"{verdict} {labels[row['line_b']]} ({row['score_b']:.2f}, {p})"


def show_scores(results: Results) -> None:
    """Every score of an evaluation, one line per target and row."""
    labels = line_labels(rows_of(results.rows))
    line_of = dict(zip(results.rows["row"], results.rows["line"], strict=True))
    for score in results.scores.to_dict("records"):
        name, where = (
            labels[line_of[score["row"]]],
            f"{score['cohort']} " if len(results.cohorts) > 1 else "",
        )
        right = f"  balanced accuracy {score['balanced_accuracy']:.3f}"
        auc = "" if np.isnan(score["auc"]) else f"  AUC {score['auc']:.3f}{right}"
        p = f"  p {score['p']:.4f}" if np.isfinite(score.get("p", np.nan)) else ""
        say(
            f"{where}{score['target']:<20} {name:<22} r {score['r']:+.3f} ± {score['r_half_width']:.3f}  fold-mean r "
            f"{score['r_fold_mean']:+.3f}  R² {score['r2']:+.3f}  n {score['n']}{auc}{p}  "
            f"(scope: {score['scope']})"
        )


def duration(seconds: float) -> str:
    """A duration in words.

    Examples
    --------
    >>> duration(42), duration(600), duration(9000), duration(400000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    for limit, unit, text in (
        (120, 1, "{:.0f} s"),
        (7200, 60, "{:.0f} min"),
        (172800, 3600, "{:.1f} h"),
    ):
        if seconds < limit:
            return text.format(seconds / unit)
    return f"{seconds / 86400:.1f} days"
