"""From connectivity to tokens.

The matrix is cut along network borders into one patch for each pair of networks (upper triangle). Each patch X becomes
one token through the weights of its two networks, Uₗ and Uₘ, so that networks share parameters over all pairs in which
they take part. Half of the tokens are then masked, and the model learns to reconstruct their patches from the others.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle, Wedge

from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.report.figures.style import INK, MUTED, colour_limit, fc_image, network_colours, network_order
from nerve.report.results import NothingToDraw, Results


def draw(results: Results) -> tuple[Figure, str]:
    """Matrix with its patches at the left, their tokens at the right; this parcellation's numbers."""
    cohorts = results.cohorts.values()
    known = [*(facts.parcellation for facts in cohorts), results.parcellation]  # cohorts are all in one order
    parcellation = next((one for one in known if one is not None), None)
    if parcellation is None:
        raise NothingToDraw("The parcellation is not known here, so its patches cannot be shown.")
    n, sorted_regions = parcellation.n_regions, network_order(parcellation.networks)
    patching = Patching.from_parcellation(parcellation.subset(sorted_regions))
    means = [facts.mean for facts in cohorts if facts.mean is not None and len(facts.mean) == n]
    matrix = means[0] if means else _sketch(parcellation)
    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.25, 1]})
    fc_image(left, matrix, parcellation.networks, colour_limit(matrix))
    left.set_title("FC, cut at network borders", pad=22)
    first, last = patching.members[0], patching.members[-1]  # the pair whose way is shown; sorted by network
    corner = (last[0] - 0.5, first[0] - 0.5)
    left.add_patch(Rectangle(corner, len(last), len(first), fill=False, edgecolor=INK, linewidth=2.2))
    _tokens(right, patching)
    start, end = (corner[0] + len(last), first[0] + len(first) / 2), (patching.n_groups - 1.3, -0.5)
    arrow = ConnectionPatch(
        start, end, "data", "data", axesA=left, axesB=right, arrowstyle="-|>", connectionstyle="arc3,rad=-0.18",
        color=INK, linewidth=1.4,
    )  # fmt: skip
    figure.add_artist(arrow)
    smallest, largest = patching.sizes.min(), patching.sizes.max()
    cut = f"Here {patching.n_patches} patches of {smallest} to {largest} entries are cut from {n} × {n}."
    return figure, cut if means else f"{cut} The matrix is a sketch, not data."


def _tokens(ax: Axes, patching: Patching) -> None:
    """One disc per token, in two halves with the colours of its networks; faded ones are masked."""
    n, colours = patching.n_groups, [*network_colours(patching.group_names).values()]
    hidden = set(np.random.default_rng(3).permutation(patching.n_patches)[: patching.n_patches // 2])
    for i, (row, column) in enumerate(patching.pairs.tolist()):
        faded = i in hidden and (row, column) != (0, n - 1)
        for group, turn in ((row, 90), (column, 270)):
            look = {"color": colours[group], "alpha": 0.16 if faded else 1.0, "linewidth": 0}
            ax.add_patch(Wedge((column, row), 0.4, turn, turn + 180, **look))
    ax.add_patch(Rectangle((n - 1.5, -0.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.6))
    ax.set(xlim=(-0.7, n - 0.3), ylim=(n - 0.3, -0.7), aspect="equal")
    ax.axis("off")
    title = f"{patching.n_patches} tokens, one\nper pair of networks"
    words = "each half: the colour of\none of its two networks\nfaded: masked, to be\nreconstructed"
    ax.text(-0.5, n * 0.68, title, va="bottom", weight="bold", fontsize=9.5)
    ax.text(-0.5, n * 0.71, words, va="top", color=MUTED, fontsize=8.5)


def _sketch(parcellation: Parcellation) -> np.ndarray:
    """A matrix with the contrast of networks, where no cohort is known."""
    networks, groups = np.unique(parcellation.networks, return_inverse=True)
    between = np.random.default_rng(0).normal(0, 0.18, (len(networks), len(networks)))
    np.fill_diagonal(between, 0.5)
    return (between + between.T)[np.ix_(groups, groups)] / 2
