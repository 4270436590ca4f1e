"""Held-out reconstruction against simple guesses.

Mean squared error of masked patches in participants held out of training (they only chose the epoch that was kept;
lines: 95 % interval over participants). The group mean is the training participants' average matrix; the patch mean is
its average within each patch. Look for a model below the group mean: only then has it learned how participants differ.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, GREEN, GRID, MUTED, ORANGE, name_rows
from nerve.report.results import NothingToDraw, Results

GUESSES = {"model": ("model", BLUE), "group_mean": ("group mean", ORANGE), "patch_mean": ("patch mean", GREEN)}


def draw(results: Results) -> tuple[Figure, str]:
    """One row per encoder, three dots; each model's error beside that of the group mean."""
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
