"""Ids of files and tables meet in one spelling."""

from pathlib import Path

import pytest

from nerve.data.readers.ids import natural_key, normal_id
from nerve.data.readers.names import scan_of_file


@pytest.mark.parametrize(
    "word", ["NDAR_INV0ABC", "NDARINV0ABC", "sub-NDARINV0ABC", "sub-NDAR_INV0ABC", " NDARINV0ABC "]
)
def test_all_spellings_of_an_abcd_child_are_one(word):
    assert normal_id(word) == "NDARINV0ABC"


def test_case_is_kept_and_other_ids_are_left_alone():
    assert [normal_id(word) for word in ("sub-aB", "CMU_a_0050642", 7)] == [
        "aB",
        "CMU_a_0050642",
        "7",
    ]


def test_runs_are_sorted_by_number():
    assert sorted(["10", "9", "b", "a2", "a10"], key=natural_key) == ["9", "10", "a2", "a10", "b"]


@pytest.mark.parametrize(
    ("name", "participant", "session", "run"),
    [
        ("sub-01_ses-2_task-rest_run-3_fc.npy", "01", "2", "3"),
        ("sub-01/ses-A/fc.npy", "01", "A", ""),
        ("sub-NDAR_INV07_fc.npy", "NDARINV07", "", ""),
        ("S001_FC.csv", "S001", "", ""),
        ("S001_400ROIcorrMat.mat", "S001", "", ""),
        ("blitz.npy", "blitz", "", ""),
        ("100206_timeseries.tsv.gz", "100206", "", ""),
    ],
)
def test_names_tell_who_a_file_belongs_to(name, participant, session, run):
    scan = scan_of_file(Path("data") / name, Path("data"))
    assert (scan.participant, scan.session, scan.run) == (participant, session, run)


def test_a_known_id_is_found_in_a_name_with_anything_after_it():
    scan = scan_of_file(
        Path("data/CMU_a_0050642_filt_global.csv"), Path("data"), ids=("CMU_a", "CMU_a_0050642")
    )
    assert scan.participant == "CMU_a_0050642"
    assert scan_of_file(Path("data/S10_x.csv"), Path("data"), ids=("S1",)).participant != "S1"
