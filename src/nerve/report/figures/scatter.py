"""Predicted against observed.

Each dot is one participant, predicted by a model that never saw that participant's score; for each target the method
with the highest r (chosen after the fact, so its r flatters). Observed values after covariates were removed. The line
is the least-squares fit. Look for a cloud that tilts as a whole, not for a few outliers that carry the fit.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, MUTED, VERMILION, lined, panels, short
from nerve.report.results import Results, at

MOST, MOST_POINTS = 12, 3000


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per cohort and target."""
    shown = [(column, points) for column in results.columns if len(points := _points(results, column))][:MOST]
    figure, axes = panels(shown, "There are no predictions to show.", height=2.7)
    for ax, (column, points) in zip(axes, shown, strict=True):
        observed, predicted = points["observed"].to_numpy(float), points["predicted"].to_numpy(float)
        drawn = np.random.default_rng(0).permutation(len(points))[:MOST_POINTS]
        size, many = (12, False) if len(drawn) < 300 else (5, True)
        ax.scatter(observed[drawn], predicted[drawn], s=size, color=BLUE, alpha=0.5, linewidths=0, rasterized=many)
        said = short(results.label(points["line"].iloc[0]), 30)
        if observed.std() > 0 and predicted.std() > 0:
            slope, intercept = np.polyfit(observed, predicted, 1)
            ends = np.array([observed.min(), observed.max()])
            ax.plot(ends, intercept + slope * ends, color=VERMILION, linewidth=1.6)
            said += f"\nr = {np.corrcoef(observed, predicted)[0, 1]:.2f}, n = {len(points):,}"
        ax.axhline(predicted.mean(), color=MUTED, linewidth=0.6, linestyle=":")
        ax.set_title(lined(results.column_name(*column)))
        ax.text(0.03, 0.97, said, va="top", fontsize=8, transform=ax.transAxes)
        ax.margins(y=0.22)
        ax.set(xlabel="observed", ylabel="predicted")
    return figure, ""


def _points(results: Results, column: tuple[str, str]) -> pd.DataFrame:
    """Predictions of the first row (seed) of the best line, participants with both values."""
    mine, best = at(results.predictions, *column), results.best(*column, among=results.contenders)
    if mine.empty or best is None:
        return mine.iloc[:0]
    return mine[mine["row"] == results.lines.loc[best, "row"]].dropna(subset=["observed", "predicted"])
