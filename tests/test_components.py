"""Principal components: scikit-learn's, and a turn that keeps distances."""

import numpy as np
from sklearn.decomposition import PCA

from nerve.components import principal_components, turned


def test_components_are_scikit_learns_when_centred():
    values = np.random.default_rng(0).normal(size=(9, 30)) + 5
    mean, components, variances = principal_components(values, 8)
    expected = PCA(8, svd_solver="full").fit(values)
    np.testing.assert_allclose(mean, values.mean(0))
    np.testing.assert_allclose(np.abs(components.T), np.abs(expected.components_), atol=1e-10)
    np.testing.assert_allclose(variances[:8] * 9 / 8, expected.explained_variance_, rtol=1e-10)


def test_without_centring_they_are_those_of_the_svd():
    values = np.random.default_rng(1).normal(size=(6, 20)) + 1
    _, components, _ = principal_components(values, 6, center=False)
    directions = np.linalg.svd(values, full_matrices=False)[2]
    np.testing.assert_allclose(np.abs(components.T), np.abs(directions), atol=1e-10)


def test_of_rows_that_do_not_differ_there_are_none():
    mean, components, variances = principal_components(np.full((4, 6), 0.1, np.float32), 3)
    np.testing.assert_allclose(mean, 0.1)
    assert components.shape == (6, 0)
    assert not variances.any()


def test_turned_scores_keep_distances_and_sum_to_zero_however_many_they_are():
    values = np.random.default_rng(2).normal(size=(12, 40)).astype(np.float32)
    _, components, _ = principal_components(values, 5)
    scores = values @ components
    for width in (None, 6, 16):
        found = values @ turned(components, width)
        assert found.shape == (12, width or 6)
        np.testing.assert_allclose(found @ found.T, scores @ scores.T, atol=1e-3)
        np.testing.assert_allclose(found.sum(1), 0, atol=1e-4)
