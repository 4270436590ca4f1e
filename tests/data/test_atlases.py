"""The atlases known by name are whole, unambiguous and in the order that they are published in."""

import numpy as np
import pytest
from tests.data.readers.write_formats import write_xcpd
from typer.testing import CliRunner

from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.atlas_tables import (
    SCHAEFER_SIZES,
    aliases_between,
    parcellation_names,
    schaefer_aliases,
)
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers import read_cohort

# regions and networks, as the papers and tables of the atlases have them
PUBLISHED = {
    "gordon333": (333, 13), "glasser360-rl": (360, 12), "glasser360-lr": (360, 12), "power264": (264, 14),
    "shen268": (268, 11), "aal116": (116, 8), "cc200": (200, 1), "tian-s1": (16, 7), "tian-s2": (32, 7),
    "tian-s3": (50, 7), "tian-s4": (54, 7), "aal90": (90, 7), "aal2-120": (120, 9),
    "desikan83": (83, 8), "desikan68": (68, 7), "destrieux148": (148, 7),
}  # fmt: skip
# sizes of networks that their papers state: Gordon 2016, Ji 2019 (Cole-Anticevic, cortex), Power 2011
NETWORK_SIZES = {
    "gordon333": {
        "Default": 41,
        "SMhand": 38,
        "Visual": 39,
        "CinguloOperc": 40,
        "Salience": 4,
        "Unassigned": 47,
    },
    "glasser360-lr": {
        "Visual1": 6,
        "Visual2": 54,
        "Somatomotor": 39,
        "Default": 77,
        "Orbito-Affective": 6,
    },
    "power264": {
        "Default": 58,
        "Visual": 31,
        "SomatomotorHand": 30,
        "Salience": 18,
        "Uncertain": 28,
    },
}


GLASSER, SIDES = load_parcellation("glasser360-rl").labels, {"L": "Left", "R": "Right"}


@pytest.mark.parametrize("name", parcellation_names())
def test_every_name_loads_with_unique_labels_and_sides_that_fit_the_coordinates(name):
    parcellation = load_parcellation(name)
    assert len(set(parcellation.labels)) == parcellation.n_regions
    assert all(parcellation.networks)
    assert set(parcellation.hemispheres) <= {"L", "R", ""}
    sides, x = np.array(parcellation.hemispheres), parcellation.coordinates[:, 0]
    assert not (x[sides == "L"] >= 5).any()
    assert not (x[sides == "R"] <= -5).any()
    assert load_parcellation(f"{name}+aseg19").n_regions == parcellation.n_regions + 19


@pytest.mark.parametrize("name", PUBLISHED)
def test_regions_and_networks_are_as_many_as_published(name):
    parcellation = load_parcellation(name)
    assert (parcellation.n_regions, parcellation.n_networks) == PUBLISHED[name]


@pytest.mark.parametrize("name", NETWORK_SIZES)
def test_networks_are_of_the_size_that_their_papers_state(name):
    networks = load_parcellation(name).networks
    assert {network: networks.count(network) for network in NETWORK_SIZES[name]} == NETWORK_SIZES[
        name
    ]


@pytest.mark.parametrize(
    ("name", "position", "label", "network"),
    [
        ("gordon333", 1, "L_Default_1", "Default"),
        ("gordon333", 162, "R_Default_21", "Default"),
        ("gordon333", 270, "R_SMhand_38", "SMhand"),
        ("gordon333", 333, "R_VentralAttn_23", "VentralAttn"),
        ("glasser360-rl", 1, "R_V1_ROI", "Visual1"),
        ("glasser360-rl", 360, "L_p24_ROI", "Cingulo-Opercular"),
        ("glasser360-lr", 11, "L_PEF_ROI", "Dorsal-Attention"),  # the two hemispheres differ here
        ("glasser360-lr", 191, "R_PEF_ROI", "Cingulo-Opercular"),
        ("power264", 132, "Power_132", "Uncertain"),
        ("power264", 255, "Power_255", "SomatomotorHand"),
        ("aal116", 1, "Precentral_L", "Frontal"),
        ("aal116", 2, "Precentral_R", "Frontal"),
        ("aal116", 116, "Vermis_10", "Cerebellum"),
        ("aal90", 90, "Temporal_Inf_R", "Temporal"),
        ("aal2-120", 120, "Vermis_10", "Cerebellum"),
        ("aal2-120", 3, "Frontal_Sup_2_L", "Default"),
        ("desikan83", 35, "Left-Thalamus-Proper", "Subcortical"),
        ("desikan83", 83, "Brain-Stem", "Subcortical"),
        ("desikan68", 68, "ctx-rh-insula", "SalVentAttn"),
        ("destrieux148", 75, "ctx_rh_G_and_S_frontomargin", "Limbic"),
        ("tian-s1", 1, "HIP-rh", "Hippocampus"),
        ("tian-s4", 28, "HIP-head-m1-lh", "Hippocampus"),
        ("4s456-17", 1, "LH_Vis_1", "DorsAttnA"),
        ("4s456-7", 401, "LH-Pu", "Subcortical"),
        ("4s1056-7", 1056, "Cerebellar_Region10", "Cerebellum"),
    ],
)
def test_regions_stand_where_the_published_tables_have_them(name, position, label, network):
    parcellation = load_parcellation(name)
    assert (parcellation.labels[position - 1], parcellation.networks[position - 1]) == (
        label,
        network,
    )


