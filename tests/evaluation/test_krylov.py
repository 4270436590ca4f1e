"""Lanczos' method gives the same predictions and penalties as the decomposition."""

import numpy as np
import pytest

from nerve.evaluation import KernelRidge, kernel_ridge, krylov


@pytest.fixture(scope="module")
def problem():
    """300 participants with two targets that their features tell of, and an offset that only a bias takes up."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 20)) @ rng.normal(size=(20, 500)) + 6 * rng.normal(
        size=(300, 500)
    )
    targets = features[:, :2] + 10 * rng.normal(size=(300, 2)) + 50
    return np.corrcoef(features), targets


def fitted(monkeypatch, kernel, targets, through_krylov, **options):
    monkeypatch.setattr(kernel_ridge, "lanczos_is_cheaper", lambda *_: through_krylov)
    return KernelRidge("precomputed", **options).fit(kernel[:250, :250], targets[:250])


@pytest.mark.parametrize("offset", [True, False])
def test_predictions_and_penalties_are_those_of_the_decomposition(monkeypatch, problem, offset):
    kernel, targets = problem
    targets = targets if offset else targets - targets.mean(axis=0)
    exact, ours = (fitted(monkeypatch, kernel, targets, way) for way in (False, True))
    np.testing.assert_array_equal(ours.lambda_, exact.lambda_)
    np.testing.assert_allclose(ours.inner_scores_[4:], exact.inner_scores_[4:], atol=1e-4)
    test = kernel[250:, :250]
    np.testing.assert_allclose(ours.predict(test), exact.predict(test), atol=1e-3 * targets.std())


def test_one_penalty_needs_no_inner_folds(monkeypatch, problem):
    exact, ours = (fitted(monkeypatch, *problem, way, lambdas=[0.7]) for way in (False, True))
    np.testing.assert_allclose(
        ours.predict(problem[0][250:, :250]), exact.predict(problem[0][250:, :250]), atol=1e-3
    )


def test_targets_and_kernels_without_differences_give_the_mean(monkeypatch, problem):
    kernel, targets = problem
    same = np.column_stack([np.full(300, 3.0), targets[:, 0]])
    np.testing.assert_allclose(
        fitted(monkeypatch, kernel, same, True).predict(kernel[250:, :250])[:, 0], 3.0
    )
    alike = np.ones_like(kernel)
    predicted = fitted(monkeypatch, alike, targets, True).predict(alike[250:, :250])
    np.testing.assert_allclose(predicted, np.tile(targets[:250].mean(axis=0), (50, 1)), rtol=1e-4)


def test_the_choice_counts_operations():
    assert not krylov.lanczos_is_cheaper(3_000, 4, 5)  # exact in seconds
    assert krylov.lanczos_is_cheaper(9_000, 4, 5)
    assert not krylov.lanczos_is_cheaper(9_000, 1_000, 5)  # permutations share a decomposition
