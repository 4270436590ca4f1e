"""The path for very many people: exact where it can be compared, honest about whom it looks at."""

import numpy as np
import pandas as pd
import pytest

import nerve
from nerve import evaluate
from nerve._utils.errors import NerveWarning
from nerve.evaluation.kernels import correlation_rows, cross_products
from nerve.evaluation.sources import Landmarks, landmark_pool

FEW = {"n_folds": 4, "motion": None}


@pytest.fixture(scope="module")
def cohort() -> nerve.Cohort:
    return nerve.data.simulate.simulate_cohort(
        120, "schaefer100-7", 60, keep_timeseries=False, seed=3
    )


def through(features, cohort, **options):
    with pytest.warns(NerveWarning, match="Nyström"):
        return evaluate(features, cohort, "p_factor", exact_up_to=50, **FEW, **options)[
            "predicted"
        ].to_numpy()


def exactly(features, cohort, **options):
    return evaluate(features, cohort, "p_factor", **FEW, **options)["predicted"].to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "options"),
    [("raw", {}), ("raw", {"kernel": "cosine"}), ("pca", {"n_components": 20})],
)
def test_with_everyone_a_landmark_nothing_is_lost(cohort, features, options):
    assert (
        np.corrcoef(through(features, cohort, **options), exactly(features, cohort, **options))[
            0, 1
        ]
        > 0.999
    )


@pytest.mark.slow
def test_the_gaussian_kernel_goes_the_same_way(cohort):
    features = np.random.default_rng(0).normal(size=(120, 5))
    features[:, 0] += cohort.participants["p_factor"]
    assert (
        np.corrcoef(
            through(features, cohort, kernel="rbf"), exactly(features, cohort, kernel="rbf")
        )[0, 1]
        > 0.999
    )


@pytest.mark.slow
def test_the_more_landmarks_the_nearer(cohort):
    exact = exactly("raw", cohort)
    near = [np.corrcoef(through("raw", cohort, n_landmarks=m), exact)[0, 1] for m in (20, 60, 110)]
    assert near == sorted(near)
    assert near[-1] > 0.95


def test_few_features_stay_exact_for_any_number_of_people(cohort):
    features = np.random.default_rng(1).normal(size=(120, 6))
    many = evaluate(features, cohort, "p_factor", exact_up_to=50, **FEW)
    pd.testing.assert_frame_equal(many, evaluate(features, cohort, "p_factor", **FEW))


def test_landmarks_of_a_fold_are_training_people(cohort):
    """Another scan of a test person changes nothing in the features of the training people."""
    upper = cohort.inputs("upper").astype(float)
    pool = landmark_pool(len(upper), 80, seed=0)
    train, test = np.arange(30, 120), np.arange(30)
    assert np.isin(pool, test).any()

    def split(values):
        cross = cross_products(lambda rows: values[rows], len(values), pool, correlation_rows)
        return Landmarks(cross, pool).split(train, test, [])

    before = split(upper)
    other = upper.copy()
    other[test] = np.random.default_rng(2).normal(size=other[test].shape)
    after = split(other)
    np.testing.assert_array_equal(before[0], after[0])
    assert not np.allclose(before[1], after[1])
    exact = np.corrcoef(upper)[np.ix_(test, train)]
    assert np.corrcoef((before[1] @ before[0].T).ravel(), exact.ravel())[0, 1] > 0.9


def test_a_pool_is_the_same_for_the_same_seed():
    assert np.array_equal(landmark_pool(100, 10, 1), landmark_pool(100, 10, 1))
    assert not np.array_equal(landmark_pool(100, 10, 1), landmark_pool(100, 10, 2))
    assert np.array_equal(landmark_pool(5, 10, 0), np.arange(5))
