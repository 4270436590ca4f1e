"""Connectivity agrees with independent implementations, and constant regions are never a number."""

import numpy as np
import pytest
import scipy.linalg

from nerve._utils.errors import NerveError
from nerve._utils.linalg import symmetric_log
from nerve.data.connectivity import (
    connectivity_from_series,
    constant_regions,
    fisher_z,
    inverse_fisher_z,
    kept_volumes,
    partial_from_fc,
    pearson,
)


@pytest.fixture
def series():
    rng = np.random.default_rng(0)
    return rng.normal(size=(120, 4)) @ rng.normal(size=(4, 9)) + rng.normal(size=(120, 9))


def test_pearson_agrees_with_numpy(series):
    assert np.allclose(connectivity_from_series(series), np.corrcoef(series.T), atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "theirs"), [("ledoit_wolf", "correlation"), ("partial", "partial correlation")]
)
def test_shrunk_kinds_agree_with_nilearn(series, kind, theirs):
    from nilearn.connectome import ConnectivityMeasure  # a second of imports, for this test alone

    measure = ConnectivityMeasure(kind=theirs, standardize="zscore_sample")
    scaled = (series - series.mean(0)) / series.std(0)
    assert np.allclose(
        connectivity_from_series(series, kind), measure.fit_transform([scaled])[0], atol=5e-3
    )


def test_partial_correlation_of_a_chain_vanishes_between_its_ends():
    rng = np.random.default_rng(1)
    a = rng.normal(size=5000)
    b = a + rng.normal(size=5000)
    c = b + rng.normal(size=5000)
    fc = connectivity_from_series(np.c_[a, b, c], "partial")
    assert abs(fc[0, 2]) < 0.05 < fc[0, 1]
    assert abs(partial_from_fc(np.corrcoef([a, b, c]), 0.0)[0, 2]) < 0.05


@pytest.mark.parametrize("kind", ["pearson", "partial", "ledoit_wolf"])
def test_a_constant_region_is_missing_and_touches_no_other(series, kind):
    broken = series.copy()
    broken[:, 3] = 7.0
    fc = connectivity_from_series(broken, kind)
    others = np.delete(np.arange(9), 3)
    assert constant_regions(broken).tolist() == [3]
    assert np.isnan(fc[3]).all()
    assert np.isnan(fc[:, 3]).all()
    expected = connectivity_from_series(series[:, others], kind)
    assert np.allclose(fc[np.ix_(others, others)], expected)


def test_volumes_of_much_motion_are_left_out(series):
    motion = np.zeros(120)
    motion[[0, 40]] = np.nan, 2.0
    spoilt = series.copy()
    spoilt[40] = 1e3
    fc = connectivity_from_series(spoilt[kept_volumes(motion, 0.5, 120)])
    assert np.allclose(fc, np.corrcoef(np.delete(series, 40, axis=0).T))
    assert np.flatnonzero(~kept_volumes(motion[1:], 0.5, 120)).tolist() == [
        40
    ]  # a file without the first volume


def test_bad_arguments_get_one_sentence(series):
    with pytest.raises(NerveError, match="Did you mean 'pearson'"):
        connectivity_from_series(series, "pearsn")
    with pytest.raises(NerveError, match="7 values for 120 volumes"):
        kept_volumes(np.zeros(7), 0.5, 120)
    with pytest.raises(NerveError, match="0 usable volumes"):
        connectivity_from_series(series[kept_volumes(np.ones(120), 0.5, 120)])


def test_fisher_z_undoes_itself(series):
    fc = np.corrcoef(series.T)
    assert np.allclose(inverse_fisher_z(fisher_z(fc)), fc, atol=1e-6)
    assert np.array_equal(np.diag(inverse_fisher_z(fisher_z(fc))), np.ones(9))


def positive_matrices(rng, n=40, regions=12):
    series = rng.normal(size=(n, 3 * regions, regions)) @ rng.normal(size=(regions, regions))
    return np.stack([0.5 * pearson(one) + 0.5 * np.eye(regions) for one in series])


def test_logarithms_are_scipys_in_one_thread_or_several():
    matrices = positive_matrices(np.random.default_rng(0))
    expected = np.stack([scipy.linalg.logm(matrix) for matrix in matrices])
    np.testing.assert_allclose(symmetric_log(matrices), expected, atol=1e-10)
    np.testing.assert_array_equal(symmetric_log(matrices[:3]), symmetric_log(matrices)[:3])
    around = matrices[0] @ matrices[0]
    np.testing.assert_allclose(
        symmetric_log(matrices, around), symmetric_log(around @ matrices @ around), atol=1e-12
    )


def test_logarithm_of_a_matrix_that_is_not_positive_is_not_a_number_and_stays_its_own():
    matrices = positive_matrices(np.random.default_rng(2), n=40)
    matrices[2] -= 2 * np.eye(12)
    known = np.isfinite(symmetric_log(matrices)).all(axis=(1, 2))
    assert np.flatnonzero(~known).tolist() == [2]
    np.testing.assert_allclose(
        scipy.linalg.expm(symmetric_log(matrices[:1])[0]), matrices[0], atol=1e-12
    )
