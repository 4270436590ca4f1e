"""A user's own scikit-learn estimator instead of kernel ridge, under the same protocol."""

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
    """The estimator, cloned for every fold and target.

    Predictions of a classifier are its decision function, or the probability of the second class.

    Parameters
    ----------
    estimator : estimator
        A scikit-learn estimator, also a pipeline or `GridSearchCV`: whatever it chooses, it chooses
        on training participants. A search is given `groups` where families or sites are kept
        together.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, groups: Any = None) -> OwnProbe:
        """Fit a copy of the estimator to one target.

        Parameters
        ----------
        X : (n, d) array
            Features of training participants.
        y : (n,) array
            Their target.
        groups : (n,) labels, optional
            Passed on where the estimator takes them.

        Returns
        -------
        OwnProbe
            This estimator.
        """
        self.estimator_ = clone(self.estimator)
        if is_classifier(self.estimator_):
            if not np.isin(y, (0.0, 1.0)).all():
                raise NerveError(
                    f"The probe {type(self.estimator).__name__} is a classifier, but the target "
                    "holds numbers: it is one, or covariates were removed from its classes. "
                    "Expected a regressor (Ridge, SVR …), or classes and no covariates "
                    "(motion='none' leaves head motion out)."
                )
            y = np.asarray(y, int)
        if groups is not None and _takes_groups(self.estimator_):
            if pd.isna(groups).any():
                # scikit-learn cannot sort labels if some are missing
                groups = complete_labels(groups)
            self.estimator_.fit(X, y, groups=groups)
        else:
            self.estimator_.fit(X, y)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, (n,)."""
        if not is_classifier(self.estimator_):
            predicted = self.estimator_.predict(X)
        elif hasattr(self.estimator_, "decision_function"):
            predicted = self.estimator_.decision_function(X)
        else:
            predicted = self.estimator_.predict_proba(X)[:, 1]
        return np.asarray(predicted, float).reshape(-1)


def checked_probe(probe: Any) -> OwnProbe:
    """The probe, if it is an estimator; otherwise an error."""
    has_verbs = all(hasattr(probe, verb) for verb in ("fit", "predict", "get_params"))
    if isinstance(probe, type) or not has_verbs:
        raise problem(
            "probe", f"{probe!r:.80}", expected="an estimator with fit, predict and get_params"
        )
    return OwnProbe(probe)


def probe_name(probe: Any) -> str:
    """The class of an estimator and a hash of all its parameters.

    Parameters
    ----------
    probe : estimator
        Parameters of estimators inside it are counted too.

    Returns
    -------
    str
        The same for equal estimators.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> probe_name(Ridge(alpha=1.0)) == probe_name(Ridge())
    True
    >>> probe_name(Ridge()) == probe_name(Ridge(alpha=2.0))
    False
    """
    parameters = _parameter_text(probe.get_params(deep=True))
    digest = hashlib.blake2b(parameters.encode(), digest_size=4).hexdigest()
    return f"{type(probe).__name__} {digest}"


def _parameter_text(value: Any) -> str:
    """A parameter as text: arrays by their content, which `repr` shortens, estimators by class."""
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: str(item[0]))
        return str([(str(name), _parameter_text(part)) for name, part in items])
    if isinstance(value, list | tuple):
        return str([_parameter_text(part) for part in value])
    if hasattr(value, "to_numpy"):
        return _parameter_text(value.to_numpy())
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            content = value.tolist()
        else:
            content = hashlib.blake2b(value.tobytes()).hexdigest()
        return f"{value.dtype} {value.shape} {content}"
    if hasattr(value, "get_params"):
        return f"{type(value).__qualname__} {_parameter_text(value.get_params(deep=False))}"
    return getattr(value, "__qualname__", None) or repr(value)


def _takes_groups(estimator: Any) -> bool:
    """Whether `fit` takes groups, by name or as a search, which passes them to inner folds."""
    is_search = hasattr(estimator, "estimator") and hasattr(estimator, "scoring")
    return is_search or has_fit_parameter(estimator, "groups")
