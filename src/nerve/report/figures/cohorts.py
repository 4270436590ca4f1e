"""Figures of the cohorts: who took part, mean FC, resampling, similarity to a training cohort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from nerve.data.common_space import MeanPair
from nerve.data.quality.likeness import ALIKE, Likeness
from nerve.data.resampling import Resampling
from nerve.report.figures.colours import BLUE, GREEN, INK, MUTED, ORANGE, SKY, colour_limit
from nerve.report.figures.style import draw_fc, make_panels, shorten
from nerve.report.report_data import CohortFacts, NothingToDraw, ReportData

_MOST_COHORTS = 8
_MOST_SITES = 12
_MOST_MEANS = 6
_MOST_MODELS = 4
_MOST_DOTS = 3000
_NEEDS_COHORT = "`nerve report DIR --cohort PATH` adds who took part and their mean connectivity."
_FEW = (
    "Mean connectivity is shown for ten participants or more: that of fewer would show single "
    "participants."
)
_NUMBERS = {
    "spread": "spread of\nentries",
    "negative": "share of\nnegative",
    "largest": "largest\nentry",
}


def cohort_overview(results: ReportData) -> tuple[Figure, str]:
    """Who took part.

    Age, sex, site and head motion (mean framewise displacement, FD), one row per cohort. Look for
    differences between cohorts that a model could exploit, and for participants whose mean FD is
    above 0.5 mm (dashed line).
    """
    # One row per cohort; age, sex, site and motion across.
    known = [facts for facts in results.cohorts.values() if len(facts.participants)]
    shown = known[:_MOST_COHORTS]
    if not shown:
        raise NothingToDraw(_NEEDS_COHORT)
    figure = Figure(figsize=(9.6, 1.0 + 1.55 * len(shown)), layout="constrained")
    widths = {"width_ratios": [3, 1.4, 2.4, 3]}
    grid = figure.subplots(len(shown), 4, squeeze=False, gridspec_kw=widths)
    for (age, sex, site, motion), facts in zip(grid, shown, strict=True):
        _draw_histogram(age, facts.numbers("age"), "age (years)", BLUE)
        _draw_counts(sex, facts.counts("sex"), "sex: participants", ORANGE)
        _draw_counts(site, facts.counts("site"), "site: participants", SKY)
        _draw_histogram(motion, facts.numbers("mean_fd"), "mean FD (mm)", GREEN)
        if motion.patches:
            motion.axvline(0.5, color=MUTED, linestyle="--", linewidth=0.8)
        age.set_title(f"{shorten(facts.label)}  (n = {facts.n:,})")
    return figure, ""


def group_mean_fc(results: ReportData) -> tuple[Figure, str]:
    """Mean connectivity, sorted by network.

    Mean functional connectivity (Pearson r) of each cohort, regions sorted by network; lines are
    network borders. Look for blocks of high r along the diagonal: where they are missing, the rows
    of the matrices are probably not in the order of the parcellation.
    """
    # One panel per cohort.
    cohorts = results.cohorts.values()
    known = [f for f in cohorts if f.mean is not None and f.parcellation is not None]
    shown = known[:_MOST_MEANS]
    has_participants = any(len(facts.participants) for facts in cohorts)
    if_empty = _FEW if has_participants else _NEEDS_COHORT
    figure, axes = make_panels(shown, if_empty, width=3.5, height=3.1, extra=0.5)
    limit = colour_limit(*(facts.mean for facts in shown))
    for ax, facts in zip(axes, shown, strict=True):
        networks = facts.parcellation.networks  # type: ignore[union-attr]
        image = draw_fc(ax, facts.mean, networks, limit)
        ax.set_title(f"{shorten(facts.label)}  (n = {facts.n:,})", pad=13)
    figure.colorbar(image, ax=axes, shrink=0.6, label="mean r", pad=0.02)
    return figure, " ".join(_contrast_sentence(facts) for facts in shown)


def common_space(results: ReportData) -> tuple[Figure, str]:
    """Cohorts in a common atlas.

    Group means of FC (Pearson r) side by side, regions sorted by network: of cohorts that were
    resampled to the same regions, or of one cohort before and after resampling. In the brain, each
    dot is a region of the new atlas at its MNI centre, coloured by the distance to the nearest
    region of the original atlas. Look for the same blocks in both matrices, and for dots that are
    far from any original region.
    """
    # One row per pair: two matrices, and the weights where they are known.
    pairs = list(results.mean_pairs) or _resampled_pairs(results)
    if not pairs:
        raise NothingToDraw(
            "No cohort was resampled, or the means are over fewer than ten participants."
        )
    pairs = pairs[:_MOST_MODELS]
    has_weights = any(pair.resampling is not None for pair in pairs)
    figure = Figure(figsize=(10.8 if has_weights else 7.6, 3.5 * len(pairs)), layout="constrained")
    grid = figure.subplots(len(pairs), 3 if has_weights else 2, squeeze=False)
    for axes, pair in zip(grid, pairs, strict=True):
        limit = colour_limit(*pair.means)
        panels = zip(axes[:2], pair.means, pair.parcellations, pair.names, strict=True)
        for ax, mean, parcellation, name in panels:
            image = draw_fc(ax, mean, parcellation.networks, limit, labels=len(mean) <= 450)
            ax.set_title(shorten(name, 34), pad=13)
        figure.colorbar(image, ax=axes[:2], shrink=0.6, label="mean r", pad=0.02)
        axes[0].set_xlabel(pair.words)
        if has_weights:
            axes[2].set_axis_off()
    weighted = []
    for axes, pair in zip(grid, pairs, strict=True):
        if pair.resampling is not None:
            scale = _add_scale(figure, axes[2], pair.resampling)
            weighted.append((axes[2], pair.resampling, scale))
    # nilearn takes the place that an axis has now: the layout must be final before
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax, resampling, scale in weighted:
        _draw_weights(figure, ax, resampling, scale)
    words = [f"{pair.names[0]}, {pair.names[1]}: {pair.words}." for pair in pairs]
    return figure, " ".join(words)


def _resampled_pairs(results: ReportData) -> list[MeanPair]:
    """Pairs of cohorts of an evaluation, one or both of which were resampled."""
    meeting = results.about.get("resampling", {})
    pairs = []
    for first, other, r in meeting.get("correlations", []):
        if not {first, other} & set(meeting["resampled"]):
            continue
        facts = [results.cohorts.get(first), results.cohorts.get(other)]
        known = [cohort for cohort in facts if cohort is not None and cohort.mean is not None]
        if len(known) < 2:
            continue
        pairs.append(
            MeanPair(
                (known[0].label, known[1].label),
                (known[0].mean, known[1].mean),  # type: ignore[arg-type]
                (known[0].parcellation, known[1].parcellation),  # type: ignore[arg-type]
                f"group means correlate by {r:.2f}",
            )
        )
    return pairs


def _add_scale(figure: Figure, ax: Axes, resampling: Resampling) -> Normalize:
    """Title and colour bar of the distances to the nearest original region."""
    largest = np.nan_to_num(resampling.nearest, posinf=0.0).max(initial=0.0)
    scale = Normalize(0.0, max(1.0, float(largest)))
    title = "mm to the nearest original region"
    if resampling.width:
        title += f"\nweights {resampling.width:.1f} mm wide"
    ax.set_title(title, pad=13)
    figure.colorbar(ScalarMappable(scale, "viridis"), ax=ax, shrink=0.6, label="mm", pad=0.02)
    return scale


def _draw_weights(figure: Figure, ax: Axes, resampling: Resampling, scale: Normalize) -> None:
    """Regions of the new atlas at their centres: in nilearn's glass brain, or seen from above."""
    centres = resampling.target.coordinates
    distances = resampling.nearest
    known = np.isfinite(centres).all(axis=1) & np.isfinite(distances)
    try:
        from nilearn.plotting import plot_markers
    except ImportError:
        x, y, _ = centres[known].T
        ax.set_axis_on()
        ax.scatter(x, y, c=distances[known], s=14, cmap="viridis", norm=scale)
        ax.set(xlabel="x (mm)", ylabel="y (mm)", aspect="equal")
    else:
        plot_markers(
            distances[known],
            centres[known],
            node_size=14,
            node_cmap="viridis",
            node_vmin=scale.vmin,
            node_vmax=scale.vmax,
            display_mode="z",
            figure=figure,
            axes=ax,
            colorbar=False,
        )


