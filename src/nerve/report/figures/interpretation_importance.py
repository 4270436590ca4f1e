"""Which network pairs carry a prediction: the drop in r when a pair is hidden, and the pattern behind the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import DIVERGING, agreement, lined, network_grid, panels
from nerve.report.results import NothingToDraw, Results

SECTION = "interpretation"
TITLE = "Network pairs that carry a prediction"
MOST = 6
_NEEDED = {"target", "network_a", "network_b"}
MAPS = {"drop": "drop in r when hidden", "pattern": "pattern (Haufe)"}


def caption(results: Results) -> str:
    """What is shown, what to look for, and how far to trust it."""
    said, chance = [], []
    for label, table in _tables(results):
        for target, part in table.groupby("target", sort=False):
            said.append(f"{_name(label, target)}: {agreement(part)}")
            if "r_low" in part and not part["r_low"].iloc[0] > 0:
                chance.append(_name(label, target))
    warned = f" Not told from chance, so that their maps explain nothing: {', '.join(chance)}." if chance else ""
    return (
        "For each pair of networks: how much out-of-fold r falls when its patch is replaced by the training "
        "participants' mean (star: the 95 % interval excludes zero), and the covariance of its connectivity with the "
        "prediction (Haufe's transform of the ridge weights). Look for pairs that stand out in both. A map that seeds "
        f"do not share says nothing about the brain; agreement over seeds is {'; '.join(said)}.{warned}"
    )


def draw(results: Results) -> Figure:
    """One row per target: drop at the left, pattern at the right."""
    parts = [
        (_name(label, target), part, value, what)
        for label, table in _tables(results)
        for target, part in list(table.groupby("target", sort=False))[:MOST]
        for value, what in MAPS.items()
        if value in part.columns
    ]
    figure, axes = panels(len(parts), across=2, width=4.4, height=3.6)
    for ax, (name, part, value, what) in zip(axes, parts, strict=True):
        networks = list(dict.fromkeys([*part["network_a"], *part["network_b"]]))
        matrix = square(part, networks, value)
        limit = max(1e-6, float(np.nanmax(np.abs(matrix)))) if np.isfinite(matrix).any() else 1.0
        image = ax.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit)
        network_grid(ax, networks)
        if f"{value}_low" in part.columns:
            sure = square(part.assign(sure=_excludes_zero(part, value)), networks, "sure")
            for row, column in np.argwhere(sure > 0):
                ax.text(column, row, "*", ha="center", va="center_baseline", color="#111111", fontsize=8)
        ax.set_title(lined(f"{name}: {what}", 40))
        figure.colorbar(image, ax=ax, shrink=0.75)
    return figure


def square(part: pd.DataFrame, networks: list[str], value: str) -> np.ndarray:
    """(networks, networks) values of pairs, both ways round."""
    place = {network: i for i, network in enumerate(networks)}
    matrix = np.full((len(networks), len(networks)), np.nan)
    for a, b, number in zip(part["network_a"], part["network_b"], part[value], strict=True):
        matrix[place[a], place[b]] = matrix[place[b], place[a]] = number
    return matrix


def _excludes_zero(part: pd.DataFrame, value: str) -> Any:
    low, high = part[f"{value}_low"], part[f"{value}_high"]
    return ((low > 0) if value == "drop" else (low > 0) | (high < 0)).astype(float)


def _name(label: str, target: object) -> str:
    return f"{target} ({label})" if label else str(target)


def _tables(results: Results) -> list[tuple[str, pd.DataFrame]]:
    found = results.interpreted("importance", _NEEDED)
    if not found:
        raise NothingToDraw("The importance of network pairs was not computed: `nerve interpret` does.")
    return found
