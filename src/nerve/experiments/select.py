"""Choosing among variants of an encoder inside each fold, on training participants only.

For every variant λ is chosen by inner cross-validation; the variant with the best inner score wins, for each target by
itself. Test participants are met only by the winner's prediction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone

from nerve.evaluation.kernel_ridge import KernelRidge


class BestVariant(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge on the variant that predicts best in inner folds.

    Parameters
    ----------
    ridge : KernelRidge
    widths : tuple of int
        Features of each variant; they stand side by side in X, (n, d₁ + d₂ + …).

    Attributes
    ----------
    chosen_ : (T,) array of int
        The variant of each target.
    """

    def __init__(self, ridge: KernelRidge, widths: tuple[int, ...]) -> None:
        self.ridge, self.widths = ridge, widths

    def fit(self, X: np.ndarray, y: Any, groups: Any = None, strata: Any = None) -> BestVariant:
        """Fit every variant and keep, for each target, the one of best inner score."""
        self.ridges_ = [
            clone(self.ridge).fit(part, y, groups=groups, strata=strata)
            for part in self._variants(X)
        ]
        scores = np.stack(
            [ridge.inner_scores_.max(axis=0) for ridge in self.ridges_]
        )  # (variants, T)
        self.chosen_ = scores.argmax(axis=0)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Predictions of the chosen variants."""
        every = np.stack(
            [
                ridge.predict(part)
                for ridge, part in zip(self.ridges_, self._variants(X), strict=True)
            ]
        )
        if every.ndim == 2:  # one target
            return every[self.chosen_[0]]
        return every[self.chosen_, :, np.arange(len(self.chosen_))].T  # (participants, T)

    def _variants(self, X: np.ndarray) -> list[np.ndarray]:
        return np.split(X, np.cumsum(self.widths)[:-1], axis=1)
