"""Covariates removed by linear regression, with the coefficients of those whom `fit` is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from nerve._utils.errors import NotFitted, problem
from nerve._utils.privacy import FEWEST_OF_LEVEL, shared_levels

# names of columns of mean framewise displacement, without case and punctuation; the first that a
# table has is used
_MOTION_NAMES = (
    "meanfd",
    "fdmean",
    "funcmeanfd",
    "meanframewisedisplacement",
    "framewisedisplacement",
    "fd",
    "motion",
)


class CovariateRegression(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Least squares of targets (or features) on an intercept and covariates.

    ŷ = b₀ + C b with C centred on the training participants; b has the smallest norm where columns
    of C depend on one another. It is also the model of the row of covariates alone.

    Attributes
    ----------
    design_ : Design
        What makes C of a table.
    scale_ : (p,) array
        Standard deviations of the columns of C.
    intercept_ : (T,) array
        Means of the values.
    coefficients_ : (p, T) array
        Coefficients of C / `scale_`.
    """

    def fit(self, table: pd.DataFrame, values: np.ndarray) -> CovariateRegression:
        """Learn coefficients from training participants.

        Parameters
        ----------
        table : DataFrame
            Covariates, one row per participant.
        values : (n,) or (n, T) array
            What is explained by them.

        Returns
        -------
        CovariateRegression
            This regression.
        """
        self.design_ = Design().fit(table)
        matrix = self.design_.transform(table)  # (n, p)
        scale = deviations(matrix)
        # columns of equal scale, so that the test of the rank can compare them
        self.scale_ = np.where(scale > 0, scale, 1.0)
        # the mean is the intercept because the columns are centred
        self.intercept_ = values.mean(axis=0)
        centred = values - self.intercept_
        self.coefficients_ = np.linalg.lstsq(matrix / self.scale_, centred, rcond=1e-10)[0]
        return self

    def predict(self, table: pd.DataFrame) -> np.ndarray:
        """What the covariates predict for each participant, (n,) or (n, T)."""
        if not hasattr(self, "coefficients_"):
            raise NotFitted(
                "This CovariateRegression is not fitted yet. Call fit(table, values) first."
            )
        return self.intercept_ + (self.design_.transform(table) / self.scale_) @ self.coefficients_

    def residuals(self, table: pd.DataFrame, values: np.ndarray) -> np.ndarray:
        """Values minus what the covariates predict, (n,) or (n, T)."""
        return values - self.predict(table)

    def as_dict(self) -> dict[str, Any]:
        """What was learned, as plain JSON."""
        return {
            "categories": self.design_.categories_,
            "means": self.design_.means_.tolist(),
            "scale": self.scale_.tolist(),
            "intercept": self.intercept_.tolist(),
            "coefficients": self.coefficients_.tolist(),
        }

    @classmethod
    def from_dict(cls, learned: dict[str, Any]) -> CovariateRegression:
        """The inverse of `as_dict`; a `ValueError` if its parts do not fit together."""
        regression = cls()
        regression.design_ = Design()
        regression.design_.categories_ = dict(learned["categories"])
        regression.design_.means_ = np.asarray(learned["means"], float)
        regression.scale_ = np.asarray(learned["scale"], float)
        regression.intercept_ = np.asarray(learned["intercept"], float)
        regression.coefficients_ = np.asarray(learned["coefficients"], float)
        n_columns = 0
        for categories in regression.design_.categories_.values():
            n_columns += 1 if categories is None else len(categories)
        for part in (regression.design_.means_, regression.scale_, regression.coefficients_):
            if len(part) != n_columns:
                raise ValueError(f"coefficients that are not of {n_columns} covariates")
        return regression


