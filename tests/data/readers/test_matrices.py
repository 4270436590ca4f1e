"""A matrix from a file is either made a proper correlation matrix or refused with its reason."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nerve._utils.errors import NerveError
from nerve.data.readers.matrices import clean_matrix, infer_values
from nerve.data.readers.unfolding import from_triangle


@pytest.fixture
def fc():
    return np.corrcoef(np.random.default_rng(0).normal(size=(6, 40)))


def test_a_proper_matrix_is_unchanged(fc):
    np.testing.assert_allclose(clean_matrix(fc, "x"), fc, atol=1e-15)


def test_a_blanked_diagonal_is_set_to_one(fc):
    for blank in (0.0, np.nan, np.inf):
        other = fc.copy()
        np.fill_diagonal(other, blank)
        np.testing.assert_allclose(clean_matrix(other, "x"), fc, atol=1e-15)


def test_fisher_z_becomes_r_whatever_its_diagonal(fc):
    for diagonal in (np.inf, 0.0, 7.25):
        with np.errstate(divide="ignore"):
            z = np.arctanh(np.where(np.eye(6) == 1, 0, fc))
        np.fill_diagonal(z, diagonal)
        np.testing.assert_allclose(clean_matrix(z, "x", "z"), fc, atol=1e-12)


def test_regions_without_data_are_nan_whether_nan_or_zero(fc):
    for blank in (np.nan, 0.0):
        other = fc.copy()
        other[2], other[:, 2] = blank, blank
        other[2, 2] = 1.0
        clean = clean_matrix(other, "x")
        assert np.isnan(clean.diagonal()).tolist() == [False, False, True, False, False, False]
        assert np.isnan(clean[2]).all()
        kept = [0, 1, 3, 4, 5]
        np.testing.assert_allclose(clean[np.ix_(kept, kept)], fc[np.ix_(kept, kept)], atol=1e-15)


def test_rounding_of_text_files_is_forgiven(fc):
    noisy = fc + 4e-4 * np.triu(np.ones((6, 6)), 1)
    clean = clean_matrix(noisy, "x")
    np.testing.assert_array_equal(clean, clean.T)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda m: m[:, :5], r"the matrix is 6 x 5, expected a square matrix"),
        (
            lambda m: m * 9 * (1 - np.eye(6)),
            r"expected correlations in \[-1, 1\]\. If .* z, say --values z",
        ),
        (lambda m: m + np.eye(6), r"the diagonal runs from 2 to 2, expected 1 \(or all 0\)"),
        (
            lambda m: m + np.outer(np.arange(6), np.ones(6)) * 0.01 * (1 - np.eye(6)),
            r"not symmetric.*up to 0.05",
        ),
        (
            lambda m: np.where(np.eye(6, k=1) + np.eye(6, k=-1) > 0, np.nan, m),
            r"10 entries .* not finite",
        ),
        (lambda m: np.zeros((6, 6)), r"all regions are missing or zero"),
        (lambda m: m[:1, :1], r"the matrix has one entry, expected at least two regions"),
    ],
)
def test_each_fault_is_named(fc, spoil, sentence):
    with pytest.raises(NerveError, match=sentence):
        clean_matrix(spoil(fc), "file (participant p)")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    arrays(
        np.float64, st.tuples(st.integers(0, 5), st.integers(0, 5)), elements=st.floats(width=64)
    )
)
def test_any_array_is_either_proper_or_refused(array):
    try:
        clean = clean_matrix(array, "x")
    except NerveError:
        return
    here = ~np.isnan(clean.diagonal())
    inner = clean[np.ix_(here, here)]
    assert np.isfinite(inner).all()
    assert (np.abs(inner) <= 1).all()
    assert (inner == inner.T).all()
    assert (inner.diagonal() == 1).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(3, 30), st.sampled_from(["upper", "lower"]))
def test_triangles_round_trip(n_regions, order):
    matrix = np.corrcoef(np.random.default_rng(n_regions).normal(size=(n_regions, 50)))
    picked = matrix[np.triu_indices(n_regions, 1)]
    if order == "lower":
        picked = np.array([matrix[i, j] for j in range(n_regions) for i in range(j)])
    np.testing.assert_allclose(from_triangle(picked, order, "x"), matrix)


def test_a_length_that_is_no_triangle_is_refused():
    with pytest.raises(NerveError, match="7 values, expected the R"):
        from_triangle(np.zeros(7), "upper", "x")


def test_small_covariances_are_not_taken_for_fisher_z():
    assert infer_values(np.array([[4.0, 1.5], [1.5, 2.0]])) == ""
    assert infer_values(np.array([[1.0, 1.5], [1.5, 1.0]])) == "z"


@pytest.mark.parametrize("diagonal", [0.0, 1.0, np.nan])
def test_eigenvalues_below_zero_as_r_and_none_as_z_prove_fisher_z(diagonal):
    off = 1 - np.eye(100)
    r = np.corrcoef(np.random.default_rng(0).normal(size=(100, 25)))  # fewer volumes than regions
    z = np.arctanh(r * off)
    assert np.abs(z).max() < 1
    assert infer_values(np.where(off, z, diagonal), thorough=True) == "z"
    assert infer_values(np.where(off, r, diagonal), thorough=True) == ("r" if diagonal == 1 else "")
    long = np.corrcoef(
        np.random.default_rng(0).normal(size=(100, 500))
    )  # z of these differ from r by nothing much
    assert infer_values(np.where(off, np.arctanh(long * off), diagonal), thorough=True) in ("", "r")
    assert infer_values(np.where(off, -0.9, diagonal), thorough=True) != "z"  # negative as z too


@pytest.mark.realdata
@pytest.mark.slow
def test_fisher_z_of_a_hundred_regions_has_values_beyond_one_and_of_ten_often_none(shared_data):
    vectors = np.load(shared_data / "ucla_cnp" / "fc_upper_419.npy", mmap_mode="r")[::4]
    matrices = [from_triangle(vector.astype(np.float64), "upper", "ucla") for vector in vectors]
    rng = np.random.default_rng(0)
    shares = {}
    for n_regions in (10, 100):
        has_large = []
        for matrix in matrices:
            regions = rng.choice(419, n_regions, replace=False)
            r = matrix[np.ix_(regions, regions)] - np.eye(n_regions)
            has_large.append(r.max() > np.tanh(1))
        shares[n_regions] = np.mean(has_large)
    assert shares[100] > 0.95
    assert shares[10] < 0.4
