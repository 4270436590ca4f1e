"""Methods that are trained with a target, inside each fold: ``fit`` and ``predict``."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin

from nerve.checks import NerveError, listed
from nerve.cohort import Cohort
from nerve.methods.base import Role
from nerve.methods.trained import Trained
from nerve.training import Source, TrainingSettings


class Predictor(RegressorMixin, Trained):
    """A method that learns one target from FC.

    A continuous target is z-scored on the training participants and learned by squared error. One with two values is
    learned by cross-entropy, and predicted as its expected value (0/1: the probability of 1), so that one call serves
    correlation, AUC and accuracy alike; words instead of numbers are given back as words.

    The epoch is the one of least error on participants held out within the training set (``validation_fraction``).
    """

    role: ClassVar[Role] = "supervised"
    binary_ = False  # until a target is known

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        progress: bool = False,
    ) -> Self:
        """Train on a cohort or an (n, R, R) array with one value per participant.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        y : (n,) array
            Numbers, or two different words.
        groups : (n,) labels, optional
            Families: one is never split between training and inner validation.
        run_dir, resume, progress
            As in `Encoder.fit`.
        """
        scaled = self._learn_target(y)
        self._groups = None if groups is None else np.asarray(groups)
        try:
            return self.fit_module(X, scaled, run_dir, resume, progress)
        finally:
            del self._groups

    def predict(self, X: Any) -> np.ndarray:
        """(n,) predictions in the target's own units; labels if the target was words."""
        expected = self._expected(X)
        if self.labels_ is not None:
            return np.asarray(self.labels_)[(expected > 0.5).astype(int)]
        return expected * self.target_scale_ + self.target_mean_

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, 2) probabilities of the lower (or first) and the higher (or second) value of a two-valued target."""
        high = self._expected(X)
        if not self.binary_:
            raise NerveError("The target has more than two values: there are no probabilities. Call predict.")
        return np.column_stack([1 - high, high])

    def _expected(self, X: Any) -> np.ndarray:
        """What the module says, (n,): z-scores, or probabilities of the higher value."""
        cohort = self.fitted_cohort(X)
        raw = self.apply(self.module_.predict, self.source(cohort))  # type: ignore[arg-type]
        raw = raw.reshape(len(cohort)).astype(float)
        return 1 / (1 + np.exp(-raw)) if self.binary_ else raw

    def _learn_target(self, y: Any) -> np.ndarray:
        """Check the target and find its scale: y = target_mean_ + target_scale_ · scaled."""
        values, self.labels_ = _as_numbers(y)
        distinct = np.unique(values)
        self.binary_ = len(distinct) == 2
        if self.binary_:
            low, high = (float(value) for value in distinct)
            self.target_mean_, self.target_scale_ = low, high - low
        else:
            self.target_mean_, self.target_scale_ = float(values.mean()), float(values.std()) or 1.0
        return ((values - self.target_mean_) / self.target_scale_).astype(np.float32)

    def prepare(self, module: torch.nn.Module, source: Source, rows: np.ndarray) -> None:
        """Tell the module which error to train on."""
        module.binary = self.binary_  # type: ignore[assignment]

    def split(self, cohort: Cohort, settings: TrainingSettings) -> tuple[np.ndarray, np.ndarray]:
        """Training and inner validation rows; families stay whole."""
        if self._groups is None:
            return super().split(cohort, settings)
        if len(self._groups) != len(cohort):
            raise NerveError(f"There are {len(self._groups)} groups for {len(cohort)} participants, expected one each.")
        return split_families(self._groups, settings)

    def configuration(self) -> dict[str, Any]:
        """With the scale of the target."""
        target = {
            "mean": self.target_mean_,
            "scale": self.target_scale_,
            "binary": self.binary_,
            "labels": self.labels_,
        }
        return {**super().configuration(), "target": target}

    @classmethod
    def from_configuration(cls, config: dict[str, Any]) -> Self:
        """With the scale of the target."""
        method, target = super().from_configuration(config), config["target"]
        method.target_mean_, method.target_scale_ = target["mean"], target["scale"]
        method.binary_, method.labels_ = target["binary"], target["labels"]
        return method


def split_families(groups: np.ndarray, settings: TrainingSettings) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation rows, whole groups at a time until validation has its share.

    Examples
    --------
    >>> training, validation = split_families(np.array(["a", "a", "b", "c"]), TrainingSettings(validation_fraction=0.3))
    >>> bool(set(training) & set(validation)), len(training) + len(validation)
    (False, 4)
    """
    family = np.unique(np.asarray(groups).astype(str), return_inverse=True)[1]
    order = np.random.default_rng([settings.seed, 3]).permutation(family.max() + 1)
    sizes = np.bincount(family)[order]
    wanted = settings.validation_fraction * len(family)
    chosen = order[np.cumsum(sizes) - sizes < wanted][: len(order) - 1]  # one family at least is left to train on
    held_out = np.isin(family, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _as_numbers(y: Any) -> tuple[np.ndarray, list[str] | None]:
    """The target as numbers, and the two words that they stand for if it was words."""
    values = np.asarray(y)
    if values.ndim != 1:
        raise NerveError(f"The target has shape {values.shape}, expected one value per participant.")
    try:
        numbers = values.astype(float)
    except (TypeError, ValueError):
        words, coded = np.unique(values.astype(str), return_inverse=True)
        if len(words) != 2:
            raise NerveError(
                f"The target is not numeric and has {len(words)} different values ({listed(words, most=4)}), "
                "expected numbers, or two values."
            ) from None
        return coded.astype(float), [str(word) for word in words]
    if not np.isfinite(numbers).all():
        raise NerveError(
            f"The target has {(~np.isfinite(numbers)).sum()} missing values. Leave these participants out."
        )
    return numbers, None
