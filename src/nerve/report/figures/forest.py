"""Forest plot: r with its interval, for every method and target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nerve.report.figures.style import CYCLE, GRID, MUTED, lined, name_rows, panels, readable, short
from nerve.report.results import NothingToDraw, Results, at

SECTION = "prediction"
TITLE = "Accuracy of every method"


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    seeds = results.scores.groupby(["cohort", "target", "line"]).size().max()
    over = f" Small dots are single seeds ({seeds})." if seeds > 1 else ""
    total, shown = len(results.columns), readable(len(results.lines))
    cut = f" The first {shown} of {total} targets are shown; the table has all." if total > shown else ""
    return (
        "Pearson's r between observed and predicted values, out of fold. The bar is the 95 % bootstrap interval over "
        "participants; the thin line is the wider interval that also allows for participants having trained other "
        "folds' models. Look for intervals that exclude zero, and for how far those of methods overlap."
        f"{over}{cut}"
    )


def draw(results: Results) -> Figure:
    """One panel per cohort and target, one row per line; all panels share both axes."""
    columns, lines = results.columns[: readable(len(results.lines))], list(results.lines.index)
    if results.scores.empty:
        raise NothingToDraw("There are no scores: nothing was predicted.")
    colours = _colours(results)
    figure, axes = panels(len(columns), across=3, width=3.2, height=0.9 + 0.26 * len(lines), sharex=True, sharey=True)
    for ax, column in zip(axes, columns, strict=True):
        ax.axvline(0, color=MUTED, linewidth=0.9)
        _intervals(ax, results, column, lines, [colours[group] for group in results.lines["group"]])
        _seeds(ax, results, column, lines)
        ax.set_title(lined(results.column_name(*column)))
        ax.grid(axis="y", color=GRID)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel("r")
    name_rows(axes[0], [results.label(line) for line in lines])
    if len(colours) > 1:
        look: dict[str, Any] = {"marker": "o", "linewidth": 2.6}
        handles = [Line2D([], [], color=c, label=short(g or "other"), **look) for g, c in colours.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


def _intervals(ax: Axes, results: Results, column: tuple[str, str], lines: list[str], colours: list[str]) -> None:
    places = np.arange(len(lines))
    scores = pd.DataFrame([results.by_place.get((*column, line), {}) for line in lines], index=places)
    for low, high, width in (("r_low_cv", "r_high_cv", 0.9), ("r_low", "r_high", 2.6)):
        if low in scores:
            ax.hlines(places, scores[low], scores[high], colors=colours, linewidth=width)
    ax.scatter(scores["r"], places, s=30, color=colours, edgecolor="white", linewidth=0.6, zorder=3)
    for row in places[scores["r"].isna()]:
        ax.text(0, row, "  not available", va="center", fontsize=7, color=MUTED)


def _seeds(ax: Axes, results: Results, column: tuple[str, str], lines: list[str]) -> None:
    mine = at(results.scores, *column)
    several = mine[mine.duplicated("line", keep=False)]
    places = {line: i + 0.22 for i, line in enumerate(lines)}
    ax.plot(several["r"], several["line"].map(places), ".", color=MUTED, markersize=3)


def _colours(results: Results) -> dict[str, str]:
    return {name: CYCLE[i % len(CYCLE)] for i, name in enumerate(dict.fromkeys(results.lines["group"]))}
