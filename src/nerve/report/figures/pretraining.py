"""Figures of pretraining: how FC becomes tokens, the loss, and the reconstruction."""

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
from nerve.report.figures.style import (
    draw_fc,
    make_panels,
    name_rows,
    network_order,
    wrap_title,
)
from nerve.report.report_data import NothingToDraw, ReportData

_MOST_ENCODERS = 12
_PARTS = ("original", "masked", "reconstructed")
_GUESSES = {
    "model": ("model", BLUE),
    "group_mean": ("group mean", ORANGE),
    "patch_mean": ("patch mean", GREEN),
}
_TOKENIZERS = {
    "bilinear": "Each patch becomes one token of {dim} numbers through the weights of its two "
    "{word}s, Uₗ and Uₘ; all patches of a {word} share its weights (bilinear tokenizer).",
    "specific": "Each patch becomes one token of {dim} numbers through weights of its own "
    "(specific tokenizer).",
    "shared": "Each patch becomes one token of {dim} numbers through weights that all patches "
    "share, cut to the patch's size (shared tokenizer).",
}
_OTHER_TOKENIZER = "Each patch becomes one token of {dim} numbers (tokenizer {tokenizer})."


def patch_layout(results: ReportData) -> tuple[Figure, str]:
    """From connectivity to tokens.

    Left: FC, cut into one patch for each pair of groups of regions (upper triangle). Right: one
    token per patch. Look for the framed patch, which becomes the framed token, and for groups of
    very different size: large and small patches become one token each.
    """
    # Matrix with its patches at the left, their tokens at the right.
    settings = _patch_settings(results)
    parcellation = _known_parcellation(results)
    groups = _groups(parcellation, settings)  # of each region
    group_word = _group_word(settings)
    numbers, names = pd.factorize(np.array(groups, object)[network_order(groups)])
    patching = Patching(numbers, list(names))  # as it is drawn: regions sorted by group
    n_regions = patching.n_regions
    n_patches = patching.n_patches
    n_masked = 0
    if settings:
        n_masked = n_patches - int(n_patches * (1 - settings["mask_ratio"]))
    means = [facts.mean for facts in results.cohorts.values() if facts.mean is not None]
    means = [mean for mean in means if len(mean) == n_regions]
    matrix = means[0] if means else _sketch(parcellation)

    figure = Figure(figsize=(9.2, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.25, 1]})
    draw_fc(left, matrix, groups, colour_limit(matrix))
    left.set_title(f"FC, cut at {group_word} borders", pad=22)
    # The pair of the first and last group is framed, and an arrow leads to its token.
    first = patching.members[0]
    last = patching.members[-1]
    corner = (last[0] - 0.5, first[0] - 0.5)
    frame = {"fill": False, "edgecolor": INK, "linewidth": 2.2}
    left.add_patch(Rectangle(corner, len(last), len(first), **frame))
    _draw_tokens(right, patching, n_masked, group_word)
    arrow = ConnectionPatch(
        (corner[0] + len(last), first[0] + len(first) / 2),
        (patching.n_groups - 1.3, -0.5),
        "data",
        "data",
        axesA=left,
        axesB=right,
        arrowstyle="-|>",
        connectionstyle="arc3,rad=-0.18",
        color=INK,
        linewidth=1.4,
    )
    figure.add_artist(arrow)
    sizes = f"{patching.sizes.min():,}"
    if patching.sizes.max() > patching.sizes.min():
        sizes += f" to {patching.sizes.max():,}"
    sentences = [
        f"Here {n_patches} patches of {sizes} entries are cut from {n_regions} × {n_regions}."
    ]
    if settings:
        sentences += _model_sentences(results, settings, n_masked, n_patches, group_word)
    if not means:
        sentences.append("The matrix is a sketch, not data.")
    return figure, " ".join(sentences)


def loss_curves(results: ReportData) -> tuple[Figure, str]:
    """Loss over training.

    Loss on training participants (thin) and on participants held out of training (thick), each in
    the units of its method; the dot is the lowest held-out loss. Look for a thick line that falls
    and stays low: a rise at the end is over-fitting, and a line that still falls at the end
    suggests that more epochs would help.
    """
    # One panel per encoder.
    trained = [encoder for encoder in results.encoders if len(encoder.history)]
    shown = trained[:_MOST_ENCODERS]
    if_empty = "No encoder was trained here, or none has a history of its loss."
    width = 2.5 if len(shown) > 1 else 4.0
    figure, axes = make_panels(shown, if_empty, across=4, width=width, height=2.25)
    for ax, encoder in zip(axes, shown, strict=True):
        history = encoder.history.set_index("epoch")
        history = history.reindex(columns=["training_loss", "validation_loss"])
        ax.plot(history["training_loss"], color=MUTED, linewidth=0.9, label="training participants")
        held_out = history["validation_loss"].dropna()
        if len(held_out):
            ax.plot(held_out, color=BLUE, linewidth=1.8, label="held-out participants")
            ax.plot(held_out.idxmin(), held_out.min(), "o", color=VERMILION, markersize=4.5)
        ax.set_title(wrap_title(encoder.label, 24), fontsize=8.5)
        ax.set(xlabel="epoch", ylabel="loss")
        lowest = history.min().min()
        highest = history.max().max()
        if lowest > 0 and highest / lowest > 20:
            ax.set_yscale("log")
            # Matplotlib's own labels are TeX, which is not parsed here.
            ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter("")
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    if len(trained) == len(shown):
        return figure, ""
    return figure, f"The first {len(shown)} of {len(trained)} encoders are shown."


