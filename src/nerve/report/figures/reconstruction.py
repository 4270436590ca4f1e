"""FC of held-out participants, averaged: as it is, as the model saw it, and as the model filled it in."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import colour_limit, fc_image
from nerve.report.results import EncoderRun, NothingToDraw, Results

SECTION = "pretraining"
TITLE = "Held-out FC, masked and reconstructed"
PARTS = ("original", "masked", "reconstructed")


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    encoder = _encoder(results)
    r, n = encoder.errors.get("example_r"), encoder.errors["example_n"]
    who = "Connectivity of one participant" if n == 1 else f"Mean connectivity of {n} participants"
    said = f" Here r = {r:.2f} between original and reconstruction over the masked entries." if r is not None else ""
    return (
        f"{who} held out of training ({encoder.label}). Middle: grey patches were hidden from the model. Right: "
        "hidden patches as the model reconstructs them from the others; visible ones as they are. Look for "
        f"structure inside the grey patches that returns at the right.{said}"
    )


def draw(results: Results) -> Figure:
    """Three matrices side by side."""
    encoder = _encoder(results)
    groups = np.asarray(encoder.example["group_of"], int)
    names = list(encoder.networks) or [f"G{g + 1}" for g in range(groups.max() + 1)]
    networks = [names[g] for g in groups]
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    axes = figure.subplots(1, 3)
    limit = colour_limit(encoder.example["original"])
    for ax, part in zip(axes, PARTS, strict=True):
        ax.set_facecolor("#9aa0ab")
        image = fc_image(ax, encoder.example[part], networks, limit, labels=part == "original")
        ax.set_title(part, pad=13)
    figure.colorbar(image, ax=list(axes), shrink=0.75, label="r", pad=0.02)
    return figure


def _encoder(results: Results) -> EncoderRun:
    for encoder in results.encoders:
        known = {*PARTS, "group_of"} <= set(encoder.example)
        if known and encoder.errors.get("example_n"):  # without a count it may be one participant
            return encoder
    raise NothingToDraw("No run has kept an example of a reconstruction (it takes ten held-out participants).")
