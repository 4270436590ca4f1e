"""Each method against each other.

Score of the row's method less that of the column's (same numbers; r, or AUC for two-class targets), from a paired
bootstrap on the same participants. A dot marks p < 0.05, two-sided, not corrected; the table below gives q. Look for
whole rows of one colour: a method that is better, or worse, than all others.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import DIVERGING, MUTED, lined, panels, short, square
from nerve.report.results import NothingToDraw, Results, at

MOST, MOST_LINES = 9, 20
PAIR = ("line_a", "line_b")


def draw(results: Results) -> tuple[Figure, str]:
    """One matrix per cohort and target; which methods are shown, where not all are."""
    table = results.comparisons
    table = table[table["among"] == "methods"] if len(table) else table
    if table.empty and len(results.comparisons):
        raise NothingToDraw("There is one method beside the reference rows: the table has all comparisons.")
    if table.empty:
        raise NothingToDraw("Fewer than two methods have scores, so there is nothing to compare.")
    columns = list(dict.fromkeys(zip(table["cohort"], table["target"], strict=True)))[:MOST]
    mean = results.mean_scores.groupby("line")["r"].mean().reindex(results.contenders).dropna()
    best, total = set(mean.nlargest(MOST_LINES).index), len(results.contenders)
    lines = [line for line in results.contenders if line in best]
    table = table[table["line_a"].isin(lines) & table["line_b"].isin(lines)]
    side, places = 0.9 + 0.24 * len(lines), np.arange(len(lines))
    figure, axes = panels(columns, width=max(2.5, side), height=max(2.0, side), extra=2.6, sharey=True)
    limit = max(0.05, float(np.nanquantile(table["difference"].abs(), 0.98)))
    names = [f"{short(results.label(line), 32)}  {i + 1}" for i, line in enumerate(lines)]
    for ax, column in zip(axes, columns, strict=True):
        mine = at(table, *column)
        difference = square(mine, PAIR, lines, "difference", mirrored=-1)
        image = ax.imshow(difference, cmap=DIVERGING, vmin=-limit, vmax=limit)
        rows, across = np.nonzero(square(mine, PAIR, lines, "p") < 0.05)
        ax.plot(across, rows, ".", color="#111111", markersize=4)
        ax.set_xticks(places, [str(i + 1) for i in places], fontsize=7.5)
        ax.set_yticks(places, names, fontsize=7.5)
        ax.set_title(lined(results.column_name(*column), 22))
        ax.tick_params(length=0)
        ax.spines[:].set_color(MUTED)
    figure.colorbar(image, ax=axes, shrink=0.8, label="row − column", pad=0.02)
    some = f"The {len(lines)} methods of {total} with the highest mean r are shown."
    return figure, some if total > len(lines) else ""
