"""Head motion.

Correlation of each model's predictions with mean framewise displacement (dots), beside that of the target itself
(dashed line; before covariates were removed). Look for dots near zero. Red: predictions follow motion more closely
than the target; such a model may have learned who moved.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import MUTED, ORANGE, VERMILION, line_panels, readable
from nerve.report.results import NothingToDraw, Results


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per cohort and target, one row per line."""
    scores, lines = results.mean_scores, list(results.lines.index)
    if "r_prediction_motion" not in scores or scores["r_prediction_motion"].isna().all():
        raise NothingToDraw("Head motion is not known (no column mean_fd), so it cannot be checked.")
    known = scores.dropna(subset=["r_prediction_motion"])
    groups = list(known.groupby(["cohort", "target"], sort=False))[: readable(len(lines))]
    figure, axes = line_panels(results, [column for column, _ in groups], "r with mean FD")
    for ax, (_, part) in zip(axes, groups, strict=True):
        rows, r = [lines.index(one) for one in part["line"]], part["r_prediction_motion"]
        more = np.where(r.abs() > part["r"].abs(), VERMILION, ORANGE)
        ax.hlines(rows, 0, r, color=ORANGE, linewidth=1.4)
        ax.scatter(r, rows, s=25, color=more, zorder=3)
        ax.axvline(part["r_target_motion"].mean(), color=MUTED, linestyle="--", linewidth=1.1)
    return figure, ""
