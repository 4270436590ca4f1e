"""Which regions each network's embedding relies on: one dot per region, the heaviest of each network named."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import GRID, INK, MUTED, agreement, name_rows, network_colours, short
from nerve.report.results import NothingToDraw, Results

SECTION = "interpretation"
TITLE = "Regions that networks rely on"
_NEEDED = {"network", "weight", "region"}


def caption(results: Results) -> str:
    """What is shown, what to look for, and how far to trust it."""
    label, table = _table(results)
    whose = f" ({label})" if label else ""
    return (
        f"Each dot is a region{whose}: how much its network's embedding weighs it (norm of its row of U, divided by "
        "the mean over the network's regions; 1 is the average region). The heaviest region of each network is named "
        "at the right. Look for networks that rest on few regions: dots far to the right. Agreement over seeds "
        f"is {agreement(table)}."
    )


def draw(results: Results) -> Figure:
    """One row per network."""
    _, table = _table(results)
    networks = list(dict.fromkeys(table["network"].astype(str)))
    colours = network_colours(networks)
    figure = Figure(figsize=(8.4, 0.9 + 0.3 * len(networks)), layout="constrained")
    ax = figure.subplots()
    rng = np.random.default_rng(0)
    ax.axvline(1, color=MUTED, linewidth=0.8, linestyle="--")
    for row, network in enumerate(networks):
        mine = table[table["network"].astype(str) == network]
        weights = mine["weight"].to_numpy(float)
        relative = weights / weights.mean() if weights.mean() > 0 else weights
        height = row + rng.uniform(-0.18, 0.18, len(mine))
        ax.scatter(relative, height, s=20, color=colours[network], edgecolor=MUTED, linewidth=0.3)
        heaviest = str(mine["region"].iloc[int(np.argmax(relative))])
        named = short(heaviest.removeprefix("7Networks_").removeprefix("17Networks_"), 30)
        ax.text(1.01, row, named, transform=ax.get_yaxis_transform(), va="center", fontsize=7.5, color=INK)
    name_rows(ax, networks, 18)
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel("weight, relative to the network's mean")
    return figure


def _table(results: Results) -> tuple[str, pd.DataFrame]:
    for label, table in results.interpreted("network_weights", _NEEDED):
        if table["weight"].notna().any():
            return label, table.dropna(subset=["weight"])
    raise NothingToDraw(no_weights(results))


def no_weights(results: Results) -> str:
    """Why there is no map of regions."""
    if results.interpreted("attention") or results.interpreted("importance"):
        return "All regions of a network weigh about the same in its embedding, so there is no map of them."
    return "The weights of regions were not computed: `nerve interpret` does."
