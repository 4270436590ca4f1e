"""Loss of each encoder over training, on training and on held-out participants."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, MUTED, VERMILION, lined, log_scale, panels
from nerve.report.results import EncoderRun, NothingToDraw, Results

SECTION = "pretraining"
TITLE = "Loss over training"
MOST = 12


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    total, shown = len(_trained(results)), len(_trained(results)[:MOST])
    cut = f" The first {shown} of {total} encoders are shown." if total > shown else ""
    return (
        "Loss on training participants (thin) and on participants held out of training (thick), each in the units of "
        "its method; the dot is the lowest held-out loss. Look for a thick line that falls and stays low: a rise at "
        f"the end is over-fitting, and a line that still falls says that more epochs would help.{cut}"
    )


def draw(results: Results) -> Figure:
    """One panel per encoder."""
    encoders = _trained(results)[:MOST]
    if not encoders:
        raise NothingToDraw("No encoder was trained here, or none has kept its history.")
    figure, axes = panels(len(encoders), across=4, width=2.5 if len(encoders) > 1 else 4.0, height=2.25)
    for ax, encoder in zip(axes, encoders, strict=True):
        history = encoder.history
        ax.plot(history["epoch"], history["training_loss"], color=MUTED, linewidth=0.9, label="training participants")
        if "validation_loss" in history and history["validation_loss"].notna().any():
            known = history.dropna(subset=["validation_loss"])
            ax.plot(known["epoch"], known["validation_loss"], color=BLUE, linewidth=1.8, label="held-out participants")
            best = known.iloc[int(known["validation_loss"].argmin())]
            ax.plot(best["epoch"], best["validation_loss"], "o", color=VERMILION, markersize=4.5)
        ax.set_title(lined(encoder.label, 24), fontsize=8.5)
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss")
        losses = history[[c for c in ("training_loss", "validation_loss") if c in history]].to_numpy(float)
        losses = losses[np.isfinite(losses)]
        if len(losses) and losses.min() > 0 and losses.max() / losses.min() > 20:
            log_scale(ax)
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _trained(results: Results) -> list[EncoderRun]:
    wanted = {"epoch", "training_loss"}
    return [one for one in results.encoders if len(one.history) and wanted <= set(one.history.columns)]
