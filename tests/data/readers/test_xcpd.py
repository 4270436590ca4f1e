"""XCP-D and giga_connectome: what was written comes back, in the right region order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import (
    XCPD_GENERATIONS,
    four_s_labels,
    random_fc,
    random_series,
    write_four_s_table,
    write_giga,
    write_xcpd,
    write_xcpd_outliers,
)

from nerve._utils.errors import NerveError
from nerve.data.connectivity import fisher_z, inverse_fisher_z
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import Options, get_reader, read_cohort
from nerve.methods import make_method

LABELS = four_s_labels(100)
PEOPLE = ("NDARINV01", "NDARINV02")
KINDS_OF_FILES = [
    *((generation, False) for generation in XCPD_GENERATIONS),
    ("0.6", True),
    ("26.0", True),
]


def in_17_order(array: np.ndarray, labels: list[str] = LABELS) -> np.ndarray:
    """Literal reference: for each of the 17-network labels, look up its 7-network name in the file's header."""
    seven = load_parcellation("schaefer100-7")
    seventeen = load_parcellation("schaefer100-17")
    centres = {
        tuple(xyz): label.removeprefix("7Networks_")
        for xyz, label in zip(seven.coordinates, seven.labels, strict=True)
    }
    rows = [labels.index(centres[tuple(xyz)]) for xyz in seventeen.coordinates]
    return array[np.ix_(rows, rows)]


@pytest.mark.slow
@pytest.mark.parametrize(("generation", "cifti"), KINDS_OF_FILES)
def test_matrices_of_every_generation_come_back_in_the_cohorts_order(tmp_path, generation, cifti):
    for seed, person in enumerate(PEOPLE):
        write_xcpd(
            tmp_path,
            person,
            LABELS,
            matrix=random_fc(156, seed),
            generation=generation,
            cifti=cifti,
        )
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    assert cohort.notes["format"] == "xcpd"
    assert list(cohort.participants["participant_id"]) == list(PEOPLE)
    for seed in range(2):
        np.testing.assert_allclose(
            cohort.connectivity[seed], in_17_order(random_fc(156, seed)), atol=1e-6
        )


@pytest.mark.parametrize(("generation", "cifti"), KINDS_OF_FILES)
def test_series_of_every_generation_give_their_correlations(tmp_path, generation, cifti):
    series = random_series(80, 156, 3)
    write_xcpd(tmp_path, "01", LABELS, series=series, generation=generation, cifti=cifti)
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", timeseries=True)
    np.testing.assert_allclose(
        cohort.connectivity[0], in_17_order(np.corrcoef(series.T)), atol=1e-5
    )
    assert cohort.timeseries[0].shape == (80, 100)


def test_the_56_regions_outside_the_cortex_can_be_kept(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", outside="keep")
    assert cohort.n_regions == 156
    np.testing.assert_allclose(
        cohort.connectivity[0][100:, 100:], random_fc(156, 0)[100:, 100:], atol=1e-6
    )


def test_the_atlas_own_table_is_a_parcellation(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    table = pd.read_csv(write_four_s_table(tmp_path), sep="\t").fillna(
        {"network_label": "Subcortical"}
    )
    own = tmp_path / "4s.tsv"
    table.to_csv(own, sep="\t", index=False)
    cohort = read_cohort(tmp_path, parcellation=str(own))
    np.testing.assert_allclose(cohort.connectivity[0], random_fc(156, 0), atol=1e-6)


@pytest.mark.slow
def test_variants_of_fewer_volumes_are_never_mixed_with_the_whole_scan(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    write_xcpd(tmp_path, "02", LABELS, matrix=random_fc(156, 1))
    for volumes in (100, 200):
        write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, volumes), volumes=volumes)
    whole = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(whole.connectivity[0], in_17_order(random_fc(156, 0)), atol=1e-6)
    assert len(whole) == 2
    short = read_cohort(
        tmp_path, parcellation="schaefer100-17", atlas="4S156Parcels_desc-100volumes"
    )
    np.testing.assert_allclose(short.connectivity[0], in_17_order(random_fc(156, 100)), atol=1e-6)
    assert list(short.participants["participant_id"]) == ["01"]


def test_several_variants_and_no_whole_scan_need_a_choice(tmp_path):
    for volumes in (100, 200):
        write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, volumes), volumes=volumes)
    with pytest.raises(
        NerveError, match=r"must not be mixed.*--atlas 4S156Parcels_desc-100volumes"
    ):
        read_cohort(tmp_path, parcellation="schaefer100-17")


