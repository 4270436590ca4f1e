"""CBIG's MATLAB files: v5 and v7.3, a matrix a person and one array of all people."""

import h5py
import numpy as np
import pytest
from scipy.io import savemat

from nerve._utils.errors import NerveError
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import read_cohort

PARCELLATION = load_parcellation("schaefer100-17")


def matrices(n=3, regions=100):
    rng = np.random.default_rng(0)
    return np.stack([np.corrcoef(rng.normal(size=(regions, 200))) for _ in range(n)])


def save_v73(path, **arrays):
    """As MATLAB writes it: a 512-byte preamble, and arrays with their axes backwards."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file[name] = np.asarray(array).T


def lower_by_column(matrix):
    """CBIG's vector of a matrix, written out: down the first column below the diagonal, then the second …"""
    n = len(matrix)
    return np.array([matrix[row, column] for column in range(n) for row in range(column + 1, n)])


@pytest.mark.parametrize("save", [savemat, None], ids=["v5", "v7.3"])
@pytest.mark.parametrize("variable", ["corr_mat", "fc_mat", "fc", "subj_final_corr_mat"])
def test_a_matrix_a_person_under_every_name(tmp_path, save, variable):
    stack = matrices()
    for i, matrix in enumerate(stack):
        path = tmp_path / f"sub-{i}_100ROIcorrMat.mat"
        savemat(path, {variable: matrix}) if save else save_v73(path, **{variable: matrix})
    cohort = read_cohort(tmp_path, parcellation=PARCELLATION)
    assert cohort.notes["format"] == "cbig"
    assert cohort.participants["participant_id"].tolist() == ["0", "1", "2"]
    np.testing.assert_allclose(cohort.connectivity, stack, atol=1e-6)


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_the_array_of_all_people_is_the_lower_triangle_column_by_column(tmp_path, version):
    stack = matrices(n=4)
    features = np.stack([lower_by_column(matrix) for matrix in stack], axis=1)  # (features, people)
    path = tmp_path / "RSFC.mat"
    savemat(path, {"features_rs": features}) if version == "v5" else save_v73(
        path, features_rs=features
    )
    cohort = read_cohort(path, parcellation=PARCELLATION, ids=["d", "c", "b", "a"])
    assert cohort.notes["format"] == "cbig"
    assert cohort.participants["participant_id"].tolist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(cohort.connectivity, stack[::-1], atol=1e-6)
    with pytest.raises(NerveError, match="it holds 4 participants and no ids are known"):
        read_cohort(path, parcellation=PARCELLATION)


def test_the_19_subcortical_regions_are_dropped_or_kept(tmp_path):
    stack = matrices(regions=119)
    for i, matrix in enumerate(stack):
        savemat(tmp_path / f"NDAR_INV{i}.mat", {"corr_mat": matrix})
    dropped = read_cohort(tmp_path, parcellation=PARCELLATION)
    np.testing.assert_allclose(dropped.connectivity, stack[:, :100, :100], atol=1e-6)
    kept = read_cohort(tmp_path, parcellation=PARCELLATION, outside="keep")
    assert kept.parcellation.networks[-19:] == ("Subcortical",) * 19
    np.testing.assert_allclose(kept.connectivity, stack, atol=1e-6)
    assert kept.participants["participant_id"].tolist() == ["NDARINV0", "NDARINV1", "NDARINV2"]


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_labels_beside_the_matrices_are_used(tmp_path, version):
    seven = load_parcellation("schaefer100-7")
    stack = matrices()
    labels = np.array(seven.labels, dtype=object)[:, None]
    if version == "v5":
        savemat(tmp_path / "struct_names.mat", {"struct_names": labels})
    else:
        with h5py.File(tmp_path / "struct_names.mat", "w", userblock_size=512) as file:
            words = [
                file.create_dataset(f"#refs#/{i}", data=[[ord(c)] for c in name])
                for i, name in enumerate(seven.labels)
            ]
            file["struct_names"] = np.array([[word.ref for word in words]], dtype=h5py.ref_dtype)
    for i, matrix in enumerate(stack):
        savemat(tmp_path / f"sub-{i}.mat", {"corr_mat": matrix})
    cohort = read_cohort(tmp_path, parcellation=PARCELLATION)
    index = seven.reordering_to(PARCELLATION)
    np.testing.assert_allclose(cohort.connectivity[1], stack[1][np.ix_(index, index)], atol=1e-6)


def test_a_truncated_file_leaves_out_its_participant(tmp_path):
    for i, matrix in enumerate(matrices()):
        savemat(tmp_path / f"sub-{i}.mat", {"corr_mat": matrix}, do_compression=True)
    path = tmp_path / "sub-1.mat"
    path.write_bytes(path.read_bytes()[:2000])
    cohort = read_cohort(tmp_path, parcellation=PARCELLATION, allow_exclusions=True)
    assert cohort.participants["participant_id"].tolist() == ["0", "2"]
    assert (
        "sub-1.mat (participant 1): the MATLAB file is damaged"
        in cohort.exclusions["reason"].item()
    )


@pytest.mark.realdata
def test_the_original_files_give_the_released_matrices(shared_data):
    cohort = read_cohort(shared_data / "samples" / "cbig_mat", parcellation="schaefer400-17+aseg19")
    people = [
        line.split("\t")[0]
        for line in (shared_data / "ucla_cnp/participants.tsv").read_text().splitlines()[1:]
    ]
    released = np.load(shared_data / "ucla_cnp/fc_upper_419.npy", mmap_mode="r")
    rows = [people.index(f"sub-{person}") for person in cohort.participants["participant_id"]]
    assert len(rows) == 3
    np.testing.assert_allclose(cohort.inputs("upper"), released[rows], atol=5e-4)
