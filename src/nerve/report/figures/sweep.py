"""What a setting changes: r over the values that were swept."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.style import CYCLE, lined, panels, short
from nerve.report.results import NothingToDraw, Results

SECTION = "comparison"
TITLE = "What the settings change"
MOST = 9


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    return (
        "Accuracy over the values of each setting that was swept, one line per cohort and target, other settings "
        "averaged. Bars are 95 % bootstrap intervals over participants. Look for ups and downs that exceed the bars: "
        "without them the setting hardly matters here."
    )


def draw(results: Results) -> Figure:
    """One panel per method and setting."""
    table = swept(results)
    if table.empty:
        raise NothingToDraw("No setting was swept, so there are no ablations to show.")
    groups = list(table.groupby(["name", "setting"], sort=False))[:MOST]
    figure, axes = panels(len(groups), across=3, extra=1.8, width=3.6, height=2.6)
    for ax, ((name, setting), part) in zip(axes, groups, strict=True):
        values = sorted(part["value"].unique(), key=_by_number)
        for i, (column, line) in enumerate(part.groupby(["cohort", "target"], sort=False)):
            mean = line.groupby("value")[["r", "r_half_width"]].mean().reindex(values)
            look: dict[str, Any] = {"color": CYCLE[i % len(CYCLE)], "fmt": "o-", "markersize": 4, "elinewidth": 0.8}
            places = np.arange(len(values)) + (i - 2) * 0.04  # side by side, so that bars do not hide each other
            shown = short(results.column_name(*column), 24)  # type: ignore[arg-type]
            ax.errorbar(places, mean["r"], yerr=mean["r_half_width"], label=shown, linewidth=1.3, **look)
        ax.set_xticks(np.arange(len(values)), [short(value, 14) for value in values])
        ax.set_xlabel(short(str(setting).replace("_", " ")))
        ax.set_ylabel("r")
        ax.set_title(lined(name, 34))
        ax.grid(axis="y")
    figure.legend(*(words[:12] for words in axes[0].get_legend_handles_labels()), loc="outside right upper")
    return figure


def swept(results: Results) -> pd.DataFrame:
    """cohort, target, name, setting, value, r, r_half_width: one row per swept setting of a line."""
    rows = []
    for score in results.mean_scores.to_dict("records"):
        kept = {key: score.get(key) for key in ("cohort", "target", "r", "r_half_width")}
        for setting, value in results.lines.loc[score["line"], "settings"].items():
            rows.append(kept | {"name": results.name(score["line"]), "setting": setting, "value": _word(value)})
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    several = table.groupby(["name", "setting"])["value"].transform("nunique") > 1
    return table[several]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _by_number(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), ""
    except ValueError:
        return 1, 0.0, value
