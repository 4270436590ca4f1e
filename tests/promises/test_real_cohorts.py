"""`studies.real_cohorts` writes ABIDE as it is in the files, with centres, so it can be resampled."""

import sys

import numpy as np
import pandas as pd
import pytest
from studies import real_cohorts

import nerve

CENTRES = nerve.load_parcellation("cc200").coordinates
N_VOLUMES = [30, 25, 40]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder in the layout of ABIDE: three participants, the second has constant regions."""
    folder = tmp_path_factory.mktemp("data") / "abide_cc200"
    folder.mkdir()
    rng = np.random.default_rng(0)
    scans = [rng.normal(size=(n, 200)).astype(np.float16) for n in N_VOLUMES]
    rows, columns = np.triu_indices(200, 1)
    upper = [np.corrcoef(scan.astype(float).T)[rows, columns] for scan in scans]
    np.save(folder / "fc_upper_200.npy", np.array(upper, np.float16))
    np.save(folder / "timeseries_200.npy", np.concatenate(scans))

    ids = ["a", "b", "c"]
    participants = pd.DataFrame(
        {
            "FILE_ID": ids,
            "n_constant_rois": [0, 2, 0],
            "SITE_ID": ["X", "X", "Y"],
            "DX_GROUP": [1, 2, 2],
            "AGE_AT_SCAN": [9.5, 12.0, 30.0],
            "SEX": [1, 2, 2],
        }
    )
    participants.to_csv(folder / "participants.tsv", sep="\t", index=False)
    regions = pd.DataFrame(CENTRES, columns=["x", "y", "z"])
    regions["label"] = [str(number + 1) for number in range(200)]
    regions["net17"] = ["VisCent", "DefaultB"] * 100
    regions.loc[5, "net17"] = "NonCortical"
    regions.to_csv(folder / "regions.tsv", sep="\t", index=False)
    first = np.concatenate([[0], np.cumsum(N_VOLUMES)[:-1]])
    timeseries_rows = pd.DataFrame({"participant_id": ids, "first": first, "n_volumes": N_VOLUMES})
    timeseries_rows.to_csv(folder / "timeseries_rows.tsv", sep="\t", index=False)
    return folder.parent


@pytest.fixture(scope="module")
def cohort(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("cohorts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["real_cohorts", "--data", str(data), "--out", str(out), "abide"]
        )
        real_cohorts.main()
    assert [path.name for path in out.iterdir()] == ["abide"]
    return nerve.Cohort.load(out / "abide")


def test_participants_with_constant_regions_are_left_out(cohort):
    assert cohort.name == "abide"
    assert list(cohort.participants["participant_id"]) == ["a", "c"]
    assert list(cohort.participants["age"]) == [9.5, 30.0]


def test_fc_is_that_of_the_series(cohort):
    for fc, series in zip(cohort.inputs("fc"), cohort.inputs("timeseries"), strict=True):
        np.testing.assert_allclose(fc, np.corrcoef(series.T), atol=1e-3)


def test_regions_have_their_centres_so_the_cohort_can_be_resampled(cohort):
    np.testing.assert_allclose(cohort.parcellation.coordinates, CENTRES)
    resampled = cohort.resample("schaefer100-17")
    assert resampled.shape == (2, 100, 100)
