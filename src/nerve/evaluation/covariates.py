"""Covariates are removed by linear regression whose coefficients come from the training fold only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from nerve._utils.errors import NotFitted, problem
from nerve._utils.privacy import FEWEST_OF_LEVEL, shared_levels

_MOTION_NAMES = (
    "meanfd",
    "fdmean",
    "funcmeanfd",
    "meanframewisedisplacement",
    "framewisedisplacement",
    "fd",
    "motion",
)


def motion_column(columns: Iterable[str]) -> str | None:
    """The column that holds mean framewise displacement, by its name, or None.

    Examples
    --------
    >>> motion_column(["age", "func_mean_fd"]), motion_column(["age"])
    ('func_mean_fd', None)
    """
    found = {
        "".join(filter(str.isalnum, str(column).lower())): str(column)
        for column in reversed(list(columns))
    }
    return next((found[name] for name in _MOTION_NAMES if name in found), None)


class Design:
    """A table of covariates as numbers: numbers as they are, categories one-hot, all centred on training participants.

    Missing values and categories unknown in training become 0 after centring, i.e. the training fold's average.
    """

    def fit(self, table: pd.DataFrame) -> Design:
        """Learn categories and means from training participants."""
        self.categories_: dict[str, list | None] = {
            str(name): None if is_numeric(column) else sorted(column.dropna().astype(str).unique())
            for name, column in table.items()
        }
        encoded = self._encode(table)
        self.means_ = np.nansum(encoded, axis=0) / np.maximum(np.isfinite(encoded).sum(axis=0), 1)
        return self

    def transform(self, table: pd.DataFrame) -> np.ndarray:
        """(n, p) numbers."""
        return np.nan_to_num(self._encode(table) - self.means_, nan=0.0)

    def _encode(self, table: pd.DataFrame) -> np.ndarray:
        blocks = [np.empty((len(table), 0))]
        for name, categories in self.categories_.items():
            if categories is None:
                values = table[name].to_numpy(float, na_value=np.nan)
                blocks.append(np.where(np.isfinite(values), values, np.nan)[:, None])
                continue
            labels = table[name].astype(str).where(table[name].notna(), None).to_numpy(object)
            one_hot = (labels[:, None] == np.array(categories, object)[None, :]).astype(
                float
            )  # (n, categories)
            one_hot[~one_hot.any(axis=1)] = np.nan
            blocks.append(one_hot)
        return np.column_stack(blocks)


def without_rare_levels(table: pd.DataFrame) -> pd.DataFrame:
    """Covariates without the levels that must not be passed on with a model: dates, and those of few participants.

    They become missing values, which count as the average, in those who were fitted and in new participants.
    """
    shared = table.copy()
    for name, column in table.items():
        if is_numeric(column):
            continue
        words = column.astype(str).where(column.notna(), None)
        levels = shared_levels(words)
        if not levels:
            found = f"no value of it is held by {FEWEST_OF_LEVEL} participants, or all are dates"
            remedy = "Leave it out, or give it as a number: a model that is kept holds the names of its levels."
            raise problem(f"covariate {name!r}", found, remedy=remedy)
        shared[name] = words.where(words.isin(levels), None)
    return shared


def is_numeric(column: pd.Series) -> bool:
    """Whether a covariate is a number; text, categories and true/false are not."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def written(value: Any) -> str:
    """A value as a table writes it: numbers without needless digits (1, not 1.0)."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def deviations(columns: np.ndarray) -> np.ndarray:
    """Standard deviation of each column, in units in which squares neither overflow nor vanish."""
    peak = np.abs(columns).max(axis=0, initial=0.0)
    peak = np.where(peak > 0, peak, 1.0)
    return peak * (columns / peak).std(axis=0)


class CovariateRegression(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Least squares of targets (or features) on an intercept and covariates; the model of the row of covariates too.

    ŷ = b₀ + C b with C centred on the training participants, the smallest b where columns of C depend on one another.
    """

    def fit(self, table: pd.DataFrame, values: np.ndarray) -> CovariateRegression:
        """Learn coefficients from training participants; `values` is (n, T)."""
        self.design_ = Design().fit(table)
        matrix = self.design_.transform(table)  # (n, p)
        scale = deviations(matrix)
        self.scale_ = np.where(
            scale > 0, scale, 1.0
        )  # so that the rank test sees comparable columns
        self.intercept_ = values.mean(axis=0)  # (T,): the columns of the design are centred
        self.coefficients_ = np.linalg.lstsq(
            matrix / self.scale_, values - self.intercept_, rcond=1e-10
        )[0]
        return self

    def predict(self, table: pd.DataFrame) -> np.ndarray:
        """What the covariates say of each participant, (n, T)."""
        if not hasattr(self, "coefficients_"):
            raise NotFitted(
                "This CovariateRegression is not fitted yet. Call fit(table, values) first."
            )
        return self.intercept_ + (self.design_.transform(table) / self.scale_) @ self.coefficients_

    def residuals(self, table: pd.DataFrame, values: np.ndarray) -> np.ndarray:
        """What is left of the values, (n, T)."""
        return values - self.predict(table)

    def as_dict(self) -> dict[str, Any]:
        """What was learned, as plain JSON."""
        numbers = {"means": self.design_.means_, "scale": self.scale_, "intercept": self.intercept_}
        numbers["coefficients"] = self.coefficients_
        return {
            "categories": self.design_.categories_,
            **{name: one.tolist() for name, one in numbers.items()},
        }

    @classmethod
    def from_dict(cls, learned: dict[str, Any]) -> CovariateRegression:
        """The inverse of `as_dict`; a `ValueError` if its parts do not fit together."""
        regression = cls()
        regression.design_ = Design()
        regression.design_.categories_ = dict(learned["categories"])
        (
            regression.design_.means_,
            regression.scale_,
            regression.intercept_,
            regression.coefficients_,
        ) = (
            np.asarray(learned[name], float)
            for name in ("means", "scale", "intercept", "coefficients")
        )
        width = sum(
            1 if known is None else len(known) for known in regression.design_.categories_.values()
        )
        if {
            len(regression.design_.means_),
            len(regression.scale_),
            len(regression.coefficients_),
        } != {width}:
            raise ValueError(f"coefficients that are not of {width} covariates")
        return regression


class FeatureRegression:
    """Covariates removed from every feature. A fold step: `fit` on training participants, `transform` anyone.

    Removing confounds from features can leak them into non-linear models, and a correlation kernel is non-linear.

    Parameters
    ----------
    columns : sequence of str
        Columns of the participants table that the step reads.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def without(self, names: Iterable[str]) -> FeatureRegression:
        """The same step that does not look at those columns: a target never shapes the features."""
        return FeatureRegression([name for name in self.columns if name not in set(names)])

    def fit(self, features: np.ndarray, table: pd.DataFrame) -> FeatureRegression:
        """Learn one coefficient per covariate and feature."""
        self.regression_ = CovariateRegression().fit(
            table[list(self.columns)], np.asarray(features, float)
        )
        return self

    def transform(self, features: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        """Residual features plus their training mean, (n, d)."""
        residuals = self.regression_.residuals(
            table[list(self.columns)], np.asarray(features, float)
        )
        return (
            residuals + self.regression_.intercept_
        )  # keep the profile that a correlation kernel compares
