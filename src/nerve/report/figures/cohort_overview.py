"""Who took part.

Age, sex, site and head motion (mean framewise displacement, FD), one row per cohort. Look for differences between
cohorts that a model could exploit, and for participants who moved more than 0.5 mm (dashed line).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, GREEN, MUTED, ORANGE, SKY, short
from nerve.report.results import NothingToDraw, Results

MOST, MOST_SITES = 8, 12
NEEDS_COHORT = "`nerve report DIR --cohort PATH` adds who took part and their mean connectivity."


def draw(results: Results) -> tuple[Figure, str]:
    """One row per cohort; age, sex, site and motion across."""
    shown = [facts for facts in results.cohorts.values() if len(facts.participants)][:MOST]
    if not shown:
        raise NothingToDraw(NEEDS_COHORT)
    figure = Figure(figsize=(9.6, 1.0 + 1.55 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 4, squeeze=False, gridspec_kw={"width_ratios": [3, 1.4, 2.4, 3]})
    for (age, sex, site, motion), facts in zip(grid, shown, strict=True):
        _histogram(age, facts.numbers("age"), "age (years)", BLUE)
        _counts(sex, facts.counts("sex"), "sex: participants", ORANGE)
        _counts(site, facts.counts("site"), "site: participants", SKY)
        if _histogram(motion, facts.numbers("mean_fd"), "mean FD (mm)", GREEN):
            motion.axvline(0.5, color=MUTED, linestyle="--", linewidth=0.8)
        age.set_title(f"{short(facts.label)}  (n = {facts.n:,})")
    return figure, ""


def _histogram(ax: Axes, values: np.ndarray, label: str, colour: str) -> bool:
    if _known(ax, values, label):
        ax.hist(values, bins=min(24, max(5, len(values) // 6)), color=colour, edgecolor="white", linewidth=0.3)
        ax.set_ylabel("participants")
    return len(values) > 0


def _counts(ax: Axes, counts: pd.Series, label: str, colour: str) -> None:
    if not _known(ax, counts, label):
        return
    if len(counts) > MOST_SITES:
        rest = counts.iloc[MOST_SITES - 1 :]
        counts = pd.concat([counts.iloc[: MOST_SITES - 1], pd.Series({f"{len(rest)} others": rest.sum()})])
    positions = np.arange(len(counts))
    ax.barh(positions, counts.to_numpy(), color=colour, height=0.72)
    ax.set_yticks(positions, [short(name, 12) for name in counts.index], fontsize=6.5 if len(counts) > 5 else 8)
    ax.invert_yaxis()


def _known(ax: Axes, values: np.ndarray | pd.Series, label: str) -> bool:
    """Whether there is something to draw in a panel, which is named, and says so where there is not."""
    ax.set_xlabel(label)
    if not len(values):
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, "not known", ha="center", va="center", color=MUTED, transform=ax.transAxes)
    return len(values) > 0
