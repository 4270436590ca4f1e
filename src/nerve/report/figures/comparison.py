"""Figures that compare: each method with each other, and the values of a setting."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.colours import CYCLE, DIVERGING, MUTED
from nerve.report.figures.style import lined, panels, short, square
from nerve.report.report_data import NothingToDraw, ReportData, at

MOST, MOST_LINES = 9, 20
PAIR = ("line_a", "line_b")


def comparison_matrix(results: ReportData) -> tuple[Figure, str]:
    """Each method against each other.

    Score of the row's method less that of the column's (same numbers; r, or AUC for two-class targets), from a paired
    bootstrap on the same participants. A dot marks p < 0.05, two-sided, not corrected; the table below gives q. Look
    for whole rows of one colour: a method that is better, or worse, than all others.
    """
    # one matrix per cohort and target
    if results.comparisons.empty:
        raise NothingToDraw("Fewer than two methods have scores, so there is nothing to compare.")
    table = results.comparisons[results.comparisons["among"] == "methods"]
    if table.empty:
        raise NothingToDraw(
            "There is one method beside the reference rows: the table has all comparisons."
        )
    columns = list(dict.fromkeys(zip(table["cohort"], table["target"], strict=True)))[:MOST]
    mean = results.mean_scores.groupby("line")["r"].mean().reindex(results.contenders).dropna()
    best, total = set(mean.nlargest(MOST_LINES).index), len(results.contenders)
    lines = [line for line in results.contenders if line in best]
    table = table[table["line_a"].isin(lines) & table["line_b"].isin(lines)]
    side, places = 0.9 + 0.24 * len(lines), np.arange(len(lines))
    figure, axes = panels(
        columns, width=max(2.5, side), height=max(2.0, side), extra=2.6, sharey=True
    )
    limit = max(0.05, float(np.nanquantile(table["difference"].abs(), 0.98)))
    names = [f"{short(results.label(line), 32)}  {i + 1}" for i, line in enumerate(lines)]
    for ax, column in zip(axes, columns, strict=True):
        mine = at(table, *column)
        difference = square(mine, PAIR, lines, "difference", mirrored=-1)
        image = ax.imshow(difference, cmap=DIVERGING, vmin=-limit, vmax=limit)
        rows, across = np.nonzero(square(mine, PAIR, lines, "p") < 0.05)
        ax.plot(across, rows, ".", color="#111111", markersize=4)
        ax.set_xticks(places, [str(i + 1) for i in places], fontsize=7.5)
        ax.set_yticks(places, names, fontsize=7.5)
        ax.set_title(lined(results.column_name(*column), 22))
        ax.tick_params(length=0)
        ax.spines[:].set_color(MUTED)
    figure.colorbar(image, ax=axes, shrink=0.8, label="row − column", pad=0.02)
    some = f"The {len(lines)} methods of {total} with the highest mean r are shown."
    return figure, some if total > len(lines) else ""


def sweep(results: ReportData) -> tuple[Figure, str]:
    """What the settings change.

    Accuracy over the values of each setting that was swept, one line per cohort and target, other settings averaged.
    Bars are 95 % bootstrap intervals over participants. Look for ups and downs that exceed the bars: without them the
    setting hardly matters here.
    """
    # one panel per method and setting
    table = swept(results)
    groups = list(table.groupby(["name", "setting"], sort=False))[:MOST] if len(table) else []
    nothing = "No setting was swept, so there are no ablations to show."
    figure, axes = panels(groups, nothing, extra=1.8, width=3.6, height=2.6)
    for ax, ((name, setting), part) in zip(axes, groups, strict=True):
        values = part["value"].unique()
        values = values[
            np.lexsort([values, pd.to_numeric(values, errors="coerce")])
        ]  # numbers first
        for i, (column, line) in enumerate(part.groupby(["cohort", "target"], sort=False)):
            mean = line.groupby("value")[["r", "r_half_width"]].mean().reindex(values)
            places = (
                np.arange(len(values)) + (i - 2) * 0.04
            )  # side by side, so that bars do not hide each other
            ax.errorbar(
                places, mean["r"], yerr=mean["r_half_width"], color=CYCLE[i % len(CYCLE)], fmt="o-", markersize=4,
                linewidth=1.3, elinewidth=0.8, label=short(results.column_name(*map(str, column)), 24),
            )  # fmt: skip
        ax.set_xticks(np.arange(len(values)), [short(value, 14) for value in values])
        ax.set(xlabel=short(str(setting).replace("_", " ")), ylabel="r")
        ax.set_title(lined(name, 34))
        ax.grid(axis="y")
    figure.legend(
        *(words[:12] for words in axes[0].get_legend_handles_labels()), loc="outside right upper"
    )
    return figure, ""


def swept(results: ReportData) -> pd.DataFrame:
    """cohort, target, name, setting, value, r, r_half_width: one row per swept setting of a line."""
    rows = []
    for score in results.mean_scores.to_dict("records"):
        kept = {key: score.get(key) for key in ("cohort", "target", "r", "r_half_width")}
        line = results.lines.loc[score["line"]]
        for setting in line["swept"].split(",") if line["swept"] else []:
            value = line["settings"][setting]
            word = value if isinstance(value, str) else json.dumps(value)
            rows.append(
                kept
                | {"name": results.name_of_sweep(score["line"]), "setting": setting, "value": word}
            )
    table = pd.DataFrame(rows)
    return (
        table[table.groupby(["name", "setting"])["value"].transform("nunique") > 1]
        if rows
        else table
    )
