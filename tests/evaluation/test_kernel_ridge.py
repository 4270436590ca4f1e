"""Kernel ridge agrees with the formulas written out, with scikit-learn and with CBIG's worked example."""

import numpy as np
import pytest
import scipy.io
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer
from sklearn.utils.estimator_checks import check_estimators_nan_inf
from tests.reference import krr

from nerve import NerveError
from nerve.evaluation import LAMBDAS, KernelRidge, strata_of, stratified_folds
from nerve.evaluation.covariates import CovariateRegression
from nerve.evaluation.kernel_ridge import Spectrum, predictive_cod
from nerve.evaluation.kernels import blockwise_gram, correlation_rows


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_correlation_kernel_is_numpys_to_1e_12_in_any_block_size(rng):
    X = rng.normal(3, 2, size=(37, 50)).astype(np.float32)
    expected = np.corrcoef(X.astype(float))
    whole = blockwise_gram(lambda rows: X[rows], 37, correlation_rows)
    assert np.abs(whole - expected).max() < 1e-12
    in_blocks = blockwise_gram(lambda rows: X[rows], 37, correlation_rows, block=5)
    assert np.abs(in_blocks - expected).max() < 1e-12
    assert (in_blocks == in_blocks.T).all()


@pytest.mark.parametrize("width", [6, 200])  # the factored and the kernel route
@pytest.mark.parametrize("route", ["correlation", "precomputed"])
def test_every_penalty_and_target_equals_the_formula(rng, width, route):
    X, Y = rng.normal(size=(60, width)), rng.normal(2, 1, size=(60, 3))
    train, test = np.arange(45), np.arange(45, 60)
    kernel = np.corrcoef(X)
    fitted_on, tested_on = (X[train], X[test])
    if route == "precomputed":
        fitted_on, tested_on = kernel[np.ix_(train, train)], kernel[np.ix_(test, train)]
    for penalty in LAMBDAS[1:]:
        predicted = (
            KernelRidge(route, lambdas=[penalty]).fit(fitted_on, Y[train]).predict(tested_on)
        )
        for t in range(3):
            assert np.allclose(
                predicted[:, t], krr.kernel_ridge(kernel, train, test, Y[:, t], penalty), atol=1e-8
            )


def test_zero_penalty_is_the_limit_of_small_ones_even_for_a_singular_kernel(rng):
    X, y = rng.normal(size=(50, 8)), rng.normal(size=50)
    rows = correlation_rows(X)
    for route, train, test in [("rows", rows[:40], rows[40:]),
                               ("precomputed", rows[:40] @ rows[:40].T, rows[40:] @ rows[:40].T)]:  # fmt: skip
        none, little = (
            KernelRidge(route, [penalty]).fit(train, y[:40]).predict(test)
            for penalty in (0.0, 1e-8)
        )
        assert np.allclose(none, little, atol=1e-5)


@pytest.mark.parametrize("width", [5, 90])
def test_features_that_differ_by_rounding_only_give_equal_predictions(rng, width):
    X, y = rng.normal(size=width) + 1e-9 * rng.normal(size=(40, width)), rng.normal(size=40)
    for route, train in [("rows", X), ("precomputed", X @ X.T)]:
        assert np.allclose(KernelRidge(route).fit(train, y).predict(train), y.mean(), atol=1e-6)


def test_one_penalty_for_each_target_equals_solving_each_target_alone(rng):
    X, Y = rng.normal(size=(40, 90)), rng.normal(size=(40, 3))
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    spectrum = Spectrum.of_kernel(X @ X.T, common=0.0)
    penalties = np.array([0.01, 1.0, 20.0])
    together = spectrum.solve(spectrum.coordinates(Y), penalties)
    for t, penalty in enumerate(penalties):
        alone = spectrum.solve(spectrum.coordinates(Y[:, [t]]), penalty)
        assert np.allclose(together[:, t], alone[:, 0])


def test_the_width_of_the_rbf_kernel_is_the_median_heuristic(rng):
    train, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    distances = [((a - b) ** 2).sum() for i, a in enumerate(train) for b in train[:i]]
    assert KernelRidge("rbf").fit(train, y).gamma_ == pytest.approx(1 / (2 * np.median(distances)))


@pytest.mark.parametrize("width", [7, 120])
@pytest.mark.parametrize("kernel", ["linear", "cosine", "correlation", "rbf"])
def test_it_is_scikit_learns_kernel_ridge_on_a_centred_kernel_and_target(rng, kernel, width):
    X, y = rng.normal(size=(70, width)), rng.normal(3, 1, size=70)
    train, test = X[:50], X[50:]
    ours = KernelRidge(kernel, lambdas=[0.7]).fit(train, y[:50])
    if kernel == "linear":
        z = (X - train.mean(0)) / train.std(0) / np.sqrt(width)
        theirs = pairwise_kernels(z, z[:50])
    elif kernel == "rbf":
        theirs = pairwise_kernels(X, train, metric="rbf", gamma=ours.gamma_)
    else:
        X = X - X.mean(1, keepdims=True) if kernel == "correlation" else X
        theirs = pairwise_kernels(X, X[:50], metric="cosine")
    model = make_pipeline(KernelCenterer(), SklearnKernelRidge(alpha=0.7, kernel="precomputed"))
    expected = model.fit(theirs[:50], y[:50] - y[:50].mean()).predict(theirs[50:]) + y[:50].mean()
    assert np.abs(ours.predict(test) - expected).max() < 1e-10


