"""Figures of pretraining: how FC becomes tokens, the loss, and what a model fills in."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle, Wedge

from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.report.figures.colours import BLUE, GREEN, GRID, INK, MUTED, ORANGE, VERMILION, colour_limit, network_colours
from nerve.report.figures.style import fc_image, lined, name_rows, network_order, panels
from nerve.report.results import NothingToDraw, Results

MOST_ENCODERS = 12
PARTS = ("original", "masked", "reconstructed")
GUESSES = {"model": ("model", BLUE), "group_mean": ("group mean", ORANGE), "patch_mean": ("patch mean", GREEN)}


def patch_layout(results: Results) -> tuple[Figure, str]:
    """From connectivity to tokens.

    The matrix is cut along network borders into one patch for each pair of networks (upper triangle). Each patch X
    becomes one token through the weights of its two networks, Uₗ and Uₘ, so that networks share parameters over all
    pairs in which they take part. Half of the tokens are then masked, and the model learns to reconstruct their patches
    from the others.
    """
    # matrix with its patches at the left, their tokens at the right
    cohorts = results.cohorts.values()
    known = [*(facts.parcellation for facts in cohorts), results.parcellation]  # cohorts are all in one order
    parcellation = next((one for one in known if one is not None), None)
    if parcellation is None:
        raise NothingToDraw("The parcellation is not known here, so its patches cannot be shown.")
    patching = Patching.from_parcellation(parcellation.subset(network_order(parcellation.networks)))
    means = [facts.mean for facts in cohorts if facts.mean is not None and len(facts.mean) == patching.n_regions]
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
    sizes, n = f"{patching.sizes.min()} to {patching.sizes.max()}", patching.n_regions
    cut = f"Here {patching.n_patches} patches of {sizes} entries are cut from {n} × {n}."
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


def loss_curves(results: Results) -> tuple[Figure, str]:
    """Loss over training.

    Loss on training participants (thin) and on participants held out of training (thick), each in the units of its
    method; the dot is the lowest held-out loss. Look for a thick line that falls and stays low: a rise at the end is
    over-fitting, and a line that still falls says that more epochs would help.
    """
    # one panel per encoder
    trained = [one for one in results.encoders if len(one.history)]
    encoders = trained[:MOST_ENCODERS]
    nothing, width = "No encoder was trained here, or none has kept its history.", 2.5 if len(encoders) > 1 else 4.0
    figure, axes = panels(encoders, nothing, across=4, width=width, height=2.25)
    for ax, encoder in zip(axes, encoders, strict=True):
        history = encoder.history.set_index("epoch").reindex(columns=["training_loss", "validation_loss"])
        ax.plot(history["training_loss"], color=MUTED, linewidth=0.9, label="training participants")
        held_out = history["validation_loss"].dropna()
        if len(held_out):
            ax.plot(held_out, color=BLUE, linewidth=1.8, label="held-out participants")
            ax.plot(held_out.idxmin(), held_out.min(), "o", color=VERMILION, markersize=4.5)
        ax.set_title(lined(encoder.label, 24), fontsize=8.5)
        ax.set(xlabel="epoch", ylabel="loss")
        lowest, highest = history.min().min(), history.max().max()
        if lowest > 0 and highest / lowest > 20:
            ax.set_yscale("log")
            ax.yaxis.set_major_formatter("{x:g}")  # matplotlib's own is TeX, which is not parsed here
            ax.yaxis.set_minor_formatter("")
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    some = f"The first {MOST_ENCODERS} of {len(trained)} encoders are shown."
    return figure, some if len(trained) > MOST_ENCODERS else ""


def reconstruction(results: Results) -> tuple[Figure, str]:
    """Held-out FC, masked and reconstructed.

    Left: connectivity of participants held out of training. Middle: grey patches were hidden from the model. Right:
    hidden patches as the model reconstructs them from the others; visible ones as they are. Look for structure inside
    the grey patches that returns at the right.
    """
    # three matrices side by side, of the first encoder that says of how many participants: else it may be one
    kept = [one for one in results.encoders if one.example and one.errors.get("example_n")]
    if not kept:
        raise NothingToDraw("No run has kept an example of a reconstruction (it takes ten held-out participants).")
    encoder = kept[0]
    r, n = encoder.errors.get("example_r"), encoder.errors["example_n"]
    networks = [encoder.errors["networks"][group] for group in encoder.example["group_of"]]
    figure, axes = panels(PARTS, width=3.2, height=3.4)
    limit = colour_limit(encoder.example["original"])
    for ax, part in zip(axes, PARTS, strict=True):
        ax.set_facecolor("#9aa0ab")
        image = fc_image(ax, encoder.example[part], networks, limit, labels=part == "original")
        ax.set_title(part, pad=13)
    figure.colorbar(image, ax=axes, shrink=0.75, label="r", pad=0.02)
    who = "Connectivity of one participant" if n == 1 else f"Mean connectivity of {n} participants"
    like = "" if r is None else f" r = {r:.2f} between original and reconstruction over the masked entries."
    return figure, f"{who} ({encoder.label}).{like}"


def reconstruction_error(results: Results) -> tuple[Figure, str]:
    """Held-out reconstruction against simple guesses.

    Mean squared error of masked patches in participants held out of training (they only chose the epoch that was kept;
    lines: 95 % interval over participants). The group mean is the training participants' average matrix; the patch mean
    is its average within each patch. Look for a model below the group mean: only then has it learned how participants
    differ.
    """
    # one row per encoder, three dots
    encoders = [one for one in results.encoders if np.isfinite(one.error_ratio)]
    if not encoders:
        raise NothingToDraw("No run has kept its held-out reconstruction error (reconstruction.json).")
    figure = Figure(figsize=(7.2, 1.1 + 0.36 * len(encoders)), layout="constrained")
    ax = figure.subplots()
    told = []
    for row, encoder in enumerate(encoders):
        ratio, n = encoder.error_ratio, encoder.errors["n_people"]
        side = "below" if ratio < 1 else "above"
        told.append(f"{encoder.label}: {abs(1 - ratio):.0%} {side} the group mean in {n:,} participants")
        ax.axhline(row, color=GRID, linewidth=0.6, zorder=0)
        for name, (label, colour) in GUESSES.items():
            value, margin = encoder.errors[name], 1.96 * (encoder.errors[f"{name}_se"] or 0)
            named = label if row == 0 else None
            ax.errorbar(value, row, xerr=margin, fmt="o", color=colour, markersize=6, linewidth=1.2, label=named)
    name_rows(ax, [encoder.label for encoder in encoders], 36)
    ax.set_xlim(left=0)
    ax.set_xlabel("mean squared error of masked patches (units of r, squared)")
    ax.spines["left"].set_color(MUTED)
    figure.legend(loc="outside upper right", ncols=3)
    return figure, f"{'; '.join(told)}."
