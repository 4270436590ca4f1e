"""One group label a region gives one pair order, and packing loses nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nerve
from nerve._utils.errors import NerveError
from nerve.core.patching import Patching
from nerve.data.parcellation import load_parcellation


@st.composite
def patchings(draw):
    n_groups = draw(st.integers(1, 5))
    extra = draw(st.lists(st.integers(0, n_groups - 1), max_size=10))
    return Patching(draw(st.permutations(list(range(n_groups)) + extra)))


def symmetric(n, n_regions, seed=0):
    matrices = np.random.default_rng(seed).normal(size=(n, n_regions, n_regions))
    return matrices + matrices.transpose(0, 2, 1)


@pytest.mark.parametrize(
    ("patching", "n_patches", "n_entries"),
    [
        (Patching.from_parcellation(nerve.load_parcellation("schaefer400-17")), 153, 85_313),
        (Patching.from_parcellation(nerve.load_parcellation("schaefer400-7")), 28, 92_818),
        (Patching.grid(400, 16), 325, 83_200),
        (
            Patching.from_parcellation(nerve.load_parcellation("schaefer400-17")).permuted(3),
            153,
            85_313,
        ),
    ],
)
def test_sizes_of_the_papers_patchings(patching, n_patches, n_entries):
    assert (patching.n_patches, patching.n_entries) == (n_patches, n_entries)


def test_pairs_go_along_the_rows_of_the_upper_triangle():
    """Written out: stored models and exported tokens depend on this very order."""
    assert Patching([0, 1, 2]).pairs.tolist() == [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]
    entries = Patching([0, 1, 2]).pack(np.arange(9).reshape(3, 3))
    assert entries.tolist() == [0, 1, 2, 4, 5, 8]


@given(patchings())
@settings(max_examples=60, deadline=None)
def test_unpack_undoes_pack(patching):
    fc = symmetric(2, patching.n_regions)
    assert np.array_equal(patching.unpack(patching.pack(fc)), fc)


@given(patchings())
@settings(max_examples=60, deadline=None)
def test_each_patch_is_the_block_of_its_pair(patching):
    fc = symmetric(1, patching.n_regions)[0]
    packed = patching.pack(fc)
    for k, (row, col) in enumerate(patching.pairs):
        block = packed[patching.offsets[k] : patching.offsets[k + 1]].reshape(patching.shapes[k])
        assert np.array_equal(block, fc[np.ix_(patching.members[row], patching.members[col])])
        assert row <= col


@given(patchings(), st.integers(0, 10))
@settings(max_examples=30, deadline=None)
def test_a_permuted_patching_keeps_group_sizes_and_is_the_same_for_a_seed(patching, seed):
    permuted = patching.permuted(seed)
    assert sorted(permuted.group_of) == sorted(patching.group_of)
    assert permuted == patching.permuted(seed)


def test_two_seeds_permute_differently():
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer100-17"))
    assert patching.permuted(0) != patching.permuted(1)


def test_a_grid_need_not_divide_the_regions():
    patching = Patching.grid(37, 16)
    assert [len(group) for group in patching.members] == [16, 16, 5]


def test_pair_names_follow_the_pairs():
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer100-7"))
    assert patching.pair_names[1] == "Vis–SomMot"
    assert patching.pairs[1].tolist() == [0, 1]
    assert patching.patch_of[patching.offsets[1]] == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Patching([]), "one whole number per region"),
        (lambda: Patching([0, 2]), "with gaps"),
        (lambda: Patching([0.5, 1.0]), "one whole number per region"),
        (lambda: Patching([0, 1], ["a"]), "1 group names for 2 groups"),
        (lambda: Patching.grid(10, 0), "at least 1"),
        (lambda: Patching([0, 1]).pack(np.eye(3)), r"expected \(…, 2, 2\)"),
        (lambda: Patching([0, 1]).unpack(np.zeros(7)), r"expected \(…, 3\)"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(NerveError, match=sentence):
        make()


def test_seven_networks_are_not_a_merge_of_the_seventeen():
    seventeen = load_parcellation("schaefer400-17")
    seven = seventeen.with_networks_of("schaefer400-7")
    parents = {network: set() for network in seventeen.networks}
    for fine, coarse in zip(seventeen.networks, seven.networks, strict=True):
        parents[fine].add(coarse)
    assert max(map(len, parents.values())) > 1
