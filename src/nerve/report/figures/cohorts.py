"""Figures of the cohorts: who took part, how regions are connected, how like a model's training cohort they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.data.quality.likeness import ALIKE, Likeness
from nerve.report.figures.colours import BLUE, GREEN, INK, MUTED, ORANGE, SKY, colour_limit
from nerve.report.figures.style import fc_image, panels, short
from nerve.report.report_data import CohortFacts, NothingToDraw, ReportData

MOST_COHORTS, MOST_SITES, MOST_MEANS, MOST_MODELS = 8, 12, 6, 4
NEEDS_COHORT = "`nerve report DIR --cohort PATH` adds who took part and their mean connectivity."
FEW = "Mean connectivity is shown for ten participants or more: that of fewer would show single participants."
NUMBERS = {
    "spread": "spread of\nentries",
    "negative": "share of\nnegative",
    "largest": "largest\nentry",
}


def cohort_overview(results: ReportData) -> tuple[Figure, str]:
    """Who took part.

    Age, sex, site and head motion (mean framewise displacement, FD), one row per cohort. Look for differences between
    cohorts that a model could exploit, and for participants who moved more than 0.5 mm (dashed line).
    """
    # one row per cohort; age, sex, site and motion across
    shown = [facts for facts in results.cohorts.values() if len(facts.participants)][:MOST_COHORTS]
    if not shown:
        raise NothingToDraw(NEEDS_COHORT)
    figure = Figure(figsize=(9.6, 1.0 + 1.55 * len(shown)), layout="constrained")
    grid = figure.subplots(
        len(shown), 4, squeeze=False, gridspec_kw={"width_ratios": [3, 1.4, 2.4, 3]}
    )
    for (age, sex, site, motion), facts in zip(grid, shown, strict=True):
        _histogram(age, facts.numbers("age"), "age (years)", BLUE)
        _counts(sex, facts.counts("sex"), "sex: participants", ORANGE)
        _counts(site, facts.counts("site"), "site: participants", SKY)
        _histogram(motion, facts.numbers("mean_fd"), "mean FD (mm)", GREEN)
        if motion.patches:
            motion.axvline(0.5, color=MUTED, linestyle="--", linewidth=0.8)
        age.set_title(f"{short(facts.label)}  (n = {facts.n:,})")
    return figure, ""


def _histogram(ax: Axes, values: np.ndarray, label: str, colour: str) -> None:
    if _known(ax, values, label):
        ax.hist(
            values,
            bins=min(24, max(5, len(values) // 6)),
            color=colour,
            edgecolor="white",
            linewidth=0.3,
        )
        ax.set_ylabel("participants")


def _counts(ax: Axes, counts: pd.Series, label: str, colour: str) -> None:
    if not _known(ax, counts, label):
        return
    if len(counts) > MOST_SITES:
        rest = counts.iloc[MOST_SITES - 1 :]
        counts = pd.concat(
            [counts.iloc[: MOST_SITES - 1], pd.Series({f"{len(rest)} others": rest.sum()})]
        )
    positions = np.arange(len(counts))
    ax.barh(positions, counts.to_numpy(), color=colour, height=0.72)
    ax.set_yticks(
        positions,
        [short(name, 12) for name in counts.index],
        fontsize=6.5 if len(counts) > 5 else 8,
    )
    ax.invert_yaxis()


def _known(ax: Axes, values: np.ndarray | pd.Series, label: str) -> bool:
    """Whether there is something to draw in a panel, which is named, and says so where there is not."""
    ax.set_xlabel(label)
    if not len(values):
        ax.set(xticks=[], yticks=[])
        ax.text(
            0.5, 0.5, "not known", ha="center", va="center", color=MUTED, transform=ax.transAxes
        )
    return len(values) > 0


def group_mean_fc(results: ReportData) -> tuple[Figure, str]:
    """Mean connectivity, sorted by network.

    Mean functional connectivity (Pearson r) of each cohort, regions sorted by network; lines are network borders. Look
    for blocks of high r along the diagonal: where they are missing, the rows of the matrices are not in the order that
    the parcellation says.
    """
    cohorts = results.cohorts.values()
    shown = [
        facts for facts in cohorts if facts.mean is not None and facts.parcellation is not None
    ][:MOST_MEANS]
    named = any(len(facts.participants) for facts in cohorts)
    figure, axes = panels(shown, FEW if named else NEEDS_COHORT, width=3.5, height=3.1, extra=0.5)
    limit = colour_limit(*(facts.mean for facts in shown))
    for ax, facts in zip(axes, shown, strict=True):
        image = fc_image(ax, facts.mean, facts.parcellation.networks, limit)  # type: ignore[union-attr]
        ax.set_title(f"{short(facts.label)}  (n = {facts.n:,})", pad=13)
    figure.colorbar(image, ax=axes, shrink=0.6, label="mean r", pad=0.02)
    return figure, " ".join(map(_contrast, shown))


def _contrast(facts: CohortFacts) -> str:
    order = facts.order
    if order is None:
        return ""
    verdict = "as expected" if order.plausible else "in doubt: run `nerve check`"
    some = f" (mean of {facts.n_in_mean:,} participants)" if facts.n_in_mean < facts.n else ""
    found = f"r = {order.within:.2f} within networks and {order.between:.2f} between them"
    return f"{facts.label}: {found}, {verdict}{some}."


def likeness(results: ReportData) -> tuple[Figure, str]:
    """The cohort beside the model's training cohort.

    Left: each dot is a connection, its mean FC in the training cohort of the model and in this cohort. Right: numbers
    that preprocessing changes, in both. Look for a cloud along the dashed line and for bars of the same height.
    """
    # one row per model and cohort
    shown = [(names, like) for names, like in results.likeness.items() if like.found is not None][
        :MOST_MODELS
    ]
    if not shown:
        raise NothingToDraw(
            "No model that was trained elsewhere was used, so none is compared with the cohort."
        )
    figure = Figure(figsize=(7.2, 2.9 * len(shown)), layout="constrained")
    every = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(1, 1.2))
    for axes, ((model, cohort), like) in zip(every, shown, strict=True):
        _beside(axes, like, short(cohort, 20), short(model, 24))
    said = [
        f"{cohort}, {model}: {' '.join(like.differences) or 'no clear difference.'}"
        for (model, cohort), like in list(results.likeness.items())[:MOST_MODELS]
    ]
    return figure, f"Means of comparable cohorts correlate by {ALIKE} or more. {' '.join(said)}"


def _beside(axes: Any, like: Likeness, cohort: str, model: str) -> None:
    both: Any = (like.trained, like.found)
    means, bars = axes
    some = np.linspace(0, len(both[0].mean) - 1, min(len(both[0].mean), 3000)).astype(int)
    means.plot(
        both[0].mean[some],
        both[1].mean[some],
        ".",
        color=BLUE,
        markersize=1.5,
        alpha=0.5,
        rasterized=True,
    )
    ends = [min(one.mean.min() for one in both), max(one.mean.max() for one in both)]
    means.plot(ends, ends, "--", color=MUTED, linewidth=0.9)
    means.set(xlabel="mean FC, training cohort", ylabel=f"mean FC, {cohort}", title=like.words)
    for i, (one, colour, label) in enumerate(
        zip(both, (ORANGE, BLUE), (f"training of {model}", cohort), strict=True)
    ):
        values = [getattr(one, name) for name in NUMBERS]
        drawn = bars.bar(
            np.arange(len(values)) + 0.4 * i - 0.2, values, 0.38, color=colour, label=label
        )
        bars.bar_label(drawn, fmt="%.2f", fontsize=7.5, color=INK)
    bars.set_xticks(np.arange(len(NUMBERS)), list(NUMBERS.values()))
    bars.margins(y=0.25)
    bars.legend(loc="upper left")
