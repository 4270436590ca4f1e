"""Figures of what models rely on: regions, attention between networks, pairs of networks."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.spatial import cKDTree

from nerve.report.figures.colours import GRID, INK, MUTED, network_colours
from nerve.report.figures.style import (
    agreement_words,
    draw_networks,
    make_panels,
    name_rows,
    shorten,
    square_matrix,
    wrap_title,
)
from nerve.report.report_data import NothingToDraw, ReportData

REACH = 30.0  # mm; a vertex farther than this from the centre of every region stays grey
_COORDINATES = ["x", "y", "z"]
_NO_MAP = "There is no map of regions: `nerve interpret` writes one for every NERVE model."
_COLOURS = "cividis"
_SURFACES = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))
_PAGE_INK = "#111111"  # the brain is drawn in black on white, on a dark page too
_MOST_PANELS = 6
_PAIR = ("network_a", "network_b")
# Tables with a map of regions, the column that is drawn, and what it is.
_REGION_MAPS = {
    "network_weights": (
        "weight",
        "the weight of a region in the embedding of its network (norm of its row of U), relative "
        "to the mean of the network",
    ),
    "region_occlusion": (
        "change",
        "how much the features of a participant change when the region is hidden (replaced by the "
        "mean over participants), relative to the mean of all regions",
    ),
}
_MAPS = {"drop": "drop in r when hidden", "pattern": "pattern (Haufe)"}


def interpretation_weights(results: ReportData) -> tuple[Figure, str]:
    """Regions that the model relies on.

    Each dot is a region. Its position shows how much the model relies on it, relative to the
    average region (1). The name at the right is that of the highest region of each network. Look
    for dots far to the right: networks of which the model uses only a few regions.
    """
    # One row per network.
    table, sentences = _region_map(results)
    network_of = table["network"].astype(str)
    networks = list(dict.fromkeys(network_of))
    colours = network_colours(networks)
    figure = Figure(figsize=(8.4, 0.9 + 0.3 * len(networks)), layout="constrained")
    ax = figure.subplots()
    rng = np.random.default_rng(0)
    ax.axvline(1, color=MUTED, linewidth=0.8, linestyle="--")
    for row, network in enumerate(networks):
        regions = table[network_of == network]
        value = regions["value"]
        height = row + rng.uniform(-0.18, 0.18, len(regions))
        ax.scatter(value, height, s=20, color=colours[network], edgecolor=MUTED, linewidth=0.3)
        highest = str(regions["region"].iloc[int(value.argmax())])
        name = shorten(highest.removeprefix("7Networks_").removeprefix("17Networks_"), 30)
        beside = ax.get_yaxis_transform()
        ax.text(1.01, row, name, transform=beside, va="center", fontsize=7.5, color=INK)
    name_rows(ax, networks, 18)
    ax.grid(axis="y", color=GRID)
    ax.set_xlabel("relative to the average region")
    return figure, sentences


def interpretation_brain(results: ReportData) -> tuple[Figure, str]:
    """Regions that the model relies on, in the brain.

    The numbers of the figure above; 1 is the average region. Top: centres of regions in a glass
    brain. Bottom: the fsaverage surface, each vertex in the colour of the nearest centre, so borders
    of regions are approximate. Look for neighbouring regions, and for hemispheres, that agree.
    """
    # Four views of the glass brain above four of the surface. Nilearn ships everything it needs.
    table, sentences = _region_map(results)
    table = table.dropna(subset=_COORDINATES)
    if table.empty:
        raise NothingToDraw("The regions have no coordinates in the brain.")
    try:
        from nilearn.datasets import fetch_surf_fsaverage
        from nilearn.plotting import plot_markers, plot_surf
        from nilearn.surface import load_surf_mesh
    except ImportError:
        raise NothingToDraw(
            'Drawing on the brain needs nilearn: `pip install "nerve-fc[fmri]"`.'
        ) from None
    low, high = table["value"].quantile([0.02, 0.98])
    scale = Normalize(low, high) if high - low > 1e-9 else Normalize(low - 0.5, high + 0.5)
    figure = Figure(figsize=(9.6, 4.9))
    page = figure.transFigure
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=page, color="white", zorder=-10))
    plot_markers(
        table["value"].to_numpy(float),
        table[_COORDINATES].to_numpy(float),
        node_size=26,
        node_cmap=_COLOURS,
        node_vmin=scale.vmin,
        node_vmax=scale.vmax,
        display_mode="lzry",
        figure=figure,
        axes=(0.0, 0.48, 0.9, 0.5),
        colorbar=False,
    )
    shipped = fetch_surf_fsaverage("fsaverage5")
    for number, (side, view) in enumerate(_SURFACES):
        axes = figure.add_axes((0.225 * number, 0.0, 0.225, 0.48), projection="3d")
        vertices = load_surf_mesh(shipped[f"pial_{side}"]).coordinates
        plot_surf(
            shipped[f"infl_{side}"],
            surf_map=on_surface(table, vertices, side),
            bg_map=shipped[f"sulc_{side}"],
            hemi=side,
            view=view,
            cmap=_COLOURS,
            vmin=scale.vmin,
            vmax=scale.vmax,
            colorbar=False,
            axes=axes,
            figure=figure,
        )
        for mesh in axes.collections:
            mesh.set_rasterized(True)  # twenty thousand triangles would be megabytes of paths
        title = axes.set_title(f"{side}, {view}", loc="center", y=0.92, fontsize=8)
        title.set(color=_PAGE_INK, fontweight="normal")
    bar_axes = figure.add_axes((0.925, 0.2, 0.014, 0.6))
    bar = figure.colorbar(ScalarMappable(scale, _COLOURS), cax=bar_axes)
    bar.set_label("relative to the average region", color=_PAGE_INK)
    bar.ax.tick_params(colors=_PAGE_INK, labelcolor=_PAGE_INK)
    bar.outline.set_edgecolor(_PAGE_INK)  # type: ignore[operator]
    return figure, sentences


def on_surface(table: pd.DataFrame, vertices: np.ndarray, side: str) -> np.ndarray:
    """Value of the nearest region of the hemisphere, for each vertex of a surface.

    Parameters
    ----------
    table : DataFrame
        Regions with hemisphere, x, y, z (mm) and value.
    vertices : (vertices, 3) array
        Coordinates in mm, of the folded cortex.
    side : {"left", "right"}
        The hemisphere.

    Returns
    -------
    (vertices,) array
        NaN where no region is within `REACH`.
    """
    hemisphere = table["hemisphere"].astype(str).str.upper().str[:1]
    regions = table[hemisphere == side[0].upper()]
    if regions.empty:
        return np.full(len(vertices), np.nan)
    distance, nearest = cKDTree(regions[_COORDINATES].to_numpy(float)).query(vertices)
    return np.where(distance <= REACH, regions["value"].to_numpy(float)[nearest], np.nan)


def interpretation_attention(results: ReportData) -> tuple[Figure, str]:
    """Attention between networks.

    How much attention tokens of the row's network pay to tokens of the column's network, relative
    to even attention (log₂ of the ratio: 1 is twice as much, -1 is half; mean over participants,
    heads and seeds). Rollout combines the attention of all layers; panels named “pairs” show how
    much of it the token of each pair of networks receives. Look for columns of one colour: networks
    to which all others attend more, or less, than evenly.
    """
    # One panel for the pairs, for the rollout and for each layer.
    if_empty = "Attention was not summarised: `nerve interpret` does that."
    tables = results.map_tables("attention", if_empty)
    shown = []  # title, matrix, names
    for label, table in tables:
        for layer in dict.fromkeys(table["layer"].astype(str)):
            title = layer if layer == "rollout" else f"layer {layer}"
            if label:
                title = f"{label} · {title}"
            shown.append((title, *_log_ratios(table, layer)))
    shown = [*_pair_panels(results), *shown][:_MOST_PANELS]
    figure, axes = make_panels(shown, width=3.6, height=3.4, extra=0.6)
    limit = max(0.1, *(float(np.nanmax(np.abs(matrix))) for _, matrix, _ in shown))
    for ax, (title, matrix, names) in zip(axes, shown, strict=True):
        image = draw_networks(ax, matrix, names, limit)
        ax.set_title(wrap_title(title, 34))
    figure.colorbar(image, ax=axes, shrink=0.8, label="log₂ ratio to even attention")
    agreements = []
    for label, table in tables:
        words = agreement_words(_rows_of_layer(table, "rollout"))
        agreements.append(f"{label}: {words}" if label else words)
    return figure, f"Agreement of rollouts over seeds is {'; '.join(agreements)}."


def interpretation_importance(results: ReportData) -> tuple[Figure, str]:
    """Network pairs that carry a prediction.

    For each pair of networks, left: how much out-of-fold r falls when its patch is replaced by the
    mean of the training participants; right: the covariance of its connectivity with the prediction
    (Haufe's transform of the ridge weights). A star marks a 95 % interval that excludes zero. Look
    for pairs that stand out in both. A map that differs between seeds says nothing about the brain.
    """
    # One row per target, drop at the left, pattern at the right.
    if_empty = "The importance of network pairs was not computed: `nerve interpret` does that."
    parts = []  # name of the target, its rows
    for label, table in results.map_tables("importance", if_empty):
        for target, part in table.groupby("target", sort=False):
            parts.append((f"{target} ({label})" if label else str(target), part))
    shown = list(itertools.product(parts[:_MOST_PANELS], _MAPS))
    figure, axes = make_panels(shown, across=2, width=4.4, height=3.6)
    for ax, ((name, part), value) in zip(axes, shown, strict=True):
        networks = list(dict.fromkeys([*part["network_a"], *part["network_b"]]))
        matrix = square_matrix(part, _PAIR, networks, value)
        limit = max(1e-6, float(np.nanmax(np.abs(matrix))))
        image = draw_networks(ax, matrix, networks, limit)
        is_certain = part[f"{value}_low"] > 0
        if value != "drop":
            is_certain |= part[f"{value}_high"] < 0
        certain = square_matrix(part.assign(star=1.0 * is_certain), _PAIR, networks, "star")
        star = {"ha": "center", "va": "center_baseline", "color": "#111111", "fontsize": 8}
        for row, column in np.argwhere(certain == 1):
            ax.text(column, row, "*", **star)
        ax.set_title(wrap_title(f"{name}: {_MAPS[value]}", 40))
        figure.colorbar(image, ax=ax, shrink=0.75)
    agreements = "; ".join(f"{name}: {agreement_words(part)}" for name, part in parts)
    sentences = [f"Agreement over seeds is {agreements}."]
    by_chance = [name for name, part in parts if not part["r_low"].iloc[0] > 0]
    if by_chance:
        sentences.append(
            "Not distinguishable from chance, so that the maps explain nothing: "
            f"{', '.join(by_chance)}."
        )
    return figure, " ".join(sentences)


def _region_map(results: ReportData) -> tuple[pd.DataFrame, str]:
    """The regions with their values in the first map that is known, and sentences on that map."""
    for label, maps in results.interpretations:
        for name, (column, meaning) in _REGION_MAPS.items():
            if name not in maps:
                continue
            regions = maps[name].dropna(subset=[column])
            if regions.empty:
                continue
            value = regions[column]
            if name == "network_weights":
                value = value / value.groupby(regions["network"]).transform("mean")
            model = f" ({label})" if label else ""
            sentences = (
                f"Shown is {meaning}{model}. Agreement over seeds is {agreement_words(regions)}."
            )
            return regions.assign(value=value), sentences
    raise NothingToDraw(_NO_MAP)


def _rows_of_layer(table: pd.DataFrame, layer: str) -> pd.DataFrame:
    """Rows of one layer, averaged over heads."""
    return table[(table["layer"].astype(str) == layer) & (table["head"].astype(str) == "mean")]


def _pair_panels(results: ReportData) -> list[tuple[str, np.ndarray, list[str]]]:
    """Title, log₂ of the ratios and names, of each table of attention that pairs receive."""
    panels = []
    for label, maps in results.interpretations:
        table = maps.get("attention_pairs", pd.DataFrame())
        if table.empty:
            continue
        names = list(dict.fromkeys([*table["network_a"], *table["network_b"]]))
        matrix = square_matrix(table, _PAIR, names, "ratio")
        title = f"{label} · pairs" if label else "pairs, by rollout"
        panels.append((title, np.log2(np.maximum(matrix, 2.0**-6)), names))
    return panels


def _log_ratios(table: pd.DataFrame, layer: str) -> tuple[np.ndarray, list[str]]:
    """Log₂ of the ratios to even attention, as a matrix, and the names of its rows."""
    rows = _rows_of_layer(table, layer)
    names = list(dict.fromkeys(rows["from"]))
    mean = rows.groupby(["from", "to"], sort=False)["ratio"].mean().unstack()
    matrix = mean.reindex(index=names, columns=names).to_numpy(float)
    return np.log2(np.maximum(matrix, 2.0**-6)), names
