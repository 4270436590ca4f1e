"""Predicted against observed values, out of fold, for the best method of each target."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, MUTED, VERMILION, lined, panels, short
from nerve.report.results import NothingToDraw, Results, at

SECTION = "prediction"
TITLE = "Predicted against observed"
MOST, MOST_POINTS = 12, 3000


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    return (
        "Each dot is one participant, predicted by a model that never saw that participant's score; for each target "
        "the method with the highest r (chosen after the fact, so its r flatters). Observed values after covariates "
        "were removed. The line is the least-squares fit. Look for a cloud that tilts as a whole, not for a few "
        "outliers that carry the fit."
    )


def draw(results: Results) -> Figure:
    """One panel per cohort and target."""
    shown = [(column, points) for column in results.columns if len(points := _points(results, column))][:MOST]
    if not shown:
        raise NothingToDraw("There are no predictions to show.")
    figure, axes = panels(len(shown), across=3, width=3.0, height=2.7)
    for ax, (column, points) in zip(axes, shown, strict=True):
        observed, predicted = points["observed"].to_numpy(float), points["predicted"].to_numpy(float)
        r = np.corrcoef(observed, predicted)[0, 1] if observed.std() > 0 and predicted.std() > 0 else np.nan
        drawn = np.random.default_rng(0).permutation(len(points))[:MOST_POINTS]
        size, many = (12, False) if len(drawn) < 300 else (5, True)
        ax.scatter(observed[drawn], predicted[drawn], s=size, color=BLUE, alpha=0.5, linewidths=0, rasterized=many)
        if np.isfinite(r):
            slope, intercept = np.polyfit(observed, predicted, 1)
            ends = np.array([observed.min(), observed.max()])
            ax.plot(ends, intercept + slope * ends, color=VERMILION, linewidth=1.6)
        ax.axhline(predicted.mean(), color=MUTED, linewidth=0.6, linestyle=":")
        ax.set_title(lined(results.column_name(*column)))
        best = short(results.label(points["line"].iloc[0]), 30)
        said = f"{best}\nr = {r:.2f}, n = {len(points):,}" if np.isfinite(r) else best
        ax.text(0.03, 0.97, said, va="top", fontsize=8, transform=ax.transAxes)
        ax.margins(y=0.22)
        ax.set_xlabel("observed")
        ax.set_ylabel("predicted")
    return figure


def _points(results: Results, column: tuple[str, str]) -> pd.DataFrame:
    """Predictions of the first row (seed) of the best line, participants with both values."""
    table, best = results.predictions, results.best(*column, among=results.contenders)
    if table.empty or best is None:
        return table.iloc[:0]
    mine = at(table, *column)
    return mine[mine["row"] == results.lines.loc[best, "row"]].dropna(subset=["observed", "predicted"])
