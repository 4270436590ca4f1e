"""Structs, groups, cell arrays and lists in `.mat`, HDF5 and `.npz`: what a file says about itself is used."""

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from tests.data.readers.write_formats import random_fc, random_series, write_matlab73
from typer.testing import CliRunner

import nerve
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.readers import read_cohort

N = 12
LABELS = [f"area_{letter}" for letter in "abcdefghijkl"]
IDS = ["K9", "K2", "K5"]  # in no order
ORDER = np.random.default_rng(0).permutation(N)  # of the regions in the files
FC = np.stack([random_fc(N, seed) for seed in range(3)])
SHUFFLED = FC[:, ORDER][:, :, ORDER]
SHUFFLED_LABELS = [LABELS[i] for i in ORDER]


@pytest.fixture
def regions(tmp_path):
    path = tmp_path / "atlas.tsv"
    table = pd.DataFrame({"label": LABELS, "network": ["x"] * 6 + ["y"] * 6})
    table.to_csv(path, sep="\t", index=False)
    return path


def expect(cohort, ids=IDS, matrices=FC):
    """The planted matrices, of the planted participants, in the order of the atlas."""
    rows = [list(ids).index(person) for person in sorted(ids)]
    assert cohort.participants["participant_id"].tolist() == sorted(ids)
    np.testing.assert_allclose(cohort.connectivity, matrices[rows], atol=1e-6)
    assert cohort.notes["region_match"] == "label"


def cells(words):
    return np.array(words, dtype=object)[None]


STACKS = {
    "npz": lambda path: np.savez(
        path / "all.npz", fc=SHUFFLED, subject_ids=IDS, labels=SHUFFLED_LABELS
    ),
    "npz of other names": lambda path: np.savez(
        path / "all.npz", matrices=SHUFFLED, ids=np.array(IDS), roi_names=SHUFFLED_LABELS
    ),
    "v5": lambda path: savemat(
        path / "all.mat",
        {
            "FC": np.moveaxis(SHUFFLED, 0, 2),
            "subjects": cells(IDS),
            "labels": cells(SHUFFLED_LABELS),
        },
    ),
    "v5 text": lambda path: savemat(
        path / "all.mat", {"fc": SHUFFLED, "ids": IDS, "region_names": SHUFFLED_LABELS}
    ),
    "v5 struct": lambda path: savemat(
        path / "all.mat",
        {"results": {"FC": SHUFFLED, "subject_ids": cells(IDS), "labels": cells(SHUFFLED_LABELS)}},
    ),
    "v5 cells": lambda path: savemat(
        path / "all.mat",
        {"data": _cells_of(SHUFFLED), "ids": cells(IDS), "labels": cells(SHUFFLED_LABELS)},
    ),
    "v7.3": lambda path: write_matlab73(
        path / "all.mat",
        {"fc": np.moveaxis(SHUFFLED, 0, 2), "subject_ids": IDS, "labels": SHUFFLED_LABELS},
    ),
    "v7.3 struct": lambda path: write_matlab73(
        path / "all.mat",
        {"results.FC": SHUFFLED, "results.ids": IDS, "results.roi_labels": SHUFFLED_LABELS},
    ),
    "v7.3 cells": lambda path: write_matlab73(
        path / "all.mat", {"FC": list(SHUFFLED), "ids": IDS, "labels": SHUFFLED_LABELS}
    ),
    "h5": lambda path: _write_h5(
        path / "all.h5", {"fc": SHUFFLED, "subject_ids": IDS, "labels": SHUFFLED_LABELS}
    ),
    "h5 groups": lambda path: _write_h5(
        path / "all.hdf5",
        {
            "derivatives/fc": SHUFFLED,
            "people/participant_ids": IDS,
            "derivatives/region_labels": SHUFFLED_LABELS,
        },
    ),
}


def _cells_of(arrays):
    holder = np.empty((1, len(arrays)), object)
    for number, array in enumerate(arrays):
        holder[0, number] = array
    return holder


def _write_h5(path, contents):
    with h5py.File(path, "w") as file:
        for name, content in contents.items():
            is_words = isinstance(content[0], str)
            file[name] = np.array(content, dtype=h5py.string_dtype()) if is_words else content


