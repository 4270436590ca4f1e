"""Every bad input of the formats page: one sentence with file, participant, what came and what to do; no traceback,

nothing written when the whole source is bad, only that participant left out when the others are sound.
"""

import os
import re
import sys

import numpy as np
import pandas as pd
import pytest
from tests.data.readers.write_formats import write_numbers
from typer.testing import CliRunner

from nerve._utils.errors import NerveError
from nerve.cli import app, main
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import ingest

LABELS = load_parcellation("schaefer100-17").labels


def fc(seed=0):
    return np.corrcoef(np.random.default_rng(seed).normal(size=(100, 150)))


def save(path, array, labels=None):
    write_numbers(path, np.asarray(array, float), labels)


def asymmetric():
    matrix = fc()
    matrix[0, 1] += 0.02
    return matrix


def with_nan_row():
    matrix = fc()
    matrix[4], matrix[:, 4] = np.nan, np.nan
    return matrix


def constant_series():
    series = np.random.default_rng(0).normal(size=(50, 100))
    series[:, 7] = 3.0
    return series


BAD = {
    "not_square": (
        lambda path: save(path, fc()[:99]),
        "the matrix is 99 x 100, expected a square matrix",
    ),
    "not_symmetric": (
        lambda path: save(path, asymmetric()),
        "not symmetric .* by up to 0.02.*expected at most 0.001",
    ),
    "diagonal": (
        lambda path: save(path, fc() + np.eye(100)),
        r"the diagonal runs from 2 to 2, expected 1 \(or all 0\)",
    ),
    "covariances": (
        lambda path: save(path, fc() * np.outer(np.arange(1, 101), np.arange(1, 101))),
        r"expected correlations in \[-1, 1\].*--values z",
    ),
    "nan_rows": (
        lambda path: save(path, with_nan_row()),
        "1 of 100 regions have no data .*--missing drop-region",
    ),
    "wrong_number": (
        lambda path: save(path, fc()[:90, :90]),
        r"90 regions, expected 100 \(schaefer100-17\).*--parcellation",
    ),
    "unknown_labels": (
        lambda path: save(path, fc(), [f"{label}_x" for label in LABELS]),
        "its labels .* lack 100 regions of schaefer100-17.*--parcellation",
    ),
    "empty": (lambda path: path.write_bytes(b""), "the file is empty"),
    "truncated": (lambda path: _truncate(path), "cut off|the matrix is"),
    "text": (
        lambda path: path.write_text("hello\tworld\nfoo\tbar\n"),
        "column 1 holds text \\('bar' in row 1",
    ),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 20), "expected a text file"),
    "gzip": (
        lambda path: path.write_bytes(b"\x1f\x8b\x08\x00" + bytes(50)),
        "it is a gzip file by its content",
    ),
    "pickle": (
        lambda path: path.write_bytes(b"\x80\x04\x95" + bytes(50)),
        "it is a pickle file by its content",
    ),
    "annex": (
        lambda path: path.symlink_to("../.git/annex/objects/aa/bb/MD5E-s1--x.tsv"),
        "git-annex file that was never fetched. Fetch it with `datalad get`",
    ),
    "broken_link": (
        lambda path: path.symlink_to("nowhere.tsv"),
        "the link to nowhere.tsv is broken",
    ),
    "infinite": (
        lambda path: save(path, np.where(np.eye(100, k=3) + np.eye(100, k=-3) > 0, np.inf, fc())),
        "not finite",
    ),
}


def _truncate(path):
    save(path, fc())
    path.write_bytes(path.read_bytes()[:-20000])


@pytest.mark.slow
def test_a_bad_file_costs_only_its_participant(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for i in (1, 2):
        save(source / f"sub-0{i}_fc.tsv", fc(i))
    for i, (write, _) in enumerate(BAD.values(), 10):
        write(source / f"sub-{i}_fc.tsv")
    options = {"parcellation": "schaefer100-17", "format": "plain"}
    with pytest.raises(NerveError, match=r"16 of 18 scans would be left out.*--allow-exclusions"):
        ingest(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    report = ingest(source, tmp_path / "out", allow_exclusions=True, **options)
    assert report.n_participants == 2
    reasons = report.exclusions.set_index("participant_id")["reason"]
    for i, (_, sentence) in enumerate(BAD.values(), 10):
        assert f"sub-{i}_fc.tsv (participant {i})" in reasons[str(i)]
        assert re.search(sentence, reasons[str(i)]), reasons[str(i)]


@pytest.mark.parametrize(
    "case", ["not_square", "nan_rows", "unknown_labels", "empty", "binary", "annex"]
)
def test_a_source_of_nothing_but_bad_files_is_one_sentence_and_nothing_is_written(tmp_path, case):
    source = tmp_path / "in"
    source.mkdir()
    BAD[case][0](source / "sub-09_fc.tsv")
    result = CliRunner().invoke(
        app, ["ingest", str(source), str(tmp_path / "out"), "--parcellation", "schaefer100-17"]
    )
    assert result.exit_code != 0
    assert isinstance(result.exception, (NerveError, SystemExit)), result.exception
    assert os.listdir(tmp_path) == ["in"]


def test_constant_series_are_named(tmp_path):
    save(tmp_path / "sub-01.tsv", constant_series())
    with pytest.raises(NerveError, match=f"1 of 100 regions have no data \\({LABELS[7]}\\)"):
        ingest(tmp_path, tmp_path / "out", parcellation="schaefer100-17", data="series")


def test_too_few_volumes_are_named(tmp_path):
    save(tmp_path / "sub-01.tsv", constant_series()[:6])
    with pytest.raises(
        NerveError, match=r"sub-01\.tsv \(participant 01\): the time series has 6 usable volumes"
    ):
        ingest(tmp_path, tmp_path / "out", parcellation="schaefer100-17")


def test_the_same_person_twice_in_the_table_is_refused(tmp_path):
    save(tmp_path / "sub-01.tsv", fc())
    table = pd.DataFrame({"participant_id": ["01", "sub-01"], "age": [3, 4]})
    with pytest.raises(
        NerveError, match=r"1 participant has several rows \(01\), expected one row per participant"
    ):
        ingest(tmp_path, tmp_path / "out", parcellation="schaefer100-17", participants=table)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "out"], "nowhere: there is no such file or folder."),
        (
            ["empty", "out"],
            "empty: no scans were found among no files at all, expected one of xcpd",
        ),
        (["good", "out"], "100 regions and no usable labels. Say in which order they are"),
        (
            ["good", "out", "--parcellation", "schaefer100"],
            "say which, schaefer100-17, schaefer100-7",
        ),
        (
            ["good", "out", "--parcellation", "schaefer100-17", "--repeats", "mean"],
            "--repeats is 'mean', expected one of",
        ),
        (
            ["good", "out", "--parcellation", "schaefer100-17", "--participants", "x.tsv"],
            "x.tsv: it could not be read",
        ),
        (
            ["good", "out", "--format", "xcp"],
            "--format is 'xcp', expected one of .* Did you mean 'xcpd'",
        ),
    ],
)
def test_whole_sources_and_options_on_the_command_line(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "good").mkdir()
    save(tmp_path / "good/sub-01.tsv", fc())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["nerve", "ingest", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 1
    assert len(said.strip().splitlines()) == 1
    assert re.search(sentence, said), said
    assert sorted(os.listdir(tmp_path)) == ["empty", "good"]
