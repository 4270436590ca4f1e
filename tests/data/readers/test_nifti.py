"""fMRIPrep and DeepPrep images: region series equal nilearn's own, and the choices are the user's and recorded."""

from __future__ import annotations

import importlib.util
import json

import nibabel
import numpy as np
import pytest
from tests.data.readers.write_formats import (
    AFFINE,
    confounds_table,
    label_volume,
    random_series,
    write_dlabel,
    write_fmriprep,
    write_label_image,
)

from nerve._utils.errors import NerveError
from nerve.data.parcellation import Parcellation
from nerve.data.readers import Options, get_reader, read_cohort
from nerve.data.readers.confounds import Denoising, regressors

LABELS = ["a", "b", "c", "d", "e", "f"]
SIX = Parcellation(tuple(LABELS), ("N1",) * 3 + ("N2",) * 3, name="six")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:nilearn.*")


@pytest.fixture
def atlas(tmp_path):
    return write_label_image(tmp_path / "atlas.nii.gz", 6)


@pytest.mark.slow
@pytest.mark.parametrize("deepprep", [False, True], ids=["fmriprep", "deepprep"])
def test_the_means_of_the_labels_come_back_as_they_were_planted(tmp_path, atlas, deepprep):
    series = [random_series(60, 6, seed) for seed in range(2)]
    for seed, one in enumerate(series):
        table = confounds_table(60, seed, deepprep=deepprep)
        write_fmriprep(tmp_path / "source", f"0{seed}", one, confounds=table, deepprep=deepprep)
    cohort = read_cohort(
        tmp_path / "source", parcellation=SIX, atlas_image=atlas, denoise="none", timeseries=True
    )
    assert cohort.notes["format"] == "nifti"
    for seed, one in enumerate(series):
        np.testing.assert_allclose(cohort.timeseries[seed], 100 + one, atol=1e-4)
        np.testing.assert_allclose(cohort.connectivity[seed], np.corrcoef(one.T), atol=1e-4)
    assert cohort.participants["mean_fd"].notna().all()


@pytest.mark.slow
def test_cleaned_series_are_those_of_nilearn(tmp_path, atlas):
    from nilearn.interfaces.fmriprep import load_confounds
    from nilearn.maskers import NiftiLabelsMasker

    write_fmriprep(
        tmp_path / "source", "01", random_series(200, 6, 0), confounds=confounds_table(200, 0)
    )
    bold = str(next(tmp_path.rglob("*_bold.nii.gz")))
    full = {"motion": "full", "wm_csf": "full", "global_signal": "full"}
    theirs, _ = load_confounds(
        bold, strategy=("motion", "wm_csf", "global_signal"), demean=False, **full
    )
    assert theirs.shape[1] == 36
    masker = NiftiLabelsMasker(
        atlas, detrend=True, high_pass=0.01, low_pass=0.08, t_r=2.0, standardize=None
    )
    expected = masker.fit_transform(bold, confounds=theirs)
    cohort = read_cohort(tmp_path / "source", parcellation=SIX, atlas_image=atlas, timeseries=True)
    np.testing.assert_allclose(cohort.timeseries[0], expected, atol=1e-4)
    assert any("36p confounds, band 0.01–0.08 Hz" in note for note in cohort.notes["log"])


@pytest.mark.slow
def test_base_columns_alone_give_the_same_regressors_as_fmripreps_own():
    whole = confounds_table(50, 3)
    base = confounds_table(50, 3, deepprep=True)
    for strategy in ("6p", "8p", "24p", "32p", "36p"):
        expected = regressors(whole, strategy, "whole")
        assert expected.shape == (50, int(strategy[:-1]))
        np.testing.assert_allclose(regressors(base, strategy, "base"), expected)


def test_compcor_takes_five_components_of_each_tissue_and_the_cosines():
    rng = np.random.default_rng(0)
    table = confounds_table(50, 0)
    for name in [f"{tissue}_comp_cor_{i:02d}" for tissue in "cw" for i in range(8)]:
        table[name] = rng.normal(size=50)
    found = regressors(table, "acompcor", "table")
    assert found.shape == (50, 12 + 10 + 2)
    with pytest.raises(NerveError, match="lacks a_comp_cor_00"):
        regressors(confounds_table(50, 0), "acompcor", "table")


