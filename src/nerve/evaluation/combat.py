"""ComBat: remove each site's shift and scale of every feature, learned on the training fold.

Johnson, Li & Rabinovic (2007), as used for connectivity by Yu et al. (2018). For feature g of a
participant at site i,

    x = α_g + C β_g + σ_g (γ_ig + δ_ig ε),

with γ and δ² shrunk towards their mean over features by parametric empirical Bayes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, NotFitted, listed, problem
from nerve.evaluation.covariates import Design, format_value


class ComBat:
    """A step fitted on the training participants of a fold, for participants of the same sites.

    Parameters
    ----------
    site : str
        Column of the site.
    preserve : sequence of str
        Columns whose effects stay in the features (age and sex, say). A target is never among them.
    on : (str, str), optional
        Column and value of the participants that it learns from. Learning from controls avoids
        removing a difference between patients and controls where sites have different shares of
        patients. All participants are harmonised; the column is not read for test participants.
    """

    def __init__(
        self, site: str, preserve: Sequence[str] = (), on: tuple[str, str] | None = None
    ) -> None:
        self.site = site
        self.preserve = tuple(preserve)
        self.on = on
        # columns of the participants table that the step reads
        self.columns = (site, *preserve)

    def without(self, names: Iterable[str]) -> ComBat:
        """The same step without those columns: a target is never read."""
        excluded = set(names)
        kept = [name for name in self.preserve if name not in excluded]
        return ComBat(self.site, kept, self.on)

    def fit(self, features: np.ndarray, table: pd.DataFrame) -> ComBat:
        """Learn the site effects.

        Parameters
        ----------
        features : (n, d) array
            Features of training participants.
        table : DataFrame
            The participants table, one row for each of them.

        Returns
        -------
        ComBat
            This step.
        """
        features = np.asarray(features, float)
        if self.on is not None:
            learned_from = in_subset(table, self.on)
            features = features[learned_from]
            table = table[learned_from]
        self.sites_, code = np.unique(sites_of(table, self.site, "ComBat"), return_inverse=True)
        n_sites = len(self.sites_)
        if n_sites < 2:
            raise NerveError(
                f"ComBat found one site in column {self.site!r}, expected at least two. "
                "Leave ComBat out."
            )

        # α, β and σ by least squares on sites and preserved columns
        preserved = table[list(self.preserve)]
        self.design_ = Design().fit(preserved)
        at_site = np.eye(n_sites)[code]  # (n, sites)
        design = np.column_stack([at_site, self.design_.transform(preserved)])  # (n, sites + p)
        coefficients = np.linalg.lstsq(design, features, rcond=1e-10)[0]  # (sites + p, d)
        self.mean_ = at_site.mean(axis=0) @ coefficients[:n_sites]  # (d,)
        self.slopes_ = coefficients[n_sites:]  # (p, d)
        deviation = np.sqrt(((features - design @ coefficients) ** 2).mean(axis=0))
        # constant features stay as they are
        varies = deviation > 1e-12 * np.abs(features).max(axis=0)
        self.deviation_ = np.where(varies, deviation, 1.0)

        # γ and δ of every site, shrunk over features
        standard = self._standardise(features, table)[:, varies]
        self.shift_ = np.zeros((n_sites, features.shape[1]))
        self.scale_ = np.ones_like(self.shift_)
        for i in range(n_sites):
            shift, scale = _site_effect(standard[code == i])
            self.shift_[i, varies] = shift
            self.scale_[i, varies] = scale
        return self

    def transform(self, features: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        """Features as if all participants had been scanned at the average site, (n, d)."""
        if not hasattr(self, "shift_"):
            raise NotFitted("This ComBat is not fitted yet. Call fit(features, table) first.")
        sites = sites_of(table, self.site, "ComBat")
        unseen = np.setdiff1d(sites, self.sites_)
        if len(unseen):
            subset = f" among those with {self.on[0]}={self.on[1]}" if self.on else ""
            raise problem(
                "sites",
                f"ComBat was fitted without site {listed(unseen, most=4)}{subset} "
                f"(it knows {listed(self.sites_, most=6)})",
                expected="only sites of the training fold",
                remedy="A site that was left out cannot be harmonised: drop ComBat, or keep sites "
                "in every fold.",
            )
        code = np.searchsorted(self.sites_, sites)
        standard = (self._standardise(features, table) - self.shift_[code]) / self.scale_[code]
        return standard * self.deviation_ + self._expected(table)

    def _expected(self, table: pd.DataFrame) -> np.ndarray:
        """α + C β: features at the average site, (n, d)."""
        return self.mean_ + self.design_.transform(table[list(self.preserve)]) @ self.slopes_

    def _standardise(self, features: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        return (np.asarray(features, float) - self._expected(table)) / self.deviation_


def in_subset(table: pd.DataFrame, on: tuple[str, str]) -> np.ndarray:
    """Which participants have the value in the column, (n,) booleans; 1 and 1.0 are equal."""
    column, value = on
    return (table[column].map(format_value, na_action="ignore") == value).to_numpy(bool)


def sites_of(table: pd.DataFrame, column: str, where: str) -> np.ndarray:
    """The site of each participant, (n,) text; a missing one is refused."""
    sites = table[column]
    if sites.isna().any():
        raise problem(
            where,
            f"column {column!r} is empty for {sites.isna().sum()} of {len(sites)} participants",
            expected="a site for every participant",
            remedy="Fill it in, or leave them out (cohort.subset).",
        )
    return sites.to_numpy(str)


def _site_effect(
    standard: np.ndarray, tolerance: float = 1e-6, most: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Shrunken shift γ* and scale δ* of one site, two (d,) arrays, from its (n, d) features.

    A normal prior for γ and an inverse-gamma prior for δ², with moments matched over features; the
    two conditional posterior means are iterated until they agree.
    """
    n, n_features = standard.shape
    raw_shift = standard.mean(axis=0)
    if n_features == 0:
        return raw_shift, raw_shift
    if n < 2:
        # one participant has no scale
        shrinkage = raw_shift.var() / (raw_shift.var() + 1.0)
        return raw_shift * shrinkage, np.ones_like(raw_shift)
    raw_variance = standard.var(axis=0, ddof=1)

    # moments over features: of the normal prior of γ, and of the inverse-gamma prior of δ²
    prior_mean = raw_shift.mean()
    prior_variance = raw_shift.var(ddof=1) if n_features > 1 else 1.0
    mean = raw_variance.mean()
    spread = raw_variance.var(ddof=1) if n_features > 1 else 1.0
    if spread <= 1e-12 or prior_variance <= 1e-12:
        # features do not differ, so that nothing can be shrunk: the plain estimates
        return raw_shift, np.sqrt(np.where(raw_variance > 0, raw_variance, 1.0))
    shape = 2.0 + mean**2 / spread
    rate = mean + mean**3 / spread

    shift = raw_shift
    variance = raw_variance
    squares = (standard**2).sum(axis=0)
    total = standard.sum(axis=0)
    for _ in range(most):
        new_shift = (n * prior_variance * raw_shift + variance * prior_mean) / (
            n * prior_variance + variance
        )
        errors = squares - 2 * new_shift * total + n * new_shift**2
        new_variance = (0.5 * errors + rate) / (n / 2.0 + shape - 1.0)
        change = max(_relative_change(new_shift, shift), _relative_change(new_variance, variance))
        shift = new_shift
        variance = new_variance
        if change < tolerance:
            break
    return shift, np.sqrt(variance)


def _relative_change(new: np.ndarray, old: np.ndarray) -> float:
    return float((np.abs(new - old) / np.maximum(np.abs(old), 1e-8)).max())
