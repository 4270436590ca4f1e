"""What a user sees in the terminal while an experiment runs, and when it ends."""

from __future__ import annotations

import time

import numpy as np

from nerve._utils.console import Console
from nerve._utils.errors import listed
from nerve._utils.privacy import printable
from nerve._utils.progress import above_bars, draws_bars, is_shown, progress_bar, silent
from nerve.evaluation.results import Results
from nerve.evaluation.rows import line_labels, rows_of
from nerve.experiments.collect import runs_table
from nerve.experiments.experiment import Experiment
from nerve.experiments.run_store import DONE, FAILED, FINAL, RUNNING, UNAVAILABLE, WAITING
from nerve.experiments.tasks import Task
from nerve.report.findings import findings_text, too_few_sentence
from nerve.report.report_data import ReportData
from nerve.report.table_formats import to_text
from nerve.report.tables import paper_table


def print_lines(*lines: str, stderr: bool = False, style: str | None = None) -> None:
    """Print lines, each as wide as it needs to be."""
    for line in lines:
        Console(stderr=stderr, soft_wrap=True).print(line, style=style)


class RunsProgress:
    """Shows how many runs of an experiment have ended: a bar, or in a log one line per run.

    A context manager. `launch` calls it whenever a run begins or ends.

    Parameters
    ----------
    experiment : Experiment
        Before its runs begin.
    """

    def __init__(self, experiment: Experiment) -> None:
        counts = experiment.counts
        self.n_ended = sum(counts[status] for status in FINAL)
        self.n_runs = sum(counts.values())
        self.running: list[str] = []
        self.start = time.monotonic()

    def __enter__(self) -> RunsProgress:
        if self.n_ended and is_shown():
            print_lines(f"{self.n_ended} of {self.n_runs} runs are already done", stderr=True)
        with silent(not draws_bars()):  # in a log each run has its own line
            self.bar = progress_bar(
                label="experiment", total=self.n_runs, initial=self.n_ended, unit="runs", delay=0
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, task: Task, status: str) -> None:
        """Show that a run has begun or ended."""
        self.running = [label for label in self.running if label != task.label]
        if status == RUNNING:
            self.running.append(task.label)
        if status in (*FINAL, FAILED):
            self.n_ended += 1
            self.bar.update()
            if is_shown() and (status == FAILED or not draws_bars()):
                elapsed = duration(time.monotonic() - self.start)
                line = f"[{self.n_ended}/{self.n_runs}, {elapsed}] {status}: {task.label}"
                with above_bars():
                    print_lines(line, stderr=True, style="red" if status == FAILED else None)
        self.bar.set_postfix_str(printable(listed(self.running, most=1)))


def show_paper_table(results: Results) -> None:
    """Print the paper's table."""
    table = paper_table(results)
    if table is not None:
        print_lines(to_text(table))


def show_scores(results: Results) -> None:
    """Print every score, one line per target and row; in brackets its 95 % interval."""
    labels = line_labels(rows_of(results.rows))
    line_of = dict(zip(results.rows["row"], results.rows["line"], strict=True))
    for score in results.scores.to_dict("records"):
        cohort = f"{score['cohort']} " if len(results.cohorts) > 1 else ""
        label = labels[line_of[score["row"]]]
        if too_few_sentence(score["n"], score["n_folds"]):
            few = f"no score: n {score['n']} in {score['n_folds']:.0f} folds"
            print_lines(f"{cohort}{score['target']:<20} {label:<22} {few}")
            continue
        text = (
            f"{cohort}{score['target']:<20} {label:<22} "
            f"r {score['r']:+.3f} ({score['r_low_cv']:+.3f} to {score['r_high_cv']:+.3f})  "
            f"fold-mean r {score['r_fold_mean']:+.3f}  R² {score['r2']:+.3f}  n {score['n']}"
        )
        if not np.isnan(score["auc"]):
            text += f"  AUC {score['auc']:.3f}"
            text += f" ({score['auc_low_cv']:.3f} to {score['auc_high_cv']:.3f})"
            text += f"  balanced accuracy {score['balanced_accuracy']:.3f}"
        if np.isfinite(score.get("p", np.nan)):
            text += f"  p {score['p']:.4f}"
        print_lines(f"{text}  (scope: {score['scope']})")


def show_findings(results: Results) -> None:
    """Print what was found, in the words of the report."""
    print_lines(*findings_text(ReportData.from_results(results)))


def show_status(experiment: Experiment) -> None:
    """Print how many runs have each status, and every run that is running or was not done."""
    counts = experiment.counts
    statuses = (WAITING, RUNNING, DONE, UNAVAILABLE, FAILED)
    print_lines(", ".join(f"{counts[status]} {status}" for status in statuses))
    for run in runs_table(experiment).to_dict("records"):
        if run["status"] in (DONE, WAITING):
            continue
        if run["status"] == RUNNING:
            explanation = experiment.store.holder(run["id"])
        else:
            explanation = run["reason"]
        text = f"  {run['status']}: {run['run']}"
        print_lines(f"{text} ({explanation})" if explanation else text)


def duration(seconds: float) -> str:
    """A duration in words.

    Parameters
    ----------
    seconds : float
        The duration.

    Returns
    -------
    str
        In seconds, minutes, hours or days.

    Examples
    --------
    >>> duration(42), duration(600), duration(9000), duration(400000)
    ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
