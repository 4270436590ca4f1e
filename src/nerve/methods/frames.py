"""Features as tables: with ``set_output(transform="pandas")`` rows are participants, columns dim0 …"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin

from nerve.cohort import Cohort
from nerve.fitted import NotFitted


class Transformer(TransformerMixin):
    """scikit-learn's transformer; where data are a cohort, the rows of a table are its participant ids.

    A method provides `n_features`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)  # scikit-learn makes tables of what `transform` returns
        if "transform" in vars(cls):
            cls.transform = _by_participant(vars(cls)["transform"])

    def __sklearn_tags__(self) -> Any:
        """Features are float32, whatever comes in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @property
    def n_features(self) -> int:
        """Numbers per participant; known after `fit`."""
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """dim0 … of the representation."""
        if not hasattr(self, "parcellation_"):
            raise NotFitted(f"This {type(self).__name__} is not fitted. Call fit first, or load a saved one.")
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
