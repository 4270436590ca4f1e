"""Views: the textbook's matrix functions, a group at the origin, and what has no logarithm is refused by its row."""

import numpy as np
import pytest
from scipy import linalg

from nerve._utils.errors import NerveError, ParticipantError
from nerve.core.views import VIEWS, ShrunkView, TangentView, check_arrays, make_view


@pytest.fixture(scope="module")
def fc() -> np.ndarray:
    """Seventy people: more than are read at a time."""
    series = np.random.default_rng(0).normal(size=(70, 6, 30))
    series[:, 1] += series[:, 0]
    return np.stack([np.corrcoef(one) for one in series])


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_gives_symmetric_matrices_and_survives_its_arrays(name, fc):
    view = make_view(name).fit(fc[:40])
    found = view.apply(fc)
    assert found.shape == fc.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, found.transpose(0, 2, 1), atol=1e-6)
    assert view.name == name
    again = make_view(name)
    again.arrays = {k: v.copy() for k, v in view.arrays.items()}
    check_arrays(again.arrays, view.shapes(6), "here")
    np.testing.assert_array_equal(again.apply(fc), found)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_fitted_on_training_participants_only(name, fc):
    """Each person's matrix is the same whoever else is there, and does not move the fit."""
    view = make_view(name).fit(fc[:40])
    np.testing.assert_allclose(view.apply(fc[60:61])[0], view.apply(fc)[60], atol=1e-6)
    other = make_view(name).fit(fc[:40] + 0.0)
    np.testing.assert_array_equal(other.apply(fc[60:]), view.apply(fc[60:]))


def test_fc_is_itself(fc):
    np.testing.assert_array_equal(make_view("fc").fit(fc).apply(fc), fc.astype(np.float32))


def test_tangent_is_the_logarithm_of_whitened_fc(fc):
    found = TangentView(shrinkage=0.3).fit(fc[:66]).apply(fc)
    shrunk = 0.7 * fc + 0.3 * np.eye(6)
    root = linalg.inv(linalg.sqrtm(shrunk[:66].mean(0)))
    for person in (0, 65, 69):
        np.testing.assert_allclose(
            found[person], linalg.logm(root @ shrunk[person] @ root), atol=1e-5
        )


def test_a_participant_like_the_group_is_at_the_origin_and_the_diagonal_is_not_read(fc):
    group = fc.mean(axis=0, keepdims=True)
    view = TangentView().fit(fc)
    np.testing.assert_allclose(view.apply(group), 0, atol=1e-5)
    np.testing.assert_array_equal(view.apply(group + 5 * np.eye(6)), view.apply(group))


def test_what_has_no_logarithm_is_refused_by_its_row(fc):
    bad = fc.copy()
    bad[67, 0, 1] = bad[67, 1, 0] = 4.0
    with pytest.raises(ParticipantError, match="not positive definite") as caught:
        TangentView().fit(fc).apply(bad)
    assert caught.value.rows == [67]
    with pytest.raises(NerveError, match="mean FC is not positive definite"):
        TangentView().fit(bad[[67, 67]])
    with pytest.raises(NerveError, match="less than 1"):
        TangentView(shrinkage=1.0)
    with pytest.raises(NerveError, match="Did you mean 'tangent'"):
        make_view("tangant")
    with pytest.raises(NerveError, match=r"its arrays are \{\}, expected"):
        check_arrays({}, TangentView().shapes(6), "model.safetensors")


def test_shrunk_is_the_written_sum_over_principal_directions(fc):
    view, tangent = ShrunkView().fit(fc[:50]), TangentView().fit(fc[:50])
    above = np.triu_indices(6)
    vectors = tangent.apply(fc)[:, *above].astype(float)
    mean = vectors[:50].mean(0)
    _, size, directions = np.linalg.svd(vectors[:50] - mean, full_matrices=False)
    variances = size**2 / 50
    weights = np.maximum(0, 1 - np.median(variances) / variances)
    expected = ((vectors - mean) @ directions.T * weights) @ directions
    np.testing.assert_allclose(view.apply(fc)[:, *above], expected, atol=1e-5)
    assert view.arrays["directions"].shape[1] == (weights > 0).sum()


@pytest.mark.slow
def test_shrinking_brings_noisy_participants_nearer_to_their_true_fc():
    """People who differ along three directions, seen through short scans."""
    rng = np.random.default_rng(1)
    loadings = rng.normal(size=(3, 12)) / 4
    people = rng.normal(size=(200, 3))
    truth = np.eye(12) + np.einsum("pk,ki,kj->pij", 1 + 0.5 * people, loadings, loadings)
    scale = np.sqrt(np.einsum("pii->pi", truth))
    truth /= scale[:, :, None] * scale[:, None]
    seen = np.stack(
        [np.corrcoef(rng.multivariate_normal(np.zeros(12), one, 60).T) for one in truth]
    )
    tangent, shrunk = TangentView().fit(seen), ShrunkView().fit(seen)
    wanted = tangent.apply(truth)
    wanted -= wanted.mean(0)
    found = tangent.apply(seen)
    error = np.square(found - found.mean(0) - wanted).mean()
    assert np.square(shrunk.apply(seen) - wanted).mean() < 0.7 * error


@pytest.mark.parametrize("name", ["fc", "tangent"])
def test_a_view_maps_back_to_the_fc_that_it_was_made_of(name):
    series = np.random.default_rng(0).normal(size=(12, 8, 50))
    fc = np.stack([np.corrcoef(one) for one in series])
    view = make_view(name).fit(fc)
    np.testing.assert_allclose(view.to_fc(view.apply(fc)), fc, atol=1e-5)


def test_the_group_of_the_shrunk_view_maps_back_to_the_groups_fc():
    series = np.random.default_rng(0).normal(size=(30, 8, 50)) + np.random.default_rng(1).normal(
        size=(30, 1, 50)
    )
    fc = np.stack([np.corrcoef(one) for one in series])
    view = make_view("shrunk").fit(fc)
    group = view.to_fc(np.zeros((1, 8, 8)))[0]
    np.testing.assert_allclose(group, fc.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(np.diag(group), 1)


def test_what_no_participant_could_have_maps_back_to_correlations():
    series = np.random.default_rng(0).normal(size=(12, 8, 50))
    fc = np.stack([np.corrcoef(one) for one in series])
    view = make_view("tangent").fit(fc)
    far = np.full((1, 8, 8), 3.0)
    back = view.to_fc(far)
    assert np.abs(back).max() <= 1
    np.testing.assert_allclose(back, back.transpose(0, 2, 1))