def reconstruction(results: ReportData) -> tuple[Figure, str]:
    """Held-out FC, masked and reconstructed.

    Left: mean FC of participants held out of training. Middle: grey patches were hidden from the
    model. Right: hidden patches as the model reconstructs them from the others; visible ones as
    they are. Look for structure of the hidden patches that reappears at the right, and for an r
    above that of the group mean: the group mean alone restores what participants have in common.
    """
    # Three matrices side by side, of the first encoder with an example that says how many
    # participants it is the mean of: otherwise it might show a single participant.
    known = [encoder for encoder in results.encoders if encoder.example]
    known = [encoder for encoder in known if encoder.errors.get("example_n")]
    if not known:
        raise NothingToDraw(
            "No run has an example of a reconstruction (it needs ten held-out participants)."
        )
    encoder = known[0]
    errors = encoder.errors
    networks = [errors["networks"][group] for group in encoder.example["group_of"]]
    figure, axes = make_panels(_PARTS, width=3.2, height=3.4)
    limit = colour_limit(encoder.example["original"])
    for ax, part in zip(axes, _PARTS, strict=True):
        ax.set_facecolor("#9aa0ab")
        image = draw_fc(ax, encoder.example[part], networks, limit, labels=part == "original")
        ax.set_title(part, pad=13)
    figure.colorbar(image, ax=axes, shrink=0.75, label="FC (r)", pad=0.02)
    n = errors["example_n"]
    whose = "FC of one participant" if n == 1 else f"Mean FC of {n} participants"
    sentences = [f"{whose} ({encoder.label})."]
    if errors.get("view", "fc") != "fc":
        sentences.append(
            f"Patches were hidden and reconstructed in the {errors['view']} view, and all three "
            "matrices mapped back to FC; a patch of the view is nearly, not exactly, the same "
            "patch of FC."
        )
    model_r = errors.get("example_r")
    group_r = errors.get("example_r_group_mean")
    if model_r is not None and group_r is not None:
        sentences.append(
            f"Over the masked entries, r with the original is {model_r:.3f} for the reconstruction "
            f"and {group_r:.3f} for the group mean of the training participants in its place."
        )
    return figure, " ".join(sentences)


def reconstruction_error(results: ReportData) -> tuple[Figure, str]:
    """Held-out reconstruction beside simple guesses.

    Mean squared error of masked patches in participants held out of training, who served only to
    choose the epoch that was kept; lines are 95 % intervals over participants. The group mean is
    the average matrix of the training participants; the patch mean is its average within each
    patch. Look for a model whose error is below that of the group mean: only then has it learned
    how participants differ.
    """
    # One row per encoder, three dots.
    # A model that was given may have a ratio in its config.json alone.
    encoders = [
        encoder
        for encoder in results.encoders
        if encoder.errors and np.isfinite(encoder.error_ratio)
    ]
    if not encoders:
        raise NothingToDraw("No run has a held-out reconstruction error (reconstruction.json).")
    figure = Figure(figsize=(7.2, 1.1 + 0.36 * len(encoders)), layout="constrained")
    ax = figure.subplots()
    sentences = []
    for row, encoder in enumerate(encoders):
        errors = encoder.errors
        sentences.append(
            f"{encoder.label}: {encoder.error_ratio:.2f} times the error of the group mean, in "
            f"{errors['n_people']:,} participants."
        )
        ax.axhline(row, color=GRID, linewidth=0.6, zorder=0)
        for name, (label, colour) in _GUESSES.items():
            ax.errorbar(
                errors[name],
                row,
                xerr=1.96 * (errors[f"{name}_se"] or 0),
                fmt="o",
                color=colour,
                markersize=6,
                linewidth=1.2,
                label=label if row == 0 else None,
            )
    name_rows(ax, [encoder.label for encoder in encoders], 36)
    ax.set_xlim(left=0)
    views = {encoder.errors.get("view", "fc") for encoder in encoders}
    units = "squared units of the view that each model reads"
    if views == {"fc"}:
        units = "units of r, squared"
    ax.set_xlabel(f"mean squared error of masked patches ({units})")
    ax.spines["left"].set_color(MUTED)
    figure.legend(loc="outside upper right", ncols=3)
    return figure, " ".join(sentences)


