"""Figures that compare methods with each other, and values of a setting with each other."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from nerve.report.figures.colours import CYCLE, DIVERGING, MUTED
from nerve.report.figures.style import make_panels, shorten, square_matrix, wrap_title
from nerve.report.report_data import NothingToDraw, ReportData, rows_at

_MOST_PANELS = 9
_MOST_LINES = 20
_PAIR = ("line_a", "line_b")


def comparison_matrix(results: ReportData) -> tuple[Figure, str]:
    """Every method against every other.

    Score of the row's method minus score of the column's method (r, or AUC for two-class targets),
    on the same participants; rows and columns have the same numbers. A dot marks p < 0.05,
    two-sided, by the test that is corrected for overlapping training sets, but not for many
    comparisons (see q in the table below). Look for whole rows of one colour: a method that is
    better, or worse, than all others.
    """
    # One matrix per cohort and target.
    if results.comparisons.empty:
        raise NothingToDraw("Fewer than two methods have scores, so there is nothing to compare.")
    table = results.comparisons[results.comparisons["among"] == "methods"]
    if table.empty:
        raise NothingToDraw(
            "There is only one method that is not a reference: the table has all comparisons."
        )
    places = zip(table["cohort"], table["target"], strict=True)
    columns = list(dict.fromkeys(places))[:_MOST_PANELS]
    mean_r = results.mean_scores.groupby("line")["r"].mean().reindex(results.contenders).dropna()
    best = set(mean_r.nlargest(_MOST_LINES).index)
    lines = [line for line in results.contenders if line in best]
    table = table[table["line_a"].isin(lines) & table["line_b"].isin(lines)]
    side = 0.9 + 0.24 * len(lines)
    figure, axes = make_panels(
        columns, width=max(2.5, side), height=max(2.0, side), extra=2.6, sharey=True
    )
    limit = max(0.05, float(np.nanquantile(table["difference"].abs(), 0.98)))
    ticks = np.arange(len(lines))
    names = [f"{shorten(results.label(line), 32)}  {i + 1}" for i, line in enumerate(lines)]
    for ax, column in zip(axes, columns, strict=True):
        part = rows_at(table, *column)
        difference = square_matrix(part, _PAIR, lines, "difference", mirrored=-1)
        image = ax.imshow(difference, cmap=DIVERGING, vmin=-limit, vmax=limit)
        rows, across = np.nonzero(square_matrix(part, _PAIR, lines, "p_cv") < 0.05)
        ax.plot(across, rows, ".", color="#111111", markersize=4)
        ax.set_xticks(ticks, [str(tick + 1) for tick in ticks], fontsize=7.5)
        ax.set_yticks(ticks, names, fontsize=7.5)
        ax.set_title(wrap_title(results.column_name(*column), 22))
        ax.tick_params(length=0)
        ax.spines[:].set_color(MUTED)
    figure.colorbar(image, ax=axes, shrink=0.8, label="row − column", pad=0.02)
    n_methods = len(results.contenders)
    if n_methods == len(lines):
        return figure, ""
    return figure, f"The {len(lines)} methods of {n_methods} with the highest mean r are shown."


def sweep(results: ReportData) -> tuple[Figure, str]:
    """Effect of settings.

    r for each value of each setting that was varied, one line per cohort and target, averaged over
    the values of other settings. Bars are 95 % intervals, corrected for overlapping training sets.
    Look for changes larger than the bars: where there are none, the setting hardly matters here.
    """
    # One panel per method and setting.
    table = sweep_table(results)
    groups = []
    if len(table):
        groups = list(table.groupby(["name", "setting"], sort=False))[:_MOST_PANELS]
    if_empty = "No setting was varied, so there are no effects of settings to show."
    figure, axes = make_panels(groups, if_empty, extra=1.8, width=3.6, height=2.6)
    for ax, ((name, setting), part) in zip(axes, groups, strict=True):
        values = part["value"].unique()
        numbers = pd.to_numeric(values, errors="coerce")
        values = values[np.lexsort([values, numbers])]  # numbers first
        for i, (column, scores) in enumerate(part.groupby(["cohort", "target"], sort=False)):
            columns = ["r", "r_low_cv", "r_high_cv"]
            mean = scores.groupby("value")[columns].mean().reindex(values)
            below = mean["r"] - mean["r_low_cv"]
            above = mean["r_high_cv"] - mean["r"]
            ax.errorbar(
                np.arange(len(values)) + (i - 2) * 0.04,  # so that bars do not hide each other
                mean["r"],
                yerr=[below, above],
                color=CYCLE[i % len(CYCLE)],
                fmt="o-",
                markersize=4,
                linewidth=1.3,
                elinewidth=0.8,
                label=shorten(results.column_name(*map(str, column)), 24),
            )
        ax.set_xticks(np.arange(len(values)), [shorten(value, 14) for value in values])
        ax.set(xlabel=shorten(str(setting).replace("_", " ")), ylabel="r")
        ax.set_title(wrap_title(name, 34))
        ax.grid(axis="y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[:12], labels[:12], loc="outside right upper")
    return figure, ""


def sweep_table(results: ReportData) -> pd.DataFrame:
    """One row per swept setting of a line: what it was set to, and the scores.

    Parameters
    ----------
    results : ReportData
        Scores, and lines with swept settings.

    Returns
    -------
    DataFrame
        cohort, target, r, r_low_cv, r_high_cv, name, setting, value. Settings with one value are
        left out.
    """
    rows = []
    for score in results.mean_scores.to_dict("records"):
        line = results.lines.loc[score["line"]]
        for setting in line["swept"].split(",") if line["swept"] else []:
            value = line["settings"][setting]
            rows.append(
                {
                    "cohort": score["cohort"],
                    "target": score["target"],
                    "r": score["r"],
                    "r_low_cv": score.get("r_low_cv"),
                    "r_high_cv": score.get("r_high_cv"),
                    "name": results.name_of_sweep(score["line"]),
                    "setting": setting,
                    "value": value if isinstance(value, str) else json.dumps(value),
                }
            )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    n_values = table.groupby(["name", "setting"])["value"].transform("nunique")
    return table[n_values > 1]
