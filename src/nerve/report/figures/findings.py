"""The figure below the headlines: the score of every row with its interval."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from nerve.report.figures.colours import CYCLE, INK, MUTED
from nerve.report.figures.style import make_line_panels, most_panels, shorten
from nerve.report.findings import (
    CHANCE,
    METRIC_NAMES,
    NOTHING_PREDICTED,
    corrected_interval,
    find_in,
)
from nerve.report.report_data import NothingToDraw, ReportData, rows_at

_FAINT = 0.45  # opacity of rows that are not in the headline


def forest(results: ReportData) -> tuple[Figure, str]:
    """What was found, row by row.

    The score of every row (r, or AUC for classes) in participants whose targets were not used to
    train its model, with its 95 % interval; the tick is the mean r of the folds. The row of the
    headline and the best reference are drawn in full colour. Look for intervals that exclude chance
    (vertical line), and for how far the row of the headline lies to the right of the best
    reference.
    """
    # One panel per cohort and target, one row per line.
    if results.scores.empty:
        raise NothingToDraw("There are no scores: nothing was predicted.")
    groups = list(results.lines["group"])
    colour_of = dict(zip(dict.fromkeys(groups), cycle(CYCLE), strict=False))
    colours = [colour_of[group] for group in groups]
    columns = results.target_columns[: most_panels(len(groups))]
    same_metric = len({results.metric(*column) for column in columns}) == 1
    figure, axes = make_line_panels(results, columns, "", sharex=same_metric)
    for ax, column in zip(axes, columns, strict=True):
        _draw_rows(ax, results, column, colours)
    for group, colour in colour_of.items():
        label = shorten(group or "other")
        axes[0].plot([], [], color=colour, label=label, marker="o", linewidth=2.6)
    if len(colour_of) > 1:
        figure.legend(loc="outside upper left", ncols=len(colour_of))
    sentences = []
    n_seeds = results.scores.groupby(["cohort", "target", "line"]).size().max()
    if n_seeds > 1:
        sentences.append(f"Small dots are the {n_seeds} seeds.")
    if len(results.target_columns) > len(columns):
        sentences.append(
            f"The first {len(columns)} of {len(results.target_columns)} targets are shown; the "
            "table has all targets."
        )
    return figure, " ".join(sentences)


def _draw_rows(ax: Axes, results: ReportData, column: tuple[str, str], colours: list[str]) -> None:
    """Score and interval of each line; the two lines of the headline stand out."""
    lines = list(results.lines.index)
    metric = results.metric(*column)
    finding = find_in(results, *column)
    ax.set_xlabel(METRIC_NAMES[metric])
    ax.axvline(CHANCE[metric], color=MUTED, linewidth=0.9)
    if not finding.line:
        is_unavailable = finding.answer == NOTHING_PREDICTED
        reason = "not available" if is_unavailable else "too few participants"
        ax.text(0.03, 0.5, reason, va="center", color=MUTED, transform=ax.transAxes)
        return
    scores = []
    means_of_folds = []
    faces = []
    for place, (line, colour) in enumerate(zip(lines, colours, strict=True)):
        of_line = results.scores_at.get((*column, line), {})
        score = of_line.get(metric, np.nan)
        is_in_headline = line in (finding.line, finding.reference)
        face = to_rgba(colour, 1.0 if is_in_headline else _FAINT)
        low, high = corrected_interval(of_line, metric)
        ax.hlines(place, low, high, color=face, linewidth=2.6 if is_in_headline else 1.8)
        if line == finding.line:
            ax.annotate(
                f"{score:.2f}",
                (score, place),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                fontweight="bold",
                color=INK,
            )
        if np.isnan(score):
            ax.text(CHANCE[metric], place, "  not available", va="center", fontsize=7, color=MUTED)
        scores.append(score)
        means_of_folds.append(of_line.get("r_fold_mean", np.nan) if metric == "r" else np.nan)
        faces.append(face)
    places = np.arange(len(lines))
    ax.scatter(scores, places, s=30, color=faces, edgecolor="white", linewidth=0.6, zorder=3)
    ax.scatter(means_of_folds, places, s=60, color=faces, marker="|", linewidth=1.6)
    rows = rows_at(results.scores, *column)
    of_seeds = rows[rows.duplicated("line", keep=False)]
    seed_places = [lines.index(line) + 0.22 for line in of_seeds["line"]]
    ax.plot(of_seeds[metric], seed_places, ".", color=MUTED, markersize=3)
