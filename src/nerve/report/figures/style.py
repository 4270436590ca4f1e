"""Parts that figures share: panels, labels, matrices with their networks."""

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
from nerve.report.figures.colours import DIVERGING, GRID, network_colours
from nerve.report.report_data import NothingToDraw, ReportData


def make_panels(
    items: Sized,
    if_empty: str = "",
    across: int = 3,
    width: float = 3.0,
    height: float = 2.5,
    extra: float = 0.0,
    **options: Any,
) -> tuple[Figure, list]:
    """A figure with one panel per item.

    Parameters
    ----------
    items : sized
        What is shown.
    if_empty : str
        Sentence of the error where there are no items.
    across : int
        Panels per row.
    width, height : float
        Of a panel, in inches.
    extra : float
        Inches to add to the width of the figure.
    **options
        Of `Figure.subplots`.

    Returns
    -------
    Figure, list of Axes
        The figure and its panels.
    """
    n = len(items)
    if not n:
        raise NothingToDraw(if_empty)
    columns = min(n, across)
    rows = -(-n // columns)  # rounded up
    figure = Figure(figsize=(width * columns + extra, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for empty in axes[n:]:
        empty.set_visible(False)
    return figure, list(axes[:n])


def make_line_panels(
    results: ReportData, columns: Sequence[Any], label: str, sharex: bool = True
) -> tuple[Figure, list]:
    """A figure with one panel per cohort and target, and in each one row per line.

    Parameters
    ----------
    results : ReportData
        Its lines are the rows.
    columns : sequence of (cohort, target)
        One panel each.
    label : str
        Of the horizontal axes.
    sharex : bool
        Whether all panels have the same horizontal axis.

    Returns
    -------
    Figure, list of Axes
        The figure and its panels.
    """
    names = [results.label(line) for line in results.lines.index]
    height = 0.9 + 0.26 * len(names)
    figure, axes = make_panels(columns, width=3.2, height=height, sharex=sharex, sharey=True)
    for ax, column in zip(axes, columns, strict=True):
        ax.set_title(wrap_title(results.column_name(*column)))
        ax.grid(axis="y", color=GRID)
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel(label)
    name_rows(axes[0], names)
    return figure, axes


def most_panels(n_lines: int) -> int:
    """How many panels of `n_lines` rows are shown: a page with more would be too large to read."""
    return max(3, min(24, 420 // max(1, n_lines)))


def wrap_title(text: object, width: int = 26) -> str:
    """A title in at most two lines, broken at spaces, cut with an ellipsis."""
    first, *rest = textwrap.wrap(printable_name(text), width) or [""]
    return f"{first}\n{shorten(' '.join(rest), width)}" if rest else first


def shorten(text: object, most: int = 28) -> str:
    """Make a label fit: one line, cut with an ellipsis.

    Parameters
    ----------
    text : object
        What the label says.
    most : int
        Number of characters.

    Returns
    -------
    str
        The label.

    Examples
    --------
    >>> shorten("a\\nb"), shorten("x" * 40, most=5)
    ('a b', 'xxxx…')
    """
    return printable_name(text, most)


def name_rows(axes: Axes, names: Sequence[str], most: int = 34) -> None:
    """Write names beside rows 0, 1, 2 …, from the top down."""
    axes.set_yticks(np.arange(len(names)), [shorten(name, most) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)


def draw_fc(
    axes: Axes, matrix: Any, networks: Sequence[str], limit: float, labels: bool = True
) -> Any:
    """Draw FC with its regions sorted by network: lines between them, coloured bands and names.

    Parameters
    ----------
    axes : Axes
        Where.
    matrix : (R, R) array
        FC.
    networks : sequence of str
        The network of each region.
    limit : float
        The value at the end of the colour scale.
    labels : bool
        Whether networks are named.

    Returns
    -------
    AxesImage
        For a colour bar.
    """
    n = len(networks)
    order = network_order(networks)
    shown = np.asarray(matrix, float)[np.ix_(order, order)]
    image = axes.imshow(shown, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    names = list(dict.fromkeys(networks))
    sizes = [list(networks).count(name) for name in names]
    ends = np.cumsum(sizes)
    starts = ends - sizes
    middles = _spread_labels((starts + ends - 1) / 2, 0.043 * n, n - 1)
    for border in ends[:-1] - 0.5:
        axes.axhline(border, color="#111111", linewidth=0.5)
        axes.axvline(border, color="#111111", linewidth=0.5)
    colour_of = network_colours(names)
    font_size = 6.5 if len(names) > 10 else 7.5
    for name, start, size, middle in zip(names, starts, sizes, middles, strict=True):
        _draw_band(axes, (-0.05 * n - 0.5, start - 0.5), 0.035 * n, size, colour_of[name])
        _draw_band(axes, (start - 0.5, -0.05 * n - 0.5), size, 0.035 * n, colour_of[name])
        if labels:
            axes.text(
                -0.07 * n, middle, shorten(name, 14), ha="right", va="center", fontsize=font_size
            )
    axes.set(xticks=[], yticks=[], xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5))
    axes.spines[:].set_visible(False)
    return image


def draw_networks(axes: Axes, matrix: np.ndarray, networks: Sequence[str], limit: float) -> Any:
    """Draw network × network values with names on both sides, in the colours of networks.

    Parameters
    ----------
    axes : Axes
        Where.
    matrix : (networks, networks) array
        The values.
    networks : sequence of str
        Their names.
    limit : float
        The value at the end of the colour scale.

    Returns
    -------
    AxesImage
        For a colour bar.
    """
    n = len(networks)
    image = axes.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit)
    names = [shorten(name, 14) for name in networks]
    font_size = 6 if n > 10 else 7.5
    axes.set_xticks(np.arange(n), names, rotation=90, fontsize=font_size)
    axes.set_yticks(np.arange(n), names, fontsize=font_size)
    axes.tick_params(length=0)
    axes.tick_params(axis="y", pad=9)
    for row, colour in enumerate(network_colours(networks).values()):
        _draw_band(axes, (-0.5 - 0.03 * n, row - 0.45), 0.02 * n, 0.9, colour)
    axes.spines[:].set_visible(False)
    return image


def square_matrix(
    table: pd.DataFrame, ends: tuple[str, str], names: list[str], value: str, mirrored: int = 1
) -> np.ndarray:
    """Values of pairs as a matrix, both ways round.

    Parameters
    ----------
    table : DataFrame
        One row per pair.
    ends : (str, str)
        Columns that name the two ends of a pair.
    names : list of str
        Order of rows and columns.
    value : str
        Column of the values.
    mirrored : {1, -1}
        Factor of the values below the diagonal.

    Returns
    -------
    (names, names) array
        NaN where there is no such pair.
    """
    matrix = np.full((len(names), len(names)), np.nan)
    rows = [names.index(name) for name in table[ends[0]]]
    columns = [names.index(name) for name in table[ends[1]]]
    matrix[rows, columns] = table[value]
    matrix[columns, rows] = mirrored * table[value]
    return matrix


def network_order(networks: Sequence[str]) -> np.ndarray:
    """Positions of regions sorted by network, networks in the order of their first region."""
    return np.argsort(pd.factorize(np.asarray(networks, object))[0], kind="stable")


def _spread_labels(places: np.ndarray, gap: float, most: float) -> np.ndarray:
    """Move labels as little as it takes for them not to touch.

    Parameters
    ----------
    places : (n,) array
        Where they should be, in order.
    gap : float
        Least distance of two labels.
    most : float
        No label goes beyond.

    Returns
    -------
    (n,) array
        Where they go.

    Examples
    --------
    >>> _spread_labels(np.array([0, 1, 5, 10]), gap=2, most=10)
    array([ 0,  2,  5, 10])
    """
    steps = min(gap, most / max(1, len(places) - 1)) * np.arange(len(places))
    # Each at least one gap behind the one before.
    moved = np.maximum.accumulate(places - steps) + steps
    return np.minimum(moved, most - steps[::-1])


def agreement_words(table: pd.DataFrame) -> str:
    """How well the maps of several seeds agree, in words.

    Parameters
    ----------
    table : DataFrame
        With columns stability and n_seeds, where several seeds were compared.

    Returns
    -------
    str
        The correlation, or that it is not known.

    Examples
    --------
    >>> agreement_words(pd.DataFrame({"stability": [0.812], "n_seeds": [3]}))
    'r = 0.81 over 3 seeds'
    >>> agreement_words(pd.DataFrame({"drop": [0.1]}))
    'not known (one seed)'
    """
    if "stability" not in table or table["stability"].isna().all():
        return "not known (one seed)"
    r = table["stability"].dropna().iloc[0]
    n_seeds = int(table["n_seeds"].iloc[0])
    return f"r = {r:.2f} over {n_seeds} seeds"


def _draw_band(
    axes: Axes, corner: tuple[float, float], width: float, height: float, colour: str
) -> None:
    axes.add_patch(Rectangle(corner, width, height, clip_on=False, color=colour, linewidth=0))
