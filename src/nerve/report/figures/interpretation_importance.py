"""Network pairs that carry a prediction.

For each pair of networks: how much out-of-fold r falls when its patch is replaced by the training participants' mean
(star: the 95 % interval excludes zero), and the covariance of its connectivity with the prediction (Haufe's transform
of the ridge weights). Look for pairs that stand out in both. A map that seeds do not share says nothing about the
brain.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import agreement, lined, network_image, panels, square
from nerve.report.results import Results

MOST = 6
PAIR = ("network_a", "network_b")
MAPS = {"drop": "drop in r when hidden", "pattern": "pattern (Haufe)"}


def draw(results: Results) -> tuple[Figure, str]:
    """One row per target, drop at the left, pattern at the right; how far to trust each map."""
    none = "The importance of network pairs was not computed: `nerve interpret` does."
    parts = [
        (f"{target} ({label})" if label else str(target), part)
        for label, table in results.interpreted("importance", none)
        for target, part in table.groupby("target", sort=False)
    ]
    shown = [(name, part, value) for name, part in parts[:MOST] for value in MAPS]
    figure, axes = panels(shown, across=2, width=4.4, height=3.6)
    for ax, (name, part, value) in zip(axes, shown, strict=True):
        networks = list(dict.fromkeys([*part["network_a"], *part["network_b"]]))
        matrix = square(part, PAIR, networks, value)
        limit = max(1e-6, float(np.nanmax(np.abs(matrix))))
        image = network_image(ax, matrix, networks, limit)
        above, below = part[f"{value}_low"] > 0, (part[f"{value}_high"] < 0) & (value != "drop")
        for row, column in np.argwhere(square(part.assign(sure=1.0 * (above | below)), PAIR, networks, "sure") == 1):
            ax.text(column, row, "*", ha="center", va="center_baseline", color="#111111", fontsize=8)
        ax.set_title(lined(f"{name}: {MAPS[value]}", 40))
        figure.colorbar(image, ax=ax, shrink=0.75)
    agreed = "; ".join(f"{name}: {agreement(part)}" for name, part in parts)
    chance = [name for name, part in parts if not part["r_low"].iloc[0] > 0]
    warned = f" Not told from chance, so that their maps explain nothing: {', '.join(chance)}." if chance else ""
    return figure, f"Agreement over seeds is {agreed}.{warned}"