def likeness(results: ReportData) -> tuple[Figure, str]:
    """Tested cohort beside training cohort.

    Left: each dot is a connection, by its mean FC in the training cohort of the model and in the
    tested cohort. Right: numbers that depend on preprocessing, in both cohorts. Look for dots along
    the dashed line and for bars of the same height.
    """
    # One row per model and cohort.
    known = [(names, like) for names, like in results.likeness.items() if like.compared is not None]
    shown = known[:_MOST_MODELS]
    if not shown:
        raise NothingToDraw(
            "No model from another training cohort was used, so there are no cohorts to compare."
        )
    figure = Figure(figsize=(7.2, 2.9 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 2, squeeze=False, width_ratios=(1, 1.2))
    for axes, ((model, cohort), like) in zip(grid, shown, strict=True):
        _draw_likeness(axes, like, shorten(cohort, 20), shorten(model, 24))
    sentences = [f"Mean FC of comparable cohorts correlates with r = {ALIKE} or more."]
    for (model, cohort), like in list(results.likeness.items())[:_MOST_MODELS]:
        differences = " ".join(like.differences) or "no clear difference."
        sentences.append(f"{cohort}, {model}: {differences}")
    return figure, " ".join(sentences)


def _draw_histogram(ax: Axes, values: np.ndarray, label: str, colour: str) -> None:
    if not _has_values(ax, values, label):
        return
    n_bins = min(24, max(5, len(values) // 6))
    ax.hist(values, bins=n_bins, color=colour, edgecolor="white", linewidth=0.3)
    ax.set_ylabel("participants")


def _draw_counts(ax: Axes, counts: pd.Series, label: str, colour: str) -> None:
    if not _has_values(ax, counts, label):
        return
    if len(counts) > _MOST_SITES:
        rest = counts.iloc[_MOST_SITES - 1 :]
        others = pd.Series({f"{len(rest)} others": rest.sum()})
        counts = pd.concat([counts.iloc[: _MOST_SITES - 1], others])
    positions = np.arange(len(counts))
    names = [shorten(name, 12) for name in counts.index]
    ax.barh(positions, counts.to_numpy(), color=colour, height=0.72)
    ax.set_yticks(positions, names, fontsize=6.5 if len(counts) > 5 else 8)
    ax.invert_yaxis()


def _has_values(ax: Axes, values: np.ndarray | pd.Series, label: str) -> bool:
    """Name a panel, and write into it where there are no values."""
    ax.set_xlabel(label)
    if len(values):
        return True
    ax.set(xticks=[], yticks=[])
    ax.text(0.5, 0.5, "not known", ha="center", va="center", color=MUTED, transform=ax.transAxes)
    return False


def _contrast_sentence(facts: CohortFacts) -> str:
    """Compare mean r within networks with mean r between networks."""
    order = facts.order
    if order is None:
        return ""
    verdict = "as expected" if order.plausible else "in doubt: run `nerve check`"
    sentence = (
        f"{facts.label}: r = {order.within:.2f} within networks and {order.between:.2f} between "
        f"them, {verdict}"
    )
    if facts.n_in_mean < facts.n:
        sentence += f" (mean of {facts.n_in_mean:,} participants)"
    return f"{sentence}."


def _draw_likeness(axes: Any, like: Likeness, cohort: str, model: str) -> None:
    """Mean FC of both cohorts at the left, their numbers at the right."""
    means, bars = axes
    trained: Any = like.trained
    tested: Any = like.compared
    n_entries = len(trained.mean)
    dots = np.linspace(0, n_entries - 1, min(n_entries, _MOST_DOTS)).astype(int)
    means.plot(
        trained.mean[dots],
        tested.mean[dots],
        ".",
        color=BLUE,
        markersize=1.5,
        alpha=0.5,
        rasterized=True,
    )
    lowest = min(trained.mean.min(), tested.mean.min())
    highest = max(trained.mean.max(), tested.mean.max())
    means.plot([lowest, highest], [lowest, highest], "--", color=MUTED, linewidth=0.9)
    means.set(xlabel="mean FC, training cohort", ylabel=f"mean FC, {cohort}", title=like.words)
    places = np.arange(len(_NUMBERS))
    for signature, shift, colour, label in (
        (trained, -0.2, ORANGE, f"training of {model}"),
        (tested, 0.2, BLUE, cohort),
    ):
        values = [getattr(signature, name) for name in _NUMBERS]
        drawn = bars.bar(places + shift, values, 0.38, color=colour, label=label)
        bars.bar_label(drawn, fmt="%.2f", fontsize=7.5, color=INK)
    bars.set_xticks(places, list(_NUMBERS.values()))
    bars.margins(y=0.25)
    bars.legend(loc="upper left")
