"""What a setting changes: r over the values that were swept."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import CYCLE, panels, short
from nerve.report.results import NothingToDraw, Results

SECTION = "comparison"
TITLE = "What the settings change"
MOST = 9
_ASSIGNMENT = re.compile(r"(?:^|, )([A-Za-z_]\w*)=")


def caption(results: Results) -> str:
    """What to see."""
    return (
        "Accuracy over the values of each setting that was swept, one line a cohort and target, other settings "
        "averaged. Bars are 95 % bootstrap intervals over people. See whether a line's ups and downs exceed its bars: "
        "if not, the setting hardly matters here."
    )


def draw(results: Results) -> Figure:
    """One panel a method and setting."""
    table = swept(results)
    if table.empty:
        raise NothingToDraw("No setting was swept, so there are no ablations to show.")
    places = list(dict.fromkeys(zip(table["method"], table["setting"], strict=True)))[:MOST]
    figure, axes = panels(len(places), across=3, extra=1.8, width=3.6, height=2.6)
    for ax, (method, setting) in zip(axes, places, strict=True):
        part = table[(table["method"] == method) & (table["setting"] == setting)]
        values = sorted(part["value"].unique(), key=_by_number)
        for i, (column, line) in enumerate(part.groupby(["cohort", "target"], sort=False)):
            mean = line.groupby("value")[["r", "r_half_width"]].mean().reindex(values)
            look = {"color": CYCLE[i % len(CYCLE)], "fmt": "o-", "markersize": 4, "linewidth": 1.3, "elinewidth": 0.8}
            places_on_x = np.arange(len(values)) + (i - 2) * 0.04  # side by side, so that bars do not hide each other
            name = short(results.column_name(*column), 24)
            ax.errorbar(places_on_x, mean["r"], yerr=mean["r_half_width"], label=name, **look)
        ax.set_xticks(np.arange(len(values)), [short(value, 14) for value in values])
        ax.set_xlabel(short(setting))
        ax.set_ylabel("r")
        ax.set_title(short(method))
        ax.grid(axis="y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[:12], labels[:12], loc="outside right upper")
    return figure


def swept(results: Results) -> pd.DataFrame:
    """cohort, target, method, setting, value, r, r_half_width: one row a swept setting of a variant."""
    rows = []
    for score in results.mean_scores.to_dict("records"):
        for setting, value in assignments(str(score["variant"])).items():
            kept = {key: score.get(key) for key in ("cohort", "target", "method", "r", "r_half_width")}
            rows.append(kept | {"setting": setting, "value": value})
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    several = table.groupby(["method", "setting"])["value"].transform("nunique") > 1
    return table[several]


def assignments(variant: str) -> dict[str, str]:
    """The settings that a variant's name gives.

    Examples
    --------
    >>> assignments("mask_ratio=0.5, betas=[0.9, 0.98]")
    {'mask_ratio': '0.5', 'betas': '[0.9, 0.98]'}
    """
    places = list(_ASSIGNMENT.finditer(variant))
    ends = [place.start() for place in places[1:]] + [len(variant)] * bool(places)
    return {place[1]: variant[place.end() : end] for place, end in zip(places, ends, strict=True)}


def _by_number(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value
