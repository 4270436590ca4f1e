"""How figures look: ink and network colours, sizes, panels. Colour-blind-safe; ink turns light on a dark page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2430", "#636b7a", "#d5d9e2"

# Okabe and Ito (2008): told apart with every common kind of colour vision
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"
DARK = {INK: "#e9ecf3", MUTED: "#a8b0c0", GRID: "#414858", BLUE: "#4ea8e4"}  # what stands for each on a dark page
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)
DIVERGING = "RdBu_r"  # safe for red-green blindness, white at zero

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "path",
    "svg.hashsalt": "nerve",  # the same results give the same bytes
    "axes.unicode_minus": True,
    "text.usetex": False,
    "text.parse_math": False,  # a label with two dollar signs is a label
}

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


def network_colours(networks: Sequence[str]) -> dict[str, Any]:
    """A colour for each network: Yeo's where it has one, a ring of hues for others.

    Examples
    --------
    >>> network_colours(["Vis", "Subcortical"])["Vis"]
    '#781286'
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    known = YEO7 | YEO17
    others = [name for name in networks if name not in known]
    ring = {name: to_hex(colormaps["cividis"](i / max(len(others), 1))) for i, name in enumerate(others)}
    return {name: known.get(name) or ring[name] for name in networks}


def panels(
    n: int, across: int = 3, width: float = 2.9, height: float = 2.5, extra: float = 0.0, **options: Any
) -> tuple[Figure, list]:
    """A figure with `n` panels in rows of at most `across`, `extra` inches wider than they are."""
    columns = max(1, min(n, across))
    rows = max(1, -(-n // columns))
    figure = Figure(figsize=(width * columns + extra, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for empty in axes[n:]:
        empty.set_visible(False)
    return figure, list(axes[:n])


def readable(n_lines: int, most: int = 24) -> int:
    """How many panels of `n_lines` lines each a reader can take in, and a page hold."""
    return max(3, min(most, 420 // max(1, n_lines)))


def log_scale(axes: Axes) -> None:
    """A logarithmic y axis whose ticks are plain numbers: matplotlib's own are TeX, which is not parsed here."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def lined(text: object, width: int = 26, most: int = 2) -> str:
    """A title in at most `most` lines, broken at spaces, cut with an ellipsis."""
    lines = textwrap.wrap(" ".join(str(text).split()), width) or [""]
    return "\n".join([*lines[: most - 1], short(" ".join(lines[most - 1 :]), width)] if len(lines) > 1 else lines)


def short(text: object, most: int = 28) -> str:
    """A label that fits: one line, cut with an ellipsis.

    Examples
    --------
    >>> short("a\\nb"), short("x" * 40, most=5)
    ('a b', 'xxxx…')
    """
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def strip_networks(axes: Axes, networks: Sequence[str], labels: bool = True) -> None:
    """Mark networks on an FC image: borders between them, a coloured band at the left and the top, names beside it."""
    starts, names = runs_of(networks)
    n = len(networks)
    colours = network_colours(names)
    ends = [*starts[1:], n]
    middles = apart([(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)], 0.043 * n, n - 1)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color="#111111", linewidth=0.5)
        axes.axvline(start - 0.5, color="#111111", linewidth=0.5)
    for start, end, middle, name in zip(starts, ends, middles, names, strict=True):
        box = {"clip_on": False, "color": colours[name], "linewidth": 0}
        axes.add_patch(_rectangle((-0.05 * n - 0.5, start - 0.5), 0.035 * n, end - start, **box))
        axes.add_patch(_rectangle((start - 0.5, -0.05 * n - 0.5), end - start, 0.035 * n, **box))
        if labels:
            size = 6.5 if len(names) > 10 else 7.5
            axes.text(-0.07 * n, middle, short(name, 14), ha="right", va="center", fontsize=size)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlim(-0.5, n - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)


def fc_image(axes: Axes, matrix: Any, networks: Sequence[str], limit: float, labels: bool = True) -> Any:
    """Draw FC with its regions sorted by network, networks marked; returns the image."""
    order = network_order(networks)
    shown = np.asarray(matrix, float)[np.ix_(order, order)]
    image = axes.imshow(shown, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    strip_networks(axes, [networks[i] for i in order], labels)
    return image


def colour_limit(*matrices: Any) -> float:
    """Where colours end: nearly the largest value off the diagonals of FC matrices."""
    off = [np.abs(np.asarray(one, float)[~np.eye(len(one), dtype=bool)]) for one in matrices]
    largest = [float(np.nanquantile(values, 0.98)) for values in off if np.isfinite(values).any()]
    return max(0.1, *largest, 0.1)


def name_rows(axes: Axes, names: Sequence[str], most: int = 34) -> None:
    """Names beside rows 0, 1, 2 …, from the top down."""
    axes.set_yticks(np.arange(len(names)), [short(name, most) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def apart(places: Sequence[float], gap: float, most: float) -> list[float]:
    """Places of labels, in order, moved as little as it takes to stand `gap` apart, none beyond `most`.

    Examples
    --------
    >>> apart([0, 1, 5, 10], gap=2, most=10)
    [0, 2, 5, 10]
    """
    gap, moved = min(gap, most / max(1, len(places) - 1)), list(places)
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    moved[-1:] = [min(moved[-1], most)] if moved else []
    for i in reversed(range(len(moved) - 1)):
        moved[i] = min(moved[i], moved[i + 1] - gap)
    return moved


def network_grid(axes: Axes, networks: Sequence[str]) -> None:
    """Names on both sides of a network × network image, each with the colour of its network."""
    places = np.arange(len(networks))
    names = [short(name, 14) for name in networks]
    size = 6 if len(networks) > 10 else 7.5
    axes.set_xticks(places, names, rotation=90, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    axes.tick_params(length=0)
    axes.tick_params(axis="y", pad=9)
    colours = network_colours(networks)
    for i, name in enumerate(networks):
        box = {"clip_on": False, "color": colours[name], "linewidth": 0}
        axes.add_patch(_rectangle((-0.5 - 0.03 * len(networks), i - 0.45), 0.02 * len(networks), 0.9, **box))
    for spine in axes.spines.values():
        spine.set_visible(False)


def agreement(table: Any) -> str:
    """What a map's table says of its agreement over seeds, in words.

    Examples
    --------
    >>> import pandas as pd
    >>> agreement(pd.DataFrame({"stability": [0.812], "n_seeds": [3]}))
    'r = 0.81 over 3 seeds'
    >>> agreement(pd.DataFrame({"drop": [0.1]}))
    'not known (one seed)'
    """
    if "stability" not in table or table["stability"].isna().all():
        return "not known (one seed)"
    seeds = f" over {int(table['n_seeds'].iloc[0])} seeds" if "n_seeds" in table else ""
    return f"r = {float(table['stability'].dropna().iloc[0]):.2f}{seeds}"


def network_order(networks: Sequence[str]) -> np.ndarray:
    """Positions of regions sorted by network, networks in the order of their first region; both hemispheres meet."""
    number = {name: i for i, name in enumerate(dict.fromkeys(networks))}
    return np.argsort([number[name] for name in networks], kind="stable")


def runs_of(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Where each run of equal names starts, and its name."""
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    return starts, [names[i] for i in starts]


def _rectangle(corner: tuple[float, float], width: float, height: float, **options: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, **options)
