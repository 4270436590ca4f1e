"""Tangent space of FC: the reference row that is hard to beat, without anything learned but a mean."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from nerve.checks import naming
from nerve.cohort import Cohort
from nerve.components import principal_components, turned
from nerve.methods.kept_views import ViewedCohort
from nerve.methods.outputs import checked_embeddings
from nerve.methods.recentring import UNSEEN, SiteShifts, card_lines, saved_sizes, sites_of
from nerve.methods.references import Reference, chunks, everyone_alike
from nerve.methods.settings import Share, Width
from nerve.training.sources import check_numbers
from nerve.views import TangentView


class TangentSpace(Reference):
    """How a participant's FC departs from the group's: the entries on and above the diagonal of the tangent view.

    See `nerve.views.TangentView`; nothing is learned but the mean of the training participants.

    Parameters
    ----------
    shrinkage : float
        Towards the identity. FC has no full rank where there are fewer volumes than regions; 0.5 is safe.
    n_components : int, optional
        Scores on so many principal components of the training participants instead of all entries; at most, there are
        no more than participants less one.
    recentre : str, optional
        Column of the participants table, the site: the mean of each site is carried to the common mean, and that of a
        site that was not trained on by its own participants (`nerve.methods.recentring`).

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> TangentSpace().fit_transform(fc).shape, TangentSpace(n_components=4).fit_transform(fc).shape
    ((12, 36), (12, 5))
    """

    title: ClassVar[str] = "Tangent space"
    measures: ClassVar[tuple[str, ...]] = ("pearson",)  # partial correlations need not be positive definite
    paper: ClassVar[str] = "reference row: tangent space of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    sites_: Mapping[str, int] = MappingProxyType({})  # site → training participants

    def __init__(self, shrinkage: Share = 0.5, n_components: Width | None = None, recentre: str | None = None) -> None:
        self.shrinkage = shrinkage
        self.n_components = n_components
        self.recentre = recentre

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """What the view learns from the cohort."""
        view = self.fitted_view(cohort)
        if self.n_components is None and self.recentre is None:
            return view.arrays
        learned, entries = dict(view.arrays), self.entries(cohort, view)
        if self.recentre is not None:
            sites = sites_of(cohort, self.recentre)
            shifts = SiteShifts.of(entries.__getitem__, sites)
            self.sites_ = shifts.sizes
            learned |= {"common": shifts.common, "shifts": shifts.shifts}
            entries = shifts.meeting(entries.__getitem__, sites).apply(entries, sites)
        if self.n_components is None:
            return learned
        mean, components, _ = principal_components(entries, self.n_components)
        if not components.shape[1]:
            raise everyone_alike(cohort)
        return learned | {"origin": mean, "components": turned(components)}

    def fitted_view(self, cohort: Cohort) -> TangentView:
        """The view of the cohort; what is no number or has no logarithm is refused by name."""
        for rows in chunks(len(cohort)):
            check_numbers(cohort.inputs("fc", rows), cohort, rows)
        with naming(cohort.participants["participant_id"].to_numpy(object)):
            return TangentView(self.shrinkage).fit(cohort.connectivity)

    def learned_view(self) -> TangentView:
        """The view that `fit` has found."""
        view = TangentView(self.shrinkage)
        view.arrays = self.arrays_
        return view

    @property
    def n_features(self) -> int:
        """Pairs of regions, and regions."""
        return self.n_features_in_ * (self.n_features_in_ + 1) // 2

    def transform(self, X: Any) -> np.ndarray:
        """(n, R (R + 1) / 2) entries of the view, or (n, components + 1) scores."""
        cohort = self.fitted_cohort(X)
        entries = self.entries(cohort, self.learned_view())
        if self.recentre is not None:
            sites = sites_of(cohort, self.recentre)
            shifts = SiteShifts(self.sites_, self.arrays_["common"], self.arrays_["shifts"])
            self.adapted_ = UNSEEN if shifts.unseen(sites) else self.adapted_
            entries = shifts.meeting(entries.__getitem__, sites).apply(entries, sites)
        if self.n_components is not None:
            entries = (entries - self.arrays_["origin"]) @ self.arrays_["components"]
        return checked_embeddings(entries, cohort)

    def entries(self, cohort: Cohort, view: TangentView) -> np.ndarray:
        """(n, R (R + 1) / 2): the view on and above the diagonal."""
        viewed = ViewedCohort(cohort, view)
        features = np.empty(viewed.shape, np.float32)
        for rows in chunks(len(cohort)):
            features[rows] = viewed.matrices(rows)[:, *viewed.above]
        return features

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Those of the view, and of the components."""
        n_entries = self.parcellation_.n_regions * (self.parcellation_.n_regions + 1) // 2
        own: dict[str, tuple[int | None, ...]] = {"origin": (n_entries,), "components": (n_entries, None)}
        moved: dict[str, tuple[int | None, ...]] = {"common": (n_entries,), "shifts": (len(self.sites_), n_entries)}
        own = (own if self.n_components else {}) | (moved if self.recentre else {})
        return self.view_shapes() | own

    def configuration(self) -> dict[str, Any]:
        """With the sites."""
        return {**super().configuration(), "sites": dict(self.sites_)}

    def card_lines(self) -> list[str]:
        """With the sites."""
        return [*super().card_lines(), *card_lines(self.sites_)]

    @classmethod
    def from_configuration(cls, config: dict[str, Any]) -> Self:
        """With the sites."""
        method = super().from_configuration(config)
        method.sites_ = saved_sizes(config["sites"], "sites")
        return method

    def view_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Those of the view."""
        return TangentView().shapes(self.parcellation_.n_regions)
