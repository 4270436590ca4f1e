"""Colours of figures: safe for colour-blind readers; ink turns light on a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex

RC: Any = mpl.rc_params_from_file(
    str(files("nerve") / "report/templates/figures.mplstyle"), use_default_template=False
)
INK = RC["text.color"]
MUTED = RC["xtick.color"]
GRID = RC["grid.color"]

# Okabe and Ito (2008): distinguishable with every common type of colour vision.
BLUE = "#0072b2"
ORANGE = "#e69f00"
GREEN = "#009e73"
_PINK = "#cc79a7"
SKY = "#56b4e9"
VERMILION = "#d55e00"
# Colour → its replacement on a dark page.
DARK = {INK: "#e9ecf3", MUTED: "#a8b0c0", GRID: "#414858", BLUE: "#4ea8e4"}
CYCLE = (BLUE, ORANGE, GREEN, _PINK, SKY, VERMILION)
DIVERGING = "RdBu_r"  # safe for red-green blindness, white at zero

# Yeo et al. (2011), as FreeSurfer's colour tables have them
YEO7 = {
    "Vis": "#781286",
    "SomMot": "#4682b4",
    "DorsAttn": "#00760e",
    "SalVentAttn": "#c43afa",
    "Limbic": "#dcf8a4",
    "Cont": "#e69422",
    "Default": "#cd3e4e",
}
YEO17 = {
    "VisCent": "#781286",
    "VisPeri": "#ff0000",
    "SomMotA": "#4682b4",
    "SomMotB": "#2acca4",
    "DorsAttnA": "#4a9b3c",
    "DorsAttnB": "#00760e",
    "SalVentAttnA": "#c43afa",
    "SalVentAttnB": "#ff98d5",
    "LimbicB": "#7a8732",
    "LimbicA": "#dcf8a4",
    "ContA": "#e69422",
    "ContB": "#87324a",
    "ContC": "#778cb0",
    "DefaultA": "#ffff00",
    "DefaultB": "#cd3e4e",
    "DefaultC": "#000082",
    "TempPar": "#0c30ff",
}


def network_colours(networks: Sequence[str]) -> dict[str, str]:
    """A colour for each network: Yeo's where it has one, a scale of colours for others.

    Parameters
    ----------
    networks : sequence of str
        Their names.

    Returns
    -------
    dict
        Name → colour.

    Examples
    --------
    >>> network_colours(["Vis", "Subcortical"])["Vis"]
    '#781286'
    """
    colour_of = YEO7 | YEO17
    others = [name for name in networks if name not in colour_of]
    for number, name in enumerate(others):
        colour_of[name] = to_hex(mpl.colormaps["cividis"](number / len(others)))
    return {name: colour_of[name] for name in networks}


def colour_limit(*matrices: Any) -> float:
    """The end of the colour scale: the 98th percentile of FC off the diagonal, of all matrices."""
    limit = 0.1
    for matrix in matrices:
        off_diagonal = ~np.eye(len(matrix), dtype=bool)
        values = np.abs(np.asarray(matrix, float)[off_diagonal])
        if np.isfinite(values).any():
            limit = max(limit, float(np.nanquantile(values, 0.98)))
    return limit
