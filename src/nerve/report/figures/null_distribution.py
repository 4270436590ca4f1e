"""Chance, and what was observed.

Bars: r when the target is permuted over participants and the model is fitted again, for the best line that has such a
null; in panels named “networks”, where there are any, r of models trained with permuted networks. Lines are the
observed r, p the share of permutations that reach it. Look for lines that stand clear of the bars.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.report.figures.style import CYCLE, INK, MUTED, lined, panels, short
from nerve.report.results import Results, at

MOST = 12
Panel = tuple[str, np.ndarray, dict[str, float]]  # title, null, observed r by name


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per cohort and target, for each kind of null."""
    drawn = [panel for make in (_of_target, _of_networks) for one in results.columns if (panel := make(results, one))]
    nothing = "No permutations were made (n_permutations: 0), so there is no null distribution."
    figure, axes = panels(drawn[:MOST], nothing, height=2.2)
    for ax, (title, null, observed) in zip(axes, drawn, strict=False):
        _bars(ax, null, observed)
        ax.set_title(lined(title))
    return figure, ""


def _bars(ax: Axes, null: np.ndarray, observed: dict[str, float]) -> None:
    ax.hist(null, bins=min(30, max(6, len(null) // 8)), color="#b4bac6", edgecolor="white", linewidth=0.3)
    for i, (name, r) in enumerate(observed.items()):
        p = (1 + np.sum(null >= r)) / (1 + len(null))
        colour = INK if len(observed) == 1 else CYCLE[i % len(CYCLE)]
        ax.axvline(r, color=colour, linewidth=1.8, label=f"{name}\nr = {r:.2f}, p = {p:.3g}")
    ax.margins(y=0.45)
    ax.axvline(0, color=MUTED, linewidth=0.6, linestyle=":")
    ax.legend(loc="upper left", fontsize=7, handlelength=1)
    ax.set(xlabel="r", ylabel="permutations")


def _of_target(results: Results, column: tuple[str, str]) -> Panel | None:
    """The null of the best line that has one: that of its own rows, found by their ids."""
    mine = at(results.nulls, *column)
    best = results.best(*column, among=set(mine["line"])) if len(mine) else None
    if best is None:
        return None
    null = mine.loc[mine["line"] == best, "r"].dropna().to_numpy(float)
    return results.column_name(*column), null, {short(results.label(best), 26): results.r(*column, best)}


def _of_networks(results: Results, column: tuple[str, str]) -> Panel | None:
    null = at(results.null_scores, *column)
    if null.empty:
        return None
    observed = {short(results.label(line), 26): results.r(*column, line) for line in results.contenders}
    known = [(name, r) for name, r in observed.items() if np.isfinite(r)]
    return f"{results.column_name(*column)} · networks", null["r"].to_numpy(float), dict(known[-4:])
