"""Group-mean FC sorted by network: a check, by eye, of the region order."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from nerve.report.figures.style import DIVERGING, network_order, panels, short, strip_networks
from nerve.report.results import CohortFacts, NothingToDraw, Results

SECTION = "cohorts"
TITLE = "Mean connectivity, sorted by network"
MOST = 6
FEWEST = 10  # people whose mean is shown: one person can be recognised by their FC


def caption(results: Results) -> str:
    """What to see, and the contrast in numbers."""
    text = (
        "Mean functional connectivity (Pearson r) of each cohort, regions sorted by network; lines are network "
        "borders. See blocks of high r along the diagonal: where they are missing, the rows of the matrices are not "
        "in the order that the parcellation says."
    )
    for facts in _shown(results):
        order = facts.order
        if order is not None:
            verdict = "as expected" if order.plausible else "in doubt: run `nerve check`"
            text += (
                f" {facts.label}: r = {order.within:.2f} within networks and {order.between:.2f} between them, "
                f"{verdict}"
            )
            text += f" (mean of {facts.n_in_mean:,} people)." if facts.n_in_mean < facts.n else "."
    return text


def draw(results: Results) -> Figure:
    """One matrix a cohort."""
    shown = _shown(results)
    if not shown:
        raise NothingToDraw("No cohort of ten or more could be opened, so there is no mean connectivity to show.")
    figure, axes = panels(len(shown), across=3, width=3.5, height=3.1, extra=0.5)
    limit = max(0.1, float(max(np.nanquantile(np.abs(_off_diagonal(facts)), 0.99) for facts in shown)))
    image = None
    for ax, facts in zip(axes, shown, strict=True):
        networks = facts.parcellation.networks  # type: ignore[union-attr]
        order = network_order(networks)
        matrix = np.array(facts.mean)[np.ix_(order, order)]
        image = ax.imshow(matrix, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
        strip_networks(ax, [networks[i] for i in order])
        ax.set_title(f"{short(facts.label)}  (n = {facts.n:,})", pad=13)
    if image is not None:
        figure.colorbar(image, ax=axes, shrink=0.6, label="mean r", pad=0.02)
    return figure


def _shown(results: Results) -> list[CohortFacts]:
    known = [facts for facts in results.cohorts.values() if facts.mean is not None and facts.parcellation is not None]
    return [facts for facts in known if facts.n_in_mean >= FEWEST][:MOST]


def _off_diagonal(facts: CohortFacts) -> np.ndarray:
    matrix = np.array(facts.mean)
    values = matrix[~np.eye(len(matrix), dtype=bool)]
    return values if np.isfinite(values).any() else np.ones(1)