def _patch_settings(results: ReportData) -> Mapping[str, Any]:
    """The settings of the first model that makes tokens; empty where only regions are known."""
    for encoder in results.encoders:
        if "tokenizer" in encoder.settings:
            return encoder.settings
    if len(results.rows) and "nerve" not in set(results.rows["method"]):
        raise NothingToDraw("No model that makes tokens from patches is part of these results.")
    return {}


def _known_parcellation(results: ReportData) -> Parcellation:
    known = [*(facts.parcellation for facts in results.cohorts.values()), results.parcellation]
    for parcellation in known:
        if parcellation is not None:
            return parcellation  # cohorts are all in one order
    raise NothingToDraw("The parcellation is not known here, so its patches cannot be shown.")


def _groups(parcellation: Parcellation, settings: Mapping[str, Any]) -> list[str]:
    """The group of each region; the model cuts the matrix between groups."""
    setting = settings.get("patching", "networks")
    if setting == "networks" and parcellation.n_networks == 1 and parcellation.name == "unnamed":
        setting = "grid16"  # as NERVE does for matrices without a parcellation
    if isinstance(setting, Mapping):
        patching = Patching(setting["group_of"], setting["group_names"])
    elif is_patching_name(str(setting)):
        patching = patching_for(parcellation, str(setting))
    else:  # the path of a file, which comes with the results and is never opened
        raise NothingToDraw(
            "The patches follow a table of regions that is not part of these results."
        )
    if patching.n_regions != parcellation.n_regions:
        raise NothingToDraw(
            "The model cuts other regions than those of the cohort, so its patches cannot be shown."
        )
    return [patching.group_names[group] for group in patching.group_of]


def _group_word(settings: Mapping[str, Any]) -> str:
    """The word for a group of regions."""
    setting = str(settings.get("patching", "networks"))
    if setting.startswith("grid"):
        return "block"
    if setting.startswith("permuted"):
        return "permuted network"
    return "network"


def _model_sentences(
    results: ReportData, settings: Mapping[str, Any], n_masked: int, n_patches: int, group_word: str
) -> list[str]:
    """What the model does with patches."""
    tokenizer = str(settings["tokenizer"])
    sentence = _TOKENIZERS.get(tokenizer, _OTHER_TOKENIZER)
    sentences = [
        sentence.format(dim=settings["dim"], word=group_word, tokenizer=tokenizer),
        f"In training {n_masked} of the {n_patches} tokens ({settings['mask_ratio']:.0%} of the "
        "patches) are masked, anew for every participant and step, and the model learns to "
        "reconstruct their patches from the others.",
    ]
    view = settings.get("view", "fc")
    if view != "fc":
        sentences.append(
            f"The model cuts the {view} view of FC in this way; the matrix at the left is FC "
            "itself."
        )
    labels = [encoder.label for encoder in results.encoders if "tokenizer" in encoder.settings]
    if len(labels) > 1:
        sentences.append(f"This describes {labels[0]}, the first of {len(labels)} such models.")
    return sentences


def _draw_tokens(ax: Axes, patching: Patching, n_masked: int, group_word: str) -> None:
    """One disc per token, in two halves with the colours of its groups; faded ones are masked."""
    n = patching.n_groups
    colours = list(network_colours(patching.group_names).values())
    order = np.random.default_rng(3).permutation(patching.n_patches)
    is_framed = (patching.pairs == (0, n - 1)).all(axis=1)
    framed = int(np.flatnonzero(is_framed)[0])  # stays visible
    hidden = set([patch for patch in order if patch != framed][:n_masked])
    for patch, (row, column) in enumerate(patching.pairs.tolist()):
        alpha = 0.16 if patch in hidden else 1.0
        for group, angle in ((row, 90), (column, 270)):
            look = {"color": colours[group], "alpha": alpha, "linewidth": 0}
            ax.add_patch(Wedge((column, row), 0.4, angle, angle + 180, **look))
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
    """A made-up matrix with high values within networks, where no cohort is known."""
    networks, groups = np.unique(parcellation.networks, return_inverse=True)
    between = np.random.default_rng(0).normal(0, 0.18, (len(networks), len(networks)))
    np.fill_diagonal(between, 0.5)
    return (between + between.T)[np.ix_(groups, groups)] / 2
