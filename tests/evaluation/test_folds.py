"""Folds spread every target evenly, keep groups whole and depend on participants and seed only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve import NerveError
from nerve.evaluation import leave_groups_out, restricted_permutations, strata_of, stratified_folds


@pytest.mark.slow
@given(n=st.integers(20, 200), n_folds=st.integers(2, 10), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_each_bin_of_one_target_is_spread_evenly_to_within_one_participant(n, n_folds, seed):
    y = np.random.default_rng(seed).normal(size=n)
    strata = strata_of(y, n_folds)
    folds = stratified_folds(strata, n_folds, seed=seed)
    assert set(folds) == set(range(n_folds))
    for label in np.unique(strata):
        counts = np.bincount(folds[strata == label], minlength=n_folds)
        assert counts.max() - counts.min() <= 1
    sizes = np.bincount(folds)
    assert sizes.max() - sizes.min() <= 2


def test_several_targets_are_spread_at_once():
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(500, 6))
    Y[rng.random((500, 6)) < 0.1] = np.nan
    strata = np.column_stack([strata_of(column, 10) for column in Y.T])
    folds = stratified_folds(strata, 10)
    for column in strata.T:
        for label in np.unique(column):
            counts = np.bincount(folds[column == label], minlength=10)
            assert counts.max() - counts.min() <= 4


def test_stratified_folds_have_closer_means_than_random_ones():
    rng = np.random.default_rng(2)
    spread = np.zeros(2)
    for seed in range(20):
        y = rng.normal(size=178)
        folds = stratified_folds(strata_of(y, 10), 10, seed=seed)
        random = rng.permutation(np.arange(178) % 10)
        spread += [np.std([y[f == k].mean() for k in range(10)]) for f in (folds, random)]
    assert spread[0] < 0.6 * spread[1]


@given(seed=st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_groups_are_never_split(seed):
    rng = np.random.default_rng(seed)
    families = rng.integers(0, 60, 150).astype(object)
    families[rng.random(150) < 0.1] = None
    folds = stratified_folds(strata_of(rng.normal(size=150), 5), 5, groups=families, seed=seed)
    for family in {family for family in families if family is not None}:
        assert len(set(folds[families == family])) == 1
    assert np.bincount(folds, minlength=5).min() > 20


def test_participants_without_a_family_are_spread_one_by_one():
    families = np.array(["a", "a", "b", "b"] + [None] * 26, object)
    folds = stratified_folds(np.zeros(30, int), 5, groups=families)
    assert np.bincount(folds).tolist() == [6] * 5


def test_the_same_seed_gives_the_same_folds_and_another_seed_others():
    strata = strata_of(np.random.default_rng(0).normal(size=100), 10)
    assert (stratified_folds(strata, 10, seed=1) == stratified_folds(strata, 10, seed=1)).all()
    assert (stratified_folds(strata, 10, seed=1) != stratified_folds(strata, 10, seed=2)).any()


def test_sites_are_left_out_one_by_one_or_in_sets():
    sites = np.repeat(list("abcdef"), [30, 20, 10, 10, 10, 10])
    assert len(set(leave_groups_out(sites))) == 6
    folds = leave_groups_out(sites, n_folds=3)
    assert np.bincount(folds).tolist() == [30, 30, 30]
    assert all(len(set(folds[sites == site])) == 1 for site in "abcdef")
    with pytest.raises(NerveError, match="only one site"):
        leave_groups_out(["a"] * 5)


def test_too_few_participants_and_too_large_groups_are_refused_in_a_sentence():
    with pytest.raises(NerveError, match="There are 4 participants for 10 folds"):
        stratified_folds(np.zeros(4, int), 10)
    with pytest.raises(
        NerveError,
        match=r"NYU \(60 participants\) would not fit one of 5 folds of 20 participants: ask for at most 1",
    ):
        stratified_folds(np.zeros(100, int), 5, groups=["NYU"] * 60 + list(range(40)))
    with pytest.raises(NerveError, match="3 groups for 5 folds"):
        stratified_folds(np.zeros(15, int), 5, groups=[0, 1, 2] * 5)


def test_ties_share_a_bin_and_few_values_stay_classes():
    zeros = np.r_[np.zeros(70), np.arange(1, 31)]
    strata = strata_of(zeros, 10)
    assert len(set(strata[:70])) == 1  # equal values share a bin
    _, sizes = np.unique(strata, return_counts=True)
    assert sizes.tolist() == [80, 20]  # every bin has participants for each fold
    assert strata_of([1.0, 2.0] * 10, 10).tolist() == [0, 1] * 10
    assert strata_of(np.arange(12.0), 10).max() == 0  # too few participants for two bins of ten


@given(seed=st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_permutations_stay_in_blocks_and_move_families_whole(seed):
    rng = np.random.default_rng(seed)
    blocks, families = rng.integers(0, 3, 40), rng.integers(0, 12, 40)
    for order in restricted_permutations(blocks, 5, seed, families=families):
        assert sorted(order) == list(range(40))
        assert (blocks[order] == blocks).all()
        for block in range(3):
            for family in np.unique(families[blocks == block]):
                here = (families == family) & (blocks == block)
                source = families[order][here]
                assert len(set(source)) == 1
