"""Covariate regression and ComBat follow their formulas, for training and test participants."""

import numpy as np
import pandas as pd
import pytest

from nerve import NerveError
from nerve.evaluation import ComBat
from nerve.evaluation.covariates import (
    CovariateRegression,
    Design,
    FeatureRegression,
    motion_column,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_residuals_are_those_of_least_squares_with_dummies(rng):
    n = 80
    table = pd.DataFrame(
        {
            "age": rng.normal(12, 3, n),
            "sex": rng.choice(["F", "M"], n),
            "site": rng.choice(list("abc"), n),
        }
    )
    y = rng.normal(size=(n, 2)) + table["age"].to_numpy()[:, None]
    train, test = slice(0, 60), slice(60, n)
    X = np.column_stack(
        [np.ones(n), table["age"], table["sex"] == "M", table["site"] == "b", table["site"] == "c"]
    ).astype(float)
    expected = y[test] - X[test] @ np.linalg.lstsq(X[train], y[train], rcond=None)[0]
    ours = CovariateRegression().fit(table[train], y[train]).residuals(table[test], y[test])
    assert np.allclose(ours, expected)


def test_missing_and_unseen_values_count_as_the_training_average(rng):
    train = pd.DataFrame({"age": [10.0, np.nan, 14.0], "site": ["a", "b", "b"]})
    design = Design().fit(train)
    odd = design.transform(pd.DataFrame({"age": [np.nan], "site": ["never seen"]}))
    assert np.allclose(odd, 0)
    assert np.allclose(design.transform(train)[:, 0], [-2, 0, 2])
    assert np.allclose(design.transform(train).mean(axis=0), 0)


def test_collinear_covariates_do_no_harm(rng):
    x = rng.normal(size=50)
    y = (2 * x + rng.normal(size=50))[:, None]
    once = CovariateRegression().fit(pd.DataFrame({"a": x}), y).residuals(pd.DataFrame({"a": x}), y)
    table = pd.DataFrame({"a": x, "b": x * 1000, "c": 7.0})
    assert np.allclose(CovariateRegression().fit(table, y).residuals(table, y), once)


def test_regressed_features_are_uncorrelated_with_the_covariate_in_training(rng):
    table = pd.DataFrame({"age": rng.normal(size=60)})
    X = rng.normal(size=(60, 4)) + table["age"].to_numpy()[:, None]
    left = FeatureRegression(["age"]).fit(X, table).transform(X, table)
    assert np.abs(np.corrcoef(left.T, table["age"])[-1, :-1]).max() < 1e-10
    assert np.allclose(left.mean(axis=0), X.mean(axis=0))


def test_motion_columns_are_recognised():
    assert motion_column(["FD_mean"]) == "FD_mean"
    assert motion_column(["meanFD", "age"]) == "meanFD"
    assert motion_column(["fdx", "food"]) is None


class TestComBat:
    def sites(self, rng, n=300, d=40):
        site = rng.choice(["a", "b", "c"], n)
        age = rng.normal(size=n) + (site == "a")  # sites differ in age, as they do
        slope = rng.normal(size=d)
        shift = {name: rng.normal(size=d) for name in "abc"}
        scale = {"a": 0.5, "b": 1.0, "c": 2.0}
        X = np.stack(
            [age[i] * slope + shift[s] + scale[s] * rng.normal(size=d) for i, s in enumerate(site)]
        )
        return X, pd.DataFrame({"site": site, "age": age}), slope

    def test_planted_shifts_and_scales_are_removed_and_age_is_kept(self, rng):
        X, table, slope = self.sites(rng)
        clean = ComBat("site", ["age"]).fit(X, table).transform(X, table)
        age = table["age"].to_numpy()
        left = clean - age[:, None] * slope
        means = np.stack([left[table["site"] == s].mean(axis=0) for s in "abc"])
        spread = np.array([left[table["site"] == s].std() for s in "abc"])
        assert np.abs(means - means.mean(axis=0)).max() < 0.35
        assert spread.max() / spread.min() < 1.15
        fitted = np.array([np.polyfit(age, column, 1)[0] for column in clean.T])
        assert np.corrcoef(fitted, slope)[0, 1] > 0.97

    def test_test_participants_of_known_sites_are_harmonised_with_what_training_learned(self, rng):
        X, table, _ = self.sites(rng)
        combat = ComBat("site", ["age"]).fit(X[:200], table[:200])
        together, alone = (
            combat.transform(X[200:], table[200:]),
            combat.transform(X[200:201], table[200:201]),
        )
        assert np.allclose(together[0], alone[0])

    def test_shifts_equal_the_plain_estimates_when_sites_are_large(self, rng):
        X, table, _ = self.sites(rng, n=6000, d=10)
        combat = ComBat("site").fit(X, table)
        for i, site in enumerate("abc"):
            standard = (X[table["site"] == site] - combat.mean_) / combat.deviation_
            assert np.allclose(combat.shift_[i], standard.mean(axis=0), atol=0.02)
            assert np.allclose(combat.scale_[i], standard.std(axis=0), rtol=0.03)

    def test_an_unseen_site_and_a_missing_site_are_refused(self, rng):
        X, table, _ = self.sites(rng)
        combat = ComBat("site").fit(X, table)
        with pytest.raises(NerveError, match=r"fitted without site z \(it knows a, b, c\)"):
            combat.transform(X[:1], pd.DataFrame({"site": ["z"]}))
        with pytest.raises(NerveError, match="olumn 'site' is empty for 1 of"):
            ComBat("site").fit(X, table.assign(site=table["site"].where(table.index > 0)))
        with pytest.raises(NerveError, match="found one site"):
            ComBat("site").fit(X, table.assign(site="a"))

    def test_a_site_with_one_participant_and_constant_features_stay_finite(self, rng):
        X, table, _ = self.sites(rng)
        X[:, 3] = 1.0
        table.loc[0, "site"] = "lonely"
        clean = ComBat("site", ["age"]).fit(X, table).transform(X, table)
        assert np.isfinite(clean).all()
        assert np.allclose(clean[:, 3], 1.0)
