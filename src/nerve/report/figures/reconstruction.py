"""Held-out FC, masked and reconstructed.

Left: connectivity of participants held out of training. Middle: grey patches were hidden from the model. Right: hidden
patches as the model reconstructs them from the others; visible ones as they are. Look for structure inside the grey
patches that returns at the right.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from nerve.report.figures.style import colour_limit, fc_image, panels
from nerve.report.results import NothingToDraw, Results

PARTS = ("original", "masked", "reconstructed")


def draw(results: Results) -> tuple[Figure, str]:
    """Three matrices side by side; whose connectivity they are, and how well it is reconstructed."""
    # without a count of participants it may be one
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
