"""Tangent space of FC: a reference row that is hard to beat. Only a mean is learned."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from nerve.core.views import TangentView
from nerve.data.cohort import Cohort
from nerve.methods.base import Reference, SavedModel
from nerve.methods.packing import ViewedCohort, fit_view
from nerve.methods.parameters import Share, Width
from nerve.methods.pca import rotated_components
from nerve.methods.recentring import (
    UNSEEN_COHORTS,
    UNSEEN_SITES,
    CohortMeans,
    SiteShifts,
    is_by_cohort,
    site_card_lines,
    sites_of,
)


class TangentSpace(Reference):
    """How the FC of a participant departs from the group mean: the entries of the tangent view.

    `nerve.core.views.TangentView` has the formula. Only the mean of the training participants is
    learned, unless components or recentring are asked for.

    Parameters
    ----------
    shrinkage : float
        Of FC towards the identity, because FC does not have full rank if there are fewer volumes
        than regions; 0.5 is safe.
    n_components : int, optional
        Give scores on this many principal components of the training participants instead of all
        entries. There are at most as many as participants less one.
    recentre : str, optional
        Column of sites, each of which is shifted to the common mean. ``cohort``: each cohort is
        whitened by its own mean; ``cohort+site``: each site (a column) within its cohort
        (`nerve.methods.recentring`).

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> TangentSpace().fit_transform(fc).shape, TangentSpace(n_components=4).fit_transform(fc).shape
    ((12, 36), (12, 5))
    """

    title: ClassVar[str] = "Tangent space"
    citation: ClassVar[str] = "reference row: tangent space of FC"
    # partial correlations need not be positive definite
    measures: ClassVar[tuple[str, ...]] = ("pearson",)

    # site, or group of a cohort → number of training participants
    sites_: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self, shrinkage: Share = 0.5, n_components: Width | None = None, recentre: str | None = None
    ) -> None:
        self.shrinkage = shrinkage
        self.n_components = n_components
        self.recentre = recentre

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Arrays of the view, of recentring, and of components."""
        learned = dict(fit_view(TangentView(self.shrinkage), cohort).arrays)
        if is_by_cohort(self.recentre):
            learned |= self.learn_cohorts(cohort)
        if self.n_components is None and self.recentre is None:
            return learned
        entries = self.entries(cohort, learned)
        if self.recentre is not None and not is_by_cohort(self.recentre):
            sites = sites_of(cohort, self.recentre)
            shifts = SiteShifts.of(entries.__getitem__, sites)
            self.sites_ = shifts.sizes
            learned |= {"common": shifts.common, "shifts": shifts.shifts}
            entries = shifts.with_new_sites(entries.__getitem__, sites).apply(entries, sites)
        if self.n_components is not None:
            origin, components = rotated_components(entries, self.n_components, cohort)
            learned |= {"origin": origin, "components": components}
        return learned

    def learn_cohorts(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Whitenings by the mean of each cohort, or of each site within it."""
        means = CohortMeans.of(TangentView(self.shrinkage), cohort, str(self.recentre))
        self.sites_ = means.sizes
        return {"own": means.whitenings}

    def viewed(self, cohort: Cohort, learned: dict[str, np.ndarray]) -> ViewedCohort:
        """A cohort in the view with the arrays of `learn`, recentred if that is by cohort."""
        view = TangentView(self.shrinkage)
        view.arrays = learned
        if not is_by_cohort(self.recentre):
            return ViewedCohort(cohort, view)
        means = CohortMeans(self.sites_, learned["own"])
        whitenings, has_new = means.whitenings_of(view, cohort, str(self.recentre))
        self.adapted_ = UNSEEN_COHORTS if has_new else ""
        return ViewedCohort(cohort, view, whitenings)

    @property
    def n_features(self) -> int:
        """R (R + 1) / 2 entries; or components, and one more because scores are rotated."""
        if self.n_components is not None:
            return self.arrays_["components"].shape[1]
        return self.n_features_in_ * (self.n_features_in_ + 1) // 2

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, R (R + 1) / 2) entries of the view, or (n, components + 1) scores."""
        entries = self.entries(cohort, self.arrays_)
        if self.recentre is not None and not is_by_cohort(self.recentre):
            sites = sites_of(cohort, self.recentre)
            shifts = SiteShifts(self.sites_, self.arrays_["common"], self.arrays_["shifts"])
            if shifts.has_new_sites(sites):
                self.adapted_ = UNSEEN_SITES
            entries = shifts.with_new_sites(entries.__getitem__, sites).apply(entries, sites)
        if self.n_components is not None:
            entries = (entries - self.arrays_["origin"]) @ self.arrays_["components"]
        return entries

    def entries(self, cohort: Cohort, learned: dict[str, np.ndarray]) -> np.ndarray:
        """(n, R (R + 1) / 2): the view on and above the diagonal, before shifts by site."""
        viewed = self.viewed(cohort, learned)
        entries = np.empty(viewed.shape, np.float32)
        for rows in self.parts(cohort):
            entries[rows] = viewed.vectors(rows)
        return entries

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Those of the view, of components and of recentring."""
        n_regions = self.parcellation_.n_regions
        n_entries = n_regions * (n_regions + 1) // 2
        shapes = dict(TangentView().shapes(n_regions))
        if self.n_components:
            shapes |= {"origin": (n_entries,), "components": (n_entries, None)}
        if is_by_cohort(self.recentre):
            shapes |= {"own": (len(self.sites_), n_regions, n_regions)}
        elif self.recentre:
            shapes |= {"common": (n_entries,), "shifts": (len(self.sites_), n_entries)}
        return shapes

    def state(self) -> dict[str, Any]:
        """The sites."""
        return {"sites": dict(self.sites_)}

    def restore(self, saved: SavedModel) -> None:
        """The sites, then the arrays."""
        self.sites_ = {site: int(n) for site, n in saved.config["sites"].items()}
        super().restore(saved)

    def card_lines(self) -> list[str]:
        """Add the sites."""
        return [*super().card_lines(), *site_card_lines(self.sites_)]
