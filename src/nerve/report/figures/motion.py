"""Whether predictions follow head motion rather than the target."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import GRID, MUTED, ORANGE, VERMILION, lined, panels, short
from nerve.report.results import NothingToDraw, Results, model_name

SECTION = "prediction"
TITLE = "Head motion"
MOST = 24


def caption(results: Results) -> str:
    """What to see."""
    return (
        "Correlation of each model's predictions with mean framewise displacement (dots), beside that of the target "
        "itself (dashed line; before covariates were removed). See dots near zero. Red: the "
        "predictions follow motion more closely than they follow the target; such a model may have learned who moved."
    )


def draw(results: Results) -> Figure:
    """One panel a cohort and target, one row a method."""
    wanted = {"r_prediction_motion", "r_target_motion"}
    scores = results.scores
    if scores.empty or not wanted <= set(scores.columns) or scores["r_prediction_motion"].isna().all():
        raise NothingToDraw("Head motion is not known (no column mean_fd), so it cannot be checked.")
    known = scores.dropna(subset=["r_prediction_motion"])
    columns = list(dict.fromkeys(zip(known["cohort"], known["target"], strict=True)))[:MOST]
    models = results.models
    figure, axes = panels(len(columns), across=3, width=3.2, height=0.9 + 0.24 * len(models), sharex=True, sharey=True)
    mean = results.by_place
    for ax, (cohort, target) in zip(axes, columns, strict=True):
        ax.axvline(0, color=MUTED, linewidth=0.9)
        for row, model in enumerate(models):
            one = mean.get((cohort, target, *model))
            if one is None:
                continue
            more = abs(one["r_prediction_motion"]) > abs(one["r"])
            ax.plot([0, one["r_prediction_motion"]], [row, row], color=ORANGE, linewidth=1.4)
            ax.plot(one["r_prediction_motion"], row, "o", color=VERMILION if more else ORANGE, markersize=5)
        target_motion = known[(known["cohort"] == cohort) & (known["target"] == target)]["r_target_motion"].mean()
        ax.axvline(target_motion, color=MUTED, linestyle="--", linewidth=1.1)
        ax.set_title(lined(results.column_name(cohort, target)))
        ax.grid(axis="y", color=GRID)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel("r with mean FD")
    axes[0].set_yticks(np.arange(len(models)), [short(model_name(*model), 34) for model in models])
    axes[0].set_ylim(len(models) - 0.4, -0.6)
    return figure
