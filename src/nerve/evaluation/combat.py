"""ComBat: remove each site's shift and scale of every feature, learned on the training fold.

Johnson, Li & Rabinovic (2007), as used for connectivity by Yu et al. (2018). For feature g of a participant at site i,

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
    """A fold step: `fit` on training participants, `transform` anyone from the same sites.

    Parameters
    ----------
    site : str
        Column of the site.
    preserve : sequence of str
        Columns whose effects stay in the features (age and sex, say). A target is never among them.
    on : (column, value), optional
        The participants from whom it learns: controls, so that what sets patients apart is not taken for a difference
        of sites where these have more of them. Everyone is harmonised. Of who is tested the column is not looked at.
    """

    def __init__(
        self, site: str, preserve: Sequence[str] = (), on: tuple[str, str] | None = None
    ) -> None:
        self.site, self.preserve, self.on = site, tuple(preserve), on
        self.columns = (site, *preserve)  # of the participants table that the step reads

    def without(self, names: Iterable[str]) -> ComBat:
        """The same step that does not preserve those columns: a test participant's target must not be looked at."""
        return ComBat(
            self.site, [name for name in self.preserve if name not in set(names)], self.on
        )

    def fit(self, features: np.ndarray, table: pd.DataFrame) -> ComBat:
        """Learn the site effects; `features` is (n, d)."""
        features = np.asarray(features, float)
        if self.on is not None:
            learned_from = in_subset(table, self.on)
            features, table = features[learned_from], table[learned_from]
        self.sites_, code = np.unique(sites_of(table, self.site, "ComBat"), return_inverse=True)
        if len(self.sites_) < 2:
            raise NerveError(
                f"ComBat found one site in column {self.site!r}, expected at least two. Leave ComBat out."
            )
        self.design_ = Design().fit(table[list(self.preserve)])
        member = np.eye(len(self.sites_))[code]  # (n, sites)
        design = np.column_stack([member, self.design_.transform(table[list(self.preserve)])])
        coefficients = np.linalg.lstsq(design, features, rcond=1e-10)[0]  # (sites + p, d)
        self.mean_ = member.mean(axis=0) @ coefficients[: len(self.sites_)]  # (d,)
        self.slopes_ = coefficients[len(self.sites_) :]  # (p, d)
        deviation = np.sqrt(((features - design @ coefficients) ** 2).mean(axis=0))
        varies = deviation > 1e-12 * np.abs(features).max(
            axis=0
        )  # constant features stay as they are
        self.deviation_ = np.where(varies, deviation, 1.0)
        standard = self._standardise(features, table)[:, varies]
        self.shift_ = np.zeros((len(self.sites_), features.shape[1]))
        self.scale_ = np.ones_like(self.shift_)
        for i in range(len(self.sites_)):
            self.shift_[i, varies], self.scale_[i, varies] = _site_effect(standard[code == i])
        return self

    def transform(self, features: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        """Features as if everyone had been scanned at the average site, (n, d)."""
        if not hasattr(self, "shift_"):
            raise NotFitted("This ComBat is not fitted yet. Call fit(features, table) first.")
        sites = sites_of(table, self.site, "ComBat")
        unseen = np.setdiff1d(sites, self.sites_)
        if len(unseen):
            of = f" among those with {self.on[0]}={self.on[1]}" if self.on else ""
            known = f"(it knows {listed(self.sites_, most=6)})"
            found = f"ComBat was fitted without site {listed(unseen, most=4)}{of} {known}"
            remedy = "A site that was left out cannot be harmonised: drop ComBat, or keep sites in every fold."
            raise problem("sites", found, expected="only sites of the training fold", remedy=remedy)
        code = np.searchsorted(self.sites_, sites)
        standard = (self._standardise(features, table) - self.shift_[code]) / self.scale_[code]
        return standard * self.deviation_ + self._expected(table)

    def _expected(self, table: pd.DataFrame) -> np.ndarray:
        return (
            self.mean_ + self.design_.transform(table[list(self.preserve)]) @ self.slopes_
        )  # (n, d)

    def _standardise(self, features: np.ndarray, table: pd.DataFrame) -> np.ndarray:
        return (np.asarray(features, float) - self._expected(table)) / self.deviation_


def in_subset(table: pd.DataFrame, on: tuple[str, str]) -> np.ndarray:
    """Who has the value in the column, (n,) booleans; numbers are compared as text (1, not 1.0)."""
    return (table[on[0]].map(format_value, na_action="ignore") == on[1]).to_numpy(bool)


def sites_of(table: pd.DataFrame, column: str, where: str) -> np.ndarray:
    """The site of each participant, (n,) text; a missing one is refused."""
    sites = table[column]
    if sites.isna().any():
        found = f"column {column!r} is empty for {sites.isna().sum()} of {len(sites)} participants"
        remedy = "Fill it in, or leave them out (cohort.subset)."
        raise problem(where, found, expected="a site for everyone", remedy=remedy)
    return sites.to_numpy(str)


def _site_effect(
    standard: np.ndarray, tolerance: float = 1e-6, most: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Shrunken shift γ* and scale δ* of one site's standardised features, (n_site, d) → two (d,) arrays.

    A normal prior for γ and an inverse-gamma prior for δ², with moments matched over features; the two conditional
    posterior means are iterated until they agree.
    """
    n, raw_shift = len(standard), standard.mean(axis=0)
    if raw_shift.size == 0:  # no feature varies
        return raw_shift, raw_shift
    if n < 2:  # one participant says nothing of a scale
        return raw_shift * raw_shift.var() / (raw_shift.var() + 1.0), np.ones_like(raw_shift)
    raw_scale = standard.var(axis=0, ddof=1)
    (centre, spread), (mean, variance) = (
        (raw.mean(), raw.var(ddof=1) if len(raw) > 1 else 1.0) for raw in (raw_shift, raw_scale)
    )
    if (
        variance <= 1e-12 or spread <= 1e-12
    ):  # nothing to learn across features: the plain estimates
        return raw_shift, np.sqrt(np.where(raw_scale > 0, raw_scale, 1.0))
    shape, rate = 2.0 + mean**2 / variance, mean + mean**3 / variance
    shift, scale = raw_shift, raw_scale
    squares, total = (standard**2).sum(axis=0), standard.sum(axis=0)
    for _ in range(most):
        new_shift = (n * spread * raw_shift + scale * centre) / (n * spread + scale)
        errors = squares - 2 * new_shift * total + n * new_shift**2
        new_scale = (0.5 * errors + rate) / (n / 2.0 + shape - 1.0)
        steps = ((new_shift, shift), (new_scale, scale))
        change = max(
            (np.abs(new - old) / np.maximum(np.abs(old), 1e-8)).max() for new, old in steps
        )
        shift, scale = new_shift, new_scale
        if change < tolerance:
            break
    return shift, np.sqrt(scale)
