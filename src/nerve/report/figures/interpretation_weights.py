"""Regions that networks rely on.

Each dot is a region: how much its network's embedding weighs it (norm of its row of U, divided by the mean over the
network's regions; 1 is the average region). The heaviest region of each network is named at the right. Look for
networks that rest on few regions: dots far to the right.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import GRID, INK, MUTED, agreement, name_rows, network_colours, short
from nerve.report.results import NothingToDraw, Results

PLACE = ["x", "y", "z"]
NONE = "There is no map of regions: `nerve interpret` writes one where the regions of a network differ in weight."


def draw(results: Results) -> tuple[Figure, str]:
    """One row per network."""
    table, told = weights(results, ["weight"])
    networks = list(dict.fromkeys(table["network"].astype(str)))
    colours = network_colours(networks)
    figure = Figure(figsize=(8.4, 0.9 + 0.3 * len(networks)), layout="constrained")
    ax = figure.subplots()
    rng = np.random.default_rng(0)
    ax.axvline(1, color=MUTED, linewidth=0.8, linestyle="--")
    for row, network in enumerate(networks):
        mine = table[table["network"].astype(str) == network]
        relative = mine["weight"] / mine["weight"].mean() if mine["weight"].mean() > 0 else mine["weight"]
        height = row + rng.uniform(-0.18, 0.18, len(mine))
        ax.scatter(relative, height, s=20, color=colours[network], edgecolor=MUTED, linewidth=0.3)
        heaviest = str(mine["region"].iloc[int(relative.argmax())])
        named = short(heaviest.removeprefix("7Networks_").removeprefix("17Networks_"), 30)
        ax.text(1.01, row, named, transform=ax.get_yaxis_transform(), va="center", fontsize=7.5, color=INK)
    name_rows(ax, networks, 18)
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel("weight, relative to the network's mean")
    return figure, told


def weights(results: Results, known: list[str]) -> tuple[pd.DataFrame, str]:
    """The first table of weights of regions whose `known` columns are, and a sentence: whose, how far to trust them."""
    for label, table in results.interpreted("network_weights", NONE):
        if len(table := table.dropna(subset=known)):
            whose = f"The weights are those of {label}. " if label else ""
            return table, f"{whose}Agreement over seeds is {agreement(table)}."
    raise NothingToDraw("The regions have no coordinates in the brain.")
