"""Figures of what models rely on: regions, attention between networks, network pairs behind a prediction."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.spatial import cKDTree

from nerve.report.figures.colours import GRID, INK, MUTED, network_colours
from nerve.report.figures.style import (
    agreement,
    lined,
    name_rows,
    network_image,
    panels,
    short,
    square,
)
from nerve.report.report_data import NothingToDraw, ReportData

PLACE = ["x", "y", "z"]
NO_WEIGHTS = "There is no map of regions: `nerve interpret` writes one where the regions of a network differ in weight."
COLOURS = "cividis"
REACH = 30.0  # mm: a vertex farther from every region's centre stays grey
SURFACES = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))
_PAGE_INK = "#111111"  # drawn on white in a dark page too: the outlines of the brain are black
MOST = 6
PAIR = ("network_a", "network_b")
MAPS = {"drop": "drop in r when hidden", "pattern": "pattern (Haufe)"}


def interpretation_weights(results: ReportData) -> tuple[Figure, str]:
    """Regions that networks rely on.

    Each dot is a region: how much its network's embedding weighs it (norm of its row of U, divided by the mean over the
    network's regions; 1 is the average region). The heaviest region of each network is named at the right. Look for
    networks that rest on few regions: dots far to the right.
    """
    # one row per network
    table, told = _weights(results, ["weight"])
    networks = list(dict.fromkeys(table["network"].astype(str)))
    colours = network_colours(networks)
    figure = Figure(figsize=(8.4, 0.9 + 0.3 * len(networks)), layout="constrained")
    ax = figure.subplots()
    rng = np.random.default_rng(0)
    ax.axvline(1, color=MUTED, linewidth=0.8, linestyle="--")
    for row, network in enumerate(networks):
        mine = table[table["network"].astype(str) == network]
        relative = (
            mine["weight"] / mine["weight"].mean() if mine["weight"].mean() > 0 else mine["weight"]
        )
        height = row + rng.uniform(-0.18, 0.18, len(mine))
        ax.scatter(relative, height, s=20, color=colours[network], edgecolor=MUTED, linewidth=0.3)
        heaviest = str(mine["region"].iloc[int(relative.argmax())])
        named = short(heaviest.removeprefix("7Networks_").removeprefix("17Networks_"), 30)
        ax.text(
            1.01,
            row,
            named,
            transform=ax.get_yaxis_transform(),
            va="center",
            fontsize=7.5,
            color=INK,
        )
    name_rows(ax, networks, 18)
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel("weight, relative to the network's mean")
    return figure, told


def _weights(results: ReportData, known: list[str]) -> tuple[pd.DataFrame, str]:
    """The first table with regions whose `known` columns are given, and a sentence: whose, how far to trust it."""
    for label, table in results.interpreted("network_weights", NO_WEIGHTS):
        if len(table := table.dropna(subset=known)):
            whose = f"The weights are those of {label}. " if label else ""
            return table, f"{whose}Agreement over seeds is {agreement(table)}."
    raise NothingToDraw("The regions have no coordinates in the brain.")


def interpretation_brain(results: ReportData) -> tuple[Figure, str]:
    """Regions that networks rely on, in the brain.

    How much the embedding of its network weighs each region; 1 is the average region of the network. Above: regions'
    centres in a glass brain. Below: fsaverage, each vertex in the colour of the nearest centre, so borders of regions
    are approximate. Look for agreement of neighbours and of the two hemispheres.
    """
    # four views of the glass brain above four of the surface; everything it needs is shipped with nilearn
    table, told = _weights(results, ["weight", *PLACE])
    try:
        from nilearn.datasets import fetch_surf_fsaverage
        from nilearn.plotting import plot_markers, plot_surf
        from nilearn.surface import load_surf_mesh
    except ImportError:
        raise NothingToDraw("Drawing on the brain needs nilearn: pip install nilearn.") from None
    low, high = table["weight"].quantile([0.02, 0.98])
    scale = Normalize(low, high) if high - low > 1e-9 else Normalize(low - 0.5, high + 0.5)
    figure = Figure(figsize=(9.6, 4.9))
    figure.add_artist(
        Rectangle((0, 0), 1, 1, transform=figure.transFigure, color="white", zorder=-10)
    )
    plot_markers(
        table["weight"].to_numpy(float), table[PLACE].to_numpy(float), node_size=26, node_cmap=COLOURS,
        node_vmin=scale.vmin, node_vmax=scale.vmax, display_mode="lzry", figure=figure, axes=(0.0, 0.48, 0.9, 0.5),
        colorbar=False,
    )  # fmt: skip
    shipped = fetch_surf_fsaverage("fsaverage5")
    for number, (side, view) in enumerate(SURFACES):
        axes = figure.add_axes((0.225 * number, 0.0, 0.225, 0.48), projection="3d")
        values = on_surface(table, load_surf_mesh(shipped[f"pial_{side}"]).coordinates, side)
        plot_surf(
            shipped[f"infl_{side}"], surf_map=values, bg_map=shipped[f"sulc_{side}"], hemi=side, view=view,
            cmap=COLOURS, vmin=scale.vmin, vmax=scale.vmax, colorbar=False, axes=axes, figure=figure,
        )  # fmt: skip
        for mesh in axes.collections:
            mesh.set_rasterized(True)  # twenty thousand triangles would be megabytes of paths
        axes.set_title(
            f"{side}, {view}",
            fontsize=8,
            loc="center",
            y=0.92,
            color=_PAGE_INK,
            fontweight="normal",
        )
    bar = figure.colorbar(
        ScalarMappable(scale, COLOURS), cax=figure.add_axes((0.925, 0.2, 0.014, 0.6))
    )
    bar.set_label("weight, relative to the network", color=_PAGE_INK)
    bar.ax.tick_params(colors=_PAGE_INK, labelcolor=_PAGE_INK)
    bar.outline.set_edgecolor(_PAGE_INK)  # type: ignore[operator]
    return figure, told


def on_surface(table: pd.DataFrame, vertices: np.ndarray, side: str) -> np.ndarray:
    """(vertices,) weight of the nearest region of the hemisphere, NaN where none is within `REACH`.

    Parameters
    ----------
    vertices : (vertices, 3) array
        Coordinates in mm, of the folded cortex.
    side : {"left", "right"}
    """
    here = table[table["hemisphere"].astype(str).str.upper().str[:1] == side[0].upper()]
    if here.empty:
        return np.full(len(vertices), np.nan)
    distance, nearest = cKDTree(here[PLACE].to_numpy(float)).query(vertices)
    return np.where(distance <= REACH, here["weight"].to_numpy(float)[nearest], np.nan)


def interpretation_attention(results: ReportData) -> tuple[Figure, str]:
    """Attention between networks.

    How much tokens of the row's network look at tokens of the column's, against even attention (log₂ of the ratio: 1 is
    twice as much, -1 half; mean over participants, heads and seeds). Rollout follows attention through all layers. Look
    for columns of one colour: networks that everything reads.
    """
    # one panel for the rollout and for each layer
    tables = results.interpreted(
        "attention", "Attention was not summarised: `nerve interpret` does."
    )
    parts = [
        (
            " · ".join(filter(None, [label, layer if layer == "rollout" else f"layer {layer}"])),
            *_grid(table, layer),
        )
        for label, table in tables
        for layer in dict.fromkeys(table["layer"].astype(str))
    ][:MOST]
    figure, axes = panels(parts, width=3.6, height=3.4, extra=0.6)
    limit = max(0.1, *(float(np.nanmax(np.abs(grid))) for _, grid, _ in parts))
    for ax, (title, grid, names) in zip(axes, parts, strict=True):
        image = network_image(ax, grid, names, limit)
        ax.set_title(lined(title, 34))
    figure.colorbar(image, ax=axes, shrink=0.8, label="log₂ ratio to even attention")
    agreed = "; ".join(
        f"{label}: " * bool(label) + agreement(_part(table, "rollout")) for label, table in tables
    )
    return figure, f"Agreement of rollouts over seeds is {agreed}."


def _part(table: pd.DataFrame, layer: str) -> pd.DataFrame:
    """Rows of one layer, averaged over heads."""
    return table[(table["layer"].astype(str) == layer) & (table["head"].astype(str) == "mean")]


def _grid(table: pd.DataFrame, layer: str) -> tuple[np.ndarray, list[str]]:
    part = _part(table, layer)
    names = list(dict.fromkeys(part["from"]))
    mean = (
        part.groupby(["from", "to"], sort=False)["ratio"]
        .mean()
        .unstack()
        .reindex(index=names, columns=names)
    )
    return np.log2(np.maximum(mean.to_numpy(float), 2.0**-6)), names


def interpretation_importance(results: ReportData) -> tuple[Figure, str]:
    """Network pairs that carry a prediction.

    For each pair of networks: how much out-of-fold r falls when its patch is replaced by the training participants'
    mean (star: the 95 % interval excludes zero), and the covariance of its connectivity with the prediction (Haufe's
    transform of the ridge weights). Look for pairs that stand out in both. A map that seeds do not share says nothing
    about the brain.
    """
    # one row per target, drop at the left, pattern at the right
    none = "The importance of network pairs was not computed: `nerve interpret` does."
    parts = [
        (f"{target} ({label})" if label else str(target), part)
        for label, table in results.interpreted("importance", none)
        for target, part in table.groupby("target", sort=False)
    ]
    shown = [(name, part, value) for name, part in parts[:MOST] for value in MAPS]
    figure, axes = panels(shown, across=2, width=4.4, height=3.6)
    for ax, (name, part, value) in zip(axes, shown, strict=True):
        networks = list(dict.fromkeys([*part["network_a"], *part["network_b"]]))
        matrix = square(part, PAIR, networks, value)
        limit = max(1e-6, float(np.nanmax(np.abs(matrix))))
        image = network_image(ax, matrix, networks, limit)
        above, below = part[f"{value}_low"] > 0, (part[f"{value}_high"] < 0) & (value != "drop")
        for row, column in np.argwhere(
            square(part.assign(sure=1.0 * (above | below)), PAIR, networks, "sure") == 1
        ):
            ax.text(
                column, row, "*", ha="center", va="center_baseline", color="#111111", fontsize=8
            )
        ax.set_title(lined(f"{name}: {MAPS[value]}", 40))
        figure.colorbar(image, ax=ax, shrink=0.75)
    agreed = "; ".join(f"{name}: {agreement(part)}" for name, part in parts)
    chance = [name for name, part in parts if not part["r_low"].iloc[0] > 0]
    warned = (
        f" Not told from chance, so that their maps explain nothing: {', '.join(chance)}."
        if chance
        else ""
    )
    return figure, f"Agreement over seeds is {agreed}.{warned}"
