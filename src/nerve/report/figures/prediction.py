"""Figures of the predictions: how good they are, beside chance, labels and motion."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.evaluation.bootstrap import permutation_p
from nerve.evaluation.curves import curve_sentences, curve_table
from nerve.report.figures.colours import BLUE, CYCLE, INK, MUTED, ORANGE, VERMILION
from nerve.report.figures.style import line_panels, lined, panels, readable, short
from nerve.report.report_data import NothingToDraw, ReportData, at

MOST_PANELS, MOST_POINTS, MOST_CURVES = 12, 3000, 9
Panel = tuple[str, np.ndarray, dict[str, float]]  # title, null, observed r by name


def forest(results: ReportData) -> tuple[Figure, str]:
    """Accuracy of every method.

    Pearson's r between observed and predicted values, out of fold. The bar is the 95 % bootstrap interval over
    participants; the thin line is the wider interval that also allows for participants having trained other folds'
    models. Look for intervals that exclude zero, and for how far those of methods overlap.
    """
    # one panel per cohort and target, one row per line; all panels share both axes
    shown, lines = readable(len(results.lines)), list(results.lines.index)
    columns = results.columns[:shown]
    if results.scores.empty:
        raise NothingToDraw("There are no scores: nothing was predicted.")
    colour_of = dict(zip(dict.fromkeys(results.lines["group"]), cycle(CYCLE), strict=False))
    figure, axes = line_panels(results, columns, "r")
    for ax, column in zip(axes, columns, strict=True):
        _intervals(
            ax, results, column, lines, [colour_of[group] for group in results.lines["group"]]
        )
        mine = at(results.scores, *column)
        several = mine[mine.duplicated("line", keep=False)]
        places = [lines.index(one) + 0.22 for one in several["line"]]
        ax.plot(several["r"], places, ".", color=MUTED, markersize=3)
    for group, colour in colour_of.items():
        axes[0].plot([], [], color=colour, label=short(group or "other"), marker="o", linewidth=2.6)
    if len(colour_of) > 1:
        figure.legend(loc="outside upper left", ncols=len(colour_of))
    seeds, total = (
        results.scores.groupby(["cohort", "target", "line"]).size().max(),
        len(results.columns),
    )
    over = f"Small dots are single seeds ({seeds})." if seeds > 1 else ""
    some = (
        f" The first {shown} of {total} targets are shown; the table has all."
        if total > shown
        else ""
    )
    return figure, over + some


def _intervals(
    ax: Axes, results: ReportData, column: tuple[str, str], lines: list[str], colours: list[str]
) -> None:
    places = np.arange(len(lines))
    known = [results.by_place.get((*column, line), {}) for line in lines]
    scores = pd.DataFrame(
        known, index=places, columns=["r", "r_low", "r_high", "r_low_cv", "r_high_cv"], dtype=float
    )
    for low, high, width in (("r_low_cv", "r_high_cv", 0.9), ("r_low", "r_high", 2.6)):
        ax.hlines(places, scores[low], scores[high], colors=colours, linewidth=width)
    ax.scatter(scores["r"], places, s=30, color=colours, edgecolor="white", linewidth=0.6, zorder=3)
    for row in places[scores["r"].isna()]:
        ax.text(0, row, "  not available", va="center", fontsize=7, color=MUTED)


def scatter(results: ReportData) -> tuple[Figure, str]:
    """Predicted against observed.

    Each dot is one participant, predicted by a model that never saw that participant's score; for each target the
    method with the highest r (chosen after the fact, so its r flatters). Observed values after covariates were removed.
    The line is the least-squares fit. Look for a cloud that tilts as a whole, not for a few outliers that carry the
    fit.
    """
    # one panel per cohort and target
    shown = [
        (column, points) for column in results.columns if len(points := _points(results, column))
    ][:MOST_PANELS]
    figure, axes = panels(shown, "There are no predictions to show.", height=2.7)
    for ax, (column, points) in zip(axes, shown, strict=True):
        observed, predicted = (
            points["observed"].to_numpy(float),
            points["predicted"].to_numpy(float),
        )
        drawn = np.random.default_rng(0).permutation(len(points))[:MOST_POINTS]
        size, many = (12, False) if len(drawn) < 300 else (5, True)
        ax.scatter(
            observed[drawn],
            predicted[drawn],
            s=size,
            color=BLUE,
            alpha=0.5,
            linewidths=0,
            rasterized=many,
        )
        said = short(results.label(points["line"].iloc[0]), 30)
        if observed.std() > 0 and predicted.std() > 0:
            slope, intercept = np.polyfit(observed, predicted, 1)
            ends = np.array([observed.min(), observed.max()])
            ax.plot(ends, intercept + slope * ends, color=VERMILION, linewidth=1.6)
            said += f"\nr = {np.corrcoef(observed, predicted)[0, 1]:.2f}, n = {len(points):,}"
        ax.axhline(predicted.mean(), color=MUTED, linewidth=0.6, linestyle=":")
        ax.set_title(lined(results.column_name(*column)))
        ax.text(0.03, 0.97, said, va="top", fontsize=8, transform=ax.transAxes)
        ax.margins(y=0.22)
        ax.set(xlabel="observed", ylabel="predicted")
    return figure, ""


def _points(results: ReportData, column: tuple[str, str]) -> pd.DataFrame:
    """Predictions of the first row (seed) of the best line, participants with both values."""
    mine, best = at(results.predictions, *column), results.best(*column, among=results.contenders)
    if mine.empty or best is None:
        return mine.iloc[:0]
    return mine[mine["row"] == results.lines.loc[best, "row"]].dropna(
        subset=["observed", "predicted"]
    )


def null_distribution(results: ReportData) -> tuple[Figure, str]:
    """Chance, and what was observed.

    Bars: r when the target is permuted over participants and the model is fitted again, for the best line that has such
    a null; in panels named “networks”, where there are any, r of models trained with permuted networks. Lines are the
    observed r, p the share of permutations that reach it. Look for lines that stand clear of the bars.
    """
    # one panel per cohort and target, for each kind of null
    drawn = [
        panel
        for make in (_of_target, _of_networks)
        for one in results.columns
        if (panel := make(results, one))
    ]
    nothing = "No permutations were made (n_permutations: 0), so there is no null distribution."
    figure, axes = panels(drawn[:MOST_PANELS], nothing, height=2.2)
    for ax, (title, null, observed) in zip(axes, drawn, strict=False):
        _bars(ax, null, observed)
        ax.set_title(lined(title))
    return figure, ""


def _bars(ax: Axes, null: np.ndarray, observed: dict[str, float]) -> None:
    ax.hist(
        null,
        bins=min(30, max(6, len(null) // 8)),
        color="#b4bac6",
        edgecolor="white",
        linewidth=0.3,
    )
    for i, (name, r) in enumerate(observed.items()):
        p = permutation_p(null, r)
        colour = INK if len(observed) == 1 else CYCLE[i % len(CYCLE)]
        ax.axvline(r, color=colour, linewidth=1.8, label=f"{name}\nr = {r:.2f}, p = {p:.3g}")
    ax.margins(y=0.45)
    ax.axvline(0, color=MUTED, linewidth=0.6, linestyle=":")
    ax.legend(loc="upper left", fontsize=7, handlelength=1)
    ax.set(xlabel="r", ylabel="permutations")


def _of_target(results: ReportData, column: tuple[str, str]) -> Panel | None:
    """The null of the best line that has one: that of its own rows, found by their ids."""
    mine = at(results.nulls, *column)
    best = results.best(*column, among=set(mine["line"])) if len(mine) else None
    if best is None:
        return None
    null = mine.loc[mine["line"] == best, "r"].dropna().to_numpy(float)
    return (
        results.column_name(*column),
        null,
        {short(results.label(best), 26): results.r(*column, best)},
    )


def _of_networks(results: ReportData, column: tuple[str, str]) -> Panel | None:
    null = at(results.null_scores, *column)
    if null.empty:
        return None
    known = [
        (short(results.label(line), 26), results.r(*column, line)) for line in results.contenders
    ]
    observed = dict([(name, r) for name, r in known if np.isfinite(r)][-4:])
    return f"{results.column_name(*column)} · networks", null["r"].to_numpy(float), observed


def learning_curves(results: ReportData) -> tuple[Figure, str]:
    """How many labels.

    Score (r, or AUC for two-class targets) over the number of labelled participants: mean and 95 % interval of the
    draws, which are the same for every line. Look for a line that is high at the left: it needs few labels.
    """
    # one panel per cohort and target, one curve per line
    if results.curves.empty:
        raise NothingToDraw("No learning curves were asked for (labels).")
    labels = {line: results.label(line) for line in results.lines.index}
    table = curve_table(
        results.curves.drop(columns="row").rename(columns={"line": "row"})
    )  # means over draws, seeds
    groups = list(table.groupby(["cohort", "target"], sort=False))[:MOST_CURVES]
    figure, axes = panels(groups, width=3.4, height=2.7, extra=1.8)
    for ax, (column, part) in zip(axes, groups, strict=True):
        for i, (line, curve) in enumerate(part.groupby("row", sort=False)):
            colour, name = CYCLE[i % len(CYCLE)], short(results.label(str(line)), 30)
            ax.fill_between(
                curve["labels"], curve["low"], curve["high"], color=colour, alpha=0.12, linewidth=0
            )
            ax.plot(
                curve["labels"],
                curve["score"],
                "o-",
                color=colour,
                markersize=4,
                linewidth=1.4,
                label=name,
            )
        ax.set(
            xlabel="labelled participants", ylabel="AUC" if (part["metric"] == "auc").any() else "r"
        )
        ax.set_title(lined(results.column_name(*map(str, column))))
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure, " ".join(curve_sentences(table, labels, list(labels))[:6])


def motion(results: ReportData) -> tuple[Figure, str]:
    """Head motion.

    Correlation of each model's predictions with mean framewise displacement (dots), beside that of the target itself
    (dashed line; before covariates were removed). Look for dots near zero. Red: predictions follow motion more closely
    than the target; such a model may have learned who moved.
    """
    # one panel per cohort and target, one row per line
    scores, lines = results.mean_scores, list(results.lines.index)
    if "r_prediction_motion" not in scores or scores["r_prediction_motion"].isna().all():
        raise NothingToDraw(
            "Head motion is not known (no column mean_fd), so it cannot be checked."
        )
    known = scores.dropna(subset=["r_prediction_motion"])
    groups = list(known.groupby(["cohort", "target"], sort=False))[: readable(len(lines))]
    figure, axes = line_panels(results, [column for column, _ in groups], "r with mean FD")
    for ax, (_, part) in zip(axes, groups, strict=True):
        rows, r = [lines.index(one) for one in part["line"]], part["r_prediction_motion"]
        more = np.where(r.abs() > part["r"].abs(), VERMILION, ORANGE)
        ax.hlines(rows, 0, r, color=ORANGE, linewidth=1.4)
        ax.scatter(r, rows, s=25, color=more, zorder=3)
        ax.axvline(part["r_target_motion"].mean(), color=MUTED, linestyle="--", linewidth=1.1)
    return figure, ""
