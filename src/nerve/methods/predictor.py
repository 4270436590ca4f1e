"""Methods that are trained with a target, inside each fold: ``fit`` and ``predict``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from nerve._utils.errors import NerveError, listed
from nerve.core.training import Dataset, TrainingSettings
from nerve.data.cohort import Cohort
from nerve.evaluation.folds import complete_labels
from nerve.methods.base import Role, Saved
from nerve.methods.trained import Trained


class Predictor(RegressorMixin, Trained):
    """A method that learns one target from FC.

    A continuous target is z-scored on the training participants and learned by squared error. One with two values is
    learned by cross-entropy, and predicted as its expected value (0/1: the probability of 1), so that one call serves
    correlation, AUC and accuracy alike; words instead of numbers are given back as words.

    The epoch is the one of least error on participants held out within the training set (``validation_fraction``).
    """

    role: ClassVar[Role] = "supervised"
    target_: dict[str, Any]  # mean, scale, binary, labels: y = mean + scale · what is learned

    def predict(self, X: Any) -> np.ndarray:
        """(n,) predictions in the target's own units; labels if the target was words."""
        expected, target = self._expected(X), self.target_
        if target["labels"] is not None:
            return np.asarray(target["labels"])[(expected > 0.5).astype(int)]
        return expected * target["scale"] + target["mean"]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(n, 2) probabilities of the lower (or first) and the higher (or second) value of a two-valued target."""
        high = self._expected(X)
        if not self.target_["binary"]:
            raise NerveError(
                "The target has more than two values: there are no probabilities. Call predict."
            )
        return np.column_stack([1 - high, high])

    def _expected(self, X: Any) -> np.ndarray:
        """What the module says, (n,): z-scores, or probabilities of the higher value."""
        cohort = self.fitted_cohort(X)
        raw = (
            self.apply(self.module_.predict, self.source(cohort)).reshape(len(cohort)).astype(float)
        )
        return 1 / (1 + np.exp(-raw)) if self.target_["binary"] else raw

    def learn_target(self, y: Any) -> np.ndarray:
        """Check the target and find its scale."""
        values, labels = _as_numbers(y)
        distinct = np.unique(values)
        if binary := len(distinct) == 2:
            mean, scale = float(distinct[0]), float(distinct[1]) - float(distinct[0])
        else:
            mean, scale = float(values.mean()), float(values.std()) or 1.0
        self.target_ = {"mean": mean, "scale": scale, "binary": binary, "labels": labels}
        return ((values - mean) / scale).astype(np.float32)

    def prepare(self, module: Any, source: Dataset, rows: np.ndarray) -> None:
        """Tell the module which error to train on."""
        module.binary = hasattr(self, "target_") and self.target_["binary"]

    def split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Training and inner validation rows; families stay whole."""
        if groups is None:
            return super().split(cohort, settings, groups)
        if len(groups) != len(cohort):
            raise NerveError(
                f"There are {len(groups)} groups for {len(cohort)} participants, expected one each."
            )
        return split_families(np.asarray(groups), settings)

    def state(self) -> dict[str, Any]:
        """With the scale of the target."""
        return {**super().state(), "target": self.target_}

    def restore(self, saved: Saved) -> None:
        """With the scale of the target."""
        super().restore(saved)
        self.target_ = {
            name: saved.config["target"][name] for name in ("mean", "scale", "binary", "labels")
        }


def split_families(groups: np.ndarray, settings: TrainingSettings) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation rows, whole groups at a time until validation has its share.

    Examples
    --------
    >>> training, validation = split_families(np.array(["a", "a", "b", "c"]), TrainingSettings(validation_fraction=0.3))
    >>> bool(set(training) & set(validation)), len(training) + len(validation)
    (False, 4)

    Who has no label is alone:

    >>> training, validation = split_families(np.array([None] * 9 + ["a"]), TrainingSettings(validation_fraction=0.3))
    >>> len(validation)
    3
    """
    family = np.unique(complete_labels(groups), return_inverse=True)[1]
    order = np.random.default_rng([settings.seed, 3]).permutation(family.max() + 1)
    sizes = np.bincount(family)[order]
    wanted = settings.validation_fraction * len(family)
    chosen = order[np.cumsum(sizes) - sizes < wanted][
        : len(order) - 1
    ]  # one family at least is left to train on
    held_out = np.isin(family, chosen)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _as_numbers(y: Any) -> tuple[np.ndarray, list[str] | None]:
    """The target as numbers, and the two words that they stand for if it was words."""
    values = np.asarray(y)
    if values.ndim != 1:
        raise NerveError(
            f"The target has shape {values.shape}, expected one value per participant."
        )
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
    if missing := int((~np.isfinite(numbers)).sum()):
        raise NerveError(f"The target has {missing} missing values. Leave these participants out.")
    return numbers, None
