"""ABIDE's `.1D` series."""

import numpy as np
import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve.data.parcellation import Parcellation
from nerve.data.readers import read_cohort

CUSTOM = Parcellation(tuple(str(i) for i in range(1, 31)), ("A", "B", "C") * 10, name="custom30")


def write(folder, person, series, atlas="cc30"):
    header = "\t".join(f"#{i}" for i in range(1, series.shape[1] + 1))
    np.savetxt(
        folder / f"{person}_rois_{atlas}.1D", series, header=header, comments="", delimiter="\t"
    )


@pytest.fixture
def series():
    rng = np.random.default_rng(0)
    return {f"CMU_a_005064{i}": rng.normal(size=(60 + i, 30)) for i in range(3)}


def test_series_become_correlations_joined_with_the_phenotypes(tmp_path, series):
    for person, one in series.items():
        write(tmp_path, person, one)
    table = pd.DataFrame(
        {
            "FILE_ID": [*series, "no_filename"],
            "AGE_AT_SCAN": [20.0, -9999, 30, 9],
            "SEX": [1, 2, 1, 1],
        }
    )
    cohort = read_cohort(tmp_path, parcellation=CUSTOM, participants=table, timeseries=True)
    assert cohort.notes["format"] == "abide"
    assert cohort.participants["participant_id"].tolist() == list(series)
    assert cohort.participants["age"].isna().tolist() == [False, True, False]
    for i, one in enumerate(series.values()):
        np.testing.assert_allclose(cohort.connectivity[i], np.corrcoef(one.T), atol=1e-6)
    assert cohort.timeseries.lengths.tolist() == [60, 61, 62]


def test_a_constant_region_is_missing_and_named(tmp_path, series):
    for i, (person, one) in enumerate(series.items()):
        one[:, 4] = 0.0 if i == 1 else one[:, 4]
        write(tmp_path, person, one)
    cohort = read_cohort(tmp_path, parcellation=CUSTOM, allow_exclusions=True)
    assert len(cohort) == 2
    assert "1 of 30 regions have no data (5)" in cohort.exclusions["reason"].item()
    filled = read_cohort(tmp_path, parcellation=CUSTOM, missing="impute-group-mean")
    expected = (filled.connectivity[0][4] + filled.connectivity[2][4]) / 2
    np.testing.assert_allclose(filled.connectivity[1][4], expected, atol=1e-6)
    fewer = read_cohort(tmp_path, parcellation=CUSTOM, missing="drop-region")
    assert "5" not in fewer.parcellation.labels
    assert fewer.connectivity.shape == (3, 29, 29)


def test_several_atlases_must_be_chosen_among(tmp_path, series):
    for person, one in series.items():
        write(tmp_path, person, one)
        write(tmp_path, person, one[:, :20], atlas="ho")
    with pytest.raises(NerveError, match=r"several atlases \(cc30, ho\)\. Name one with atlas"):
        read_cohort(tmp_path, parcellation=CUSTOM)
    assert len(read_cohort(tmp_path, parcellation=CUSTOM, atlas="cc30")) == 3
    with pytest.raises(NerveError, match=r"no atlas 'aal' in the source, which has cc30, ho"):
        read_cohort(tmp_path, parcellation=CUSTOM, atlas="aal")


def test_the_atlas_of_the_name_is_told_where_another_is_expected(tmp_path, series):
    for person, one in series.items():
        write(tmp_path, person, one)
    with pytest.raises(
        NerveError, match=r"series are of the atlas cc30 by their name, expected schaefer100-17"
    ):
        read_cohort(tmp_path, parcellation="schaefer100-17")


@pytest.mark.realdata
def test_the_original_series_give_the_released_matrices(shared_data):
    cohort = read_cohort(
        shared_data / "samples/abide_1d",
        parcellation=shared_data / "abide_cc200/regions.tsv",
        participants=shared_data / "abide_cc200/participants.tsv",
        atlas="cc200",
    )
    people = pd.read_csv(shared_data / "abide_cc200/participants.tsv", sep="\t")["FILE_ID"].tolist()
    released = np.load(shared_data / "abide_cc200/fc_upper_200.npy", mmap_mode="r")
    rows = [people.index(person) for person in cohort.participants["participant_id"]]
    assert len(rows) == 3
    np.testing.assert_allclose(cohort.inputs("upper"), released[rows], atol=5e-4)