@pytest.mark.slow
def test_a_planted_confound_is_removed(tmp_path, atlas):
    clean, table = random_series(200, 6, 0), confounds_table(200, 0)
    write_fmriprep(
        tmp_path / "source", "01", clean + 3 * table[["trans_x"]].to_numpy(), confounds=table
    )
    how = {"parcellation": SIX, "atlas_image": atlas}
    truth = np.corrcoef(clean.T)
    with_it = read_cohort(tmp_path / "source", denoise="none", **how).connectivity[0]
    without = read_cohort(tmp_path / "source", denoise="6p:-", **how).connectivity[0]
    assert np.abs(without - truth).max() < 0.15 < np.abs(with_it - truth).max()


def test_surfaces_with_a_dlabel_are_labelled_by_it(tmp_path):
    series = random_series(60, 6, 0)
    write_fmriprep(
        tmp_path / "source",
        "01",
        series,
        confounds=confounds_table(60, 0),
        deepprep=True,
        surface=True,
    )
    write_dlabel(tmp_path / "atlas.dlabel.nii", LABELS)
    backwards = SIX.subset(range(5, -1, -1))
    cohort = read_cohort(
        tmp_path / "source",
        parcellation=backwards,
        atlas_image=tmp_path / "atlas.dlabel.nii",
        denoise="none",
    )
    np.testing.assert_allclose(cohort.connectivity[0], np.corrcoef(series.T)[::-1, ::-1], atol=1e-5)


@pytest.mark.slow
def test_a_label_without_voxels_is_a_missing_region(tmp_path):
    write_fmriprep(
        tmp_path / "source", "01", random_series(60, 6, 0), confounds=confounds_table(60, 0)
    )
    labels = label_volume(6)
    labels[labels == 3] = 0
    nibabel.Nifti1Image(labels, AFFINE).to_filename(tmp_path / "atlas.nii.gz")
    how = {"parcellation": SIX, "atlas_image": tmp_path / "atlas.nii.gz", "denoise": "none"}
    with pytest.raises(NerveError, match=r"1 of 6 regions have no data \(c\)"):
        read_cohort(tmp_path / "source", **how)
    assert read_cohort(tmp_path / "source", missing="drop-region", **how).parcellation.labels == (
        "a",
        "b",
        "d",
        "e",
        "f",
    )


def test_a_label_image_of_more_regions_than_the_parcellation_is_refused(tmp_path, atlas):
    write_fmriprep(
        tmp_path / "source", "01", random_series(60, 6, 0), confounds=confounds_table(60, 0)
    )
    with pytest.raises(NerveError, match="6 regions, expected 5"):
        read_cohort(
            tmp_path / "source",
            parcellation=SIX.subset(range(5)),
            atlas_image=atlas,
            denoise="none",
        )


def test_labels_on_another_grid_are_resampled_to_the_image(tmp_path):
    series = random_series(60, 6, 0)
    write_fmriprep(tmp_path / "source", "01", series, confounds=confounds_table(60, 0))
    finer = np.kron(label_volume(6), np.ones((2, 2, 2), np.int16))
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = -1.0
    nibabel.Nifti1Image(finer, affine).to_filename(tmp_path / "fine.nii.gz")
    cohort = read_cohort(
        tmp_path / "source", parcellation=SIX, atlas_image=tmp_path / "fine.nii.gz", denoise="none"
    )
    np.testing.assert_allclose(cohort.connectivity[0], np.corrcoef(series.T), atol=1e-4)


def test_what_is_needed_is_said_in_one_sentence(tmp_path, atlas, monkeypatch):
    write_fmriprep(tmp_path / "source", "01", random_series(60, 6, 0))
    source = tmp_path / "source"
    with pytest.raises(NerveError, match="atlas_image=FILE"):
        read_cohort(source, parcellation=SIX)
    with pytest.raises(NerveError, match="no such file"):
        read_cohort(source, parcellation=SIX, atlas_image=tmp_path / "none.nii.gz")
    with pytest.raises(NerveError, match=r"no …_desc-confounds_timeseries.tsv"):
        read_cohort(source, parcellation=SIX, atlas_image=atlas)
    with pytest.raises(NerveError, match="Did you mean '36p'"):
        read_cohort(source, parcellation=SIX, atlas_image=atlas, denoise="36")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NerveError, match="pip install nilearn"):
        read_cohort(source, parcellation=SIX, atlas_image=atlas, denoise="none")


