"""CIFTI parcels: labels come from the axis, so that order never matters."""

from __future__ import annotations

import numpy as np
import pytest
from nibabel import cifti2
from tests.data.readers.write_formats import (
    parcels_axis,
    random_fc,
    random_series,
    write_dtseries,
    write_pconn,
    write_ptseries,
)

from nerve._utils.errors import NerveError
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import Options, get_reader, read_cohort

SEVENTEEN = load_parcellation("schaefer100-17")


@pytest.fixture
def shuffled():
    order = np.random.default_rng(0).permutation(100)
    return order, [SEVENTEEN.labels[i] for i in order]


def test_matrices_are_put_in_order_by_their_labels(tmp_path, shuffled):
    order, labels = shuffled
    matrix = random_fc(100, 0)
    write_pconn(
        tmp_path / "100307.rfMRI_REST_Schaefer100.pconn.nii", matrix[np.ix_(order, order)], labels
    )
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    assert cohort.notes["format"] == "cifti"
    assert list(cohort.participants["participant_id"]) == ["100307"]
    np.testing.assert_allclose(cohort.connectivity[0], matrix, atol=1e-6)


def test_series_of_an_hcp_folder_are_averaged_over_runs(tmp_path, shuffled):
    order, labels = shuffled
    runs = [random_series(60, 100, seed) for seed in range(2)]
    for series, run in zip(runs, ("rfMRI_REST1_LR", "rfMRI_REST1_RL"), strict=True):
        path = (
            tmp_path
            / "100307"
            / "MNINonLinear"
            / "Results"
            / run
            / f"{run}_Atlas_MSMAll.ptseries.nii"
        )
        write_ptseries(path, series[:, order], labels)
    scans = get_reader("cifti").find(tmp_path, Options())
    assert [(scan.participant, scan.task, scan.run) for scan in scans] == [
        ("100307", "rest", "1_LR"),
        ("100307", "rest", "1_RL"),
    ]
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    expected = np.tanh(
        np.mean([np.arctanh(np.corrcoef(series.T) * (1 - 1e-7)) for series in runs], axis=0)
    )
    off = ~np.eye(100, dtype=bool)
    np.testing.assert_allclose(cohort.connectivity[0][off], expected[off], atol=1e-5)
    assert len(cohort) == 1


def test_series_whose_axes_are_the_other_way_round_are_turned(tmp_path, shuffled):
    order, labels = shuffled
    series = random_series(60, 100, 0)
    axes = (parcels_axis(labels), cifti2.SeriesAxis(0, 0.72, 60))
    image = cifti2.Cifti2Image(series[:, order].T.astype(np.float32), axes)
    image.to_filename(tmp_path / "100307.rfMRI_REST.ptseries.nii")
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(cohort.connectivity[0], np.corrcoef(series.T), atol=1e-5)


def test_parcels_that_the_surface_lacks_are_named_and_can_be_left_out(tmp_path):
    here = np.delete(np.arange(100), [3, 50])
    labels = [SEVENTEEN.labels[i] for i in here]
    for seed in range(2):
        fc = random_fc(100, seed)[np.ix_(here, here)]
        write_pconn(
            tmp_path / f"sub-0{seed}_task-rest_atlas-S_stat-pearsoncorrelation_boldmap.pconn.nii",
            fc,
            labels,
        )
    with pytest.raises(NerveError, match="2 of 100 regions have no data"):
        read_cohort(tmp_path, parcellation="schaefer100-17")
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", missing="drop-region")
    assert cohort.n_regions == 98
    np.testing.assert_allclose(
        cohort.connectivity[1], random_fc(100, 1)[np.ix_(here, here)], atol=1e-6
    )


def test_a_dense_file_under_another_name_is_refused_with_the_remedy(tmp_path):
    write_dtseries(tmp_path / "100307.x.dtseries.nii", random_series(20, 5, 0))
    (tmp_path / "100307.x.dtseries.nii").rename(tmp_path / "100307.x.ptseries.nii")
    with pytest.raises(NerveError, match="wb_command -cifti-parcellate"):
        read_cohort(tmp_path, parcellation="schaefer100-17")


def test_atlases_of_bids_names_are_not_mixed(tmp_path):
    for atlas in ("A", "B"):
        write_pconn(
            tmp_path / f"sub-01_atlas-{atlas}_boldmap.pconn.nii", random_fc(5, 0), list("abcde")
        )
    with pytest.raises(NerveError, match="several atlases"):
        get_reader("cifti").find(tmp_path, Options())
    assert len(get_reader("cifti").find(tmp_path, Options(atlas="b"))) == 1


@pytest.mark.parametrize(
    ("name", "participant"),
    [
        ("100307.rfMRI_REST1_LR.ptseries.nii", "100307"),
        ("HCA6002236_V1_MR.rfMRI_REST.ptseries.nii", "HCA6002236"),
        ("sub-NDARINV01_ses-1_task-rest_x.ptseries.nii", "NDARINV01"),
        ("patient7_Atlas.ptseries.nii", "patient7"),
    ],
)
def test_ids_are_taken_from_names(tmp_path, name, participant):
    write_ptseries(tmp_path / name, random_series(20, 5, 0), list("abcde"))
    assert [scan.participant for scan in get_reader("cifti").find(tmp_path, Options())] == [
        participant
    ]
