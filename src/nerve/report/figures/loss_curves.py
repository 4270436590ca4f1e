"""Loss over training.

Loss on training participants (thin) and on participants held out of training (thick), each in the units of its method;
the dot is the lowest held-out loss. Look for a thick line that falls and stays low: a rise at the end is over-fitting,
and a line that still falls says that more epochs would help.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from nerve.report.figures.style import BLUE, MUTED, VERMILION, lined, panels
from nerve.report.results import Results

MOST = 12


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per encoder; which are shown, where not all are."""
    trained = [one for one in results.encoders if len(one.history)]
    encoders = trained[:MOST]
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
    some = f"The first {MOST} of {len(trained)} encoders are shown."
    return figure, some if len(trained) > MOST else ""
