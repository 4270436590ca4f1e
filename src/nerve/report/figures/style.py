"""How figures are laid out: panels, labels, matrices with their networks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nerve._utils.privacy import printable_name
from nerve.report.figures.colours import DIVERGING, GRID, MUTED, network_colours
from nerve.report.report_data import NothingToDraw, ReportData


def panels(
    shown: Sized, nothing: str = "", across: int = 3, width: float = 3.0, height: float = 2.5, extra: float = 0.0,
    **options: Any,
) -> tuple[Figure, list]:  # fmt: skip
    """A figure with a panel for each of `shown`, in rows of `across`, `extra` inches wider; `nothing` where none is."""
    n = len(shown)
    if not n:
        raise NothingToDraw(nothing)
    columns = min(n, across)
    rows = -(-n // columns)
    figure = Figure(figsize=(width * columns + extra, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for empty in axes[n:]:
        empty.set_visible(False)
    return figure, list(axes[:n])


def line_panels(results: ReportData, columns: Sequence[Any], label: str) -> tuple[Figure, list]:
    """A panel per cohort and target, a row per line, all on the same two axes."""
    names = [results.label(line) for line in results.lines.index]
    figure, axes = panels(
        columns, width=3.2, height=0.9 + 0.26 * len(names), sharex=True, sharey=True
    )
    for ax, column in zip(axes, columns, strict=True):
        ax.axvline(0, color=MUTED, linewidth=0.9)
        ax.set_title(lined(results.column_name(*column)))
        ax.grid(axis="y", color=GRID)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel(label)
    name_rows(axes[0], names)
    return figure, axes


def readable(n_lines: int) -> int:
    """How many panels of `n_lines` lines each a reader can take in, and a page hold."""
    return max(3, min(24, 420 // max(1, n_lines)))


def lined(text: object, width: int = 26) -> str:
    """A title in at most two lines, broken at spaces, cut with an ellipsis."""
    first, *rest = textwrap.wrap(printable_name(text), width) or [""]
    return f"{first}\n{short(' '.join(rest), width)}" if rest else first


def short(text: object, most: int = 28) -> str:
    """A label that fits: one line, cut with an ellipsis.

    Examples
    --------
    >>> short("a\\nb"), short("x" * 40, most=5)
    ('a b', 'xxxx…')
    """
    return printable_name(text, most)


def name_rows(axes: Axes, names: Sequence[str], most: int = 34) -> None:
    """Names beside rows 0, 1, 2 …, from the top down."""
    axes.set_yticks(np.arange(len(names)), [short(name, most) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def fc_image(
    axes: Axes, matrix: Any, networks: Sequence[str], limit: float, labels: bool = True
) -> Any:
    """Draw FC with its regions sorted by network: lines between them, coloured bands and names beside them."""
    order, n = network_order(networks), len(networks)
    shown = np.asarray(matrix, float)[np.ix_(order, order)]
    image = axes.imshow(shown, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    sizes = {name: list(networks).count(name) for name in dict.fromkeys(networks)}
    ends = np.cumsum([*sizes.values()])
    starts = ends - [*sizes.values()]
    middles = apart((starts + ends - 1) / 2, 0.043 * n, n - 1)
    for border in ends[:-1] - 0.5:
        axes.axhline(border, color="#111111", linewidth=0.5)
        axes.axvline(border, color="#111111", linewidth=0.5)
    for start, middle, (name, colour) in zip(
        starts, middles, network_colours([*sizes]).items(), strict=True
    ):
        _band(axes, (-0.05 * n - 0.5, start - 0.5), 0.035 * n, sizes[name], colour)
        _band(axes, (start - 0.5, -0.05 * n - 0.5), sizes[name], 0.035 * n, colour)
        if labels:
            size = 6.5 if len(sizes) > 10 else 7.5
            axes.text(-0.07 * n, middle, short(name, 14), ha="right", va="center", fontsize=size)
    axes.set(xticks=[], yticks=[], xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    return image


def network_image(axes: Axes, matrix: np.ndarray, networks: Sequence[str], limit: float) -> Any:
    """Draw network × network values with names on both sides, each with the colour of its network."""
    image = axes.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit)
    n, places = len(networks), np.arange(len(networks))
    names, size = [short(name, 14) for name in networks], 6 if len(networks) > 10 else 7.5
    axes.set_xticks(places, names, rotation=90, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    axes.tick_params(length=0)
    axes.tick_params(axis="y", pad=9)
    for i, colour in enumerate(network_colours(networks).values()):
        _band(axes, (-0.5 - 0.03 * n, i - 0.45), 0.02 * n, 0.9, colour)
    axes.spines[:].set_visible(False)
    return image


def square(
    table: pd.DataFrame, ends: tuple[str, str], names: list[str], value: str, mirrored: int = 1
) -> np.ndarray:
    """(names, names) values of pairs, both ways round."""
    matrix = np.full((len(names), len(names)), np.nan)
    a, b = ([names.index(one) for one in table[end]] for end in ends)
    matrix[a, b], matrix[b, a] = table[value], mirrored * table[value]
    return matrix


def network_order(networks: Sequence[str]) -> np.ndarray:
    """Positions of regions sorted by network, networks in the order of their first region; both hemispheres meet."""
    return np.argsort(pd.factorize(np.asarray(networks, object))[0], kind="stable")


def apart(places: np.ndarray, gap: float, most: float) -> np.ndarray:
    """Places of labels, in order, moved as little as it takes to stand `gap` apart, none beyond `most`.

    Examples
    --------
    >>> apart(np.array([0, 1, 5, 10]), gap=2, most=10)
    array([ 0,  2,  5, 10])
    """
    steps = min(gap, most / max(1, len(places) - 1)) * np.arange(len(places))
    moved = (
        np.maximum.accumulate(places - steps) + steps
    )  # each at least a gap behind the one before
    return np.minimum(moved, most - steps[::-1])


def agreement(table: pd.DataFrame) -> str:
    """What a map's table says of its agreement over seeds, in words.

    Examples
    --------
    >>> agreement(pd.DataFrame({"stability": [0.812], "n_seeds": [3]}))
    'r = 0.81 over 3 seeds'
    >>> agreement(pd.DataFrame({"drop": [0.1]}))
    'not known (one seed)'
    """
    if "stability" not in table or table["stability"].isna().all():
        return "not known (one seed)"
    return (
        f"r = {table['stability'].dropna().iloc[0]:.2f} over {int(table['n_seeds'].iloc[0])} seeds"
    )


def _band(
    axes: Axes, corner: tuple[float, float], width: float, height: float, colour: str
) -> None:
    axes.add_patch(Rectangle(corner, width, height, clip_on=False, color=colour, linewidth=0))
