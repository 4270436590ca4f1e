"""Every two methods against each other: difference in r, and where it is more than chance."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import DIVERGING, MUTED, lined, panels, short
from nerve.report.results import NothingToDraw, Results, model_name

SECTION = "comparison"
TITLE = "Each method against each other"
MOST = 9


def caption(results: Results) -> str:
    """What to see."""
    return (
        "Score of the row's method less that of the column's (same numbers; r, or AUC for two-class targets), from a "
        "paired bootstrap on the same people. A star marks p < 0.05, two-sided, not corrected; the table below gives "
        "q. See whole rows of one colour: a method that is better than all others."
    )


def draw(results: Results) -> Figure:
    """One matrix a cohort and target."""
    table = results.comparisons
    if table.empty or "difference" not in table.columns:
        raise NothingToDraw("Fewer than two methods have scores, so there is nothing to compare.")
    columns = list(dict.fromkeys(zip(table["cohort"], table["target"], strict=True)))[:MOST]
    models = [m for m in results.models if m in set(_models(results))] or _models(results)
    side = 0.9 + 0.24 * len(models)
    figure, axes = panels(len(columns), across=3, width=max(2.5, side), height=max(2.0, side), extra=2.6, sharey=True)
    limit = max(0.05, float(np.nanquantile(table["difference"].abs(), 0.98)))
    image = None
    for ax, column in zip(axes, columns, strict=True):
        difference, p = _matrices(results, column, models)
        image = ax.imshow(difference, cmap=DIVERGING, vmin=-limit, vmax=limit)
        for row, col in np.argwhere(p < 0.05):
            ax.text(col, row, "*", ha="center", va="center_baseline", color="#111111", fontsize=9)
        names = [f"{short(model_name(*model), 32)}  {i + 1}" for i, model in enumerate(models)]
        ax.set_xticks(np.arange(len(models)), [str(i + 1) for i in range(len(models))], fontsize=7.5)
        ax.set_yticks(np.arange(len(models)), names, fontsize=7.5)
        ax.set_title(lined(results.column_name(*column), 22))
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_color(MUTED)
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.8, label="row − column", pad=0.02)
    return figure


def _models(results: Results) -> list[tuple[str, str]]:
    table = results.comparisons
    sides = [zip(table[f"method_{side}"], table[f"variant_{side}"], strict=True) for side in "ab"]
    return list(dict.fromkeys(pair for side in sides for pair in side))


def _matrices(results: Results, column: tuple[str, str], models: list) -> tuple[np.ndarray, np.ndarray]:
    place = {model: i for i, model in enumerate(models)}
    difference = np.full((len(models), len(models)), np.nan)
    p = np.ones_like(difference)
    table = results.comparisons
    for row in table[(table["cohort"] == column[0]) & (table["target"] == column[1])].to_dict("records"):
        a, b = place[row["method_a"], row["variant_a"]], place[row["method_b"], row["variant_b"]]
        difference[a, b], difference[b, a] = row["difference"], -row["difference"]
        p[a, b] = p[b, a] = row["p"]
    return difference, p
