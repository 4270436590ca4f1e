"""Ink and network colours of figures: safe for colour-blind readers; ink turns light on a dark page."""

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
INK, MUTED, GRID = RC["text.color"], RC["xtick.color"], RC["grid.color"]

# Okabe and Ito (2008): told apart with every common kind of colour vision
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
)
DARK = {
    INK: "#e9ecf3",
    MUTED: "#a8b0c0",
    GRID: "#414858",
    BLUE: "#4ea8e4",
}  # what stands for each on a dark page
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)
DIVERGING = "RdBu_r"  # safe for red-green blindness, white at zero

# Yeo et al. (2011), as FreeSurfer's colour tables have them
YEO7 = {
    "Vis": "#781286", "SomMot": "#4682b4", "DorsAttn": "#00760e", "SalVentAttn": "#c43afa", "Limbic": "#dcf8a4",
    "Cont": "#e69422", "Default": "#cd3e4e",
}  # fmt: skip
YEO17 = {
    "VisCent": "#781286", "VisPeri": "#ff0000", "SomMotA": "#4682b4", "SomMotB": "#2acca4", "DorsAttnA": "#4a9b3c",
    "DorsAttnB": "#00760e", "SalVentAttnA": "#c43afa", "SalVentAttnB": "#ff98d5", "LimbicB": "#7a8732",
    "LimbicA": "#dcf8a4", "ContA": "#e69422", "ContB": "#87324a", "ContC": "#778cb0", "DefaultA": "#ffff00",
    "DefaultB": "#cd3e4e", "DefaultC": "#000082", "TempPar": "#0c30ff",
}  # fmt: skip


def network_colours(networks: Sequence[str]) -> dict[str, str]:
    """A colour for each network: Yeo's where it has one, a ring of hues for others.

    Examples
    --------
    >>> network_colours(["Vis", "Subcortical"])["Vis"]
    '#781286'
    """
    known = YEO7 | YEO17
    others = [name for name in networks if name not in known]
    ring = {
        name: to_hex(mpl.colormaps["cividis"](i / len(others))) for i, name in enumerate(others)
    }
    return {name: (known | ring)[name] for name in networks}


def colour_limit(*matrices: Any) -> float:
    """Where colours end: nearly the largest value off the diagonals of FC matrices."""
    off = [np.abs(np.asarray(one, float)[~np.eye(len(one), dtype=bool)]) for one in matrices]
    return max(
        [0.1, *(float(np.nanquantile(values, 0.98)) for values in off if np.isfinite(values).any())]
    )
