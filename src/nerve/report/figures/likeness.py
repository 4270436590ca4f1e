"""How like a model's training cohort the cohort is: group means against each other, and three numbers of both."""

from __future__ import annotations

import os
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from nerve.files import atomic_file
from nerve.quality.likeness import ALIKE, Likeness
from nerve.report.figures.style import BLUE, INK, MUTED, ORANGE, RC, short
from nerve.report.results import NothingToDraw, Results

SECTION = "cohorts"
TITLE = "The cohort beside the model's training cohort"
MOST = 4
NUMBERS = {"spread": "spread of\nentries", "negative": "share of\nnegative", "largest": "largest\nentry"}


def caption(results: Results) -> str:
    """What is shown, what to look for, and every difference."""
    said = [
        f"{cohort}, {model}: {' '.join(like.differences) or 'no clear difference.'}"
        for (model, cohort), like in list(results.likeness.items())[:MOST]
    ]
    return (
        "Left: each dot is a connection, its mean FC in the training cohort of the model and in this cohort. Right: "
        "numbers that preprocessing changes, in both. Look for a cloud along the dashed line "
        f"(r of {ALIKE} or more) and for bars of the same height. {' '.join(said)}"
    )


def draw(results: Results) -> Figure:
    """One row per model and cohort."""
    shown = [(names, like) for names, like in results.likeness.items() if like.found is not None][:MOST]
    if not shown:
        raise NothingToDraw("No model that was trained elsewhere was used, so none is compared with the cohort.")
    figure = Figure(figsize=(7.2, 2.9 * len(shown)), layout="constrained")
    every = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(1, 1.2))
    for axes, ((model, cohort), like) in zip(every, shown, strict=True):
        _draw_one(axes, like, short(cohort, 20), short(model, 24))
    return figure


def write_likeness(path: str | os.PathLike[str], like: Likeness, cohort: str) -> None:
    """Write the comparison of one cohort with a model as .svg, .png or .pdf."""
    style: Any = RC
    with mpl.rc_context(style), atomic_file(path) as stream:
        figure = Figure(figsize=(7.2, 3.1), layout="constrained")
        _draw_one(figure.subplots(1, 2, width_ratios=(1, 1.2)), like, short(cohort, 20), "the model")
        figure.savefig(stream, format=os.fspath(path).rpartition(".")[2].lower(), facecolor="white")


def _draw_one(axes: Any, like: Likeness, cohort: str, model: str) -> None:
    assert like.trained is not None
    assert like.found is not None
    both, (means, bars) = (like.trained, like.found), axes
    some = np.linspace(0, len(like.found.mean) - 1, min(len(like.found.mean), 3000)).astype(int)
    means.plot(both[0].mean[some], both[1].mean[some], ".", color=BLUE, markersize=1.5, alpha=0.5, rasterized=True)
    ends = [float(min(one.mean.min() for one in both)), float(max(one.mean.max() for one in both))]
    means.plot(ends, ends, "--", color=MUTED, linewidth=0.9)
    means.set(xlabel="mean FC, training cohort", ylabel=f"mean FC, {cohort}", title=like.words)
    for i, (one, colour, label) in enumerate(zip(both, (ORANGE, BLUE), (f"training of {model}", cohort), strict=True)):
        values = [getattr(one, name) for name in NUMBERS]
        places = np.arange(len(values)) + 0.4 * i - 0.2
        bars.bar(places, values, 0.38, color=colour, label=label)
        for place, value in zip(places, values, strict=True):
            bars.text(place, value, f"{value:.2f}", ha="center", va="bottom", fontsize=7.5, color=INK)
    bars.set_xticks(np.arange(len(NUMBERS)), list(NUMBERS.values()))
    bars.margins(y=0.25)
    bars.legend(loc="upper left")
