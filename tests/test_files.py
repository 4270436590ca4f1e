"""Files appear whole or not at all."""

import os

import pandas as pd
import pytest

from nerve.checks import NerveError
from nerve.files import (
    atomic_file,
    atomic_folder,
    read_foreign_table,
    read_json,
    read_tsv,
    write_json,
    write_text,
    write_tsv,
)


def test_a_failed_write_keeps_the_old_file_and_leaves_no_draft(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "a.txt", "w") as stream:
        stream.write("new")
        1 / 0  # noqa: B018
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_file_is_replaced_by_a_rename_and_never_written_over(tmp_path):
    write_text(tmp_path / "a.txt", "old and whole")
    with open(tmp_path / "a.txt") as reader:  # somebody reads while it is written again
        write_text(tmp_path / "a.txt", "new")
        assert reader.read() == "old and whole"
    assert (tmp_path / "a.txt").read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failed_folder_keeps_the_old_one(tmp_path):
    with atomic_folder(tmp_path / "f", "x") as draft:
        (draft / "x").write_text("1")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "f", "x", overwrite=True) as draft:
        (draft / "x").write_text("2")
        1 / 0  # noqa: B018
    assert (tmp_path / "f" / "x").read_text() == "1"
    assert os.listdir(tmp_path) == ["f"]


def test_a_folder_is_replaced_whole(tmp_path):
    for content in "12":
        with atomic_folder(tmp_path / "f", "x", overwrite=True) as draft:
            (draft / "x").write_text(content)
    assert (tmp_path / "f" / "x").read_text() == "2"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("name", ["n" * 300, "a\0b", "file/below"])
def test_a_folder_that_cannot_be_made_removes_nothing(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("precious")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NerveError), atomic_folder(name, "x", overwrite=True):
        pytest.fail("the folder was made")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_of_something_else_is_never_replaced(tmp_path, monkeypatch):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(NerveError, match="not replaced"), atomic_folder(tmp_path, "x", overwrite=True):
        pytest.fail("the folder was made")
    (tmp_path / "x").write_text("1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NerveError, match="inside"), atomic_folder(tmp_path, "x", overwrite=True):
        pytest.fail("the folder was made")
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_tables_round_trip_with_missing_values(tmp_path):
    table = pd.DataFrame({"participant_id": ["001", "002"], "score": [1.25, None], "note": ["a\tb", 'say "x"']})
    write_tsv(tmp_path / "t.tsv", table)
    assert "n/a" in (tmp_path / "t.tsv").read_text()
    pd.testing.assert_frame_equal(read_tsv(tmp_path / "t.tsv", dtype={"participant_id": str}), table)


def test_only_our_own_mark_is_missing_in_our_tables(tmp_path):
    (tmp_path / "t.tsv").write_text("label\tx\nNA\t1\nnull\tn/a\n")
    ours, theirs = read_tsv(tmp_path / "t.tsv"), read_foreign_table(tmp_path / "t.tsv")
    assert ours["label"].tolist() == ["NA", "null"]
    assert ours["x"].isna().tolist() == [False, True]
    assert theirs["label"].isna().all()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00\x01", b"a\tb\n1\t2\t3\n4\t5\t6\t7\n"])
def test_unreadable_tables_are_named(tmp_path, content):
    (tmp_path / "t.tsv").write_bytes(content)
    with pytest.raises(NerveError, match=r"t\.tsv"):
        read_tsv(tmp_path / "t.tsv")


def test_missing_and_malformed_json_are_named(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, "é"]})
    assert read_json(tmp_path / "a.json") == {"x": [1, "é"]}
    (tmp_path / "b.json").write_text("{,}")
    for name in ("b.json", "missing.json"):
        with pytest.raises(NerveError, match=name):
            read_json(tmp_path / name)


def test_a_path_that_cannot_be_written_gets_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NerveError, match="could not write"):
        write_text(tmp_path / "file" / "below", "x")
