"""Predicted against observed values, out of fold, for the best method of each target."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, MUTED, VERMILION, lined, panels, short
from nerve.report.results import NothingToDraw, Results, model_name

SECTION = "prediction"
TITLE = "Predicted against observed"
MOST, MOST_POINTS = 12, 3000


def caption(results: Results) -> str:
    """What to see."""
    return (
        "Each dot is one person, predicted by a model that never saw that person's score; for each target the method "
        "with the highest r (chosen after the fact, so its r flatters). Observed values after covariates were removed. "
        "The line is the least-squares fit. See a cloud that tilts as a whole, not a few outliers that carry it."
    )


def draw(results: Results) -> Figure:
    """One panel a cohort and target."""
    columns = [column for column in results.columns if len(_points(results, *column))][:MOST]
    if not columns:
        raise NothingToDraw("There are no predictions to show.")
    figure, axes = panels(len(columns), across=3, width=3.0, height=2.7)
    for ax, (cohort, target) in zip(axes, columns, strict=True):
        points = _points(results, cohort, target)
        observed, predicted = points["observed"].to_numpy(float), points["predicted"].to_numpy(float)
        r = np.corrcoef(observed, predicted)[0, 1] if observed.std() > 0 and predicted.std() > 0 else np.nan
        shown = np.random.default_rng(0).permutation(len(points))[:MOST_POINTS]
        size = 12 if len(shown) < 300 else 5
        ax.scatter(
            observed[shown], predicted[shown], s=size, color=BLUE, alpha=0.5, linewidths=0, rasterized=len(shown) > 300
        )
        if np.isfinite(r):
            slope, intercept = np.polyfit(observed, predicted, 1)
            ends = np.array([observed.min(), observed.max()])
            ax.plot(ends, intercept + slope * ends, color=VERMILION, linewidth=1.6)
        ax.axhline(predicted.mean(), color=MUTED, linewidth=0.6, linestyle=":")
        ax.set_title(lined(results.column_name(cohort, target)))
        best = short(model_name(*results.best(cohort, target)), 30)
        said = f"{best}\nr = {r:.2f}, n = {len(points):,}" if np.isfinite(r) else best
        ax.text(0.03, 0.97, said, va="top", fontsize=8, transform=ax.transAxes)
        ax.margins(y=0.22)
        ax.set_xlabel("observed")
        ax.set_ylabel("predicted")
    return figure


def _points(results: Results, cohort: str, target: str) -> pd.DataFrame:
    """Predictions of the best model's first seed, people with both values."""
    table = results.predictions
    if table.empty:
        return table
    try:
        method, variant = results.best(cohort, target)
    except NothingToDraw:
        return table.iloc[:0]
    mine = (table["cohort"] == cohort) & (table["target"] == target)
    mine &= (table["method"] == method) & (table["variant"] == variant)
    points = table[mine].dropna(subset=["observed", "predicted"])
    return points[points["seed"] == points["seed"].iloc[0]] if "seed" in points and len(points) else points