def test_a_scan_too_short_for_its_confounds_is_refused(tmp_path, atlas):
    write_fmriprep(
        tmp_path / "source", "01", random_series(60, 6, 0), confounds=confounds_table(60, 0)
    )
    with pytest.raises(
        NerveError, match="36 confounds and the band-pass leave 0 of 60 degrees of freedom"
    ):
        read_cohort(tmp_path / "source", parcellation=SIX, atlas_image=atlas)


@pytest.mark.parametrize("spoil", ["no rows", "a name too few"])
def test_confounds_without_rows_or_a_proper_header_are_refused(tmp_path, atlas, spoil):
    write_fmriprep(
        tmp_path / "source", "01", random_series(60, 6, 0), confounds=confounds_table(60, 0)
    )
    path = next((tmp_path / "source").rglob("*confounds_timeseries.tsv"))
    header, rest = path.read_text().split("\n", 1)
    path.write_text(
        header + "\n" if spoil == "no rows" else header.partition("\t")[2] + "\n" + rest
    )
    with pytest.raises(
        NerveError, match=r"confounds table has no rows or no proper header\. Make it again"
    ):
        read_cohort(tmp_path / "source", parcellation=SIX, atlas_image=atlas)


def test_confounds_of_another_length_are_refused(tmp_path, atlas):
    write_fmriprep(
        tmp_path / "source", "01", random_series(60, 6, 0), confounds=confounds_table(50, 0)
    )
    with pytest.raises(NerveError, match="50 rows of confounds for 60 volumes"):
        read_cohort(tmp_path / "source", parcellation=SIX, atlas_image=atlas, denoise="6p:-")


@pytest.mark.slow
def test_the_sidecar_outranks_a_header_without_repetition_time(tmp_path, atlas):
    series, table = random_series(200, 6, 0), confounds_table(200, 0)
    write_fmriprep(tmp_path / "right", "01", series, confounds=table)
    write_fmriprep(tmp_path / "wrong", "01", series, confounds=table, repetition_time=0.0)
    how = {"parcellation": SIX, "atlas_image": atlas, "denoise": "6p"}
    with pytest.raises(NerveError, match=r"repetition time in the header is 0 s.*RepetitionTime"):
        read_cohort(tmp_path / "wrong", **how)
    bold = next((tmp_path / "wrong").rglob("*_bold.nii.gz"))
    bold.with_name(bold.name.replace(".nii.gz", ".json")).write_text(
        json.dumps({"RepetitionTime": 2.0})
    )
    expected = read_cohort(tmp_path / "right", **how).connectivity
    np.testing.assert_allclose(
        read_cohort(tmp_path / "wrong", **how).connectivity, expected, atol=1e-6
    )


def test_images_of_one_space_are_read(tmp_path, atlas):
    write_fmriprep(tmp_path, "01", random_series(30, 6, 0))
    other = next(tmp_path.rglob("*_bold.nii.gz"))
    other.with_name(other.name.replace("MNI152NLin2009cAsym", "MNI152NLin6Asym_res-2")).write_bytes(
        other.read_bytes()
    )
    find = get_reader("nifti").find
    assert "NLin6Asym" in find(tmp_path, Options(atlas_image=atlas))[0].path.name
    assert (
        "NLin2009c"
        in find(tmp_path, Options(atlas_image=atlas, atlas="MNI152NLin2009cAsym"))[0].path.name
    )
    with pytest.raises(NerveError, match="no images in 'T1w'"):
        find(tmp_path, Options(atlas_image=atlas, atlas="T1w"))


def test_denoising_is_parsed_or_refused():
    assert Denoising.parse(None) == Denoising("36p", 0.01, 0.08)
    assert Denoising.parse("24P:0.008-") == Denoising("24p", 0.008, None)
    for wrong in ("36p:", "36p:0.1-0.01", "36p:a-b", "37p"):
        with pytest.raises(NerveError, match="--denoise"):
            Denoising.parse(wrong)
