"""A user's own scikit-learn estimator in the place of kernel ridge, under the same protocol."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

from nerve._utils.errors import NerveError, problem
from nerve.evaluation.folds import complete_labels


class OwnProbe(BaseEstimator):
    """The estimator, cloned for every fold and target; of a classifier, how much it is for the second class.

    Parameters
    ----------
    estimator : estimator of scikit-learn's kind
        A pipeline or `GridSearchCV` too: whatever it chooses, it chooses on training participants. The latter is given
        `groups` where families or sites are kept whole.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, groups: Any = None) -> OwnProbe:
        """Fit a copy of the estimator to one target."""
        self.estimator_ = clone(self.estimator)
        if is_classifier(self.estimator_):
            if not np.isin(y, (0.0, 1.0)).all():
                raise NerveError(
                    f"The probe {type(self.estimator).__name__} is a classifier, but the target holds numbers: it is "
                    "one, or covariates were removed from its classes. Expected a regressor (Ridge, SVR …), or classes "
                    "and no covariates (motion='none' leaves head motion out)."
                )
            y = np.asarray(y, int)
        if groups is not None and _asks_for_groups(self.estimator_):
            if pd.isna(groups).any():  # scikit-learn cannot sort labels of which some are missing
                groups = complete_labels(groups)
            self.estimator_.fit(X, y, groups=groups)
        else:
            self.estimator_.fit(X, y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, (n,)."""
        if is_classifier(self.estimator_) and not hasattr(self.estimator_, "decision_function"):
            return np.asarray(self.estimator_.predict_proba(X), float)[:, 1]
        verb = "decision_function" if is_classifier(self.estimator_) else "predict"
        return np.asarray(getattr(self.estimator_, verb)(X), float).reshape(-1)


def checked_probe(probe: Any) -> OwnProbe:
    """The probe, if it is an estimator."""
    if isinstance(probe, type) or not all(
        hasattr(probe, verb) for verb in ("fit", "predict", "get_params")
    ):
        raise problem(
            "probe", f"{probe!r:.80}", expected="an estimator with fit, predict and get_params"
        )
    return OwnProbe(probe)


def probe_name(probe: Any) -> str:
    """The class of an estimator and a hash of all its parameters, those of estimators inside it included.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> probe_name(Ridge(alpha=1.0)) == probe_name(Ridge()), probe_name(Ridge()) == probe_name(Ridge(alpha=2.0))
    (True, False)
    """
    digest = hashlib.blake2b(
        _spelt(probe.get_params(deep=True)).encode(), digest_size=4
    ).hexdigest()
    return f"{type(probe).__name__} {digest}"


def _spelt(value: Any) -> str:
    """A parameter in full: arrays by their content, which their own spelling leaves out, estimators by class."""
    if isinstance(value, dict):
        return str(
            [
                (str(name), _spelt(one))
                for name, one in sorted(value.items(), key=lambda item: str(item[0]))
            ]
        )
    if isinstance(value, list | tuple):
        return str([_spelt(one) for one in value])
    if hasattr(value, "to_numpy"):
        return _spelt(value.to_numpy())
    if isinstance(value, np.ndarray):
        content = (
            value.tolist()
            if value.dtype.hasobject
            else hashlib.blake2b(value.tobytes()).hexdigest()
        )
        return f"{value.dtype} {value.shape} {content}"
    if hasattr(value, "get_params"):
        return f"{type(value).__qualname__} {_spelt(value.get_params(deep=False))}"
    return getattr(value, "__qualname__", None) or repr(value)


def _asks_for_groups(estimator: Any) -> bool:
    """Whether `fit` takes groups by name, or is a search, which passes them on to its inner folds."""
    is_search = hasattr(estimator, "estimator") and hasattr(estimator, "scoring")
    return is_search or has_fit_parameter(estimator, "groups")
