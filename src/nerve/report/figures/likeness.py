"""The cohort beside the model's training cohort.

Left: each dot is a connection, its mean FC in the training cohort of the model and in this cohort. Right: numbers that
preprocessing changes, in both. Look for a cloud along the dashed line and for bars of the same height.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nerve.quality.likeness import ALIKE, Likeness
from nerve.report.figures.style import BLUE, INK, MUTED, ORANGE, short
from nerve.report.results import NothingToDraw, Results

MOST = 4
NUMBERS = {"spread": "spread of\nentries", "negative": "share of\nnegative", "largest": "largest\nentry"}


def draw(results: Results) -> tuple[Figure, str]:
    """One row per model and cohort; every difference."""
    shown = [(names, like) for names, like in results.likeness.items() if like.found is not None][:MOST]
    if not shown:
        raise NothingToDraw("No model that was trained elsewhere was used, so none is compared with the cohort.")
    figure = Figure(figsize=(7.2, 2.9 * len(shown)), layout="constrained")
    every = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(1, 1.2))
    for axes, ((model, cohort), like) in zip(every, shown, strict=True):
        _draw_one(axes, like, short(cohort, 20), short(model, 24))
    said = [
        f"{cohort}, {model}: {' '.join(like.differences) or 'no clear difference.'}"
        for (model, cohort), like in list(results.likeness.items())[:MOST]
    ]
    return figure, f"Means of comparable cohorts correlate by {ALIKE} or more. {' '.join(said)}"


def _draw_one(axes: Any, like: Likeness, cohort: str, model: str) -> None:
    both: Any = (like.trained, like.found)
    means, bars = axes
    some = np.linspace(0, len(both[0].mean) - 1, min(len(both[0].mean), 3000)).astype(int)
    means.plot(both[0].mean[some], both[1].mean[some], ".", color=BLUE, markersize=1.5, alpha=0.5, rasterized=True)
    ends = [min(one.mean.min() for one in both), max(one.mean.max() for one in both)]
    means.plot(ends, ends, "--", color=MUTED, linewidth=0.9)
    means.set(xlabel="mean FC, training cohort", ylabel=f"mean FC, {cohort}", title=like.words)
    for i, (one, colour, label) in enumerate(zip(both, (ORANGE, BLUE), (f"training of {model}", cohort), strict=True)):
        values = [getattr(one, name) for name in NUMBERS]
        drawn = bars.bar(np.arange(len(values)) + 0.4 * i - 0.2, values, 0.38, color=colour, label=label)
        bars.bar_label(drawn, fmt="%.2f", fontsize=7.5, color=INK)
    bars.set_xticks(np.arange(len(NUMBERS)), list(NUMBERS.values()))
    bars.margins(y=0.25)
    bars.legend(loc="upper left")
