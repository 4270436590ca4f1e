"""Shrunk tangent space: of a participant's tangent vector, what others have too."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nerve.checks import NerveError, naming
from nerve.cohort import Cohort
from nerve.components import turned
from nerve.methods.outputs import checked_embeddings
from nerve.methods.references import Reference, chunks, everyone_alike
from nerve.methods.settings import Share, Width
from nerve.training.sources import check_numbers
from nerve.views import ShrunkView


class ShrunkTangentSpace(Reference):
    """Tangent space shrunk towards the group: scores on the directions in which participants differ, less their noise.

    See `nerve.views.ShrunkView`, which NERVE's default reads: features are its matrices on their principal directions,
    with the same distances between participants. Nothing is learned by gradient, and no label is used.

    Parameters
    ----------
    shrinkage : float
        Of FC towards the identity, as in `TangentSpace`.
    n_components : int, optional
        Directions, at most; by default all that have more variance than the median, up to 256.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> ShrunkTangentSpace().fit_transform(fc).shape, ShrunkTangentSpace(n_components=3).fit_transform(fc).shape
    ((12, 6), (12, 4))
    """

    title: ClassVar[str] = "Shrunk tangent space"
    measures: ClassVar[tuple[str, ...]] = ("pearson",)  # partial correlations need not be positive definite
    paper: ClassVar[str] = "reference row: tangent space of FC, shrunk towards the group"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    def __init__(self, shrinkage: Share = 0.5, n_components: Width | None = None) -> None:
        self.shrinkage = shrinkage
        self.n_components = n_components

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """What the view learns from the cohort."""
        if len(cohort) < 3:
            raise NerveError(f"There are {len(cohort)} participants, expected at least 3 to tell signal from noise.")
        for rows in chunks(len(cohort)):
            check_numbers(cohort.inputs("fc", rows), cohort, rows)
        with naming(cohort.participants["participant_id"].to_numpy(object)):
            view = ShrunkView(self.shrinkage).fit(cohort.connectivity)
        if not view.arrays["directions"].shape[1]:
            raise everyone_alike(cohort)
        return view.arrays

    @property
    def n_features(self) -> int:
        """Directions, and one for the turn."""
        return len(self.arrays_["directions"][0, : self.n_components]) + 1

    def transform(self, X: Any) -> np.ndarray:
        """(n, directions + 1) shrunk scores, turned so that those of a participant sum to zero."""
        cohort, view = self.fitted_cohort(X), ShrunkView(self.shrinkage)
        view.arrays = self.arrays_
        features = np.empty((len(cohort), self.n_features), np.float32)
        ids = cohort.participants["participant_id"].to_numpy(object)
        for rows in chunks(len(cohort)):
            with naming(ids[rows]):
                features[rows] = turned(view.scores(cohort.inputs("fc", rows))[:, : self.n_components])
        return checked_embeddings(features, cohort)

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Those of the view."""
        return ShrunkView(self.shrinkage).shapes(self.parcellation_.n_regions)
