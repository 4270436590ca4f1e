"""Tangent space of FC: the reference row that is hard to beat, without anything learned but a mean."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from nerve.checks import NerveError, listed, problem
from nerve.cohort import Cohort
from nerve.methods.outputs import checked_embeddings
from nerve.methods.references import Reference, chunks, holding
from nerve.parcellation import Parcellation
from nerve.training.sources import check_numbers


class TangentSpace(Reference):
    """How a person's FC departs from the group's, measured along the manifold of positive matrices.

    With S = (1 - a) FC + a I of a person and G the mean of S over the training people, features are the entries on and
    above the diagonal of

        log(G^-½ S G^-½)

    (Varoquaux et al. 2010). Whitening by the group gives every direction in which people may differ the same weight.

    Parameters
    ----------
    shrinkage : float
        a, between 0 and 1. FC has no full rank where there are fewer volumes than regions; 0.5 is safe.
    seed, device
        Not used; every method has them.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> TangentSpace().fit_transform(fc).shape
    (12, 36)
    """

    measures: ClassVar[tuple[str, ...]] = ("pearson",)  # partial correlations need not be positive definite
    paper: ClassVar[str] = "reference row: tangent space of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    def __init__(self, shrinkage: float = 0.5, seed: int = 0, device: str = "auto") -> None:
        self.shrinkage = shrinkage
        self.seed = seed
        self.device = device

    def learn(self, cohort: Cohort) -> None:
        """G^-½ of the cohort."""
        if not 0 <= self.shrinkage < 1:
            raise problem("shrinkage", str(self.shrinkage), expected="at least 0 and less than 1")
        total = np.zeros((cohort.n_regions, cohort.n_regions))
        for rows in chunks(len(cohort)):
            some = cohort.inputs("fc", rows)
            check_numbers(some, cohort, rows)
            total += self._shrunk(some).sum(axis=0)
        values, vectors = np.linalg.eigh(total / len(cohort))
        if values[0] <= 0:
            raise self._not_positive(cohort, "the mean FC")
        self.module_ = holding(whitening=(vectors / np.sqrt(values)) @ vectors.T)

    def transform(self, X: Any) -> np.ndarray:
        """(n, R (R + 1) / 2) entries of the logarithm."""
        cohort = self.fitted_cohort(X)
        whitening = self.module_.get_buffer("whitening").cpu().numpy()
        rows, columns = np.triu_indices(cohort.n_regions)
        features = np.empty((len(cohort), len(rows)), np.float32)
        for some in chunks(len(cohort)):
            values, vectors = np.linalg.eigh(whitening @ self._shrunk(cohort.inputs("fc", some)) @ whitening)
            if (bad := values[:, 0] <= 0).any():
                people = listed(cohort.participants["participant_id"].iloc[some[bad]])
                raise self._not_positive(cohort, f"the FC of {people}")
            logarithm = (vectors * np.log(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
            features[some] = logarithm[:, rows, columns]
        return checked_embeddings(features, cohort)

    def _shrunk(self, fc: np.ndarray) -> np.ndarray:
        """(people, R, R): S, with a diagonal of ones whatever that of FC is."""
        shrunk = (1 - self.shrinkage) * fc.astype(float)
        diagonal = np.arange(fc.shape[-1])
        shrunk[:, diagonal, diagonal] = 1.0
        return shrunk

    def _not_positive(self, cohort: Cohort, what: str) -> NerveError:
        return problem(
            f"Cohort {cohort.name!r}",
            f"{what} is not positive definite, with a shrinkage of {self.shrinkage}",
            expected="correlations (not Fisher-transformed)",
            remedy="A larger `shrinkage` helps where there are few volumes.",
        )

    def build(self, parcellation: Parcellation) -> torch.nn.Module:
        """An empty buffer of the right shape, for `load` to fill."""
        return holding(whitening=torch.zeros(parcellation.n_regions, parcellation.n_regions, dtype=torch.float64))
