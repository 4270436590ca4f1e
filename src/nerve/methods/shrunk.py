"""Shrunk tangent space: the part of a tangent vector in directions that participants share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve._utils.linalg import Shrinkage, rotate_to_zero_sum, shrinkage_of, unit_rows
from nerve.core.views import N_DIRECTIONS, TangentView
from nerve.data.cohort import Cohort
from nerve.methods.inputs import chunks
from nerve.methods.packing import fit_view
from nerve.methods.pca import no_differences
from nerve.methods.recentring import is_by_cohort
from nerve.methods.tangent import TangentSpace

_MOST_FOR_DIRECTIONS = 2048  # participants, at most, that directions are computed from


class ShrunkTangentSpace(TangentSpace):  # numpydoc ignore=PR02
    """Tangent space shrunk towards the group: scores on directions in which participants differ.

    With t the tangent vector of a participant less the mean of the training participants, at unit
    length, and u_k, v_k the principal directions of the training participants and their variances,
    features are

        w_k u_kᵀ t,      w_k = max(0, 1 - floor / v_k),   floor the median of the v_k

    with other weights for participants who were not in `fit` (`nerve._utils.linalg.shrinkage_of`).
    Noise has nearly the same variance in every direction of tangent space, so w_k is the weight
    that a posterior mean would give (after Rahim et al. 2019). Most of the length of t is noise, so
    that unit length makes the noise similar in all participants. No label is used.

    Parameters
    ----------
    shrinkage : float
        Of FC towards the identity, as in `TangentSpace`.
    n_components : int, optional
        Directions, at most; by default all that have more variance than the median, up to 256.
    recentre : str, optional
        ``cohort`` or ``cohort+COLUMN``: each cohort, or site in it, is whitened by its own mean.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> ShrunkTangentSpace().fit_transform(fc).shape
    (12, 6)
    >>> ShrunkTangentSpace(n_components=3).fit_transform(fc).shape
    (12, 4)
    """

    title: ClassVar[str] = "Shrunk tangent space"
    citation: ClassVar[str] = "reference row: tangent space of FC, shrunk towards the group"

    # fingerprint and scores of the training cohort, kept from `fit` to `features`; not saved
    _training_scores: tuple[str, np.ndarray] = ("", np.zeros((0, 0)))

    def check_parameters(self, where: str = "") -> dict[str, Any]:
        """Check the parameters against the types in the signature, and refuse shifts by site.

        Parameters
        ----------
        where : str
            Where the parameters come from, for the error; the title of the method by default.

        Returns
        -------
        dict
            The parameters as plain values.
        """
        parameters = super().check_parameters(where)
        if self.recentre is not None and not is_by_cohort(self.recentre):
            raise problem(
                where or self.title,
                f"recentre is {self.recentre!r}",
                expected="cohort or cohort+COLUMN: a shift of a site would change the length that "
                "the shrinkage relies on",
            )
        return parameters

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Whitening, mean, directions and weights of the cohort."""
        if len(cohort) < 3:
            raise NerveError(
                f"There are {len(cohort)} participants, expected at least 3 to tell signal from "
                "noise."
            )
        learned = dict(fit_view(TangentView(self.shrinkage), cohort).arrays)
        if is_by_cohort(self.recentre):
            learned |= self.learn_cohorts(cohort)
        n_rows = min(len(cohort), _MOST_FOR_DIRECTIONS)
        rows = np.unique(np.linspace(0, len(cohort) - 1, n_rows).round().astype(int))
        vectors = self.entries(cohort.subset(rows), learned)
        mean = vectors.mean(axis=0, dtype=float).astype(np.float32)
        arrays = shrinkage_of(_unit_departures(vectors, mean), N_DIRECTIONS)
        shrinkage = Shrinkage(*(np.ascontiguousarray(array) for array in arrays))
        if not shrinkage.directions.shape[1]:
            raise no_differences(cohort)
        parts = [
            shrinkage.scores(_unit_departures(vectors[rows], mean)) for rows in chunks(len(vectors))
        ]
        self._training_scores = (cohort.fingerprint, np.concatenate(parts))
        return learned | {"mean": mean, **shrinkage._asdict()}

    @property
    def n_features(self) -> int:
        """Directions, and one more because scores are rotated."""
        n_directions = self.arrays_["directions"].shape[1]
        if self.n_components is not None:
            n_directions = min(n_directions, self.n_components)
        return n_directions + 1

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, directions + 1) shrunk scores, rotated so that those of a participant sum to zero."""
        features = np.empty((len(cohort), self.n_features), np.float32)
        scores_of = self._scores(cohort)
        for rows in self.parts(cohort):
            features[rows] = rotate_to_zero_sum(scores_of(rows)[:, : self.n_components])
        return features

    def _scores(self, cohort: Cohort) -> Callable[[np.ndarray], np.ndarray]:
        """A function of rows that gives their scores; those of the training cohort are known."""
        fingerprint, scores = self._training_scores
        if len(scores) == len(cohort) and cohort.fingerprint == fingerprint:
            return scores.__getitem__
        viewed = self.viewed(cohort, self.arrays_)
        shrinkage = Shrinkage(*(self.arrays_[name] for name in Shrinkage._fields))
        return lambda rows: shrinkage.scores(
            _unit_departures(viewed.vectors(rows), self.arrays_["mean"])
        )

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """Those of the view, the mean, and a column of directions per weight."""
        n_regions = self.parcellation_.n_regions
        n_entries = n_regions * (n_regions + 1) // 2
        shapes = {
            **TangentView().shapes(n_regions),
            "mean": (n_entries,),
            "directions": (n_entries, None),
            "variances": (2, None),
            "weights": (2, None),
        }
        if is_by_cohort(self.recentre):
            shapes["own"] = (len(self.sites_), n_regions, n_regions)
        return shapes


def _unit_departures(vectors: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Vectors less the mean, at unit length; 0 where nothing but rounding is left."""
    rounding = 1e-6 * float(np.linalg.norm(mean))  # of float32
    return unit_rows(vectors - mean, rounding)
