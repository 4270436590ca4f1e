"""Which regions each network's embedding relies on, as dots at the regions' places in the brain."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from nerve.report.figures.style import GRID, INK, agreement, network_colours, short
from nerve.report.results import NothingToDraw, Results

SECTION = "interpretation"
TITLE = "Regions that networks rely on"
_NEEDED = {"network", "weight", "x", "y", "z"}
VIEWS = {"left side": ("y", "z"), "above": ("x", "y"), "behind": ("x", "z"), "right side": ("y", "z")}


def caption(results: Results) -> str:
    """What to see, and how far to trust it."""
    label, table = _table(results)
    whose = f" ({label})" if label else ""
    return (
        f"Each dot is a region at its MNI centre, in the colour of its network{whose}; the larger, the more its "
        "network's embedding weighs it (norm of its row of U, against the network's mean). See networks that rest on "
        "few regions. "
        f"Agreement over seeds is {agreement(table)}."
    )


def draw(results: Results) -> Figure:
    """Four views."""
    _, table = _table(results)
    colours = network_colours(list(dict.fromkeys(table["network"])))
    mean = table.groupby("network")["weight"].transform("mean")
    relative = (table["weight"] / mean.where(mean > 0)).fillna(0)
    figure = Figure(figsize=(10.4, 3.2), layout="constrained")
    for ax, (view, (across, up)) in zip(figure.subplots(1, len(VIEWS)), VIEWS.items(), strict=True):
        seen = np.ones(len(table), bool)
        if "side" in view:
            seen = (table["x"] < 0).to_numpy() if view == "left side" else (table["x"] >= 0).to_numpy()
        here = table[seen]
        size = 14 * np.clip(relative[seen], 0.1, 4) ** 2
        ax.scatter(
            here[across], here[up], s=size, color=[colours[n] for n in here["network"]], edgecolors=GRID, linewidths=0.3
        )
        ax.set_aspect("equal")
        ax.set_title(view)
        ax.set_xlabel(f"{across} (mm)")
        ax.set_ylabel(f"{up} (mm)")
        if view == "left side":
            ax.invert_xaxis()  # the front is at the left, as one sees a left hemisphere from outside
    marks = [
        Line2D([], [], color=colour, marker="o", linestyle="", label=short(n, 16)) for n, colour in colours.items()
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=min(9, len(marks)), labelcolor=INK)
    return figure


def _table(results: Results) -> tuple[str, pd.DataFrame]:
    for label, table in results.interpreted("network_weights"):
        if set(table.columns) >= _NEEDED and table[["x", "y", "z"]].notna().all(axis=1).any():
            return label, table.dropna(subset=["x", "y", "z", "weight"])
    raise NothingToDraw("The weights of regions were not computed (interpretation/network_weights.tsv).")
