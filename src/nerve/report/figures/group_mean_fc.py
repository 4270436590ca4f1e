"""Mean connectivity, sorted by network.

Mean functional connectivity (Pearson r) of each cohort, regions sorted by network; lines are network borders. Look for
blocks of high r along the diagonal: where they are missing, the rows of the matrices are not in the order that the
parcellation says.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from nerve.report.figures.cohort_overview import NEEDS_COHORT
from nerve.report.figures.style import colour_limit, fc_image, panels, short
from nerve.report.results import CohortFacts, Results

MOST = 6
FEW = "Mean connectivity is shown for ten participants or more: that of fewer would show single participants."


def draw(results: Results) -> tuple[Figure, str]:
    """One matrix per cohort, and its contrast in numbers."""
    cohorts = results.cohorts.values()
    shown = [facts for facts in cohorts if facts.mean is not None and facts.parcellation is not None][:MOST]
    named = any(len(facts.participants) for facts in cohorts)
    figure, axes = panels(shown, FEW if named else NEEDS_COHORT, width=3.5, height=3.1, extra=0.5)
    limit = colour_limit(*(facts.mean for facts in shown))
    for ax, facts in zip(axes, shown, strict=True):
        image = fc_image(ax, facts.mean, facts.parcellation.networks, limit)  # type: ignore[union-attr]
        ax.set_title(f"{short(facts.label)}  (n = {facts.n:,})", pad=13)
    figure.colorbar(image, ax=axes, shrink=0.6, label="mean r", pad=0.02)
    return figure, " ".join(map(_contrast, shown))


def _contrast(facts: CohortFacts) -> str:
    order = facts.order
    if order is None:
        return ""
    verdict = "as expected" if order.plausible else "in doubt: run `nerve check`"
    some = f" (mean of {facts.n_in_mean:,} participants)" if facts.n_in_mean < facts.n else ""
    found = f"r = {order.within:.2f} within networks and {order.between:.2f} between them"
    return f"{facts.label}: {found}, {verdict}{some}."
