"""The idea of the paper in one picture: FC cut into one patch for every pair of networks, each patch one token."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle

from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.report.figures.style import INK, MUTED, colour_limit, fc_image, network_colours, network_order
from nerve.report.results import NothingToDraw, Results

SECTION = "pretraining"
TITLE = "From connectivity to tokens"


def caption(results: Results) -> str:
    """What is shown, in this parcellation's numbers."""
    patching = Patching.from_parcellation(_parcellation(results))
    sizes = patching.sizes
    return (
        f"The {patching.n_regions} × {patching.n_regions} matrix is cut along network borders into one patch for each "
        f"of the {patching.n_patches} pairs of networks (upper triangle; {sizes.min()} to {sizes.max()} entries each). "
        "Each patch X becomes one token through the weights of its two networks, Uₗ and Uₘ, so that networks share "
        "parameters over all pairs in which they take part. Half of the tokens are then masked, and the model learns "
        "to reconstruct their patches from the others."
        + ("" if _known_mean(results, patching.n_regions) is not None else " The matrix is a sketch, not data.")
    )


def draw(results: Results) -> Figure:
    """Matrix with its patches at the left, the tokens of the patches at the right."""
    parcellation = _parcellation(results)
    patching = Patching.from_parcellation(parcellation.subset(network_order(parcellation.networks)))
    matrix = _matrix(results, parcellation)
    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.25, 1]})
    fc_image(left, matrix, parcellation.networks, colour_limit(matrix))
    left.set_title("FC, cut at network borders", pad=22)
    chosen = (0, patching.n_groups - 1)
    corner = tuple(int(np.flatnonzero(patching.group_of == g)[0]) for g in chosen)
    counts = tuple(len(patching.members[g]) for g in chosen)
    box = Rectangle((corner[1] - 0.5, corner[0] - 0.5), counts[1], counts[0], fill=False, edgecolor=INK, linewidth=2.2)
    left.add_patch(box)
    _tokens(right, patching, chosen)
    start, end = (corner[1] + counts[1] - 0.5, corner[0] + counts[0] / 2), (chosen[1] - 0.3, chosen[0] - 0.5)
    look: dict[str, Any] = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=-0.18", "color": INK, "linewidth": 1.4}
    figure.add_artist(ConnectionPatch(start, end, "data", "data", axesA=left, axesB=right, **look))
    return figure


def _tokens(ax: Axes, patching: Patching, chosen: tuple[int, int]) -> None:
    """One disc per token, in two halves with the colours of its networks; faded ones are masked."""
    from matplotlib.patches import Wedge

    colours = network_colours(patching.group_names)
    hidden = np.random.default_rng(3).permutation(patching.n_patches)[: patching.n_patches // 2]
    pairs = [tuple(pair) for pair in patching.pairs.tolist()]
    masked = {pairs[i] for i in hidden} - {chosen}
    for row, column in pairs:
        look = {"alpha": 0.16 if (row, column) in masked else 1.0, "linewidth": 0}
        for group, turn in ((row, 90), (column, 270)):
            colour = colours[patching.group_names[group]]
            ax.add_patch(Wedge((column, row), 0.4, turn, turn + 180, color=colour, **look))
    ax.add_patch(Rectangle((chosen[1] - 0.5, chosen[0] - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.6))
    n = patching.n_groups
    ax.set_xlim(-0.7, n - 0.3)
    ax.set_ylim(n - 0.3, -0.7)
    ax.set_aspect("equal")
    ax.axis("off")
    title = f"{patching.n_patches} tokens, one\nper pair of networks"
    words = "each half: the colour of\none of its two networks\nfaded: masked, to be\nreconstructed"
    ax.text(-0.5, n * 0.68, title, va="bottom", weight="bold", fontsize=9.5)
    ax.text(-0.5, n * 0.71, words, va="top", color=MUTED, fontsize=8.5)


def _parcellation(results: Results) -> Parcellation:
    """That of the cohorts, which are all in one order; else the one that the results name."""
    known = [facts.parcellation for facts in results.cohorts.values()] + [results.parcellation]
    for parcellation in known:
        if parcellation is not None:
            return parcellation
    raise NothingToDraw("The parcellation is not known here, so its patches cannot be shown.")


def _known_mean(results: Results, n_regions: int) -> np.ndarray | None:
    for facts in results.cohorts.values():
        if facts.mean is not None and len(facts.mean) == n_regions:
            return np.array(facts.mean)
    return None


def _matrix(results: Results, parcellation: Parcellation) -> np.ndarray:
    """The first cohort's mean, or a sketch with the contrast of networks where no cohort is known."""
    known = _known_mean(results, parcellation.n_regions)
    if known is not None:
        return known
    networks, groups = np.unique(parcellation.networks, return_inverse=True)
    rng = np.random.default_rng(0)
    between = rng.normal(0, 0.18, (len(networks), len(networks)))
    np.fill_diagonal(between, 0.5)
    sketch = between[np.ix_(groups, groups)] + rng.normal(0, 0.09, (len(groups), len(groups)))
    return (sketch + sketch.T) / 2
