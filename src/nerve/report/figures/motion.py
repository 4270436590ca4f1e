"""Whether predictions follow head motion rather than the target."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import GRID, MUTED, ORANGE, VERMILION, lined, name_rows, panels, readable
from nerve.report.results import NothingToDraw, Results

SECTION = "prediction"
TITLE = "Head motion"


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    return (
        "Correlation of each model's predictions with mean framewise displacement (dots), beside that of the target "
        "itself (dashed line; before covariates were removed). Look for dots near zero. Red: "
        "predictions follow motion more closely than the target; such a model may have learned who moved."
    )


def draw(results: Results) -> Figure:
    """One panel per cohort and target, one row per line."""
    scores = results.mean_scores
    if "r_prediction_motion" not in scores or scores["r_prediction_motion"].isna().all():
        raise NothingToDraw("Head motion is not known (no column mean_fd), so it cannot be checked.")
    known = scores.dropna(subset=["r_prediction_motion"])
    groups = list(known.groupby(["cohort", "target"], sort=False))[: readable(len(results.lines))]
    lines = list(results.lines.index)
    places = {line: i for i, line in enumerate(lines)}
    figure, axes = panels(len(groups), across=3, width=3.2, height=0.9 + 0.24 * len(lines), sharex=True, sharey=True)
    for ax, (column, part) in zip(axes, groups, strict=True):
        rows, r = part["line"].map(places), part["r_prediction_motion"]
        more = np.where(r.abs() > part["r"].abs(), VERMILION, ORANGE)
        ax.axvline(0, color=MUTED, linewidth=0.9)
        ax.hlines(rows, 0, r, color=ORANGE, linewidth=1.4)
        ax.scatter(r, rows, s=25, color=more, zorder=3)
        ax.axvline(part["r_target_motion"].mean(), color=MUTED, linestyle="--", linewidth=1.1)
        ax.set_title(lined(results.column_name(*map(str, column))))
        ax.grid(axis="y", color=GRID)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel("r with mean FD")
    name_rows(axes[0], [results.label(line) for line in lines])
    return figure
