"""Folders, devices and zip bombs are refused before they fill the memory."""

import gzip
import os

import pandas as pd
import pytest

from nerve._utils import archives as unpacking
from nerve._utils.archives import open_table, refuse_bomb
from nerve._utils.errors import NerveError
from nerve._utils.files import read_json, read_tsv, read_yaml


def test_a_packed_table_is_read(tmp_path):
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    assert read_tsv(tmp_path / "t.tsv.gz").to_dict("list") == {"a": [1], "b": [2]}


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"0\t0\n" * 2**14, b"0" * 2**16], ids=["rows", "one cell"])
def test_a_bomb_is_refused_by_its_unpacked_size(tmp_path, content):
    path = tmp_path / "t.tsv.gz"
    path.write_bytes(gzip.compress(content) * 1200)  # members of a gzip file may follow one another
    with pytest.raises(
        NerveError, match=r"t\.tsv\.gz: its [\d,]+ bytes unpack to .* expected at most 100 times"
    ):
        read_tsv(path)


def test_a_bomb_is_refused_by_its_declared_size():
    refuse_bomb("x", 1, 2**20)  # small
    refuse_bomb("x", 2**24, 2**30)  # as real data are packed
    with pytest.raises(NerveError, match="x: its 10 bytes unpack to"):
        refuse_bomb("x", 10, 2**40)


def test_crowded_cells_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "LARGE_TABLE", 100)
    monkeypatch.setattr(unpacking, "_SPARE_BYTES", 1000)
    path = tmp_path / "t.tsv"
    path.write_bytes(b"0.12345678901234\t0.12345678901234\n" * 100)
    assert len(open_table(path).read()) == 3400
    path.write_bytes(b"0\t" * 5000)
    with pytest.raises(NerveError, match=r"holds more than [\d,]+ cells in 10,000 bytes"):
        open_table(path).read()


@pytest.mark.parametrize("read", [read_tsv, read_json, read_yaml])
def test_folders_devices_and_pipes_are_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name, kind in {
        "pipe": "is a pipe",
        "zero": "is a device",
        "loop": "could not be read",
        ".": "is a folder",
    }.items():
        with pytest.raises(NerveError, match=kind):
            read(tmp_path / name)


def test_a_shells_pipe_is_read():
    ours, theirs = os.pipe()
    os.write(theirs, b"a\n1\n")
    os.close(theirs)
    table = read_tsv(f"/dev/fd/{ours}")
    os.close(ours)
    pd.testing.assert_frame_equal(table, pd.DataFrame({"a": [1]}))
