"""Principal components: scikit-learn's, a turn that keeps distances, a planted signal found under noise."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from nerve._utils.linalg import (
    Shrinkage,
    principal_components,
    rotate_to_zero_sum,
    shrinkage_of,
    unit_rows,
)


def test_components_are_scikit_learns_when_centred():
    values = np.random.default_rng(0).normal(size=(9, 30)) + 5
    mean, components, variances = principal_components(values, 8)
    expected = PCA(8, svd_solver="full").fit(values)
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(np.abs(components.T), np.abs(expected.components_), atol=1e-10)
    np.testing.assert_allclose(variances[:8] * 9 / 8, expected.explained_variance_, rtol=1e-10)


def test_components_are_those_of_the_svd_without_centring():
    values = np.random.default_rng(1).normal(size=(6, 20)) + 1
    _, components, _ = principal_components(values, 6, center=False)
    directions = np.linalg.svd(values, full_matrices=False)[2]
    np.testing.assert_allclose(np.abs(components.T), np.abs(directions), atol=1e-10)


def test_equal_rows_have_no_components():
    mean, components, variances = principal_components(np.full((4, 6), 0.1, np.float32), 3)
    np.testing.assert_allclose(mean, 0.1)
    assert components.shape == (6, 0)
    assert not variances.any()


def test_rotated_scores_keep_distances_and_sum_to_zero():
    values = np.random.default_rng(2).normal(size=(12, 40)).astype(np.float32)
    _, components, _ = principal_components(values, 5)
    scores = values @ components
    for width in (None, 6, 16):
        found = values @ rotate_to_zero_sum(components, width)
        assert found.shape == (12, width or 6)
        np.testing.assert_allclose(found @ found.T, scores @ scores.T, atol=1e-3)
        np.testing.assert_allclose(found.sum(1), 0, atol=1e-4)


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray]:
    """Signal in 20 of 4,000 directions, and the same with noise: 150 participants of unit length."""
    rng = np.random.default_rng(1)
    signal = (
        rng.normal(size=(150, 20))
        * np.linspace(3, 1, 20)
        @ np.linalg.qr(rng.normal(size=(4000, 20)))[0].T
    )
    noisy = signal + rng.normal(size=signal.shape) * 0.25
    return signal / np.linalg.norm(noisy, axis=1, keepdims=True), unit_rows(noisy)


def error(shrinkage: Shrinkage, noisy: np.ndarray, signal: np.ndarray) -> float:
    return float(np.square(shrinkage.scores(noisy) @ shrinkage.directions.T - signal).mean())


def test_shrunk_vectors_are_nearer_to_a_planted_signal(planted):
    signal, noisy = planted
    found = shrinkage_of(noisy, 150)
    unweighted = found._replace(weights=np.ones_like(found.weights))
    assert error(found, noisy, signal) < 0.7 * error(unweighted, noisy, signal)
    assert error(found, noisy, signal) < 0.5 * np.square(noisy - signal).mean()


def test_new_participants_are_recognised_and_have_their_own_weights(planted):
    signal, noisy = planted
    found = shrinkage_of(noisy[:100], 100)
    assert found.are_new(noisy @ found.directions).tolist() == [False] * 100 + [True] * 50
    assert error(found, noisy[100:], signal[100:]) < 0.9 * error(
        found._replace(weights=found.weights[[0, 0]]), noisy[100:], signal[100:]
    )
    new, seen = noisy[100:] @ found.directions, noisy[:100] @ found.directions
    np.testing.assert_allclose((seen**2).mean(0), found.variances[0], rtol=1e-6)
    np.testing.assert_allclose((new**2).mean(), found.variances[1].mean(), rtol=0.2)


def test_with_more_participants_than_entries_new_ones_are_like_the_others():
    found = shrinkage_of(np.random.default_rng(0).normal(size=(60, 5)), 5)
    np.testing.assert_allclose(*found.weights)
    np.testing.assert_allclose(*found.variances)


def test_rows_have_unit_length_unless_they_are_zero():
    np.testing.assert_allclose(
        unit_rows(np.array([[3.0, 4.0], [1e-9, 0.0]]), 1e-6), [[0.6, 0.8], [0.0, 0.0]]
    )
