"""Regions that networks rely on, in the brain.

How much the embedding of its network weighs each region; 1 is the average region of the network. Above: regions'
centres in a glass brain. Below: fsaverage, each vertex in the colour of the nearest centre, so borders of regions are
approximate. Look for agreement of neighbours and of the two hemispheres.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.spatial import cKDTree

from nerve.report.figures.interpretation_weights import PLACE, weights
from nerve.report.results import NothingToDraw, Results

COLOURS = "cividis"
REACH = 30.0  # mm: a vertex farther from every region's centre stays grey
SURFACES = (("left", "lateral"), ("left", "medial"), ("right", "medial"), ("right", "lateral"))
_PAGE_INK = "#111111"  # drawn on white in a dark page too: the outlines of the brain are black


def draw(results: Results) -> tuple[Figure, str]:
    """Four views of the glass brain above four of the surface; everything it needs is shipped with nilearn."""
    table, told = weights(results, ["weight", *PLACE])
    try:
        from nilearn.datasets import fetch_surf_fsaverage
        from nilearn.plotting import plot_markers, plot_surf
        from nilearn.surface import load_surf_mesh
    except ImportError:
        raise NothingToDraw("Drawing on the brain needs nilearn: pip install nilearn.") from None
    low, high = table["weight"].quantile([0.02, 0.98])
    scale = Normalize(low, high) if high - low > 1e-9 else Normalize(low - 0.5, high + 0.5)
    figure = Figure(figsize=(9.6, 4.9))
    figure.add_artist(Rectangle((0, 0), 1, 1, transform=figure.transFigure, color="white", zorder=-10))
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
        axes.set_title(f"{side}, {view}", fontsize=8, loc="center", y=0.92, color=_PAGE_INK, fontweight="normal")
    bar = figure.colorbar(ScalarMappable(scale, COLOURS), cax=figure.add_axes((0.925, 0.2, 0.014, 0.6)))
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