def test_hemispheres_come_first_where_they_do():
    first = {
        name: load_parcellation(name).hemispheres[0] for name in ("shen268", "tian-s2", "gordon333")
    }
    assert first == {"shen268": "R", "tian-s2": "R", "gordon333": "L"}
    right, left = load_parcellation("glasser360-rl"), load_parcellation("glasser360-lr")
    assert np.array_equal(right.reordering_to(left), np.r_[180:360, 0:180])


@pytest.mark.parametrize("size", SCHAEFER_SIZES)
def test_the_4s_atlases_are_schaefers_parcels_in_7_network_order(size):
    below = load_parcellation(f"4s{size + 56}-17")
    for networks in ("17", "7"):
        target = load_parcellation(f"schaefer{size}-{networks}")
        index = below.reordering_to(target)
        assert np.array_equal(index, load_parcellation(f"schaefer{size}-7").reordering_to(target))
        assert np.array_equal(below.coordinates[index], target.coordinates)
    seventeen = load_parcellation(f"schaefer{size}-17")
    assert tuple(below.networks[i] for i in below.reordering_to(seventeen)) == seventeen.networks


def test_4s_atlases_of_different_sizes_are_different_parcels():
    with pytest.raises(NerveError, match="Schaefer-400 and 4s156-7 of Schaefer-100"):
        load_parcellation("4s456-7").reordering_to("4s156-7")


def test_regions_are_known_by_the_names_of_other_tables():
    left_first = load_parcellation("glasser360-lr")
    names = [
        f"{side}_{label[2:-4]}" for side in ("Right", "Left") for label in left_first.labels[:180]
    ]  # XCP-D's
    assert np.array_equal(_file(names).reordering_to(left_first), np.r_[180:360, 0:180])
    parcels = [f"Parcel_{i}" for i in range(333, 0, -1)]  # Gordon's own names, backwards
    assert np.array_equal(_file(parcels).reordering_to("gordon333"), np.arange(333)[::-1])
    codes = ["2002", "2001", "2101"]  # ABIDE's names of AAL regions
    assert _file(codes).positions_of("aal116")[:3].tolist() == [1, 0, 2]


def _file(labels):
    return Parcellation(tuple(labels), ("?",) * len(labels), name="the file")


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_name_means_two_regions_of_an_atlas(name):
    alias = aliases_between("the file", name)
    labels = load_parcellation(name).labels
    assert not set(alias) & set(labels)  # an alias is never another region's own label
    assert set(alias.values()) <= set(labels)
    assert not any(set(alias) & set(schaefer_aliases(size)) for size in SCHAEFER_SIZES)


def test_a_code_means_the_region_of_the_atlas_that_is_asked_for():
    codes = _file(["2001", "2101", "2002"])
    aal, aal2, desikan = "aal116", "aal2-120", "desikan83"
    names = {}
    for name in (aal, aal2, desikan):
        target = load_parcellation(name)
        positions = codes.positions_of(target)
        names[name] = [target.labels[i] for i in np.flatnonzero(positions >= 0)]
    assert names[aal] == ["Precentral_L", "Precentral_R", "Frontal_Sup_L"]
    assert names[aal2] == ["Precentral_L", "Precentral_R", "Frontal_Sup_2_L"]
    assert names[desikan] == ["ctx-rh-bankssts", "ctx-rh-caudalanteriorcingulate"]
    # between two tables of users, a code that has several meanings means nothing
    assert _file(["Frontal_Sup_L"]).positions_of(_file(["2101"])).tolist() == [-1]


