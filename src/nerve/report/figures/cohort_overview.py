"""Who is in each cohort: age, sex, site and motion."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, CYCLE, GREEN, MUTED, short
from nerve.report.results import CohortFacts, NothingToDraw, Results

SECTION = "cohorts"
TITLE = "Who took part"
MOST, MOST_SITES = 8, 12
MUCH_MOTION = 0.5  # mm
NEEDS_COHORT = (
    "Who took part, and their mean connectivity, is shown when the cohort is named: `nerve report DIR --cohort PATH`."
)


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    return (
        "Age, sex, site and head motion (mean framewise displacement, FD), one row per cohort. Look for differences "
        f"between cohorts that a model could exploit, and for participants who moved more than {MUCH_MOTION} mm "
        "(dashed line)."
    )


def draw(results: Results) -> Figure:
    """One row per cohort; age, sex, site and motion across."""
    shown = [facts for facts in results.cohorts.values() if len(facts.participants)][:MOST]
    if not shown:
        raise NothingToDraw(NEEDS_COHORT)
    figure = Figure(figsize=(9.6, 1.0 + 1.55 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 4, squeeze=False, gridspec_kw={"width_ratios": [3, 1.4, 2.4, 3]})
    for row, facts in zip(grid, shown, strict=True):
        _histogram(row[0], facts.numbers("age"), "age (years)", BLUE)
        _counts(row[1], facts, "sex")
        _counts(row[2], facts, "site")
        _histogram(row[3], facts.numbers("mean_fd"), "mean FD (mm)", GREEN)
        if len(facts.numbers("mean_fd")):
            row[3].axvline(MUCH_MOTION, color=MUTED, linestyle="--", linewidth=0.8)
        row[0].set_title(f"{short(facts.label)}  (n = {facts.n:,})")
    return figure


def _histogram(ax: Axes, values: np.ndarray, label: str, colour: str) -> None:
    ax.set_xlabel(label)
    if not len(values):
        _unknown(ax)
        return
    ax.hist(values, bins=min(24, max(5, len(values) // 6)), color=colour, edgecolor="white", linewidth=0.3)
    ax.set_ylabel("participants")


def _counts(ax: Axes, facts: CohortFacts, column: str) -> None:
    ax.set_xlabel(f"{column}: participants")
    if column not in facts.participants.columns or facts.participants[column].dropna().empty:
        _unknown(ax)
        return
    counts = facts.participants[column].dropna().astype(str).value_counts()
    if len(counts) > MOST_SITES:
        rest = counts.iloc[MOST_SITES - 1 :]
        counts = pd.concat([counts.iloc[: MOST_SITES - 1], pd.Series({f"{len(rest)} others": rest.sum()})])
    positions = np.arange(len(counts))
    ax.barh(positions, counts.to_numpy(), color=CYCLE[4] if column == "site" else CYCLE[1], height=0.72)
    ax.set_yticks(positions, [short(name, 12) for name in counts.index], fontsize=6.5 if len(counts) > 5 else 8)
    ax.invert_yaxis()


def _unknown(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, "not known", ha="center", va="center", color=MUTED, transform=ax.transAxes)