@pytest.mark.parametrize("form", STACKS)
def test_ids_and_labels_beside_a_stack_are_used(tmp_path, regions, form):
    (tmp_path / "in").mkdir()
    STACKS[form](tmp_path / "in")
    expect(read_cohort(tmp_path / "in", parcellation=regions))


@pytest.mark.parametrize("form", ["npz", "v5", "v7.3", "h5"])
def test_ids_that_contradict_the_file_are_refused_and_leaving_them_out_works(
    tmp_path, regions, form
):
    (tmp_path / "in").mkdir()
    STACKS[form](tmp_path / "in")
    (tmp_path / "ids.txt").write_text("A\nB\nC\n")
    command = ["ingest", str(tmp_path / "in"), str(tmp_path / "out")]
    command += ["--parcellation", str(regions)]
    refused = CliRunner().invoke(app, [*command, "--ids", str(tmp_path / "ids.txt")])
    assert refused.exit_code == 1
    assert "its own ids" in str(refused.exception)
    assert "are not those of --ids (A, B, C). Leave --ids out" in str(refused.exception)
    accepted = CliRunner().invoke(app, command)
    assert accepted.exit_code == 0, accepted.output
    expect(nerve.Cohort.load(tmp_path / "out"))
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    expect(read_cohort(tmp_path / "in", parcellation=regions, ids=tmp_path / "ids.txt"))


def test_two_lists_of_ids_are_refused_and_the_option_chooses(tmp_path, regions):
    (tmp_path / "in").mkdir()
    np.savez(
        tmp_path / "in" / "all.npz",
        fc=SHUFFLED,
        subject_ids=IDS,
        ids=["a", "b", "c"],
        labels=SHUFFLED_LABELS,
    )
    with pytest.raises(NerveError, match=r"it holds 2 lists of ids .*ids=FILE"):
        read_cohort(tmp_path / "in", parcellation=regions)
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    expect(read_cohort(tmp_path / "in", parcellation=regions, ids=tmp_path / "ids.txt"))


def test_ids_that_are_numbers_are_used(tmp_path, regions):
    (tmp_path / "in").mkdir()
    np.savez(
        tmp_path / "in" / "a.npz", fc=SHUFFLED, subject_ids=[30, 10, 20], labels=SHUFFLED_LABELS
    )
    expect(read_cohort(tmp_path / "in", parcellation=regions), ["30", "10", "20"])


def test_ids_of_the_file_outrank_the_order_of_the_table(tmp_path, regions):
    (tmp_path / "in").mkdir()
    STACKS["npz"](tmp_path / "in")
    people = pd.DataFrame({"participant_id": sorted(IDS), "age": [2, 5, 9]})
    cohort = read_cohort(tmp_path / "in", parcellation=regions, participants=people)
    expect(cohort)
    assert cohort.participants["age"].tolist() == [2, 5, 9]


SINGLE = {
    "npz": lambda path, fc: np.savez(path.with_suffix(".npz"), fc=fc, labels=SHUFFLED_LABELS),
    "v5": lambda path, fc: savemat(
        path.with_suffix(".mat"), {"fc": fc, "roi_labels": cells(SHUFFLED_LABELS)}
    ),
    "v5 struct": lambda path, fc: savemat(
        path.with_suffix(".mat"), {"out": {"inner": {"FC": fc}, "names": cells(SHUFFLED_LABELS)}}
    ),
    "v7.3": lambda path, fc: write_matlab73(
        path.with_suffix(".mat"), {"s.FC": fc, "s.labels": SHUFFLED_LABELS}
    ),
    "h5": lambda path, fc: _write_h5(
        path.with_suffix(".h5"), {"rest/connectivity": fc, "rest/labels": SHUFFLED_LABELS}
    ),
}


@pytest.mark.parametrize("form", SINGLE)
def test_labels_beside_the_matrix_of_one_participant_are_used(tmp_path, regions, form):
    (tmp_path / "in").mkdir()
    for person, matrix in zip(IDS, SHUFFLED, strict=True):
        SINGLE[form](tmp_path / "in" / f"sub-{person}", matrix)
    expect(read_cohort(tmp_path / "in", parcellation=regions))


