"""Figures of the predictions: against observed values, chance, number of labels and head motion."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nerve.evaluation.bootstrap import permutation_p
from nerve.evaluation.curves import curve_sentences, curve_table
from nerve.report.figures.colours import BLUE, CYCLE, INK, MUTED, ORANGE, VERMILION
from nerve.report.figures.style import (
    make_line_panels,
    make_panels,
    most_panels,
    shorten,
    wrap_title,
)
from nerve.report.report_data import NothingToDraw, ReportData, rows_at

_MOST_PANELS = 12
_MOST_POINTS = 3000
_MOST_CURVES = 9


class _NullPanel(NamedTuple):
    title: str
    null: np.ndarray  # r of permutations
    observed: dict[str, float]  # r by name


def scatter(results: ReportData) -> tuple[Figure, str]:
    """Predicted against observed.

    Each dot is one participant, predicted by a model that was not trained on that participant's
    score. Each panel shows the method with the highest r for its target; because it was chosen for
    its r, this r is optimistic. Observed values are those after covariates were removed. The line
    is the least-squares fit. Look for a cloud of dots that tilts as a whole, not for a few outliers
    that determine the line.
    """
    # One panel per cohort and target.
    points_of = {column: _best_predictions(results, column) for column in results.columns}
    shown = [column for column in results.columns if len(points_of[column])][:_MOST_PANELS]
    figure, axes = make_panels(shown, "There are no predictions to show.", height=2.7)
    for ax, column in zip(axes, shown, strict=True):
        points = points_of[column]
        observed = points["observed"].to_numpy(float)
        predicted = points["predicted"].to_numpy(float)
        drawn = np.random.default_rng(0).permutation(len(points))[:_MOST_POINTS]
        is_crowded = len(drawn) >= 300
        ax.scatter(
            observed[drawn],
            predicted[drawn],
            s=5 if is_crowded else 12,
            color=BLUE,
            alpha=0.5,
            linewidths=0,
            rasterized=is_crowded,
        )
        words = shorten(results.label(points["line"].iloc[0]), 30)
        if observed.std() > 0 and predicted.std() > 0:
            slope, intercept = np.polyfit(observed, predicted, 1)
            ends = np.array([observed.min(), observed.max()])
            ax.plot(ends, intercept + slope * ends, color=VERMILION, linewidth=1.6)
            words += f"\nr = {np.corrcoef(observed, predicted)[0, 1]:.2f}, n = {len(points):,}"
        ax.axhline(predicted.mean(), color=MUTED, linewidth=0.6, linestyle=":")
        ax.set_title(wrap_title(results.column_name(*column)))
        ax.text(0.03, 0.97, words, va="top", fontsize=8, transform=ax.transAxes)
        ax.margins(y=0.22)
        ax.set(xlabel="observed", ylabel="predicted")
    return figure, ""


def null_distribution(results: ReportData) -> tuple[Figure, str]:
    """Observed r beside chance.

    Bars: r after the target was permuted over participants and the model fitted again, for the best
    row with permutations; in panels named “networks”, r of models trained with permuted networks.
    Lines: the observed r; p is the share of permutations that reach it. Look for lines to the right
    of the bars.
    """
    # One panel per cohort and target, for each of the two nulls.
    shown = [_null_of_target(results, column) for column in results.columns]
    shown += [_null_of_networks(results, column) for column in results.columns]
    known = [panel for panel in shown if panel is not None][:_MOST_PANELS]
    if_empty = "No permutations were made (n_permutations: 0), so there is no null distribution."
    figure, axes = make_panels(known, if_empty, height=2.2)
    for ax, panel in zip(axes, known, strict=True):
        _draw_null(ax, panel.null, panel.observed)
        ax.set_title(wrap_title(panel.title))
    return figure, ""


def learning_curves(results: ReportData) -> tuple[Figure, str]:
    """Score by number of labels.

    Score (r, or AUC for two-class targets) by the number of labelled participants: mean and 95 %
    interval over random draws of these participants, which are the same for every method. Look for
    a line that is high at the left: this method needs few labels.
    """
    # One panel per cohort and target, one curve per line.
    if results.curves.empty:
        raise NothingToDraw("No learning curves were asked for (labels is empty).")
    labels = {line: results.label(line) for line in results.lines.index}
    # Means over draws and seeds.
    table = curve_table(results.curves.drop(columns="row").rename(columns={"line": "row"}))
    groups = list(table.groupby(["cohort", "target"], sort=False))[:_MOST_CURVES]
    figure, axes = make_panels(groups, width=3.4, height=2.7, extra=1.8)
    for ax, (column, part) in zip(axes, groups, strict=True):
        for i, (line, curve) in enumerate(part.groupby("row", sort=False)):
            x = curve["labels"]
            look = {"color": CYCLE[i % len(CYCLE)], "linewidth": 1.4, "markersize": 4}
            ax.fill_between(
                x, curve["low"], curve["high"], color=look["color"], alpha=0.12, linewidth=0
            )
            name = shorten(results.label(str(line)), 30)
            ax.plot(x, curve["score"], "o-", label=name, **look)
        score = "AUC" if (part["metric"] == "auc").any() else "r"
        ax.set(xlabel="labelled participants", ylabel=score)
        ax.set_title(wrap_title(results.column_name(*map(str, column))))
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure, " ".join(curve_sentences(table, labels, list(labels))[:6])


def motion(results: ReportData) -> tuple[Figure, str]:
    """Head motion.

    Correlation of each model's predictions with mean framewise displacement (FD; dots), and that of
    the target itself before covariates were removed (dashed line). Look for dots near zero. Red
    dots: predictions follow motion more closely than the target; such a model may have learned who
    moved.
    """
    # One panel per cohort and target, one row per line.
    scores = results.mean_scores
    lines = list(results.lines.index)
    if "r_prediction_motion" not in scores or scores["r_prediction_motion"].isna().all():
        raise NothingToDraw(
            "Head motion was not examined: there is no column mean_fd, or motion is none."
        )
    known = scores.dropna(subset=["r_prediction_motion"])
    groups = list(known.groupby(["cohort", "target"], sort=False))[: most_panels(len(lines))]
    columns = [column for column, _ in groups]
    figure, axes = make_line_panels(results, columns, "r with mean FD")
    for ax, (_, part) in zip(axes, groups, strict=True):
        ax.axvline(0, color=MUTED, linewidth=0.9)
        rows = [lines.index(line) for line in part["line"]]
        r = part["r_prediction_motion"]
        colours = np.where(r.abs() > part["r"].abs(), VERMILION, ORANGE)
        ax.hlines(rows, 0, r, color=ORANGE, linewidth=1.4)
        ax.scatter(r, rows, s=25, color=colours, zorder=3)
        ax.axvline(part["r_target_motion"].mean(), color=MUTED, linestyle="--", linewidth=1.1)
    return figure, ""


def _best_predictions(results: ReportData, column: tuple[str, str]) -> pd.DataFrame:
    """Predictions of the first seed of the best line, participants with both values."""
    predictions = rows_at(results.predictions, *column)
    best = results.best_line(*column, among=results.contenders)
    if predictions.empty or best is None:
        return predictions.iloc[:0]
    first_row = results.lines.loc[best, "row"]
    of_best = predictions[predictions["row"] == first_row]
    return of_best.dropna(subset=["observed", "predicted"])


def _draw_null(ax: Axes, null: np.ndarray, observed: dict[str, float]) -> None:
    n_bins = min(30, max(6, len(null) // 8))
    ax.hist(null, bins=n_bins, color="#b4bac6", edgecolor="white", linewidth=0.3)
    for i, (name, r) in enumerate(observed.items()):
        p = permutation_p(null, r)
        colour = INK if len(observed) == 1 else CYCLE[i % len(CYCLE)]
        ax.axvline(r, color=colour, linewidth=1.8, label=f"{name}\nr = {r:.2f}, p = {p:.3g}")
    ax.margins(y=0.45)
    ax.axvline(0, color=MUTED, linewidth=0.6, linestyle=":")
    ax.legend(loc="upper left", fontsize=7, handlelength=1)
    ax.set(xlabel="r", ylabel="permutations")


def _null_of_target(results: ReportData, column: tuple[str, str]) -> _NullPanel | None:
    """r after permuting the target, for the best line with permutations."""
    nulls = rows_at(results.nulls, *column)
    best = results.best_line(*column, among=set(nulls["line"])) if len(nulls) else None
    if best is None:
        return None
    null = nulls.loc[nulls["line"] == best, "r"].dropna().to_numpy(float)
    observed = {shorten(results.label(best), 26): results.r(*column, best)}
    return _NullPanel(results.column_name(*column), null, observed)


def _null_of_networks(results: ReportData, column: tuple[str, str]) -> _NullPanel | None:
    """r of models with permuted networks, beside the observed r of the last four methods."""
    null = rows_at(results.null_scores, *column)
    if null.empty:
        return None
    known = [line for line in results.contenders if np.isfinite(results.r(*column, line))]
    observed = {shorten(results.label(line), 26): results.r(*column, line) for line in known[-4:]}
    title = f"{results.column_name(*column)} · networks"
    return _NullPanel(title, null["r"].to_numpy(float), observed)
