"""Choosing among variants of an encoder inside each fold, on training participants only.

For every variant λ is chosen by inner cross-validation; the variant with the best inner score wins, for each target by
itself. Test participants are met only by the winner's prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone

from nerve.cohort import Cohort
from nerve.evaluation.features import Features, ridge_of
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.protocol import Protocol


@dataclass
class BestOf(Features):
    """Features of several variants side by side: a fold's features are one array per variant."""

    arrays: list[np.ndarray] = field(default_factory=list)
    columns: ClassVar[tuple[str, ...]] = ()

    def prepare(self, cohort: Cohort, people: Any, protocol: Protocol, progress: Any = None) -> tuple[Any, Any]:
        """The ridge that chooses, on these features."""
        return BestVariant(ridge_of(protocol)), self

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[Any, Any]:
        """Training and test rows of each variant."""
        return [array[train] for array in self.arrays], [array[test] for array in self.arrays]


class BestVariant(RegressorMixin, BaseEstimator):
    """Kernel ridge on the variant that predicts best in inner folds.

    Attributes
    ----------
    chosen_ : (T,) array of int
        The variant of each target.
    """

    def __init__(self, ridge: KernelRidge) -> None:
        self.ridge = ridge

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Sequence[np.ndarray], y: Any, groups: Any = None, strata: Any = None) -> BestVariant:
        """Fit every variant and keep, for each target, the one of best inner score."""
        self.ridges_ = [clone(self.ridge).fit(features, y, groups=groups, strata=strata) for features in X]
        scores = np.stack([ridge.inner_scores_.max(axis=0) for ridge in self.ridges_])  # (variants, T)
        self.chosen_ = scores.argmax(axis=0)
        return self

    def predict(self, X: Sequence[np.ndarray]) -> np.ndarray:
        """Predictions of the chosen variants."""
        all_of_them = np.stack([ridge.predict(x) for ridge, x in zip(self.ridges_, X, strict=True)])
        if all_of_them.ndim == 2:  # one target
            return all_of_them[self.chosen_[0]]
        return all_of_them[self.chosen_, :, np.arange(len(self.chosen_))].T  # (participants, T)