def test_series_beside_labels_are_used(tmp_path, regions):
    (tmp_path / "in").mkdir()
    series = [random_series(40, N, seed) for seed in range(3)]
    for person, values in zip(IDS, series, strict=True):
        path = tmp_path / "in" / f"{person}.npz"
        np.savez(path, timeseries=values[:, ORDER], labels=SHUFFLED_LABELS)
    expected = np.stack([np.corrcoef(values.T) for values in series])
    expect(read_cohort(tmp_path / "in", parcellation=regions), matrices=expected)


@pytest.mark.parametrize("version", ["v5", "v7.3"])
@pytest.mark.parametrize("mark", [".", "/"])
def test_a_struct_with_several_matrices_needs_its_path(tmp_path, regions, version, mark):
    (tmp_path / "in").mkdir()
    for person, matrix in zip(IDS, FC, strict=True):
        path = tmp_path / "in" / f"{person}.mat"
        if version == "v5":
            content = {"results": {"rest": matrix, "task": np.eye(N)}, "names": cells(LABELS)}
            savemat(path, content)
        else:
            contents = {"results.rest": matrix, "results.task": np.eye(N), "names": LABELS}
            write_matlab73(path, contents)
    command = ["ingest", str(tmp_path / "in"), str(tmp_path / "out")]
    command += ["--parcellation", str(regions)]
    refused = CliRunner().invoke(app, command)
    assert "it holds results.rest, results.task" in str(refused.exception)
    assert "Say which with --variable" in str(refused.exception)
    accepted = CliRunner().invoke(app, [*command, "--variable", f"results{mark}rest"])
    assert accepted.exit_code == 0, accepted.output
    expect(nerve.Cohort.load(tmp_path / "out"))
    with pytest.raises(NerveError, match=r"there is no variable 'results\.rst'.*results\.rest"):
        read_cohort(tmp_path / "in", parcellation=regions, variable="results.rst")


@pytest.mark.parametrize("form", ["{id}/fc", "sub-{id}/fc", "study/{id}/fc", "{id}"])
def test_hdf5_with_a_group_per_participant(tmp_path, regions, form):
    contents = {form.format(id=person): FC[number] for number, person in enumerate(IDS)}
    (tmp_path / "in").mkdir()
    _write_h5(tmp_path / "in" / "all.h5", contents)
    cohort = read_cohort(tmp_path / "in", order=regions)
    assert cohort.participants["participant_id"].tolist() == sorted(IDS)
    np.testing.assert_allclose(cohort.connectivity, FC[[1, 2, 0]], atol=1e-6)


def test_a_stack_without_ids_is_refused_and_the_remedy_works(tmp_path, regions):
    (tmp_path / "in").mkdir()
    _write_h5(tmp_path / "in" / "all.h5", {"fc": SHUFFLED, "labels": SHUFFLED_LABELS})
    with pytest.raises(NerveError, match=r"it holds 3 participants and no ids are known.*ids=FILE"):
        read_cohort(tmp_path / "in", parcellation=regions)
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    expect(read_cohort(tmp_path / "in", parcellation=regions, ids=tmp_path / "ids.txt"))


def test_a_struct_array_of_participants(tmp_path, regions):
    records = np.array(
        [(person, matrix) for person, matrix in zip(IDS, SHUFFLED, strict=True)],
        dtype=[("id", object), ("fc", object)],
    )
    (tmp_path / "in").mkdir()
    content = {"data": records, "labels": cells(SHUFFLED_LABELS)}
    savemat(tmp_path / "in" / "all.mat", content)
    expect(read_cohort(tmp_path / "in", parcellation=regions))


def test_words_that_are_pickled_are_never_opened(tmp_path, regions):
    (tmp_path / "in").mkdir()
    ids = np.array(IDS, dtype=object)
    np.savez(tmp_path / "in" / "all.npz", fc=SHUFFLED, ids=ids, labels=SHUFFLED_LABELS)
    with pytest.raises(NerveError, match="no ids are known"):
        read_cohort(tmp_path / "in", parcellation=regions)
