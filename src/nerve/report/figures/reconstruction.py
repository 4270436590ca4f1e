"""Held-out FC, masked and reconstructed.

Left: connectivity of participants held out of training. Middle: grey patches were hidden from the model. Right: hidden
patches as the model reconstructs them from the others; visible ones as they are. Look for structure inside the grey
patches that returns at the right.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from nerve.report.figures.style import colour_limit, fc_image, panels
from nerve.report.results import EncoderRun, NothingToDraw, Results

PARTS = ("original", "masked", "reconstructed")


def details(results: Results) -> str:
    """Whose connectivity is shown, and how well it is reconstructed."""
    encoder = _encoder(results)
    r, n = encoder.errors.get("example_r"), encoder.errors["example_n"]
    who = "Connectivity of one participant" if n == 1 else f"Mean connectivity of {n} participants"
    like = "" if r is None else f" r = {r:.2f} between original and reconstruction over the masked entries."
    return f"{who} ({encoder.label}).{like}"


def draw(results: Results) -> Figure:
    """Three matrices side by side."""
    encoder = _encoder(results)
    networks = [encoder.errors["networks"][group] for group in encoder.example["group_of"]]
    figure, axes = panels(PARTS, width=3.2, height=3.4)
    limit = colour_limit(encoder.example["original"])
    for ax, part in zip(axes, PARTS, strict=True):
        ax.set_facecolor("#9aa0ab")
        image = fc_image(ax, encoder.example[part], networks, limit, labels=part == "original")
        ax.set_title(part, pad=13)
    figure.colorbar(image, ax=axes, shrink=0.75, label="r", pad=0.02)
    return figure


def _encoder(results: Results) -> EncoderRun:
    for encoder in results.encoders:
        if encoder.example and encoder.errors.get("example_n"):  # without a count it may be one participant
            return encoder
    raise NothingToDraw("No run has kept an example of a reconstruction (it takes ten held-out participants).")