def test_of_several_atlases_the_one_that_fits_the_parcellation_is_read(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    write_xcpd(tmp_path, "01", four_s_labels(200), matrix=random_fc(256, 1), atlas="4S256Parcels")
    write_xcpd(
        tmp_path, "01", [f"G{i}" for i in range(33)], matrix=random_fc(33, 2), atlas="Gordon"
    )
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(cohort.connectivity[0], in_17_order(random_fc(156, 0)), atol=1e-6)
    with pytest.raises(NerveError, match="4S156Parcels, 4S256Parcels, Gordon"):
        read_cohort(tmp_path)
    with pytest.raises(NerveError, match="Did you mean 'Gordon'"):
        read_cohort(tmp_path, atlas="Gorden")


def test_text_is_read_where_the_same_matrix_is_there_as_cifti(tmp_path):
    for cifti in (False, True):
        write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0), cifti=cifti)
    scans = get_reader("xcpd").find(tmp_path, Options())
    assert [scan.path.suffix for scan in scans] == [".tsv"]


def test_parcels_of_too_little_coverage_are_named(tmp_path):
    matrix = random_fc(156, 0)
    matrix[5], matrix[:, 5] = np.nan, np.nan
    write_xcpd(tmp_path, "01", LABELS, matrix=matrix)
    write_xcpd(tmp_path, "02", LABELS, matrix=random_fc(156, 1))
    cohort = read_cohort(tmp_path, parcellation="schaefer100-7", allow_exclusions=True)
    assert list(cohort.participants["participant_id"]) == ["02"]
    assert "7Networks_LH_Vis_6" in cohort.exclusions["reason"].iloc[0]
    fewer = read_cohort(tmp_path, parcellation="schaefer100-7", missing="drop-region")
    assert fewer.connectivity.shape == (2, 99, 99)
    assert "7Networks_LH_Vis_6" not in fewer.parcellation.labels


def test_sessions_and_runs_are_averaged_in_fisher_z(tmp_path):
    for seed, (session, run) in enumerate([("1", "1"), ("1", "2"), ("2", "1")]):
        write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, seed), session=session, run=run)
    mean = inverse_fisher_z(
        fisher_z(np.stack([random_fc(156, seed) for seed in range(3)])).mean(axis=0)
    )
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(cohort.connectivity[0], in_17_order(mean), atol=1e-6)
    second = read_cohort(tmp_path, parcellation="schaefer100-17", session="2")
    np.testing.assert_allclose(second.connectivity[0], in_17_order(random_fc(156, 2)), atol=1e-6)


def test_rest_is_not_averaged_with_other_tasks(tmp_path):
    for seed, task in enumerate(("rest", "nback", "emotion")):
        write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, seed), task=task)
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(cohort.connectivity[0], in_17_order(random_fc(156, 0)), atol=1e-6)
    assert any("emotion, nback" in note for note in cohort.notes["log"])
    other = read_cohort(tmp_path, parcellation="schaefer100-17", task="nback")
    np.testing.assert_allclose(other.connectivity[0], in_17_order(random_fc(156, 1)), atol=1e-6)
    for path in tmp_path.rglob("*task-rest*"):
        path.unlink()
    with pytest.raises(NerveError, match=r"several tasks \(emotion, nback\).*task"):
        read_cohort(tmp_path, parcellation="schaefer100-17")


def test_runs_do_not_count_again_beside_their_concatenation(tmp_path):
    for seed, run in enumerate((None, "1", "2")):
        write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, seed), run=run)
    write_xcpd(tmp_path, "02", LABELS, matrix=random_fc(156, 5), run="1")
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(cohort.connectivity[0], in_17_order(random_fc(156, 0)), atol=1e-6)
    assert len(cohort) == 2


def test_motion_is_averaged_and_censors(tmp_path):
    series, motion = random_series(60, 156, 0), np.linspace(0, 0.59, 60)
    write_xcpd(tmp_path, "01", LABELS, series=series, motion=motion)
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", fd_threshold=0.3)
    assert cohort.participants["mean_fd"].iloc[0] == pytest.approx(motion.mean())
    np.testing.assert_allclose(
        cohort.connectivity[0], in_17_order(np.corrcoef(series[motion <= 0.3].T)), atol=1e-5
    )


def test_volumes_that_xcpd_removed_are_not_counted_in_the_motion(tmp_path):
    motion = np.linspace(0, 0.59, 60)
    removed = motion > 0.4
    series = random_series(60, 156, 0)[~removed]
    write_xcpd(tmp_path, "01", LABELS, series=series, motion=motion)
    write_xcpd_outliers(tmp_path, "01", removed)
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", fd_threshold=0.3)
    kept = motion[~removed] <= 0.3
    np.testing.assert_allclose(
        cohort.connectivity[0], in_17_order(np.corrcoef(series[kept].T)), atol=1e-5
    )


