"""What r would be by chance: permuted targets, and models with permuted networks."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.report.figures.style import CYCLE, INK, MUTED, lined, panels, short
from nerve.report.results import NothingToDraw, Results, model_name

SECTION = "prediction"
TITLE = "Chance, and what was observed"
MOST = 12


def caption(results: Results) -> str:
    """What to see."""
    parts = []
    if len(results.nulls):
        parts.append(
            "Bars: r when the target is permuted over people and the model is fitted again, for the best method that "
            "has such a null; the line is the observed r, p the share of permutations that reach it."
        )
    if len(results.null_scores):
        parts.append(
            "Panels named “networks”: r of models trained with permuted networks; lines are the models with real ones."
        )
    return " ".join(parts) + " See the line stand clear of the bars."


def draw(results: Results) -> Figure:
    """One panel a cohort and target, for each kind of null."""
    wanted = [("target", column) for column in results.columns if len(_null(results, *column)[0])]
    wanted += [("networks", column) for column in results.columns if len(_networks(results, *column))]
    if not wanted:
        raise NothingToDraw("No permutations were made (n_permutations: 0), so there is no null distribution.")
    figure, axes = panels(len(wanted[:MOST]), across=3, width=3.0, height=2.2)
    for ax, (kind, column) in zip(axes, wanted, strict=False):
        name = results.column_name(*column)
        if kind == "target":
            null, model = _null(results, *column)
            _bars(ax, null, {short(model_name(*model), 26): _observed(results, *column, model)})
            ax.set_title(lined(name))
        else:
            null = _networks(results, *column)
            models = [model for model in results.models if np.isfinite(_observed(results, *column, model))]
            _bars(ax, null, {short(model_name(*m), 26): _observed(results, *column, m) for m in models[-4:]})
            ax.set_title(lined(f"{name} · networks"))
    return figure


def _bars(ax: Axes, null: np.ndarray, observed: dict[str, float]) -> None:
    ax.hist(null, bins=min(30, max(6, len(null) // 8)), color="#b4bac6", edgecolor="white", linewidth=0.3)
    for i, (name, r) in enumerate(observed.items()):
        p = (1 + np.sum(null >= r)) / (1 + len(null))
        colour = INK if len(observed) == 1 else CYCLE[i % len(CYCLE)]
        ax.axvline(r, color=colour, linewidth=1.8, label=f"{name}\nr = {r:.2f}, p = {p:.3g}")
    ax.margins(y=0.45)
    ax.axvline(0, color=MUTED, linewidth=0.6, linestyle=":")
    ax.legend(loc="upper left", fontsize=7, handlelength=1)
    ax.set_xlabel("r")
    ax.set_ylabel("permutations")


def _null(results: Results, cohort: str, target: str) -> tuple[np.ndarray, tuple[str, str]]:
    table = results.nulls
    if table.empty:
        return np.empty(0), ("", "")
    mine = table[(table["cohort"] == cohort) & (table["target"] == target)]
    if mine.empty:
        return np.empty(0), ("", "")
    models = list(dict.fromkeys(zip(mine["method"], mine["variant"], strict=True)))
    try:
        method, variant = results.best(cohort, target, among=models)
    except NothingToDraw:
        return np.empty(0), ("", "")
    values = mine[(mine["method"] == method) & (mine["variant"] == variant)]["r"].to_numpy(float)
    return values[np.isfinite(values)], (method, variant)


def _networks(results: Results, cohort: str, target: str) -> np.ndarray:
    table = results.null_scores
    if table.empty:
        return np.empty(0)
    values = table[(table["cohort"] == cohort) & (table["target"] == target)]["r"]
    return pd.to_numeric(values, errors="coerce").dropna().to_numpy(float)


def _observed(results: Results, cohort: str, target: str, model: tuple[str, str]) -> float:
    return float(results.by_place.get((cohort, target, *model), {}).get("r", np.nan))
