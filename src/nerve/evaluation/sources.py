"""Where a fold's features come from: each source turns (training participants, test participants) into two matrices.

Whatever is learned on the way (components, harmonisation, regression of covariates) is learned from training
participants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
import scipy.linalg
from sklearn.base import clone


class Source(Protocol):
    """What the cross-validation loop asks of features."""

    columns: tuple[str, ...]  # of the participants table that the source reads

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[Any, Any]:
        """Features of training and test participants; none of the targets may be looked at."""


class Rows:
    """Frozen features (n, d), or a Cohort whose participants are given to a model that trains inside each fold."""

    columns: tuple[str, ...] = ()

    def __init__(self, data: Any) -> None:
        self.data = data

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[Any, Any]:
        """Rows of the two sets of participants."""
        return self._take(train), self._take(test)

    def _take(self, people: np.ndarray) -> Any:
        return self.data.subset(people) if hasattr(self.data, "subset") else self.data[people]


class Kernel:
    """A kernel (n, n) that does not depend on who is in training, computed once for all folds."""

    columns: tuple[str, ...] = ()

    def __init__(self, kernel: np.ndarray) -> None:
        self.kernel = kernel

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(train, train) and (test, train)."""
        return self.kernel[np.ix_(train, train)], self.kernel[np.ix_(test, train)]


class PrincipalComponents:
    """Scores on the first components of the training participants, from the Gram matrix X Xᵀ, computed once.

    With the Gram matrix centred on the training participants, G = U S² Uᵀ: training scores are U S, test scores
    G_test U / S.
    They are turned so that each participant's numbers sum to zero (Helmert's matrix; distances stay): the correlation
    kernel
    takes a participant's mean away, and over components whose signs are arbitrary that mean is an arbitrary direction.
    """

    columns: tuple[str, ...] = ()

    def __init__(self, gram: np.ndarray, n_components: int) -> None:
        self.gram = gram
        self.n_components = n_components

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Scores (train, k + 1) and (test, k + 1), turned."""
        inner, cross = self.gram[np.ix_(train, train)], self.gram[np.ix_(test, train)]
        column = inner.mean(axis=0)
        cross = cross - cross.mean(axis=1, keepdims=True) - column + column.mean()
        inner = inner - column - column[:, None] + column.mean()
        k = min(self.n_components, len(train) - 1)
        values, vectors = scipy.linalg.eigh(inner, subset_by_index=[len(train) - k, len(train) - 1])
        rounding = 1e-15 * len(train) * np.abs(self.gram[train, train]).max()  # of the centring
        kept = values > max(values[-1] * 1e-10, rounding)
        if not kept.any():  # everybody is alike: one component, of nothing
            return np.zeros((len(train), 1)), np.zeros((len(test), 1))
        size = np.sqrt(values[kept][::-1])
        vectors = vectors[:, kept][:, ::-1]
        turn = scipy.linalg.helmert(len(size) + 1)  # (k, k + 1)
        return vectors * size @ turn, cross @ vectors / size @ turn


class FittedInFolds:
    """Features of an estimator that is fitted, without labels, on the training participants of each fold."""

    columns: tuple[str, ...] = ()

    def __init__(self, estimator: Any, cohort: Any) -> None:
        self.estimator, self.cohort = estimator, cohort

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """What the estimator of these training participants gives for both sets."""
        fitted = self.fitted(self.cohort.subset(train))
        left, right = (fitted.transform(self.cohort.subset(rows)) for rows in (train, test))
        return left.reshape(len(left), -1), right.reshape(len(right), -1)

    def fitted(self, cohort: Any) -> Any:
        """A fresh copy of the estimator, fitted."""
        return clone(self.estimator).fit(cohort)


class Adjusted:
    """Features that pass through steps (ComBat, regression of covariates) fitted on training participants."""

    def __init__(
        self, source: Source, table: pd.DataFrame, steps: Sequence[Any], n_components: int | None = None
    ) -> None:
        self.source = source
        self.n_components = n_components
        self.table = table
        self.steps = list(steps)
        self.columns = tuple(dict.fromkeys([*source.columns, *(column for step in steps for column in step.columns)]))

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
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


class CovariateTable:
    """The covariates themselves, for the reference row that says what they predict; a target is never among them."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.columns = tuple(map(str, table.columns))

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Rows of the two sets of participants."""
        table = self.table.drop(columns=list(targets), errors="ignore")
        return table.iloc[train], table.iloc[test]
