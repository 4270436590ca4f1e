"""Ids of files and tables meet in one spelling."""

import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from nerve import read_cohort
from nerve._utils.errors import NerveError
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


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_accent_does_not_cut_an_id(tmp_path, form):
    """macOS writes an accent as a character of its own, tables as one with its letter."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in (1, 2):
        series = np.random.default_rng(number).normal(size=(100, 150))
        name = unicodedata.normalize(form, f"sub-é{number}_fc.npy")
        np.save(folder / name, np.corrcoef(series))
    table = tmp_path / "table.tsv"
    table.write_text("participant_id\tage\nsub-é1\t20\nsub-é2\t30\n")
    cohort = read_cohort(folder, parcellation="schaefer100-17", participants=table)
    assert cohort.participants["participant_id"].tolist() == ["é1", "é2"]
    assert cohort.participants["age"].tolist() == [20, 30]


def test_an_id_of_site_and_number_is_refused_with_a_pattern_that_takes_it(tmp_path):
    matrices = [np.corrcoef(np.random.default_rng(seed).normal(size=(5, 60))) for seed in range(3)]
    (tmp_path / "in").mkdir()
    for number, matrix in enumerate(matrices):
        np.save(tmp_path / "in" / f"sub-NYU_0{number}_ses-1_fc.npy", matrix)
    labels = "\n".join(f"r{number}x\tA" for number in range(5))
    (tmp_path / "atlas.tsv").write_text(f"label\tnetwork\n{labels}\n")
    with pytest.raises(NerveError, match="sub-NYU_00 as one id with id_pattern") as refusal:
        read_cohort(tmp_path / "in", order=tmp_path / "atlas.tsv")
    pattern = re.search(r"as one id with id_pattern='(.+?)';", str(refusal.value))[1]
    cohort = read_cohort(tmp_path / "in", order=tmp_path / "atlas.tsv", id_pattern=pattern)
    assert cohort.participants["participant_id"].tolist() == ["NYU_00", "NYU_01", "NYU_02"]
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices), atol=1e-6)
