"""Where a fold's features come from: each source turns (training participants, test participants) into two matrices.

Whatever is learned on the way (components, harmonisation, regression of covariates) is learned from training
participants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone

from nerve._utils.linalg import decomposed, turned
from nerve.evaluation.kernels import median_gamma

_CUT = 1e-6  # eigenvalues below this share of the largest are rounding of float32 products


class Source(Protocol):
    """What the cross-validation loop asks of features."""

    columns: tuple[str, ...] = ()  # of the participants table that the source reads

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[Any, Any]:
        """Features of training and test participants; none of the targets may be looked at."""


class Rows(Source):
    """Frozen features (n, d), or a Cohort whose participants are given to a model that trains inside each fold."""

    def __init__(self, data: Any) -> None:
        self.take = data.subset if hasattr(data, "subset") else data.__getitem__

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[Any, Any]:
        """Rows of the two sets of participants."""
        return self.take(train), self.take(test)


class Kernel(Source):
    """A kernel (n, n) that does not depend on who is in training, computed once for all folds."""

    def __init__(self, kernel: np.ndarray) -> None:
        self.kernel = kernel

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(train, train) and (test, train)."""
        return self.kernel[np.ix_(train, train)], self.kernel[np.ix_(test, train)]


class PrincipalComponents(Source):
    """Scores on the first components of the training participants, from inner products computed once.

    With G the centred products of training participants, G = U S² Uᵀ: scores are G_x U / S, for the centred products
    G_x of anyone with them. They are `turned`, so that the correlation kernel takes no arbitrary direction away.

    Parameters
    ----------
    products : (n, m) array
        X X_poolᵀ, in float32 where there are very many participants.
    n_components : int
    pool : (m,) positions, optional
        Ascending. Components come from those of them who are in training; everyone by default.
    """

    def __init__(
        self, products: np.ndarray, n_components: int, pool: np.ndarray | None = None
    ) -> None:
        self.products, self.n_components = products, n_components
        self.pool = np.arange(len(products)) if pool is None else pool

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores (train, k + 1) and (test, k + 1), turned."""
        known = train[np.isin(train, self.pool)]
        columns = np.searchsorted(self.pool, known)
        average = self.products[np.ix_(known, columns)].mean(axis=0, dtype=float)

        def centred(people: np.ndarray) -> np.ndarray:
            part = np.asarray(self.products[np.ix_(people, columns)], float)
            return part - part.mean(axis=1, keepdims=True) - average + average.mean()

        k, n = min(self.n_components, len(known) - 1), len(known)
        values, vectors = decomposed(centred(known), driver="evr", subset_by_index=[n - k, n - 1])
        rounding = 1e-15 * n * np.abs(self.products[known, columns]).max()  # of the centring
        kept = values > max(
            values[-1] * (_CUT if self.products.dtype == np.float32 else 1e-10), rounding
        )
        if not kept.any():  # everybody is alike: one component, of nothing
            return np.zeros((len(train), 1)), np.zeros((len(test), 1))
        onto = turned((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])
        return centred(train) @ onto, centred(test) @ onto


class Landmarks(Source):
    """Rows of a kernel of very many participants through some of them (Nyström): memory grows with n · m, not n².

    With C the (n, m) kernel of everyone with m landmark participants and W that among the landmarks, K ≈ C W⁻¹ Cᵀ. For
    W = U diag(s) Uᵀ the rows Z = C U diag(s)^-½ give K ≈ Z Zᵀ, and kernel ridge on Z is solved with m unknowns. Who may
    be a landmark is drawn once; in each fold only its training participants are.

    Parameters
    ----------
    cross : (n, m) array
        The kernel; squared distances for the Gaussian kernel, whose width comes from the landmarks of the fold.
    pool : (m,) positions
    """

    def __init__(self, cross: np.ndarray, pool: np.ndarray, gaussian: bool = False) -> None:
        self.cross, self.pool, self.gaussian = cross, pool, gaussian

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Z of training and test participants, (train, k) and (test, k)."""
        mine = np.isin(self.pool, train)  # (m,)
        cross = self.cross[:, mine]  # (n, m')
        if self.gaussian:
            cross = np.exp(-median_gamma(cross[self.pool[mine]]) * cross)
        values, vectors = decomposed(np.asarray(cross[self.pool[mine]], float))
        kept = values > values[-1] * _CUT
        root = vectors[:, kept] / np.sqrt(
            values[kept]
        )  # (m', k): W^-½ without the directions that rounding made
        return cross[train] @ root, cross[test] @ root


def landmark_pool(n: int, n_landmarks: int, seed: int) -> np.ndarray:
    """Positions of the participants who may be landmarks, ascending."""
    return np.sort(np.random.default_rng([seed, 7]).permutation(n)[:n_landmarks])


class FittedInFolds(Source):
    """Features of an estimator that is fitted, without labels, on the training participants of each fold."""

    def __init__(self, estimator: Any, cohort: Any) -> None:
        self.estimator, self.cohort = estimator, cohort

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the estimator of these training participants gives for both sets."""
        fitted = clone(self.estimator).fit(self.cohort.subset(train))
        left, right = (fitted.transform(self.cohort.subset(rows)) for rows in (train, test))
        return left.reshape(len(left), -1), right.reshape(len(right), -1)


class Adjusted(Source):
    """Features that pass through steps (ComBat, regression of covariates) fitted on training participants."""

    def __init__(
        self,
        source: Source,
        table: pd.DataFrame,
        steps: Sequence[Any],
        n_components: int | None = None,
    ) -> None:
        self.source, self.table, self.steps, self.n_components = source, table, steps, n_components
        self.columns = tuple(
            dict.fromkeys([*source.columns, *(column for step in steps for column in step.columns)])
        )

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Adjusted rows of the two sets of participants."""
        left, right = self.source.split(train, test, targets)
        for step in self.steps:
            fitted = step.without(targets).fit(left, self.table.iloc[train])
            left = fitted.transform(left, self.table.iloc[train])
            right = fitted.transform(right, self.table.iloc[test])
        if self.n_components is None:
            return left, right
        both = np.concatenate([left, right])
        components = PrincipalComponents(both @ both.T, self.n_components)
        return components.split(np.arange(len(train)), np.arange(len(train), len(both)), targets)


class CovariateTable(Source):
    """The covariates themselves, for the reference row that says what they predict; a target is never among them."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.columns = tuple(map(str, table.columns))

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows of the two sets of participants."""
        table = self.table.drop(columns=list(targets), errors="ignore")
        return table.iloc[train], table.iloc[test]
