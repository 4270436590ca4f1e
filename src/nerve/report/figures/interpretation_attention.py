"""Attention between networks.

How much tokens of the row's network look at tokens of the column's, against even attention (log₂ of the ratio: 1 is
twice as much, -1 half; mean over participants, heads and seeds). Rollout follows attention through all layers. Look
for columns of one colour: networks that everything reads.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import agreement, lined, network_image, panels
from nerve.report.results import Results

MOST = 6


def draw(results: Results) -> tuple[Figure, str]:
    """One panel for the rollout and for each layer; how far to trust it."""
    tables = results.interpreted("attention", "Attention was not summarised: `nerve interpret` does.")
    parts = [
        (" · ".join(filter(None, [label, layer if layer == "rollout" else f"layer {layer}"])), *_grid(table, layer))
        for label, table in tables
        for layer in dict.fromkeys(table["layer"].astype(str))
    ][:MOST]
    figure, axes = panels(parts, width=3.6, height=3.4, extra=0.6)
    limit = max(0.1, *(float(np.nanmax(np.abs(grid))) for _, grid, _ in parts))
    for ax, (title, grid, names) in zip(axes, parts, strict=True):
        image = network_image(ax, grid, names, limit)
        ax.set_title(lined(title, 34))
    figure.colorbar(image, ax=axes, shrink=0.8, label="log₂ ratio to even attention")
    rollouts = [(f"{label}: " if label else "", _part(table, "rollout")) for label, table in tables]
    agreed = "; ".join(label + agreement(one) for label, one in rollouts)
    return figure, f"Agreement of rollouts over seeds is {agreed}."


def _part(table: pd.DataFrame, layer: str) -> pd.DataFrame:
    """Rows of one layer, averaged over heads."""
    return table[(table["layer"].astype(str) == layer) & (table["head"].astype(str) == "mean")]


def _grid(table: pd.DataFrame, layer: str) -> tuple[np.ndarray, list[str]]:
    part = _part(table, layer)
    names = list(dict.fromkeys(part["from"]))
    mean = part.groupby(["from", "to"], sort=False)["ratio"].mean().unstack().reindex(index=names, columns=names)
    return np.log2(np.maximum(mean.to_numpy(float), 2.0**-6)), names
