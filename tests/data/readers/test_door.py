"""The door: every option is used or refused, losses are loud, and what was seen is said."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve import Cohort
from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.readers import READERS, ingest, preview, read_cohort

N_REGIONS = 30


def fc(seed):
    return np.corrcoef(np.random.default_rng(seed).normal(size=(N_REGIONS, 90)))


def series(seed):
    return np.random.default_rng(seed).normal(size=(80, N_REGIONS))


@pytest.fixture
def regions(tmp_path):
    path = tmp_path / "atlas.tsv"
    labels = [f"region {letter}{number}" for letter in "ab" for number in range(N_REGIONS // 2)]
    networks = ["x"] * (N_REGIONS // 2) + ["y"] * (N_REGIONS // 2)
    pd.DataFrame({"label": labels, "network": networks}).to_csv(path, sep="\t", index=False)
    return path


def write_arrays(folder, make=fc, n=5, session=""):
    folder.mkdir(exist_ok=True)
    for number in range(n):
        np.save(folder / f"sub-{number:02d}{session}_x.npy", make(number))
    return folder


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("atlas", "cc200", "atlas chooses among several atlases"),
        ("kind", "partial", "kind says how FC is made of time series, and the files hold matr"),
        ("denoise", "none", "denoise is for voxels"),
        ("atlas_image", "atlas.nii", "atlas_image is a label image for voxels"),
        ("variable", "fc", "variable names an array in .mat, .npz or HDF5 files"),
        ("session", "1", "session is '1' and no scan has it"),
        ("task", "rest", "task is 'rest' and no scan has it"),
        ("unfolding", "lower", "unfolding is for vectors"),
        ("fd_threshold", 0.5, "fd_threshold leaves volumes out of time series"),
        ("timeseries", True, "timeseries keeps time series"),
        ("header", "yes", "header is for text files"),
        ("index", "yes", "index is for text files"),
        ("columns", "age=AGE", "columns is about the participants table, and there is none"),
        ("na_values", "999", "na_values is about the participants table"),
        ("visit", "1", "visit is about the participants table"),
        ("ids", ["a", "b"], "ids names the participants of one array"),
    ],
)
def test_an_option_that_does_not_apply_is_refused_and_leaving_it_out_works(
    tmp_path, regions, option, value, words
):
    source = write_arrays(tmp_path / "in")
    with pytest.raises(NerveError, match=words):
        read_cohort(source, order=regions, **{option: value})
    assert len(read_cohort(source, order=regions)) == 5


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("values", "z", "values says what matrices hold, and the files hold time series"),
        ("fd_threshold", 0.5, "fd_threshold .*there are no motion files"),
    ],
)
def test_an_option_for_matrices_is_refused_for_series(tmp_path, regions, option, value, words):
    source = write_arrays(tmp_path / "in", series)
    with pytest.raises(NerveError, match=words):
        read_cohort(source, order=regions, **{option: value})
    cohort = read_cohort(source, order=regions, kind="partial", timeseries=True)
    assert cohort.measure == "partial"
    assert cohort.timeseries is not None


def test_an_order_for_files_with_labels_is_refused(tmp_path, regions):
    labels = pd.read_csv(regions, sep="\t")["label"]
    (tmp_path / "in").mkdir()
    for number in range(3):
        table = pd.DataFrame(fc(number), columns=labels, index=labels)
        table.to_csv(tmp_path / "in" / f"sub-{number}.csv")
    with pytest.raises(NerveError, match="order is the order of files without labels"):
        read_cohort(tmp_path / "in", parcellation=regions, order=regions)
    assert len(read_cohort(tmp_path / "in", parcellation=regions)) == 3


def test_every_reader_names_the_options_that_it_reads():
    known = {"atlas", "variable", "atlas_image", "denoise", "unfolding", "header", "index"}
    for reader in READERS.values():
        assert set(reader.uses) <= known


def test_more_than_a_fifth_of_lost_scans_needs_a_word_and_reasons_are_counted(tmp_path, regions):
    source = write_arrays(tmp_path / "in", n=10)
    for number in (1, 2):
        np.save(source / f"sub-{number:02d}_x.npy", fc(number)[:, :20])
    report = ingest(source, tmp_path / "fifth", order=regions)
    assert report.n_participants == 8
    assert report.plan[-1].topic == "left out"
    assert report.plan[-1].decision == "2 of 10 scans"
    assert "2 (the matrix is 30 x 20" in report.plan[-1].evidence

    (source / "sub-03_x.npy").write_bytes(b"")
    command = ["ingest", str(source), str(tmp_path / "out"), "--order", str(regions)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "3 of 10 scans would be left out, expected at most a fifth" in str(result.exception)
    assert "2: the matrix is 30 x 20" in str(result.exception)
    assert "1: the file is empty" in str(result.exception)
    assert not (tmp_path / "out").exists()
    result = CliRunner().invoke(app, [*command, "--allow-exclusions"])
    assert result.exit_code == 0, result.output
    assert "left out: 3 of 10 scans [2 (the matrix is 30 x 20" in result.output
    assert len(Cohort.load(tmp_path / "out")) == 7


@pytest.mark.parametrize("diagonal", [0.0, np.nan])
def test_matrices_that_may_be_r_or_z_are_refused_until_it_is_typed(tmp_path, regions, diagonal):
    def blanked(seed):
        matrix = fc(seed)
        np.fill_diagonal(matrix, diagonal)
        return matrix

    source = write_arrays(tmp_path / "in", blanked)
    with pytest.raises(NerveError, match='Say which they hold: values="r" or values="z"'):
        read_cohort(source, order=regions)
    as_r = read_cohort(source, order=regions, values="r")
    as_z = read_cohort(source, order=regions, values="z")
    expected = np.stack([fc(number) for number in range(5)])
    np.testing.assert_allclose(as_r.connectivity, expected, atol=1e-6)
    off_diagonal = ~np.eye(N_REGIONS, dtype=bool)
    np.testing.assert_allclose(
        np.asarray(as_z.connectivity)[:, off_diagonal],
        np.tanh(expected[:, off_diagonal]),
        atol=1e-6,
    )


def test_many_regions_without_a_diagonal_or_a_value_beyond_one_hold_r(tmp_path):
    labels = [f"r{number}x" for number in range(100)]
    atlas = pd.DataFrame({"label": labels, "network": ["x"] * 50 + ["y"] * 50})
    atlas.to_csv(tmp_path / "atlas.tsv", sep="\t", index=False)
    (tmp_path / "in").mkdir()
    matrices = [np.corrcoef(np.random.default_rng(seed).normal(size=(100, 290))) for seed in (0, 1)]
    for number, matrix in enumerate(matrices):
        np.fill_diagonal(matrix, 0.0)
        np.save(tmp_path / "in" / f"sub-{number}.npy", matrix)
    for matrix in matrices:
        np.fill_diagonal(matrix, 1.0)
    cohort = read_cohort(tmp_path / "in", order=tmp_path / "atlas.tsv")
    np.testing.assert_allclose(cohort.connectivity, np.stack(matrices), atol=1e-6)


@pytest.mark.parametrize(
    ("endings", "seen", "remedy"),
    [
        ([".parquet"] * 12 + [".rds"] * 3, "12 files .parquet, 3 .rds", "read_parquet"),
        ([".rds"], "1 file .rds", r"write.csv\(readRDS"),
        ([".zip"] * 2, "2 files .zip", "Unpack"),
        ([], "no files at all", "Name the folder"),
    ],
)
def test_no_scans_says_what_was_seen_and_what_would_help(tmp_path, endings, seen, remedy):
    for number, ending in enumerate(endings):
        (tmp_path / f"S{number}{ending}").write_bytes(b"x")
    with pytest.raises(NerveError, match=f"no scans were found among {seen}.*{remedy}"):
        read_cohort(tmp_path, parcellation="schaefer100-17")


def test_the_remedy_for_parquet_works(tmp_path, regions):
    # what the message says: one matrix per participant as .csv, written by pandas
    for number in range(2):
        pd.DataFrame(fc(number)).to_csv(tmp_path / f"S{number}.csv", index=False)
    regions = regions.rename(tmp_path.parent / f"{tmp_path.name}-atlas.tsv")
    assert len(read_cohort(tmp_path, order=regions)) == 2


def test_the_plan_answers_every_question_and_is_kept(tmp_path, regions):
    source = write_arrays(tmp_path / "in", n=6)
    (source / "notes.csv").write_text("a,b\n1,2\n")
    people = pd.DataFrame({"participant_id": range(6), "age": [8, 9, 999, 10, 999, 11]})
    people.to_csv(tmp_path / "people.csv", index=False)
    options = {
        "order": regions,
        "participants": tmp_path / "people.csv",
        "na_values": "999",
    }
    shown = preview(source, **options)
    ingest(source, tmp_path / "out", **options)
    stored = json.loads((tmp_path / "out" / "cohort.json").read_text())["notes"]["plan"]
    assert stored == [line.as_dict() for line in shown.lines]
    lines = {line.topic: f"{line.decision} [{line.evidence}]" for line in shown.lines}
    assert list(lines) == [
        "files",
        "one scan is",
        "header and index",
        "labels",
        "ids",
        "several scans",
        "measure and unit",
        "phenotypes",
        "missing codes",
        "left out",
    ]
    assert lines["files"].startswith("6 files taken: 6 scans")
    assert "1 (another type of file is read)" in lines["files"]
    assert lines["one scan is"].startswith("a matrix of 30 x 30 [6 scans looked at")
    assert "not in the files" in lines["labels"]
    assert lines["ids"] == "names of files and folders [6 participants]"
    assert lines["measure and unit"].startswith("Pearson correlations (r) [a diagonal")
    assert "ids are matched without leading zeros, one to one" in lines["phenotypes"]
    assert lines["missing codes"].startswith("999 (--na-values)")
    assert "cells emptied: 2 of age" in lines["missing codes"]
    assert lines["left out"] == "no scan []"
    cohort = Cohort.load(tmp_path / "out")
    assert cohort.participants["age"].isna().tolist() == [False, False, True, False, True, False]


def test_sessions_and_id_map_are_read_from_files_and_typed_as_the_messages_say(tmp_path, regions):
    source = write_arrays(tmp_path / "in", n=3, session="_ses-pre")
    people = pd.DataFrame(
        {
            "participant_id": ["K7", "K7", "K8", "K8", "K9", "K9"],
            "visit": ["enrol", "after"] * 3,
            "age": [1, 2, 3, 4, 5, 6],
        }
    )
    people.to_csv(tmp_path / "people.csv", index=False)
    command = ["ingest", str(source), str(tmp_path / "out"), "--order", str(regions)]
    command += ["--participants", str(tmp_path / "people.csv")]
    result = CliRunner().invoke(app, command)
    assert "--id-map FILE" in str(result.exception)
    assert "00, 01, 02 of the data and K7, K8, K9 of the table" in str(result.exception)
    (tmp_path / "ids.csv").write_text("data,table\nsub-00,K9\nsub-01,K8\nsub-02,K7\n")
    command += ["--id-map", str(tmp_path / "ids.csv")]
    result = CliRunner().invoke(app, command)
    assert "(after, enrol) are not those of the scans (pre)" in str(result.exception)
    by_visit = CliRunner().invoke(app, [*command, "--visit", "after"])
    assert by_visit.exit_code == 0, by_visit.output
    assert Cohort.load(tmp_path / "out").participants["age"].tolist() == [6, 4, 2]
    (tmp_path / "sessions.tsv").write_text("pre\tenrol\n")
    command += ["--sessions", str(tmp_path / "sessions.tsv"), "--overwrite"]
    by_map = CliRunner().invoke(app, command)
    assert by_map.exit_code == 0, by_map.output
    cohort = Cohort.load(tmp_path / "out")
    assert cohort.participants["age"].tolist() == [5, 3, 1]
    assert cohort.participants["participant_id"].tolist() == ["00", "01", "02"]
    (tmp_path / "ids.csv").write_text("sub-00,K9\nsub-01,K9\n")
    with pytest.raises(NerveError, match=r"line 2 of id_map names .* again"):
        read_cohort(source, order=regions, participants=people, id_map=tmp_path / "ids.csv")


@pytest.mark.slow
def test_undeclared_codes_are_declared_or_confirmed_by_what_the_commands_advise(tmp_path, regions):
    source = write_arrays(tmp_path / "in", n=24)
    rng = np.random.default_rng(0)
    score = [999.0, 999.0, *rng.uniform(8, 21, 22)]
    ids = [f"{number:02d}" for number in range(24)]
    people = pd.DataFrame({"participant_id": ids, "score": score})
    people.to_csv(tmp_path / "people.csv", index=False)
    cohort = str(tmp_path / "out")
    ingest_words = ["ingest", str(source), cohort, "--order", str(regions), "--overwrite"]
    ingest_words += ["--participants", str(tmp_path / "people.csv")]
    assert CliRunner().invoke(app, ingest_words).exit_code == 0
    checked = CliRunner().invoke(app, ["check", cohort, "--out", str(tmp_path / "check.tsv")])
    assert "suspicious" in checked.output
    table = pd.read_csv(tmp_path / "check.tsv", sep="\t").set_index("check")
    assert "--na-values score=999" in table.loc["target score", "detail"]

    evaluate_words = ["evaluate", cohort, "--features", "raw", "--targets", "score"]
    evaluate_words += ["--n-folds", "2", "--n-bootstrap", "10"]
    refused = CliRunner().invoke(app, [*evaluate_words, "--out", str(tmp_path / "results")])
    assert refused.exit_code == 1
    message = str(refused.exception)
    assert "999 stands 2 times far outside" in message
    for advice in ("--na-values score=999", "--confirmed-values score"):
        assert advice in message
    confirmed = [*evaluate_words, "--confirmed-values", "score", "--out", str(tmp_path / "real")]
    done = CliRunner().invoke(app, confirmed)
    assert done.exit_code == 0, done.exception
    done = CliRunner().invoke(app, [*ingest_words, "--na-values", "score=999"])
    assert done.exit_code == 0, done.exception
    assert Cohort.load(cohort).participants["score"].isna().sum() == 2
    done = CliRunner().invoke(app, [*evaluate_words, "--out", str(tmp_path / "declared")])
    assert done.exit_code == 0, done.exception


@pytest.mark.parametrize("words", [["8y1m", "9y2m", "10y"], ["26-30", "31-35", "26-30"]])
def test_ages_in_words_are_refused_and_both_remedies_work(tmp_path, regions, words):
    source = write_arrays(tmp_path / "in", n=3)
    people = pd.DataFrame({"participant_id": [0, 1, 2], "Age": words, "months": [97, 110, 120]})
    people.to_csv(tmp_path / "people.csv", index=False)
    command = ["ingest", str(source), str(tmp_path / "out"), "--order", str(regions)]
    command += ["--participants", str(tmp_path / "people.csv"), "--overwrite"]
    refused = CliRunner().invoke(app, command)
    assert "column Age holds" in str(refused.exception)
    for columns, name in (("age=months", "age"), ("age_in_words=Age", "age_in_words")):
        done = CliRunner().invoke(app, [*command, "--columns", columns])
        assert done.exit_code == 0, done.exception
        assert name in Cohort.load(tmp_path / "out").participants.columns
