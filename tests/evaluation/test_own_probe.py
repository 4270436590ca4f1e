"""Any scikit-learn estimator may read the features, under the same protocol."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tests.evaluation.conftest import predict

import nerve
from nerve import NerveError
from nerve.evaluation import score_table, strata_of
from nerve.evaluation.covariates import CovariateRegression
from nerve.evaluation.own_probe import probe_name

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")


@pytest.mark.slow
def test_it_is_fitted_in_each_fold_on_what_is_left_after_covariates(cohort, features):
    """A second opinion by hand, with the folds and residuals of the table."""
    table = predict(features, cohort, "score", "age,sex", probe=Ridge(alpha=3.0))
    ridge = predict(features, cohort, "score", "age,sex")
    assert (table["fold"] == ridge["fold"]).all()
    assert table["observed"].to_numpy() == pytest.approx(ridge["observed"].to_numpy())
    assert score_table(table, n_bootstrap=0)["r"].iloc[0] > 0.4
    fold = table["fold"].to_numpy()
    covariates, y = (
        cohort.participants[["age", "sex", "mean_fd"]],
        cohort.participants["score"].to_numpy(),
    )
    train = fold != 0
    left = (
        CovariateRegression()
        .fit(covariates[train], y[train, None])
        .residuals(covariates[train], y[train, None])
    )
    wanted = Ridge(alpha=3.0).fit(features[train], left[:, 0]).predict(features[~train])
    assert table.loc[~train, "predicted"].to_numpy() == pytest.approx(wanted)


class Spy(RegressorMixin, BaseEstimator):
    seen: ClassVar[list] = []  # shared by all copies

    def __init__(self, depth=1):
        self.depth = depth

    def fit(self, X, y):
        assert not hasattr(self, "fitted_"), "a copy is fitted twice"
        self.fitted_ = True
        Spy.seen.append((X.shape, y.shape))
        return self

    def predict(self, X):
        return X[:, 0]


def test_a_fresh_copy_gets_training_participants_and_one_target_only(cohort, features):
    Spy.seen.clear()
    predict(features, cohort, ["score", "patient"], motion="none", n_folds=4, probe=Spy())
    assert len(Spy.seen) == 8
    assert set(Spy.seen) == {((90, 10), (90,))}


@pytest.mark.slow
def test_labels_of_test_participants_change_nothing(cohort, features):
    probe = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [0.1, 1.0, 10.0]}, cv=3
    )
    before = predict(features, cohort, "score", probe=probe, n_folds=4)
    fold = before["fold"].to_numpy()
    changed, score = cohort.subset(np.arange(len(cohort))), before["observed_raw"].to_numpy().copy()
    for stratum in range(5):  # exchanged within strata, so that the folds stay
        mine = np.flatnonzero((fold == 0) & (strata_of(score, 4) == stratum))
        score[mine] = score[mine[::-1]]
    changed.participants["score"] = score
    after = predict(features, changed, "score", probe=probe, n_folds=4)
    assert not np.allclose(after["observed_raw"], before["observed_raw"])
    assert (after["fold"].to_numpy() == fold).all()
    assert after["predicted"][fold == 0].to_numpy() == pytest.approx(
        before["predicted"][fold == 0].to_numpy()
    )
    assert score_table(before, n_bootstrap=0)["r"].iloc[0] > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("features_", ["raw", "pca", "tangent", {"mine": "array"}])
def test_every_feature_set_is_read_by_it(cohort, features, features_):
    given = {"mine": features} if isinstance(features_, dict) else features_
    results = nerve.evaluate(
        given, cohort, "partly", n_folds=4, n_components=5, probe=Ridge(), combat=True, site="site"
    )
    assert np.isfinite(results.predictions["predicted"]).all()
    assert results.rows["variant"].iloc[0] == probe_name(Ridge())


@pytest.mark.slow
@pytest.mark.parametrize(
    "probe", [LogisticRegression(), LinearSVC(), RandomForestRegressor(20, random_state=0)]
)
def test_two_classes_are_told_apart_by_classifiers_and_regressors(cohort, features, probe):
    table = predict(features, cohort, "patient", motion="none", n_folds=4, probe=probe)
    assert score_table(table, n_bootstrap=0)["auc"].iloc[0] > 0.6


def test_a_search_is_given_the_families(cohort, features):
    probe = GridSearchCV(Ridge(), {"alpha": [1.0, 100.0]}, cv=GroupKFold(3))
    assert len(predict(features, cohort, "score", groups="family", n_folds=4, probe=probe)) == 120


def test_an_estimator_with_inner_folds_of_its_own_is_not_given_families(cohort, features):
    assert (
        len(predict(features, cohort, "score", groups="family", n_folds=4, probe=RidgeCV())) == 120
    )


def test_mistakes_are_sentences(cohort, features):
    with pytest.raises(NerveError, match="is a classifier, but the target holds numbers"):
        predict(features, cohort, "patient", "age", probe=LogisticRegression())
    with pytest.raises(NerveError, match="expected an estimator"):
        predict(features, cohort, "score", probe=Ridge)
    with pytest.raises(NerveError, match="expected an estimator"):
        predict(features, cohort, "score", probe="ridge")


def test_the_name_changes_with_every_parameter_also_inside():
    grid = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1, 2]})
    other = GridSearchCV(make_pipeline(StandardScaler(), Ridge(tol=1e-5)), {"ridge__alpha": [1, 2]})
    third = GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1, 3]})
    assert len({probe_name(one) for one in (grid, other, third)}) == 3
    assert probe_name(grid) == probe_name(
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1, 2]})
    )


def test_participants_without_a_family_are_groups_of_their_own_for_a_search(cohort, features):
    cohort.participants["family"] = np.where(
        np.arange(len(cohort)) < 40, np.arange(len(cohort)) // 2, None
    )
    search = GridSearchCV(Ridge(), {"alpha": [1.0, 10.0]}, cv=GroupKFold(3))
    table = predict(features, cohort, "score", groups="family", probe=search, n_folds=3)
    assert len(table) == len(cohort)