class FeatureRegression:
    """Covariates removed from every feature: a step fitted on the training participants of a fold.

    Removing confounds from features can leak them into non-linear models, and a correlation kernel
    is non-linear.

    Parameters
    ----------
    columns : sequence of str
        Columns of the participants table that the step reads.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def without(self, names: Iterable[str]) -> FeatureRegression:
        """The same step without those columns: a target is never read."""
        excluded = set(names)
        return FeatureRegression([name for name in self.columns if name not in excluded])

    def fit(self, features: np.ndarray, table: pd.DataFrame) -> FeatureRegression:
        """Learn one coefficient per covariate and feature.

        Parameters
        ----------
        features : (n, d) array
            Features of training participants.
        table : DataFrame
            The participants table, one row for each of them.

        Returns
        -------
        FeatureRegression
            This step.
        """
        covariates = table[list(self.columns)]
        self.regression_ = CovariateRegression().fit(covariates, np.asarray(features, float))
        return self

    def transform(self, features: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        """Residual features plus their training mean, (n, d)."""
        covariates = table[list(self.columns)]
        residuals = self.regression_.residuals(covariates, np.asarray(features, float))
        # the mean is kept, because it is part of the profile that a correlation kernel compares
        return residuals + self.regression_.intercept_


class Design:
    """Covariates as numbers: numbers as they are, categories one-hot, all centred.

    The centre is the mean of the training participants. Missing values, and categories that no
    training participant has, become 0 after centring: the training fold's average.

    Attributes
    ----------
    categories_ : dict
        Name of a covariate → its categories in training, or None for a number.
    means_ : (p,) array
        Means of the columns in training.
    """

    def fit(self, table: pd.DataFrame) -> Design:
        """Learn categories and means from training participants."""
        self.categories_: dict[str, list | None] = {}
        for name, column in table.items():
            if is_numeric(column):
                self.categories_[str(name)] = None
            else:
                self.categories_[str(name)] = sorted(column.dropna().astype(str).unique())
        encoded = self._encode(table)
        n_present = np.isfinite(encoded).sum(axis=0)
        self.means_ = np.nansum(encoded, axis=0) / np.maximum(n_present, 1)
        return self

    def transform(self, table: pd.DataFrame) -> np.ndarray:
        """The numbers, (n, p)."""
        return np.nan_to_num(self._encode(table) - self.means_, nan=0.0)

    def _encode(self, table: pd.DataFrame) -> np.ndarray:
        """Numbers and one-hot categories, (n, p); NaN where they are missing or unknown."""
        blocks = [np.empty((len(table), 0))]
        for name, categories in self.categories_.items():
            if categories is None:
                values = table[name].to_numpy(float, na_value=np.nan)
                blocks.append(np.where(np.isfinite(values), values, np.nan)[:, None])
                continue
            labels = table[name].astype(str).where(table[name].notna(), None).to_numpy(object)
            is_category = labels[:, None] == np.array(categories, object)[None, :]
            one_hot = is_category.astype(float)  # (n, categories)
            one_hot[~is_category.any(axis=1)] = np.nan
            blocks.append(one_hot)
        return np.column_stack(blocks)


def motion_column(columns: Iterable[str]) -> str | None:
    """The column that holds mean framewise displacement, by its name.

    Parameters
    ----------
    columns : iterable of str
        Columns of the participants table.

    Returns
    -------
    str or None
        The column, if there is one.

    Examples
    --------
    >>> motion_column(["age", "func_mean_fd"]), motion_column(["age"])
    ('func_mean_fd', None)
    """
    columns_by_name: dict[str, str] = {}
    for column in columns:
        name = "".join(filter(str.isalnum, str(column).lower()))
        columns_by_name.setdefault(name, str(column))
    for name in _MOTION_NAMES:
        if name in columns_by_name:
            return columns_by_name[name]
    return None


def without_rare_levels(table: pd.DataFrame) -> pd.DataFrame:
    """Covariates without the levels that must not be passed on with a model.

    These are dates, and levels of few participants. They become missing values, which count as the
    average, both for the participants who are fitted and for new ones.

    Parameters
    ----------
    table : DataFrame
        Covariates.

    Returns
    -------
    DataFrame
        The same columns.
    """
    shared = table.copy()
    for name, column in table.items():
        if is_numeric(column):
            continue
        words = column.astype(str).where(column.notna(), None)
        levels = shared_levels(words)
        if not levels:
            raise problem(
                f"covariate {name!r}",
                f"no value of it is held by {FEWEST_OF_LEVEL} participants, or all are dates",
                remedy="Leave it out, or give it as a number: a model that is kept holds the names "
                "of its levels.",
            )
        shared[name] = words.where(words.isin(levels), None)
    return shared


def is_numeric(column: pd.Series) -> bool:
    """Whether a column holds numbers; text, categories and true/false are not."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def format_value(value: Any) -> str:
    """A value as a table writes it: numbers without needless digits (1, not 1.0)."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def deviations(columns: np.ndarray) -> np.ndarray:
    """Standard deviation of each column, (d,), computed so that squares do not overflow."""
    peak = np.abs(columns).max(axis=0, initial=0.0)
    peak = np.where(peak > 0, peak, 1.0)
    return peak * (columns / peak).std(axis=0)
