"""BIDS connectivity matrices, written by us and by others: the right matrices, labels and measure, or a refusal."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import random_fc
from typer.testing import CliRunner

from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.export import export_cohort
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers import read_cohort

OWN = Parcellation(
    tuple(f"region_{word}" for word in "abcdefghijkl"),
    ("Vis", "Mot", "None") * 4,
    coordinates=np.arange(36.0).reshape(12, 3),
    name="my atlas",
)


def cohort(parcellation=OWN, n=5, measure="pearson", ids=None, **columns):
    fc = np.stack([random_fc(load_parcellation(parcellation).n_regions, seed) for seed in range(n)])
    if measure == "covariance":
        fc = fc * np.linspace(0.1, 0.9, fc.shape[1])[:, None] * np.linspace(0.1, 0.9, fc.shape[1])
    if measure == "streamlines":
        fc = np.round(np.abs(fc) * 1000)
    table = pd.DataFrame({"participant_id": ids or [f"{i + 1:02d}" for i in range(n)]} | columns)
    return Cohort(fc.astype(np.float32), table, parcellation, measure=measure)


def assert_same(back, original):
    assert back.fingerprint == original.fingerprint  # matrices bit by bit, table, labels, networks
    assert back.parcellation.name == original.parcellation.name
    np.testing.assert_array_equal(back.parcellation.coordinates, original.parcellation.coordinates)
    assert back.parcellation.hemispheres == original.parcellation.hemispheres
    assert back.measure == original.measure


@pytest.mark.slow
@pytest.mark.parametrize("parcellation", ["schaefer100-7", "4s156-17", "tian-s2", OWN], ids=str)
def test_what_was_exported_reads_back_as_the_same_cohort(tmp_path, parcellation):
    original = cohort(
        load_parcellation(parcellation),
        age=[8.25, 9, np.nan, 11, 12],
        sex=list("FMFMF"),
        visits=[1, 2, 1, 2, 1],
    )
    export_cohort(original, tmp_path / "out")
    assert_same(read_cohort(tmp_path / "out"), original)


@pytest.mark.parametrize("measure", ["partial", "covariance", "streamlines", "other"])
def test_every_measure_survives_with_its_diagonal(tmp_path, measure):
    original = cohort(measure=measure)
    export_cohort(original, tmp_path / "out")
    assert_same(read_cohort(tmp_path / "out"), original)


def test_exported_fisher_z_is_read_as_r(tmp_path):
    r = cohort()
    z = Cohort(
        np.arctanh(np.clip(r.connectivity, -0.999999, 0.999999)),
        r.participants,
        OWN,
        measure="fisher_z",
    )
    export_cohort(z, tmp_path / "out")
    back = read_cohort(tmp_path / "out")
    assert back.measure == "pearson"
    np.testing.assert_allclose(back.connectivity, r.connectivity, atol=1e-6)


def test_the_files_have_the_names_and_fields_of_the_proposal(tmp_path):
    export_cohort(cohort(), tmp_path / "out")
    names = sorted(
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")
    )
    assert names.pop(0) == ".nerve"  # which files are nerve's; tools for BIDS skip hidden files
    assert names[:6] == [
        "atlas-myxatlas_description.json",
        "atlas-myxatlas_dseg.tsv",
        "atlas-myxatlas_meas-PearsonCorrelation_relmat.json",
        "atlas-myxatlas_nodeindices.tsv",
        "dataset_description.json",
        "participants.tsv",
    ]
    assert names[6] == "sub-01/func/sub-01_atlas-myxatlas_meas-PearsonCorrelation_relmat.dense.tsv"
    sidecar = json.loads((tmp_path / "out" / names[2]).read_text())
    expected = {
        "NodeFiles",
        "RelationshipMeasure",
        "Weighted",
        "Directed",
        "ValidDiagonal",
        "StorageFormat",
        "Software",
    }
    assert set(sidecar) == expected
    nodes = pd.read_csv(tmp_path / "out" / names[3], sep="\t")
    assert nodes.columns.tolist() == ["matrix_index", "node_file", "node_index", "label"]


def write_as_others_do(
    folder, person, matrix, labels, *, measure="PearsonCorrelation", diagonal=True, order=None
):
    """Every file beside the matrix, node indices from 1 and in any order."""
    place = folder / f"sub-{person}" / "ses-1" / "func"
    place.mkdir(parents=True, exist_ok=True)
    stem = f"sub-{person}_ses-1_task-rest_atlas-Mine"
    np.savetxt(place / f"{stem}_meas-{measure}_relmat.dense.tsv", matrix, delimiter="\t")
    about = {"RelationshipMeasure": measure, "ValidDiagonal": diagonal}
    (place / f"{stem}_meas-{measure}_relmat.json").write_text(json.dumps(about))
    nodes = pd.DataFrame({"matrix_index": np.arange(len(labels)) + 1, "label": labels})
    nodes.iloc[order if order is not None else range(len(labels))].to_csv(
        place / f"{stem}_nodeindices.tsv", sep="\t", index=False
    )
    return place


def test_files_of_others_are_matched_by_label_whatever_the_order_of_the_node_table(tmp_path):
    shuffle = np.random.default_rng(0).permutation(12)
    for i, person in enumerate(("A", "B")):
        shuffled = random_fc(12, i)[np.ix_(shuffle, shuffle)]
        labels = [OWN.labels[k] for k in shuffle]
        np.fill_diagonal(shuffled, 7.0)
        write_as_others_do(tmp_path, person, shuffled, labels, diagonal=False, order=shuffle)
    back = read_cohort(tmp_path, parcellation=OWN)
    np.testing.assert_allclose(back.connectivity, [random_fc(12, 0), random_fc(12, 1)], atol=1e-6)


def test_one_measure_is_read_and_correlations_first(tmp_path):
    write_as_others_do(tmp_path, "A", random_fc(12, 0), OWN.labels)
    write_as_others_do(tmp_path, "A", 50 * random_fc(12, 1), OWN.labels, measure="Covariance")
    assert read_cohort(tmp_path, parcellation=OWN).measure == "pearson"
    covariance = read_cohort(tmp_path, parcellation=OWN, atlas="Mine_meas-Covariance")
    assert covariance.measure == "covariance"
    np.testing.assert_allclose(covariance.connectivity[0], 50 * random_fc(12, 1), rtol=1e-6)


def test_participants_whose_files_hold_another_measure_are_left_out_with_a_reason(tmp_path):
    for i, person in enumerate("ABC"):
        place = write_as_others_do(tmp_path, person, random_fc(12, i), OWN.labels)
    sidecar = next(place.glob("*_relmat.json"))
    sidecar.write_text(json.dumps({"RelationshipMeasure": "Covariance"}))
    back = read_cohort(tmp_path, parcellation=OWN, allow_exclusions=True)
    assert back.participants["participant_id"].tolist() == ["A", "B"]
    assert "holds covariances, the others Pearson correlations" in back.exclusions["reason"].item()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda place: _rewrite(place, "*.dense.tsv", "1\t2\n2\tx\n"), "holds text"),
        (
            lambda place: _rewrite(place, "*_nodeindices.tsv", "matrix_index\tlabel\n0\ta\n"),
            "the matrix has 12 rows",
        ),
        (
            lambda place: _rewrite(place, "*_nodeindices.tsv", "matrix_index\n0\n"),
            "rows, expected 1, as .*nodeindices",
        ),
        (
            lambda place: _rewrite(place, "*_nodeindices.tsv", "label\na\n"),
            "no column 'matrix_index'",
        ),
        (
            lambda place: _rewrite(place, "*_nodeindices.tsv", "matrix_index\n0\n0\n"),
            "does not count the rows",
        ),
        (lambda place: _rewrite(place, "*_relmat.json", "[1]"), "does not describe a matrix"),
        (lambda place: _rewrite(place, "*_relmat.json", '{"Directed": true}'), "directed"),
    ],
)
def test_what_cannot_be_understood_is_refused_in_one_sentence(tmp_path, spoil, sentence):
    spoil(write_as_others_do(tmp_path, "A", random_fc(12, 0), OWN.labels))
    with pytest.raises(NerveError, match=sentence):
        read_cohort(tmp_path, parcellation=OWN, format="bep017")


def _rewrite(place, pattern, text):
    next(place.glob(pattern)).write_text(text)


def test_nothing_in_the_way_is_overwritten(tmp_path):
    original = cohort()
    original.save(tmp_path / "cohort")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    refused = CliRunner().invoke(app, ["export", str(tmp_path / "cohort"), str(tmp_path / "out")])
    assert isinstance(refused.exception, NerveError)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]
    done = CliRunner().invoke(app, ["export", str(tmp_path / "cohort"), str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    assert "5 participants, my atlas" in done.output
    again = CliRunner().invoke(app, ["ingest", str(tmp_path / "new"), str(tmp_path / "back")])
    assert again.exit_code == 0, again.output
    assert_same(Cohort.load(tmp_path / "back"), original)


@pytest.mark.parametrize("bad", ["a/b", "a_task-rest", "sub-1", "..", "a b"])
def test_ids_that_would_not_be_read_back_are_refused(tmp_path, bad):
    with pytest.raises(NerveError, match="cannot stand in a BIDS file name"):
        export_cohort(cohort(n=2, ids=["fine", bad]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_ids_with_underscores_survive(tmp_path):
    original = cohort(n=2, ids=["CMU_a_0050642", "CMU_a_0050646"])
    export_cohort(original, tmp_path / "out")
    assert_same(read_cohort(tmp_path / "out"), original)


def test_a_changed_table_of_regions_is_read_again_in_the_same_process(tmp_path):
    export_cohort(cohort(), tmp_path / "out")
    before = read_cohort(tmp_path / "out")
    path = next((tmp_path / "out").rglob("*_nodeindices.tsv"))
    nodes = pd.read_csv(path, sep="\t")
    nodes["matrix_index"] = nodes["matrix_index"].to_numpy()[::-1]
    nodes.to_csv(path, sep="\t", index=False)
    after = read_cohort(tmp_path / "out")
    np.testing.assert_array_equal(after.connectivity, before.connectivity[:, ::-1, ::-1])