def test_without_a_motion_file_the_quality_table_tells_the_mean(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0), motion=np.full(50, 0.25))
    next(tmp_path.rglob("*_motion.tsv")).unlink()
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    assert cohort.participants["mean_fd"].iloc[0] == pytest.approx(0.25)


def test_rows_in_another_order_than_columns_are_refused(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    path = next(tmp_path.rglob("*relmat.tsv"))
    table = pd.read_csv(path, sep="\t")
    table.iloc[::-1].to_csv(path, sep="\t", index=False)
    with pytest.raises(NerveError, match="rows are in another order than the columns"):
        read_cohort(tmp_path, parcellation="schaefer100-17")


@pytest.mark.parametrize("header", ["short", "unnamed", "odd"])
def test_row_labels_are_recognised_under_any_heading(tmp_path, header):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    path = next(tmp_path.rglob("*relmat.tsv"))
    start = {"short": "", "unnamed": "\t", "odd": "Parcel\t"}[
        header
    ]  # R writes a header without its first word
    path.write_text(start + path.read_text().removeprefix("Node\t"))
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(cohort.connectivity[0], in_17_order(random_fc(156, 0)), atol=1e-6)


def test_a_file_cut_off_in_a_line_is_named_with_its_participant(tmp_path):
    write_xcpd(tmp_path, "01", LABELS, matrix=random_fc(156, 0))
    write_xcpd(tmp_path, "02", LABELS, matrix=random_fc(156, 1))
    path = next((tmp_path / "sub-01").rglob("*relmat.tsv"))
    path.write_bytes(path.read_bytes()[:-500])
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", allow_exclusions=True)
    reason = cohort.exclusions["reason"].iloc[0]
    assert path.name in reason
    assert "participant 01" in reason
    assert "cut off" in reason


def test_other_labels_than_the_parcellations_are_refused(tmp_path):
    write_xcpd(tmp_path, "01", [f"X_{i}_a" for i in range(100)], matrix=random_fc(100, 0))
    with pytest.raises(NerveError, match="X_0_a"):
        read_cohort(tmp_path, parcellation="schaefer100-17")


def test_giga_connectome_without_an_index_column(tmp_path):
    labels = list(load_parcellation("schaefer100-7").labels)
    write_giga(tmp_path, "01", labels=labels, matrix=random_fc(100, 0))
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17")
    assert cohort.notes["format"] == "xcpd"
    short = [label.removeprefix("7Networks_") for label in labels]
    np.testing.assert_allclose(
        cohort.connectivity[0], in_17_order(random_fc(100, 0), short), atol=1e-6
    )


def test_giga_connectome_whose_header_only_counts_takes_the_order_that_the_user_names(tmp_path):
    series = random_series(60, 100, 0)
    write_giga(tmp_path, "01", series=series)
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", order="schaefer100-7")
    short = [
        label.removeprefix("7Networks_") for label in load_parcellation("schaefer100-7").labels
    ]
    np.testing.assert_allclose(
        cohort.connectivity[0], in_17_order(np.corrcoef(series.T), short), atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "measure"),
    [("PartialCorrelation", "partial"), ("Covariance", "covariance"), ("TangentSpace", "other")],
)
def test_a_matrix_of_another_measure_is_not_taken_for_pearson_correlations(
    tmp_path, words, measure
):
    labels = [
        label.removeprefix("7Networks_") for label in load_parcellation("schaefer100-7").labels
    ]
    for seed, person in enumerate(PEOPLE):
        write_giga(
            tmp_path,
            person,
            labels=labels,
            matrix=random_fc(100, seed) / 2 + np.eye(100) / 2,
            measure=words,
        )
    cohort = read_cohort(tmp_path, parcellation="schaefer100-7")
    assert cohort.measure == measure
    with pytest.raises(NerveError, match="Pearson"):
        make_method("tangent", "paper", {}).fit(cohort)
    for seed, person in enumerate(PEOPLE):
        write_giga(tmp_path, person, labels=labels, matrix=random_fc(100, seed))
    both = read_cohort(tmp_path, parcellation="schaefer100-7")
    assert both.measure == "pearson"
    np.testing.assert_allclose(both.connectivity[0], random_fc(100, 0), atol=1e-6)
    named = read_cohort(
        tmp_path,
        parcellation="schaefer100-7",
        atlas=f"Schaefer2018100Parcels7Networks_meas-{words}_desc-denoiseSimple",
    )
    assert named.measure == measure
