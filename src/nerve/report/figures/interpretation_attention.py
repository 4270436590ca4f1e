"""Attention between networks: rollout over all layers, then layer by layer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import DIVERGING, agreement, lined, network_grid, panels
from nerve.report.results import NothingToDraw, Results

SECTION = "interpretation"
TITLE = "Attention between networks"
MOST = 6
_NEEDED = {"layer", "head", "from", "to", "ratio"}


def caption(results: Results) -> str:
    """What is shown, what to look for, and how far to trust it."""
    said = [f"{label}{': ' if label else ''}{agreement(_part(table, 'rollout'))}" for label, table in _tables(results)]
    return (
        "How much tokens of the row's network look at tokens of the column's, against even attention (log₂ of the "
        "ratio: 1 is twice as much, -1 half; mean over participants, heads and seeds). Rollout follows attention "
        "through all layers. Look for columns of one colour: networks that everything reads. Agreement of rollouts "
        f"over seeds is {'; '.join(said)}."
    )


def draw(results: Results) -> Figure:
    """One panel for the rollout and for each layer."""
    parts = [
        (label, layer, _part(table, layer))
        for label, table in _tables(results)
        for layer in dict.fromkeys(table["layer"].astype(str))
    ][:MOST]
    figure, axes = panels(len(parts), across=3, width=3.6, height=3.4, extra=0.6)
    grids = [_grid(part) for _, _, part in parts]
    limit = max(0.1, float(max(np.nanmax(np.abs(grid)) for grid, _ in grids)))
    for ax, (label, layer, _), (grid, names) in zip(axes, parts, grids, strict=True):
        image = ax.imshow(grid, cmap=DIVERGING, vmin=-limit, vmax=limit)
        network_grid(ax, names)
        ax.set_title(lined(" · ".join(filter(None, [label, layer if layer == "rollout" else f"layer {layer}"])), 34))
    figure.colorbar(image, ax=axes, shrink=0.8, label="log₂ ratio to even attention")
    return figure


def _part(table: pd.DataFrame, layer: str) -> pd.DataFrame:
    """Rows of one layer, averaged over heads."""
    rows = table[table["layer"].astype(str) == layer]
    mean = rows[rows["head"].astype(str) == "mean"]
    return mean if len(mean) else rows


def _grid(part: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    names = list(dict.fromkeys(part["from"]))
    mean = part.groupby(["from", "to"], sort=False)["ratio"].mean().unstack().reindex(index=names, columns=names)
    return np.log2(np.maximum(mean.to_numpy(float), 2.0**-6)), names


def _tables(results: Results) -> list[tuple[str, pd.DataFrame]]:
    found = results.interpreted("attention", _NEEDED)
    if not found:
        raise NothingToDraw("Attention was not summarised: `nerve interpret` does.")
    return found
