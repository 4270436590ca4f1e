"""Figures of pretraining: how FC becomes tokens, the loss, and what a model fills in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle, Wedge

from nerve.core.patching import Patching
from nerve.data.named_patchings import is_patching_name, patching_for
from nerve.data.parcellation import Parcellation
from nerve.report.figures.colours import (
    BLUE,
    GREEN,
    GRID,
    INK,
    MUTED,
    ORANGE,
    VERMILION,
    colour_limit,
    network_colours,
)
from nerve.report.figures.style import fc_image, lined, name_rows, network_order, panels
from nerve.report.report_data import NothingToDraw, ReportData

MOST_ENCODERS = 12
PARTS = ("original", "masked", "reconstructed")
GUESSES = {
    "model": ("model", BLUE),
    "group_mean": ("group mean", ORANGE),
    "patch_mean": ("patch mean", GREEN),
}


def patch_layout(results: ReportData) -> tuple[Figure, str]:
    """From connectivity to tokens.

    Left: FC, cut into one patch for each pair of groups of regions (upper triangle). Right: one token per patch. Look
    for the patch in the frame, which becomes the token in the frame, and for groups of very different size: their
    patches have as many numbers each as the pair of groups has entries, and one token all the same.
    """
    # matrix with its patches at the left, their tokens at the right
    settings = _patch_settings(results)
    parcellation = _known_parcellation(results)
    groups = _groups(parcellation, settings)  # of each region
    numbers, names = pd.factorize(np.array(groups, object)[network_order(groups)])
    patching = Patching(numbers, list(names))  # as it is drawn: regions sorted by group
    cohorts = results.cohorts.values()
    means = [
        facts.mean
        for facts in cohorts
        if facts.mean is not None and len(facts.mean) == patching.n_regions
    ]
    matrix = means[0] if means else _sketch(parcellation)
    n_masked = (
        patching.n_patches - int(patching.n_patches * (1 - settings["mask_ratio"]))
        if settings
        else 0
    )
    group_word = _group_word(settings)
    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.25, 1]})
    fc_image(left, matrix, groups, colour_limit(matrix))
    left.set_title(f"FC, cut at {group_word} borders", pad=22)
    first, last = patching.members[0], patching.members[-1]  # the pair whose way is shown
    corner = (last[0] - 0.5, first[0] - 0.5)
    left.add_patch(
        Rectangle(corner, len(last), len(first), fill=False, edgecolor=INK, linewidth=2.2)
    )
    _tokens(right, patching, n_masked, group_word)
    start, end = (corner[0] + len(last), first[0] + len(first) / 2), (patching.n_groups - 1.3, -0.5)
    arrow = ConnectionPatch(
        start, end, "data", "data", axesA=left, axesB=right, arrowstyle="-|>", connectionstyle="arc3,rad=-0.18",
        color=INK, linewidth=1.4,
    )  # fmt: skip
    figure.add_artist(arrow)
    sizes, n = f"{patching.sizes.min():,} to {patching.sizes.max():,}", patching.n_regions
    sentences = [f"Here {patching.n_patches} patches of {sizes} entries are cut from {n} × {n}."]
    if settings:
        sentences += _model_sentences(results, settings, n_masked, patching.n_patches, group_word)
    if not means:
        sentences.append("The matrix is a sketch, not data.")
    return figure, " ".join(sentences)


TOKENIZERS = {
    "bilinear": "Each patch becomes one token of {dim} numbers through the weights of its two {word}s, Uₗ and Uₘ, "
    "which every pair that a {word} is in shares (bilinear tokenizer).",
    "specific": "Each patch becomes one token of {dim} numbers through weights of its own (specific tokenizer).",
    "shared": "Each patch becomes one token of {dim} numbers through weights that all patches share, cut to the "
    "patch's size (shared tokenizer).",
}


def _patch_settings(results: ReportData) -> Mapping[str, Any]:
    """The settings of the first model that makes tokens of patches; none where only regions are known."""
    for encoder in results.encoders:
        if "tokenizer" in encoder.settings:
            return encoder.settings
    if len(results.rows) and "nerve" not in set(results.rows["method"]):
        raise NothingToDraw("No model that makes tokens of patches is part of these results.")
    return {}


def _known_parcellation(results: ReportData) -> Parcellation:
    known = [*(facts.parcellation for facts in results.cohorts.values()), results.parcellation]
    for parcellation in known:
        if parcellation is not None:
            return parcellation  # cohorts are all in one order
    raise NothingToDraw("The parcellation is not known here, so its patches cannot be shown.")


def _groups(parcellation: Parcellation, settings: Mapping[str, Any]) -> list[str]:
    """The group of each region by which the model cuts."""
    given = settings.get("patching", "networks")
    if given == "networks" and parcellation.n_networks == 1 and parcellation.name == "unnamed":
        given = "grid16"  # as NERVE does for matrices without a parcellation
    if isinstance(given, Mapping):
        patching = Patching(given["group_of"], given["group_names"])
    elif is_patching_name(str(given)):
        patching = patching_for(parcellation, str(given))
    else:  # a file, and a page never opens one that a stranger's settings name
        raise NothingToDraw(
            "The patches follow a table of regions that is not part of these results."
        )
    if patching.n_regions != parcellation.n_regions:
        raise NothingToDraw(
            "The model cuts other regions than those of the cohort, so its patches cannot be shown."
        )
    return [patching.group_names[group] for group in patching.group_of]


def _group_word(settings: Mapping[str, Any]) -> str:
    """What a group of regions is called."""
    given = str(settings.get("patching", "networks"))
    if given.startswith("grid"):
        return "block"
    if given.startswith("permuted"):
        return "permuted network"
    return "network"


def _model_sentences(
    results: ReportData, settings: Mapping[str, Any], n_masked: int, n_patches: int, group_word: str
) -> list[str]:
    """What the model that ran does with patches."""
    tokenizer, dim = str(settings["tokenizer"]), settings["dim"]
    otherwise = "Each patch becomes one token of {dim} numbers (tokenizer {tokenizer})."
    sentence = TOKENIZERS.get(tokenizer, otherwise)
    sentences = [sentence.format(dim=dim, word=group_word, tokenizer=tokenizer)]
    sentences.append(
        f"In training {n_masked} of the {n_patches} tokens ({settings['mask_ratio']:.0%} of the patches) are masked, "
        "anew for every participant and step, and the model learns to reconstruct their patches from the others."
    )
    view = settings.get("view", "fc")
    if view != "fc":
        sentences.append(
            f"The model cuts the {view} view of FC in this way; the matrix at the left is FC itself."
        )
    labels = [encoder.label for encoder in results.encoders if "tokenizer" in encoder.settings]
    if len(labels) > 1:
        sentences.append(f"Described is {labels[0]}, the first of {len(labels)} such models here.")
    return sentences


def _tokens(ax: Axes, patching: Patching, n_masked: int, group_word: str) -> None:
    """One disc per token, in two halves with the colours of its groups; faded ones are masked."""
    n, colours = patching.n_groups, [*network_colours(patching.group_names).values()]
    order = np.random.default_rng(3).permutation(patching.n_patches)
    framed = int(np.flatnonzero((patching.pairs == (0, n - 1)).all(axis=1))[0])  # stays visible
    hidden = set([i for i in order if i != framed][:n_masked])
    for i, (row, column) in enumerate(patching.pairs.tolist()):
        for group, turn in ((row, 90), (column, 270)):
            look = {"color": colours[group], "alpha": 0.16 if i in hidden else 1.0, "linewidth": 0}
            ax.add_patch(Wedge((column, row), 0.4, turn, turn + 180, **look))
    ax.add_patch(Rectangle((n - 1.5, -0.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.6))
    ax.set(xlim=(-0.7, n - 0.3), ylim=(n - 0.3, -0.7), aspect="equal")
    ax.axis("off")
    title = f"{patching.n_patches} tokens, one\nper pair of {group_word}s"
    words = f"each half: the colour of\none of its two {group_word}s"
    if n_masked:
        words += "\nfaded: masked, to be\nreconstructed"
    ax.text(-0.5, n * 0.68, title, va="bottom", weight="bold", fontsize=9.5)
    ax.text(-0.5, n * 0.71, words, va="top", color=MUTED, fontsize=8.5)


def _sketch(parcellation: Parcellation) -> np.ndarray:
    """A matrix with the contrast of networks, where no cohort is known."""
    networks, groups = np.unique(parcellation.networks, return_inverse=True)
    between = np.random.default_rng(0).normal(0, 0.18, (len(networks), len(networks)))
    np.fill_diagonal(between, 0.5)
    return (between + between.T)[np.ix_(groups, groups)] / 2


def loss_curves(results: ReportData) -> tuple[Figure, str]:
    """Loss over training.

    Loss on training participants (thin) and on participants held out of training (thick), each in the units of its
    method; the dot is the lowest held-out loss. Look for a thick line that falls and stays low: a rise at the end is
    over-fitting, and a line that still falls says that more epochs would help.
    """
    # one panel per encoder
    trained = [one for one in results.encoders if len(one.history)]
    encoders = trained[:MOST_ENCODERS]
    nothing, width = (
        "No encoder was trained here, or none has kept its history.",
        2.5 if len(encoders) > 1 else 4.0,
    )
    figure, axes = panels(encoders, nothing, across=4, width=width, height=2.25)
    for ax, encoder in zip(axes, encoders, strict=True):
        history = encoder.history.set_index("epoch").reindex(
            columns=["training_loss", "validation_loss"]
        )
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
            ax.yaxis.set_major_formatter(
                "{x:g}"
            )  # matplotlib's own is TeX, which is not parsed here
            ax.yaxis.set_minor_formatter("")
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    some = f"The first {MOST_ENCODERS} of {len(trained)} encoders are shown."
    return figure, some if len(trained) > MOST_ENCODERS else ""


def reconstruction(results: ReportData) -> tuple[Figure, str]:
    """Held-out FC, masked and reconstructed.

    Left: mean FC of participants held out of training. Middle: grey patches were hidden from the model. Right: hidden
    patches as the model reconstructs them from the others; visible ones as they are. Look for structure inside the
    grey patches that returns at the right, and for an r that is above that of the group mean: what participants have
    in common returns with the group mean alone.
    """
    # three matrices side by side, of the first encoder that says of how many participants: else it may be one
    kept = [one for one in results.encoders if one.example and one.errors.get("example_n")]
    if not kept:
        raise NothingToDraw(
            "No run has kept an example of a reconstruction (it takes ten held-out participants)."
        )
    encoder = kept[0]
    errors = encoder.errors
    networks = [errors["networks"][group] for group in encoder.example["group_of"]]
    figure, axes = panels(PARTS, width=3.2, height=3.4)
    limit = colour_limit(encoder.example["original"])
    for ax, part in zip(axes, PARTS, strict=True):
        ax.set_facecolor("#9aa0ab")
        image = fc_image(ax, encoder.example[part], networks, limit, labels=part == "original")
        ax.set_title(part, pad=13)
    figure.colorbar(image, ax=axes, shrink=0.75, label="FC (r)", pad=0.02)
    n = errors["example_n"]
    who = "FC of one participant" if n == 1 else f"Mean FC of {n} participants"
    sentences = [f"{who} ({encoder.label})."]
    if errors.get("view", "fc") != "fc":
        sentences.append(
            f"Patches were hidden and reconstructed in the {errors['view']} view, and all three matrices mapped back "
            "to FC; a patch of the view is nearly, not exactly, the same patch of FC."
        )
    model_r, group_r = errors.get("example_r"), errors.get("example_r_group_mean")
    if model_r is not None and group_r is not None:
        sentences.append(
            f"Over the masked entries, r with the original is {model_r:.3f} for the reconstruction and {group_r:.3f} "
            "for the group mean of the training participants in its place."
        )
    return figure, " ".join(sentences)


def reconstruction_error(results: ReportData) -> tuple[Figure, str]:
    """Held-out reconstruction against simple guesses.

    Mean squared error of masked patches in participants held out of training (they only chose the epoch that was kept;
    lines: 95 % interval over participants). The group mean is the training participants' average matrix; the patch mean
    is its average within each patch. Look for a model below the group mean: only then has it learned how participants
    differ.
    """
    # one row per encoder, three dots
    encoders = [one for one in results.encoders if np.isfinite(one.error_ratio)]
    if not encoders:
        raise NothingToDraw(
            "No run has kept its held-out reconstruction error (reconstruction.json)."
        )
    figure = Figure(figsize=(7.2, 1.1 + 0.36 * len(encoders)), layout="constrained")
    ax = figure.subplots()
    told = []
    for row, encoder in enumerate(encoders):
        ratio, n = encoder.error_ratio, encoder.errors["n_people"]
        side = "below" if ratio < 1 else "above"
        told.append(
            f"{encoder.label}: {abs(1 - ratio):.0%} {side} the group mean in {n:,} participants"
        )
        ax.axhline(row, color=GRID, linewidth=0.6, zorder=0)
        for name, (label, colour) in GUESSES.items():
            value, margin = encoder.errors[name], 1.96 * (encoder.errors[f"{name}_se"] or 0)
            named = label if row == 0 else None
            ax.errorbar(
                value,
                row,
                xerr=margin,
                fmt="o",
                color=colour,
                markersize=6,
                linewidth=1.2,
                label=named,
            )
    name_rows(ax, [encoder.label for encoder in encoders], 36)
    ax.set_xlim(left=0)
    views = {encoder.errors.get("view", "fc") for encoder in encoders}
    units = (
        "units of r, squared"
        if views == {"fc"}
        else "squared units of the view that each model reads"
    )
    ax.set_xlabel(f"mean squared error of masked patches ({units})")
    ax.spines["left"].set_color(MUTED)
    figure.legend(loc="outside upper right", ncols=3)
    return figure, f"{'; '.join(told)}."
