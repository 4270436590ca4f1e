"""Data without information, or with extreme numbers, end in an error or a warning, never in a silent NaN."""

import warnings

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import predict

from nerve._utils.errors import NerveError, NerveWarning
from nerve.evaluation import make_feature_set, score_table
from nerve.evaluation.combat import ComBat
from nerve.evaluation.covariates import CovariateRegression
from nerve.evaluation.cross_validation import predict_permuted_targets
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.kernels import blockwise_gram, correlation_rows, linear_rows
from nerve.evaluation.participants import prepare_participants
from nerve.evaluation.protocol import KERNELS, Protocol

from .conftest import make_cohort

N = 40


@pytest.fixture
def y():
    return np.random.default_rng(0).normal(size=N)


@pytest.fixture
def features(y):
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, 6)) + y[:, None]


def predictions(features, cohort, **options):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        table = predict(features, cohort, ["y"], n_folds=4, **options)
    return table, [str(one.message) for one in shown]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_units_of_features_and_targets_do_not_matter(y, features, kernel):
    cohort, plain = make_cohort(N, y=y * 1e-8), make_cohort(N, y=y)
    expected, _ = predictions(features, plain, kernel=kernel)
    for scale in (1e-200, 1e-30, 1e200):
        table, _ = predictions(features * scale, cohort, kernel=kernel)
        np.testing.assert_allclose(
            table["predicted"] * 1e8, expected["predicted"], rtol=1e-6, atol=1e-9
        )


def test_an_offset_of_a_target_costs_no_digits(y, features):
    table, _ = predictions(features, make_cohort(N, y=y + 1e8))
    expected, _ = predictions(features, make_cohort(N, y=y))
    np.testing.assert_allclose(table["predicted"] - 1e8, expected["predicted"], atol=1e-6)


def test_columns_of_any_size_count_alike_in_the_linear_kernel(features):
    sizes = np.array([1.0, 1e-100, 1e100, 1e-12, 1e12, 1.0])
    np.testing.assert_allclose(
        linear_rows(features * sizes, features * sizes), linear_rows(features, features)
    )


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_constant_features_predict_the_mean_with_a_warning(y, kernel):
    table, said = predictions(np.ones((N, 3)), make_cohort(N, y=y), kernel=kernel)
    assert np.isfinite(table["predicted"]).all()
    assert table.groupby("fold")["predicted"].agg(np.ptp).max() < 1e-12
    assert any("predictions of y are constant" in sentence for sentence in said)


def test_participants_whose_features_do_not_vary_are_named(y, features):
    features[[7, 30]] = 2.0
    with pytest.raises(
        NerveError,
        match=r"features of sub-007, sub-030 do not vary|features of sub-0(07|30) do not",
    ):
        predictions(features, make_cohort(N, y=y))


def test_participants_of_later_blocks_are_named_correctly():
    rows = np.random.default_rng(0).normal(size=(20, 5))
    rows[13] = 1.0
    with pytest.raises(NerveError, match="the participant of row 14 "):
        blockwise_gram(lambda some: rows[some], 20, correlation_rows, block=4)


def test_a_model_that_predicts_nan_is_refused_with_the_participants_and_the_target(y):
    class Broken:
        def fit(self, cohort, values):
            return self

        def predict(self, cohort):
            ids = cohort.participants["participant_id"]
            return np.where(ids == "sub-011", np.nan, 0.0)

    with pytest.raises(
        NerveError, match=r"predictions of y in fold \d are missing or infinite for sub-011"
    ):
        predictions(Broken(), make_cohort(N, y=y))


def test_tables_with_missing_predictions_are_refused_not_scored(y, features):
    table, _ = predictions(features, make_cohort(N, y=y))
    table.loc[3, "predicted"] = np.nan
    with pytest.raises(NerveError, match="of y by features for sub-003"):
        score_table(table, 0)


def test_scores_that_cannot_be_computed_are_named():
    cohort = make_cohort(6, y=np.arange(6.0))
    table = predict(np.random.default_rng(0).normal(size=(6, 4)), cohort, ["y"], n_folds=3)
    with pytest.warns(NerveWarning, match="r_fold_mean of y could not be computed for features"):
        assert score_table(table, 0)["r_fold_mean"].isna().all()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (lambda y: y * 1e-300, "target 'y': its values span"),
        (lambda y: y * 1e300, "target 'y': its values span"),
        (lambda y: np.where(np.arange(N) == 3, np.inf, 1.0), "target 'y': a value is infinite"),
        (lambda y: np.where(np.arange(N) < 4, y, np.nan), "target 'y': there are values for 4 of"),
    ],
)
def test_targets_that_cannot_be_predicted_are_refused_by_name(y, features, values, sentence):
    with pytest.raises(NerveError, match=sentence):
        predict(features, make_cohort(N, y=values(y)), ["y"], n_folds=5)


