"""How many labelled participants a prediction needs: scores over the number of labels."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from nerve.evaluation.curves import curve_sentences, curve_table
from nerve.report.figures.style import CYCLE, lined, panels, short
from nerve.report.results import NothingToDraw, Results

SECTION = "prediction"
TITLE = "How many labels"
MOST = 9


def caption(results: Results) -> str:
    """What is shown, and what to look for."""
    said = (
        "Score (r, or AUC for two-class targets) over the number of labelled participants: mean and 95 % interval of "
        "the draws, which are the same for every line. Look for a line that is high at the left: it needs few labels."
    )
    labels = {line: results.label(line) for line in results.lines.index}
    return " ".join([said, *curve_sentences(_table(results), labels, list(labels))[:6]])


def draw(results: Results) -> Figure:
    """One panel per cohort and target, one curve per line."""
    table = _table(results)
    if table.empty:
        raise NothingToDraw("No learning curves were asked for (labels).")
    groups = list(table.groupby(["cohort", "target"], sort=False))[:MOST]
    figure, axes = panels(len(groups), across=3, width=3.4, height=2.7, extra=1.8)
    for ax, (column, part) in zip(axes, groups, strict=True):
        for i, (line, curve) in enumerate(part.groupby("row", sort=False)):
            colour = CYCLE[i % len(CYCLE)]
            ax.fill_between(curve["labels"], curve["low"], curve["high"], color=colour, alpha=0.12, linewidth=0)
            name = short(results.label(str(line)), 30)
            ax.plot(curve["labels"], curve["score"], "o-", color=colour, markersize=4, linewidth=1.4, label=name)
        ax.set_title(lined(results.column_name(*map(str, column))))
        ax.set_xlabel("labelled participants")
        ax.set_ylabel("AUC" if (part["metric"] == "auc").any() else "r")
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _table(results: Results) -> pd.DataFrame:
    """Means over draws and seeds, by line."""
    curves = results.curves
    return curve_table(curves.drop(columns="row").rename(columns={"line": "row"})) if len(curves) else curves
