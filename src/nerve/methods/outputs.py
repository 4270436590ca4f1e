"""What leaves an encoder: embeddings that are numbers and differ between participants, as arrays or tables.

With ``set_output(transform="pandas")`` the rows of a table are participants, its columns dim0 …
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin

from nerve.checks import NerveWarning, listed, problem
from nerve.cohort import Cohort


def checked_embeddings(values: np.ndarray, cohort: Cohort) -> np.ndarray:
    """The embeddings (n, …) themselves; those without numbers are refused by id; a warning says if all are alike.

    Parameters
    ----------
    values : (n, …) array
    cohort : Cohort
        The same participants in the same order.
    """
    flat = values.reshape(len(values), -1)
    wrong = ~np.isfinite(flat.sum(axis=1, dtype=float))  # no copy is made: tokens of a large cohort are gigabytes
    if wrong.any():
        found = f"the embedding of {listed(cohort.participants['participant_id'][wrong], most=5)} is not finite"
        remedy = "`nerve check` lists participants whose FC holds missing or infinite values."
        raise problem(f"Cohort {cohort.name!r}", found, expected="numbers", remedy=remedy)
    if len(flat) > 1 and (flat.min(axis=0) == flat.max(axis=0)).all():
        alike = f"Cohort {cohort.name!r}: all {len(flat)} participants have one embedding."
        advice = "Check that their FC differs (`nerve check`) and is of the size that the model was trained on."
        warnings.warn(f"{alike} {advice}", NerveWarning, stacklevel=3)
    return values


class Transformer(TransformerMixin):
    """scikit-learn's transformer; where data are a cohort, the rows of a table are its participant ids.

    A method provides `features`, and `n_features` where it has no `width`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # scikit-learn makes tables of what `transform` returns
        if "transform" in vars(cls):
            cls.transform = _by_participant(vars(cls)["transform"])  # type: ignore[method-assign]

    def __sklearn_tags__(self) -> Any:
        """Features are float32, whatever comes in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def transform(self, X: Any) -> np.ndarray:
        """(n, width) features of the same participants in the same order."""
        cohort = self.fitted_cohort(X)  # type: ignore[attr-defined]
        return checked_embeddings(self.features(cohort), cohort)

    def features(self, cohort: Cohort) -> np.ndarray:
        """What `transform` returns, of a cohort in the region order of the method."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Numbers per participant; known after `fit`."""
        return self.width  # type: ignore[attr-defined, no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """dim0 … of the representation."""
        self.check_fitted()  # type: ignore[attr-defined]
        return np.array([f"dim{k}" for k in range(self.n_features)], object)


def participant_ids(data: Any) -> pd.Index | None:
    """The ids of a cohort, or of several one after another; None for an array."""
    cohorts = data if isinstance(data, Sequence) else [data]
    if not len(cohorts) or not all(isinstance(one, Cohort) for one in cohorts):
        return None
    ids = np.concatenate([one.participants["participant_id"].to_numpy(object) for one in cohorts])
    return pd.Index(ids, name="participant_id")


def _by_participant(transform: Callable[..., Any]) -> Callable[..., Any]:
    """A `transform` whose table, if it returns one, has participants as its index."""

    @wraps(transform)
    def by_participant(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        found = transform(self, X, *arguments, **options)
        ids = participant_ids(X) if isinstance(found, pd.DataFrame) else None
        return found if ids is None else found.set_axis(ids)

    return by_participant


Transformer.transform = _by_participant(Transformer.transform)  # type: ignore[method-assign]