def test_two_participants_are_too_few_and_the_target_is_named():
    with pytest.raises(NerveError, match="target 'y': it has values for 2"):
        predict(np.eye(2), make_cohort(2, y=[1.0, 2.0]), ["y"], n_folds=2)


def test_a_target_that_covariates_explain_is_named_and_its_rounding_error_not_predicted(
    y, features
):
    table, said = predictions(features, make_cohort(N, y=y, twice=2 * y + 1), covariates=["twice"])
    assert any("y: the covariates explain all of it" in sentence for sentence in said)
    assert (table["observed"] == 0).all()


def test_a_target_in_its_last_digits_is_named(y, features):
    _, said = predictions(features, make_cohort(N, y=1e8 + y * 1e-7))
    assert any("y: its values differ in their last digits" in sentence for sentence in said)


def test_infinite_covariates_are_counted_as_missing(y, features):
    _, said = predictions(
        features, make_cohort(N, y=y, age=np.where(np.arange(N) < 2, np.inf, y)), covariates=["age"]
    )
    assert any("age: 2 missing or infinite" in sentence for sentence in said)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_covariates_of_any_size_are_removed(y, scale):
    table = pd.DataFrame({"c": np.random.default_rng(3).normal(size=N) * scale})
    left = CovariateRegression().fit(table, y[:, None]).residuals(table, y[:, None])
    assert abs(np.corrcoef(left[:, 0], table["c"] / scale)[0, 1]) < 1e-10


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_combat_does_not_depend_on_units(features, scale):
    table = pd.DataFrame({"site": np.tile(["A", "B"], N // 2)})
    ours = ComBat("site").fit(features * scale, table).transform(features * scale, table)
    np.testing.assert_allclose(
        ours / scale, ComBat("site").fit(features, table).transform(features, table)
    )


def test_combat_leaves_features_that_do_not_vary(features):
    table = pd.DataFrame({"site": np.tile(["A", "B"], N // 2)})
    same = np.tile(features[0], (N, 1))
    np.testing.assert_allclose(ComBat("site").fit(same, table).transform(same, table), same)


def test_a_site_of_one_participant_is_named(y, features):
    cohort = make_cohort(N, y=y, site=["A"] * (N - 1) + ["B"])
    with pytest.raises(
        NerveError, match="site B has fewer than two participants, expected at least two"
    ):
        predict(features, cohort, ["y"], site="site", combat=True, n_folds=4)


def test_ties_between_penalties_go_to_the_largest_whatever_the_rounding(y):
    same = np.ones((N, 3))  # every λ predicts the mean
    assert KernelRidge("linear").fit(same, y).lambda_ == 20


def test_a_table_in_another_order_gives_the_same_numbers(y, features):
    shuffled = np.random.default_rng(5).permutation(N)
    cohort = make_cohort(N, y=y)
    other = cohort.subset(shuffled)
    one, _ = predictions(features, cohort)
    two, _ = predictions(features[shuffled], other)
    both = one.merge(two, on="participant")
    assert len(both) == N
    assert (both["fold_x"] == both["fold_y"]).all()
    np.testing.assert_allclose(both["predicted_x"], both["predicted_y"], rtol=1e-9, atol=1e-12)
    left, right = (score_table(table, 200).iloc[0] for table in (one, two))
    np.testing.assert_allclose(left["r_low"], right["r_low"], atol=1e-9)


def test_permutations_do_not_depend_on_the_order_of_the_table(y, features):
    shuffled = np.random.default_rng(5).permutation(N)
    cohort = make_cohort(N, y=y, family=np.arange(N) // 2)
    found = []
    for one, values in ((cohort, features), (cohort.subset(shuffled), features[shuffled])):
        people, protocol = prepare_participants(
            one, Protocol(targets="y", n_folds=4, n_permutations=30, groups="family")
        )
        given = make_feature_set(values, one)
        given.prepare(one, people, protocol)
        found.append(predict_permuted_targets(given, people, protocol)["r"].to_numpy())
    np.testing.assert_allclose(*found, atol=1e-9)