@pytest.mark.parametrize("width", [10, 150])
def test_the_nested_choice_equals_the_slow_nested_loop(rng, width):
    X = rng.normal(size=(80, width))
    y = X[:, 0] + rng.normal(size=80)
    train, test = np.arange(60), np.arange(60, 80)
    folds = stratified_folds(strata_of(y[train], 5), 5, seed=42)
    grid = [0.01, 0.1, 1.0, 5.0, 20.0]
    expected, best = krr.nested(np.corrcoef(X), train, test, y, folds, grid)
    ours = KernelRidge(lambdas=grid).fit(X[train], y[train])
    assert ours.lambda_[0] == best
    assert np.abs(ours.predict(X[test]) - expected).max() < 1e-10


def test_several_targets_at_once_equal_each_alone_given_the_same_inner_folds(rng):
    X, Y = rng.normal(size=(60, 100)), rng.normal(size=(60, 4))
    strata = strata_of(Y[:, 0], 5)
    together = KernelRidge().fit(X[:50], Y[:50], strata=strata[:50]).predict(X[50:])
    for t in range(4):
        alone = KernelRidge().fit(X[:50], Y[:50, t], strata=strata[:50]).predict(X[50:])
        assert np.allclose(together[:, t], alone, atol=1e-9)


def test_nan_and_prediction_before_fit_are_refused(rng):
    check_estimators_nan_inf("KernelRidge", KernelRidge(kernel="linear"))
    with pytest.raises(NerveError, match="not fitted"):
        KernelRidge().predict(np.ones((2, 3)))
    with pytest.raises(NerveError, match="Did you mean 'correlation'"):
        KernelRidge(kernel="corelation").fit(np.eye(6), np.arange(6))
    with pytest.raises(NerveError, match="do not vary"):
        KernelRidge().fit(np.r_[np.ones((1, 3)), rng.normal(size=(9, 3))], np.arange(10.0))


@pytest.mark.realdata
class TestWorkedExampleOfCBIG:
    """CBIG's air-quality example: its features, folds and covariate against its stored results."""

    @pytest.fixture
    def example(self, shared_data):
        def load(name):
            return scipy.io.loadmat(
                shared_data / "krr_reference" / name, squeeze_me=True, struct_as_record=False
            )

        folds = load("no_relative_5_fold_sub_list.mat")["sub_fold"]
        return {
            "features": load("input_feature.mat")["feature_mat"].T,
            "kernel": load("FSM_FSM_corr.mat")["FSM"],
            "y": load("CO_groundtruth.mat")["y"],
            "covariate": load("air_quality_covariate.mat")["covariates"].astype(float),
            "fold_of": sum(i * fold.fold_index.astype(int) for i, fold in enumerate(folds)),
            "result": load("final_result_CO_1.mat"),
            "residuals": load("y_fold_1_y_regress_CO_1.mat")["y_resid"],
        }

    def test_kernel_agrees_to_1e_12(self, example):
        rows = correlation_rows(example["features"])
        assert np.abs(rows @ rows.T - example["kernel"]).max() < 1e-12

    @pytest.mark.parametrize("route", ["features", "kernel"])
    def test_predictions_and_fold_accuracies_agree_to_1e_6(self, example, route):
        import pandas as pd

        result, data = example["result"], example[route]
        table, y = pd.DataFrame({"covariate": example["covariate"]}), example["y"]
        predicted, accuracy = np.empty(len(y)), []
        for fold in range(5):
            train, test = (
                np.flatnonzero(example["fold_of"] != fold),
                np.flatnonzero(example["fold_of"] == fold),
            )
            regression = CovariateRegression().fit(table.iloc[train], y[train, None])
            left = regression.residuals(table, y[:, None])[:, 0]
            model = KernelRidge(
                "correlation" if route == "features" else "precomputed",
                [result["optimal_lambda"][fold]],
            )
            if route == "features":
                predicted[test] = model.fit(data[train], left[train]).predict(data[test])
            else:
                predicted[test] = model.fit(data[np.ix_(train, train)], left[train]).predict(
                    data[np.ix_(test, train)]
                )
            accuracy.append(np.corrcoef(predicted[test], left[test])[0, 1])
        assert np.abs(predicted - result["y_predict_concat"]).max() < 1e-6
        assert np.abs(accuracy - result["optimal_acc"]).max() < 1e-6
        assert np.allclose(accuracy, [0.980682, 0.963902, 0.974628, 0.974882, 0.977872], atol=1e-6)

    def test_predictive_cod_agrees_once_the_test_covariate_is_centred_as_cbig_does(self, example):
        """CBIG centres a test fold's covariate on the test fold itself. That shifts observed values by a constant;
        we centre on the training fold (nothing of the test fold may enter), so its COD differs in the third digit."""
        import pandas as pd

        y, c, result = example["y"], example["covariate"], example["result"]
        for fold in range(5):
            test = example["fold_of"] == fold
            regression = CovariateRegression().fit(pd.DataFrame({"c": c[~test]}), y[~test, None])
            shifted = np.where(test, c - c[test].mean() + c[~test].mean(), c)
            left = regression.residuals(pd.DataFrame({"c": shifted}), y[:, None])
            if fold == 0:
                assert np.abs(left[:, 0] - example["residuals"]).max() < 1e-6
            predicted = result["y_predict_concat"][test, None]
            ours = predictive_cod(left[test], predicted, left[~test].mean())
            assert np.abs(ours - result["optimal_stats"].predictive_COD[fold]).max() < 1e-6
