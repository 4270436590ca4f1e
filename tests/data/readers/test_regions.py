"""Regions are matched by label; position counts only where files have no labels, in the order that the user named."""

import numpy as np
import pytest

from nerve._utils.errors import NerveError
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers.base import Options, ScanData
from nerve.data.readers.regions import plan_regions, reorder_matrix

SEVENTEEN, SEVEN = load_parcellation("schaefer100-17"), load_parcellation("schaefer100-7")


def plan(n, labels=None, outside="drop", **options):
    reading = ScanData(matrix=np.eye(n), labels=labels, stated=options.pop("stated", False))
    return plan_regions(reading, Options(outside=outside, **options), "file")


def test_labels_are_matched_whatever_their_dialect():
    labels = tuple(label.removeprefix("7Networks_") for label in SEVEN.labels)
    regions, _ = plan(100, labels, parcellation=SEVENTEEN)
    index = regions.positions(100, labels, "file")
    assert [SEVEN.labels[i] for i in index] == [
        SEVEN.labels[i] for i in SEVEN.reordering_to(SEVENTEEN)
    ]


def test_schaefer_labels_name_their_parcellation_themselves():
    regions, _ = plan(100, SEVEN.labels)
    assert regions.target == SEVENTEEN


def test_without_labels_the_order_must_be_said():
    with pytest.raises(NerveError, match=r"schaefer400-17 or schaefer400-7 \(--order NAME\)"):
        plan(400)
    with pytest.raises(NerveError, match=r"schaefer400-17\+aseg19 or schaefer400-7\+aseg19"):
        plan(419)
    with pytest.raises(NerveError, match="TSV with columns label and network"):
        plan(123)


def test_the_19_subcortical_regions_are_dropped_or_kept_as_the_user_says():
    dropped, notes = plan(119, parcellation=SEVENTEEN)
    assert dropped.target.n_regions == 100
    assert "--outside keep" in " ".join(notes)
    kept, _ = plan(119, parcellation=SEVENTEEN, outside="keep")
    assert kept.target == load_parcellation("schaefer100-17+aseg19")
    named, _ = plan(119, parcellation=load_parcellation("schaefer100-17+aseg19"))
    assert named.target == kept.target
    for regions in (dropped, kept, named):
        np.testing.assert_array_equal(
            regions.positions(119, None, "file"), np.arange(regions.target.n_regions)
        )


def test_another_order_than_the_cohorts_is_turned_into_it():
    regions, _ = plan(119, parcellation=SEVENTEEN, order=SEVEN)
    np.testing.assert_array_equal(
        regions.positions(119, None, "file"), SEVEN.reordering_to(SEVENTEEN)
    )


def test_a_region_that_the_file_lacks_is_missing_and_many_are_another_atlas():
    labels = SEVENTEEN.labels[:98]
    regions, _ = plan(98, labels, parcellation=SEVENTEEN)
    index = regions.positions(98, labels, "file")
    assert np.flatnonzero(index < 0).tolist() == [98, 99]
    matrix = reorder_matrix(np.eye(98), index)
    assert np.isnan(matrix[98]).all()
    assert np.isnan(matrix[:, 99]).all()
    with pytest.raises(NerveError, match=r"file: its labels .* lack 50 regions of schaefer100-17"):
        regions.positions(50, SEVENTEEN.labels[:50], "file")


def test_a_wrong_number_of_regions_names_both():
    regions, _ = plan(100, parcellation=SEVENTEEN)
    with pytest.raises(NerveError, match=r"file: 99 regions, expected 100 \(schaefer100-17\)"):
        regions.positions(99, None, "file")


def test_columns_that_merely_count_are_no_labels():
    custom = Parcellation(("a", "b", "c"), ("x", "x", "y"))
    for labels in (("2001", "2002", "2101"), ("V1", "V2", "V3"), ("ROI_1", "ROI_2", "ROI_3")):
        regions, _ = plan(3, labels, parcellation=custom)
        np.testing.assert_array_equal(regions.positions(3, labels, "file"), [0, 1, 2])
    numbered = Parcellation(("3", "1", "2"), ("x", "x", "y"))
    regions, _ = plan(3, ("1", "2", "3"), parcellation=numbered)
    np.testing.assert_array_equal(regions.positions(3, ("1", "2", "3"), "file"), [2, 0, 1])
