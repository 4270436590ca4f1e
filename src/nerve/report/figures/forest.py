"""Forest plot: r with its interval, for every method and target."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nerve.report.figures.style import CYCLE, GRID, MUTED, lined, panels, short
from nerve.report.results import NothingToDraw, Results, model_name

SECTION = "prediction"
TITLE = "Accuracy of every method"
MOST = 24


def caption(results: Results) -> str:
    """What to see."""
    seeds = results.scores["seed"].nunique() if "seed" in results.scores else 1
    over = f" Small dots are single seeds ({seeds})." if seeds > 1 else ""
    return (
        "Pearson's r between observed and predicted values, out of fold. The bar is the 95 % bootstrap interval over "
        "people; the thin line the wider interval that also allows for people having trained other folds' models. "
        f"See which intervals leave zero behind, and how far methods overlap.{over}"
    )


def draw(results: Results) -> Figure:
    """One panel a cohort and target, one row a method; all panels share both axes."""
    columns, models = results.columns[:MOST], results.models
    if not columns:
        raise NothingToDraw("There are no scores: nothing was predicted.")
    colours = _colours(results)
    height = 0.9 + 0.26 * len(models)
    figure, axes = panels(len(columns), across=3, width=3.2, height=height, sharex=True, sharey=True)
    scores = results.by_place
    for ax, (cohort, target) in zip(axes, columns, strict=True):
        ax.axvline(0, color=MUTED, linewidth=0.9)
        for row, model in enumerate(models):
            if (cohort, target, *model) not in scores:
                ax.text(0, row, "  not available", va="center", fontsize=7, color=MUTED)
                continue
            one = scores[(cohort, target, *model)]
            colour = colours[results.groups.get(model[0], "")]
            for low, high, width in (("r_low_cv", "r_high_cv", 0.9), ("r_low", "r_high", 2.6)):
                if low in one and np.isfinite(one[low]):
                    ax.plot([one[low], one[high]], [row, row], color=colour, linewidth=width, solid_capstyle="butt")
            ax.plot(one["r"], row, "o", color=colour, markersize=5.5, markeredgecolor="white", markeredgewidth=0.6)
            _seeds(ax, results, cohort, target, model, row)
        ax.set_title(lined(results.column_name(cohort, target)))
        ax.grid(axis="y", color=GRID)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel("r")
    axes[0].set_yticks(np.arange(len(models)), [short(model_name(*model), 34) for model in models])
    axes[0].set_ylim(len(models) - 0.4, -0.6)
    if len(colours) > 1:
        handles = [
            Line2D([], [], color=c, marker="o", linewidth=2.6, label=short(g or "other")) for g, c in colours.items()
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


def _colours(results: Results) -> dict[str, str]:
    names = list(dict.fromkeys(results.groups.get(method, "") for method, _ in results.models))
    return {name: CYCLE[i % len(CYCLE)] for i, name in enumerate(names)}


def _seeds(ax, results: Results, cohort: str, target: str, model: tuple[str, str], row: int) -> None:  # type: ignore[no-untyped-def]
    table = results.scores
    mine = (table["cohort"] == cohort) & (table["target"] == target)
    mine &= (table["method"] == model[0]) & (table["variant"] == model[1])
    if mine.sum() > 1:
        ax.plot(table.loc[mine, "r"], np.full(mine.sum(), row + 0.22), ".", color=MUTED, markersize=3)
