"""RBC's C-PAC release: read in the order that the atlas' name says, with a warning that it was withdrawn."""

from __future__ import annotations

import numpy as np
import pytest
from tests.data.readers.write_formats import random_fc, random_series, write_cpac

from nerve._utils.errors import NerveError, NerveWarning
from nerve.data.readers import Options, get_reader, read_cohort

pytestmark = pytest.mark.filterwarnings("ignore::nerve._utils.errors.NerveWarning")


def test_matrices_without_labels_come_back_in_the_order_of_their_atlas(tmp_path):
    for seed, person in enumerate(("colornest001", "colornest002")):
        write_cpac(tmp_path, person, matrix=random_fc(100, seed), motion=np.full(59, 0.2))
    cohort = read_cohort(tmp_path)
    assert cohort.notes["format"] == "cpac"
    assert list(cohort.participants["participant_id"]) == ["colornest001", "colornest002"]
    assert cohort.parcellation.name == "schaefer100-17"
    np.testing.assert_allclose(
        cohort.connectivity, [random_fc(100, 0), random_fc(100, 1)], atol=1e-6
    )
    assert cohort.participants["mean_fd"].tolist() == pytest.approx([0.2, 0.2])


def test_the_name_of_the_atlas_tells_seven_from_seventeen_networks(tmp_path):
    write_cpac(tmp_path, "01", matrix=random_fc(100, 0), atlas="Schaefer2018p100n7")
    cohort = read_cohort(tmp_path, parcellation="schaefer100-7")
    np.testing.assert_allclose(cohort.connectivity[0], random_fc(100, 0), atol=1e-6)
    aligned = read_cohort(tmp_path, parcellation="schaefer100-17")
    np.testing.assert_allclose(
        aligned.connectivity[0], cohort.align("schaefer100-17").connectivity[0], atol=1e-6
    )


def test_the_order_that_the_user_names_outranks_the_atlas_name(tmp_path):
    write_cpac(tmp_path, "01", matrix=random_fc(100, 0))
    cohort = read_cohort(tmp_path, parcellation="schaefer100-7", order="schaefer100-7")
    np.testing.assert_allclose(cohort.connectivity[0], random_fc(100, 0), atol=1e-6)


def test_series_with_a_header_of_numbers(tmp_path):
    series, motion = (
        random_series(60, 100, 0),
        np.linspace(0, 0.58, 59),
    )  # C-PAC leaves out the first volume
    write_cpac(tmp_path, "01", series=series, motion=motion)
    cohort = read_cohort(tmp_path, parcellation="schaefer100-17", fd_threshold=0.3)
    kept = np.r_[0, motion] <= 0.3
    np.testing.assert_allclose(cohort.connectivity[0], np.corrcoef(series[kept].T), atol=1e-5)


def test_the_withdrawal_is_said(tmp_path):
    write_cpac(tmp_path, "01", matrix=random_fc(100, 0))
    with pytest.warns(NerveWarning, match="withdrew their C-PAC release in May 2026"):
        cohort = read_cohort(tmp_path)
    assert any("withdrew" in note for note in cohort.notes["log"])


def test_strategies_are_never_mixed_and_36_parameters_are_the_default(tmp_path):
    write_cpac(tmp_path, "01", matrix=random_fc(100, 0))
    write_cpac(tmp_path, "01", matrix=random_fc(100, 1), strategy="aCompCor")
    write_cpac(tmp_path, "02", matrix=random_fc(100, 2), strategy="aCompCor")
    write_cpac(tmp_path, "01", matrix=random_fc(100, 3), estimate="PartialNilearn")
    cohort = read_cohort(tmp_path)
    assert list(cohort.participants["participant_id"]) == ["01"]
    np.testing.assert_allclose(cohort.connectivity[0], random_fc(100, 0), atol=1e-6)
    assert any("reg-aCompCor" in note for note in cohort.notes["log"])
    other = read_cohort(tmp_path, atlas="Schaefer2018p100n17_reg-aCompCor")
    np.testing.assert_allclose(
        other.connectivity, [random_fc(100, 1), random_fc(100, 2)], atol=1e-6
    )


def test_zero_rows_with_one_on_the_diagonal_are_missing_parcels(tmp_path):
    matrix = random_fc(100, 0)
    matrix[7], matrix[:, 7], matrix[7, 7] = 0, 0, 1
    write_cpac(tmp_path, "01", matrix=matrix)
    write_cpac(tmp_path, "02", matrix=random_fc(100, 1))
    cohort = read_cohort(tmp_path, allow_exclusions=True)
    assert list(cohort.participants["participant_id"]) == ["02"]
    assert "1 of 100 regions have no data" in cohort.exclusions["reason"].iloc[0]


def test_links_that_were_never_fetched_are_explained(tmp_path):
    write_cpac(tmp_path, "01", matrix=random_fc(100, 0))
    write_cpac(tmp_path, "02", matrix=random_fc(100, 1))
    path = next((tmp_path / "cpac_RBCv0" / "sub-02").rglob("*correlations.tsv"))
    path.unlink()
    path.symlink_to("../../../.git/annex/objects/Xx/Yy/MD5E-s1--0.tsv/MD5E-s1--0.tsv")
    cohort = read_cohort(tmp_path, allow_exclusions=True)
    assert "datalad get" in cohort.exclusions["reason"].iloc[0]
    (tmp_path / "alone").mkdir()
    path.rename(tmp_path / "alone" / path.name)
    with pytest.raises(NerveError, match=r"git-annex file that was never fetched.*datalad get"):
        read_cohort(tmp_path / "alone")


def test_sidecars_with_trailing_commas_are_not_touched(tmp_path):
    write_cpac(tmp_path, "01", matrix=random_fc(100, 0))
    (tmp_path / "study-CCNP_desc-participants.json").write_text(
        '{"participant_id": {"LongName": "id",},}'
    )
    assert len(read_cohort(tmp_path)) == 1


@pytest.mark.realdata
def test_the_original_participants_tables_are_joined(tmp_path, shared_data):
    table = shared_data / "samples" / "rbc" / "study-PNC_desc-participants.tsv"
    for seed, person in enumerate(("1000393599", "1000881804")):
        write_cpac(tmp_path, person, matrix=random_fc(100, seed))
    cohort = read_cohort(tmp_path, participants=table)
    scores = cohort.participants.set_index("participant_id")[
        "p_factor"
    ]  # the release's long name, shortened
    assert scores.tolist() == pytest.approx([0.589906816, -0.655376567])


def test_other_folders_are_not_this_format(tmp_path):
    (tmp_path / "sub-01_task-rest_bold.nii.gz").write_bytes(b"x")
    assert get_reader("cpac").find(tmp_path, Options()) == []
