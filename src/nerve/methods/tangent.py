"""Tangent space of FC: the reference row that is hard to beat, without anything learned but a mean."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nerve.checks import naming
from nerve.cohort import Cohort
from nerve.methods.outputs import checked_embeddings
from nerve.methods.references import Reference, chunks
from nerve.methods.settings import Share
from nerve.training.sources import check_numbers
from nerve.views import TangentView, restored


class TangentSpace(Reference):
    """How a participant's FC departs from the group's: the entries on and above the diagonal of the tangent view.

    See `nerve.views.TangentView`; nothing is learned but the mean of the training participants.

    Parameters
    ----------
    shrinkage : float
        Towards the identity. FC has no full rank where there are fewer volumes than regions; 0.5 is safe.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> TangentSpace().fit_transform(fc).shape
    (12, 36)
    """

    title: ClassVar[str] = "Tangent space"
    measures: ClassVar[tuple[str, ...]] = ("pearson",)  # partial correlations need not be positive definite
    paper: ClassVar[str] = "reference row: tangent space of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    def __init__(self, shrinkage: Share = 0.5) -> None:
        self.shrinkage = shrinkage

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """What whitens the cohort."""
        for rows in chunks(len(cohort)):
            check_numbers(cohort.inputs("fc", rows), cohort, rows)
        return TangentView(self.shrinkage).fit(cohort.connectivity).arrays

    def transform(self, X: Any) -> np.ndarray:
        """(n, R (R + 1) / 2) entries of the logarithm."""
        cohort = self.fitted_cohort(X)
        view = restored(TangentView(self.shrinkage), self.arrays_, cohort.n_regions, type(self).__name__)
        above = np.triu_indices(cohort.n_regions)
        ids = cohort.participants["participant_id"].to_numpy(object)
        features = np.empty((len(cohort), len(above[0])), np.float32)
        for rows in chunks(len(cohort)):
            with naming(ids[rows]):
                features[rows] = view.apply(cohort.inputs("fc", rows))[:, above[0], above[1]]
        return checked_embeddings(features, cohort)

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Those of the view."""
        return dict(TangentView().shapes(self.parcellation_.n_regions))