def test_aal90_and_desikan68_are_parts_of_the_larger_atlases():
    index = load_parcellation("aal116").reordering_to("aal90")
    assert np.array_equal(index, np.arange(90))
    large, small = load_parcellation("desikan83"), load_parcellation("desikan68")
    assert np.array_equal(large.reordering_to(small), np.r_[0:34, 41:75])
    assert small.hemispheres == ("L",) * 34 + ("R",) * 34
    assert set(large.labels) - set(small.labels) > {"Left-Thalamus-Proper", "Brain-Stem"}


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("desikan68", lambda label: label.replace("-", "_")),
        ("desikan68", lambda label: label.removeprefix("ctx-").replace("-", "_")),
        ("desikan68", lambda label: f"{label[4].upper()}_{label[7:]}"),  # ENIGMA
        ("desikan68", lambda label: f"{label[7:]}-{label[4:6]}"),  # MNE
        ("desikan83", lambda label: label.replace("-", ".")),  # R's names of columns
        ("destrieux148", lambda label: label.replace("ctx_lh_", "lh.").replace("ctx_rh_", "rh.")),
        ("schaefer200-17", lambda label: f"X{label}"),  # R's
        ("schaefer200-17", lambda label: f"x{label}"),  # MATLAB's
        ("schaefer200-7", lambda label: f"X{label}"),
    ],
)
def test_names_that_programs_made_of_labels_are_known(name, dialect):
    target = load_parcellation(name)
    order = np.random.default_rng(0).permutation(target.n_regions)
    file = _file([dialect(target.labels[i]) for i in order])
    assert np.array_equal(order[file.reordering_to(target)], np.arange(target.n_regions))


def test_labels_that_differ_in_more_than_marks_are_not_the_same():
    assert _file(["a.b", "a-b", "c"]).positions_of(_file(["a_b", "d"])).tolist() == [-1, -1]
    assert _file(["X1", "1"]).positions_of(_file(["1", "X1"])).tolist() == [1, 0]


def test_a_name_without_its_order_is_refused_with_the_choices():
    with pytest.raises(NerveError, match="say which, glasser360-rl, glasser360-lr"):
        load_parcellation("glasser360")
    with pytest.raises(NerveError, match="say which, schaefer400-17, schaefer400-7"):
        load_parcellation("schaefer400")


def test_the_commands_list_and_show_them():
    listed = CliRunner().invoke(app, ["atlas", "list"]).output
    for name in parcellation_names():
        assert f"\n{name} " in f"\n{listed}"
    shown = CliRunner().invoke(app, ["atlas", "show", "gordon333"]).output
    assert "gordon333: 333 regions, 13 networks" in shown
    assert "1 network," not in shown
    table = CliRunner().invoke(app, ["atlas", "show", "cc200", "--regions"]).output.splitlines()
    assert table[1] == "CC200_1\tUnassigned\tL\t-39.6\t-85.4\t1.4"
    assert len(table) == 201


@pytest.mark.parametrize(
    ("atlas", "target", "labels"),
    [
        ("Gordon", "gordon333", load_parcellation("gordon333").labels),
        ("Gordon", "gordon333", [f"Parcel_{i}" for i in range(1, 334)]),
        ("Glasser", "glasser360-rl", [f"{SIDES[label[0]]}_{label[2:-4]}" for label in GLASSER]),
        ("Tian", "tian-s3", load_parcellation("tian-s3").labels),
    ],
)  # fmt: skip
def test_files_with_labels_name_their_atlas_themselves_and_are_matched_by_label(
    tmp_path, atlas, target, labels
):
    regions = load_parcellation(target)
    truth = np.corrcoef(np.random.default_rng(0).normal(size=(regions.n_regions, 60)))
    shuffle = np.random.default_rng(1).permutation(regions.n_regions)
    names = [labels[i] for i in shuffle]
    write_xcpd(tmp_path, "01", names, matrix=truth[np.ix_(shuffle, shuffle)], atlas=atlas)
    cohort = read_cohort(tmp_path)
    assert cohort.parcellation == regions
    np.testing.assert_allclose(cohort.connectivity[0], truth, atol=1e-6)
