"""What the settings change.

Accuracy over the values of each setting that was swept, one line per cohort and target, other settings averaged. Bars
are 95 % bootstrap intervals over participants. Look for ups and downs that exceed the bars: without them the setting
hardly matters here.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import CYCLE, lined, panels, short
from nerve.report.results import Results

MOST = 9


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per method and setting."""
    table = swept(results)
    groups = list(table.groupby(["name", "setting"], sort=False))[:MOST] if len(table) else []
    nothing = "No setting was swept, so there are no ablations to show."
    figure, axes = panels(groups, nothing, extra=1.8, width=3.6, height=2.6)
    for ax, ((name, setting), part) in zip(axes, groups, strict=True):
        values = part["value"].unique()
        values = values[np.lexsort([values, pd.to_numeric(values, errors="coerce")])]  # numbers first
        for i, (column, line) in enumerate(part.groupby(["cohort", "target"], sort=False)):
            mean = line.groupby("value")[["r", "r_half_width"]].mean().reindex(values)
            places = np.arange(len(values)) + (i - 2) * 0.04  # side by side, so that bars do not hide each other
            ax.errorbar(
                places, mean["r"], yerr=mean["r_half_width"], color=CYCLE[i % len(CYCLE)], fmt="o-", markersize=4,
                linewidth=1.3, elinewidth=0.8, label=short(results.column_name(*map(str, column)), 24),
            )  # fmt: skip
        ax.set_xticks(np.arange(len(values)), [short(value, 14) for value in values])
        ax.set(xlabel=short(str(setting).replace("_", " ")), ylabel="r")
        ax.set_title(lined(name, 34))
        ax.grid(axis="y")
    figure.legend(*(words[:12] for words in axes[0].get_legend_handles_labels()), loc="outside right upper")
    return figure, ""


def swept(results: Results) -> pd.DataFrame:
    """cohort, target, name, setting, value, r, r_half_width: one row per swept setting of a line."""
    rows = []
    for score in results.mean_scores.to_dict("records"):
        kept = {key: score.get(key) for key in ("cohort", "target", "r", "r_half_width")}
        for setting, value in results.lines.loc[score["line"], "settings"].items():
            word = value if isinstance(value, str) else json.dumps(value)
            rows.append(kept | {"name": results.name(score["line"]), "setting": setting, "value": word})
    table = pd.DataFrame(rows)
    return table[table.groupby(["name", "setting"])["value"].transform("nunique") > 1] if rows else table
