"""How many labels.

Score (r, or AUC for two-class targets) over the number of labelled participants: mean and 95 % interval of the draws,
which are the same for every line. Look for a line that is high at the left: it needs few labels.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from nerve.evaluation.curves import curve_sentences, curve_table
from nerve.report.figures.style import CYCLE, lined, panels, short
from nerve.report.results import NothingToDraw, Results

MOST = 9


def draw(results: Results) -> tuple[Figure, str]:
    """One panel per cohort and target, one curve per line; how many labels the lines need."""
    if results.curves.empty:
        raise NothingToDraw("No learning curves were asked for (labels).")
    labels = {line: results.label(line) for line in results.lines.index}
    table = curve_table(results.curves.drop(columns="row").rename(columns={"line": "row"}))  # means over draws, seeds
    groups = list(table.groupby(["cohort", "target"], sort=False))[:MOST]
    figure, axes = panels(groups, width=3.4, height=2.7, extra=1.8)
    for ax, (column, part) in zip(axes, groups, strict=True):
        for i, (line, curve) in enumerate(part.groupby("row", sort=False)):
            colour, name = CYCLE[i % len(CYCLE)], short(labels[str(line)], 30)
            ax.fill_between(curve["labels"], curve["low"], curve["high"], color=colour, alpha=0.12, linewidth=0)
            ax.plot(curve["labels"], curve["score"], "o-", color=colour, markersize=4, linewidth=1.4, label=name)
        ax.set(xlabel="labelled participants", ylabel="AUC" if (part["metric"] == "auc").any() else "r")
        ax.set_title(lined(results.column_name(*map(str, column))))
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure, " ".join(curve_sentences(table, labels, list(labels))[:6])
