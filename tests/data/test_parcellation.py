"""A parcel is the same parcel whatever the order and dialect of its labels."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve._utils.errors import NerveError
from nerve.data.atlas_tables import SCHAEFER_SIZES
from nerve.data.parcellation import Parcellation, load_parcellation

# sizes of the 17 networks of Schaefer-400 in file order, as published
PAPER_NETWORKS = dict(  # noqa: C408
    VisCent=24, VisPeri=23, SomMotA=39, SomMotB=31, DorsAttnA=27, DorsAttnB=25, SalVentAttnA=34, SalVentAttnB=17,
    LimbicB=11, LimbicA=13, ContA=24, ContB=25, ContC=12, DefaultA=34, DefaultB=32, DefaultC=13, TempPar=16,
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [f"schaefer{size}-{order}" for size in SCHAEFER_SIZES for order in (17, 7)]
)
def test_schaefer_parcellations_are_complete(name):
    parcellation = load_parcellation(name)
    size, order = name.removeprefix("schaefer").split("-")
    assert parcellation.n_regions == int(size)
    assert parcellation.n_networks == int(order)
    assert np.isfinite(parcellation.coordinates).all()
    left = np.array(parcellation.hemispheres) == "L"
    assert (parcellation.coordinates[left, 0] < 5).all()
    assert (parcellation.coordinates[~left, 0] > -5).all()


def test_schaefer400_17_has_the_networks_of_the_paper_in_file_order():
    parcellation = load_parcellation("schaefer400-17")
    counts = {name: parcellation.networks.count(name) for name in parcellation.network_names}
    assert list(counts.items()) == list(PAPER_NETWORKS.items())


@pytest.mark.parametrize("size", SCHAEFER_SIZES)
def test_reordering_between_7_and_17_is_a_permutation_that_undoes_itself(size):
    seven, seventeen = (
        load_parcellation(f"schaefer{size}-7"),
        load_parcellation(f"schaefer{size}-17"),
    )
    there, back = seven.reordering_to(seventeen), seventeen.reordering_to(seven)
    assert sorted(there) == list(range(size))
    assert np.array_equal(there[back], np.arange(size))
    assert np.array_equal(
        seven.coordinates[there], seventeen.coordinates
    )  # the same place in the brain


def test_only_four_positions_coincide_in_schaefer400():
    index = load_parcellation("schaefer400-7").reordering_to("schaefer400-17")
    assert (index == np.arange(400)).sum() == 4


@pytest.mark.parametrize("dialect", ["prefix dropped", "old limbic names"])
def test_other_dialects_are_known_to_be_the_same_parcels(dialect):
    target = load_parcellation("schaefer400-17")
    if dialect == "prefix dropped":  # the 4S atlas of XCP-D, with its 56 subcortical regions
        seven = load_parcellation("schaefer400-7")
        labels = [label.removeprefix("7Networks_") for label in seven.labels] + [
            f"LH-sub{i}" for i in range(56)
        ]
        expected = seven.reordering_to(target)
    else:
        labels = [
            label.replace("LimbicA", "Limbic").replace("LimbicB", "Limbic")
            for label in target.labels
        ]
        expected = np.arange(400)
    found = Parcellation(tuple(labels), ("?",) * len(labels), name="file")
    assert np.array_equal(found.reordering_to(target), expected)


def test_a_label_outside_the_atlas_that_looks_like_a_parcel_does_not_hide_the_others():
    labels = (*load_parcellation("schaefer200-7").labels, "LH_Ventral_Anterior")
    found = Parcellation(labels, ("?",) * 201, name="file")
    expected = load_parcellation("schaefer200-7").reordering_to("schaefer200-17")
    assert np.array_equal(found.reordering_to("schaefer200-17"), expected)


def test_labels_that_two_resolutions_share_do_not_make_them_the_same_parcels():
    with pytest.raises(NerveError, match=r"Schaefer-400 and schaefer100-7 of Schaefer-100"):
        load_parcellation("schaefer400-7").reordering_to("schaefer100-7")


def test_missing_regions_are_named():
    partial = load_parcellation("schaefer100-17").subset(range(98), name="schaefer100-17 on fsLR")
    with pytest.raises(NerveError, match=r"2 of the 100 regions of schaefer100-17 .*RH_TempPar"):
        partial.reordering_to("schaefer100-17")


def test_networks_of_another_order_are_taken_over_by_label():
    seven = load_parcellation("schaefer400-17").with_networks_of("schaefer400-7")
    assert seven.labels == load_parcellation("schaefer400-17").labels
    counts = {name: seven.networks.count(name) for name in set(seven.networks)}
    assert counts == {
        "Vis": 61,
        "SomMot": 77,
        "DorsAttn": 46,
        "SalVentAttn": 47,
        "Limbic": 26,
        "Cont": 52,
        "Default": 91,
    }


def test_regions_outside_the_networks_become_one_of_their_own():
    parcellation = load_parcellation("schaefer400-17+aseg19")
    assert parcellation.n_regions == 419
    assert parcellation.networks[400:] == ("Subcortical",) * 19
    assert np.array_equal(parcellation.reordering_to("schaefer400-17"), np.arange(400))


@given(
    labels=st.lists(
        st.text(min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=12, unique=True
    ),
    data=st.data(),
)
@settings(max_examples=50, deadline=None)
def test_reordering_any_atlas_puts_every_label_in_its_place(labels, data):
    shuffled = data.draw(st.permutations(labels))
    here = Parcellation(tuple(labels), ("N",) * len(labels))
    there = Parcellation(tuple(shuffled), ("N",) * len(labels))
    assert [labels[i] for i in here.reordering_to(there)] == list(shuffled)


def test_a_table_of_any_other_atlas_round_trips(tmp_path):
    table = pd.DataFrame(
        {"label": [1, 2, 3], "network": ["A", "B", "A"], "x": [1, 2, 3.5], "y": 0.0, "z": -1.0}
    )
    table.to_csv(tmp_path / "my_atlas.tsv", sep="\t", index=False)
    parcellation = load_parcellation(tmp_path / "my_atlas.tsv")
    assert parcellation.labels == ("1", "2", "3")
    assert parcellation.name == "my_atlas"
    assert Parcellation.from_table(parcellation.to_table()) == parcellation
    assert np.array_equal(parcellation.coordinates[:, 0], [1, 2, 3.5])


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"label": ["a", "a"], "network": ["N", "N"]}, "occur twice"),
        ({"name": ["a", "b"]}, "expected a column 'network'"),
        ({"label": ["a", None], "network": ["N", "N"]}, "row 2 has no label"),
        ({"label": ["a"], "network": ["N"], "x": ["east"], "y": [0], "z": [0]}, "not a number"),
        ({"label": [], "network": []}, "has no regions"),
    ],
)
def test_bad_tables_get_one_sentence(table, sentence):
    with pytest.raises(NerveError, match=sentence):
        Parcellation.from_table(pd.DataFrame(table))


def test_a_misspelt_name_is_corrected():
    with pytest.raises(NerveError, match="Did you mean 'schaefer400-17'"):
        load_parcellation("shaefer400-17")
