"""Accuracy of every method.

Pearson's r between observed and predicted values, out of fold. The bar is the 95 % bootstrap interval over
participants; the thin line is the wider interval that also allows for participants having trained other folds' models.
Look for intervals that exclude zero, and for how far those of methods overlap.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.report.figures.style import CYCLE, MUTED, line_panels, readable, short
from nerve.report.results import NothingToDraw, Results, at


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per cohort and target, one row per line; how many seeds there are, and which targets are shown."""
    shown, lines = readable(len(results.lines)), list(results.lines.index)
    columns = results.columns[:shown]
    if results.scores.empty:
        raise NothingToDraw("There are no scores: nothing was predicted.")
    colour_of = dict(zip(dict.fromkeys(results.lines["group"]), cycle(CYCLE), strict=False))
    figure, axes = line_panels(results, columns, "r")
    for ax, column in zip(axes, columns, strict=True):
        _intervals(ax, results, column, lines, [colour_of[group] for group in results.lines["group"]])
        mine = at(results.scores, *column)
        several = mine[mine.duplicated("line", keep=False)]
        places = [lines.index(one) + 0.22 for one in several["line"]]
        ax.plot(several["r"], places, ".", color=MUTED, markersize=3)
    for group, colour in colour_of.items():
        axes[0].plot([], [], color=colour, label=short(group or "other"), marker="o", linewidth=2.6)
    if len(colour_of) > 1:
        figure.legend(loc="outside upper left", ncols=len(colour_of))
    seeds, total = results.scores.groupby(["cohort", "target", "line"]).size().max(), len(results.columns)
    over = f"Small dots are single seeds ({seeds})." if seeds > 1 else ""
    some = f" The first {shown} of {total} targets are shown; the table has all." if total > shown else ""
    return figure, over + some


def _intervals(ax: Axes, results: Results, column: tuple[str, str], lines: list[str], colours: list[str]) -> None:
    places = np.arange(len(lines))
    scores = pd.DataFrame([results.by_place.get((*column, line), {}) for line in lines], index=places)
    for low, high, width in (("r_low_cv", "r_high_cv", 0.9), ("r_low", "r_high", 2.6)):
        if low in scores:
            ax.hlines(places, scores[low], scores[high], colors=colours, linewidth=width)
    ax.scatter(scores["r"], places, s=30, color=colours, edgecolor="white", linewidth=0.6, zorder=3)
    for row in places[scores["r"].isna()]:
        ax.text(0, row, "  not available", va="center", fontsize=7, color=MUTED)
