"""Files appear whole or not at all."""

import os
import re

import pandas as pd
import pytest

from nerve._utils.errors import NerveError
from nerve._utils.files import (
    atomic_file,
    atomic_folder,
    begins_with,
    check_may_write,
    claim,
    read_foreign_table,
    read_json,
    read_tsv,
    record_written,
    write_json,
    write_text,
    write_tsv,
)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's list of open files")
def test_a_file_is_flushed_to_the_disk_before_it_has_its_name_and_the_folder_after(
    tmp_path, monkeypatch
):
    done, replace = [], os.replace
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append("named"), replace(old, new)))
    write_text(tmp_path / "a.txt", "text")
    draft, named, folder = done
    assert (named, folder) == ("named", str(tmp_path))
    assert draft.startswith(str(tmp_path / ".a.txt."))


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
    with atomic_folder(tmp_path / "f") as draft:
        (draft / "x").write_text("1")
    with (
        pytest.raises(ZeroDivisionError),
        atomic_folder(tmp_path / "f", overwrite=True) as draft,
    ):
        (draft / "x").write_text("2")
        1 / 0  # noqa: B018
    assert (tmp_path / "f" / "x").read_text() == "1"
    assert os.listdir(tmp_path) == ["f"]


def test_a_folder_is_replaced_whole(tmp_path):
    for content in "12":
        with atomic_folder(tmp_path / "f", overwrite=True) as draft:
            (draft / "x").write_text(content)
    assert (tmp_path / "f" / "x").read_text() == "2"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("name", ["n" * 300, "a\0b", "file/below"])
def test_a_folder_that_cannot_be_made_removes_nothing(tmp_path, monkeypatch, name):
    (tmp_path / "file").write_text("precious")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NerveError), atomic_folder(name, overwrite=True):
        pytest.fail("the folder was made")
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_of_something_else_is_never_replaced(tmp_path, monkeypatch):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(NerveError, match="not replaced"), atomic_folder(tmp_path, overwrite=True):
        pytest.fail("the folder was made")
    with atomic_folder(tmp_path / "f") as draft:
        (draft / "x").write_text("1")
    monkeypatch.chdir(tmp_path / "f")
    with pytest.raises(NerveError, match="inside"), atomic_folder(tmp_path / "f", overwrite=True):
        pytest.fail("the folder was made")
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_tables_round_trip_with_missing_values(tmp_path):
    table = pd.DataFrame(
        {"participant_id": ["001", "002"], "score": [1.25, None], "note": ["a\tb", 'say "x"']}
    )
    write_tsv(tmp_path / "t.tsv", table)
    assert "n/a" in (tmp_path / "t.tsv").read_text()
    pd.testing.assert_frame_equal(
        read_tsv(tmp_path / "t.tsv", dtype={"participant_id": str}), table
    )


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


def test_a_folder_is_ours_when_new_empty_or_claimed_before(tmp_path):
    claim(tmp_path / "new" / "run")
    write_text(tmp_path / "new" / "run" / "README.md", "ours")
    claim(tmp_path / "new" / "run")
    (tmp_path / "left").mkdir()
    # of a process that was killed before it marked the folder
    (tmp_path / "left" / ".lock").write_text("process 7 on 0123abcd\n")
    (tmp_path / "left" / "..nerve.0123abcd.tmp").write_text("{")
    claim(tmp_path / "left")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "README.md").write_text("precious")
    with pytest.raises(NerveError, match=r"holds README\.md and was not made by nerve"):
        claim(tmp_path / "thesis")
    assert os.listdir(tmp_path / "thesis") == ["README.md"]


@pytest.mark.parametrize("name", ["notes.txt", "locks/mine", ".x.lock", ".x.0123abcd.tmp", "y"])
def test_a_folder_with_something_of_the_users_is_not_replaced(tmp_path, name):
    for content in "12":
        with atomic_folder(tmp_path / "f", overwrite=True) as draft:
            (draft / "x").write_text(content)
    precious = tmp_path / "f" / name
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("precious")
    with (
        pytest.raises(NerveError, match=re.escape(name.split("/")[0])),
        atomic_folder(tmp_path / "f", overwrite=True),
    ):
        pytest.fail("the folder was made")
    assert precious.read_text() == "precious"


def test_a_folder_whose_files_the_user_has_edited_is_not_replaced(tmp_path):
    with atomic_folder(tmp_path / "f") as draft:
        (draft / "x").write_text("1")
        (draft / "y").write_text("1")
    (tmp_path / "f" / "x").write_text("edited")
    with (
        pytest.raises(NerveError, match="x changed after nerve wrote it, so it is not replaced"),
        atomic_folder(tmp_path / "f", overwrite=True),
    ):
        pytest.fail("the folder was made")
    assert (tmp_path / "f" / "x").read_text() == "edited"


def test_a_file_that_has_the_name_of_a_lock_is_not_taken_for_one(tmp_path):
    (tmp_path / ".f.lock").write_text("precious")
    with (
        pytest.raises(NerveError, match=r"\.f\.lock: nerve needs this name for its lock"),
        atomic_folder(tmp_path / "f"),
    ):
        pytest.fail("the folder was made")
    assert (tmp_path / ".f.lock").read_text() == "precious"
    (tmp_path / ".f.lock").write_text("process 7 on 0123abcd\n")  # of a process that was killed
    with atomic_folder(tmp_path / "f") as draft:
        (draft / "x").write_text("1")


@pytest.mark.parametrize("name", ["locks", ".run.lock", ".lock", ".README.md.abc_1234.tmp"])
def test_a_folder_with_what_looks_like_a_leftover_is_not_claimed(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(NerveError, match="was not made by nerve"):
        claim(tmp_path)


def test_a_file_is_replaced_if_it_is_as_we_wrote_it_or_if_the_user_names_it(tmp_path):
    is_ours = begins_with("participant_id", "dim0")
    ours = tmp_path / "e.tsv"
    check_may_write(ours)
    ours.write_text("")
    check_may_write(ours)
    ours.write_text("participant_id\tdim0\tdim1\n")
    with pytest.raises(NerveError, match="not replaced"):
        check_may_write(ours, is_ours=is_ours)
    check_may_write(ours, overwrite=True, is_ours=is_ours)
    record_written(ours)
    check_may_write(ours)
    ours.write_text("participant_id\tdim0\tedited\n")
    with pytest.raises(NerveError, match="not as nerve wrote it"):
        check_may_write(ours)
    (tmp_path / "participants.tsv").write_text("participant_id\tage\n")
    for name in ("participants.tsv", "."):
        with pytest.raises(NerveError, match="not replaced"):
            check_may_write(tmp_path / name, overwrite=True, is_ours=is_ours)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NerveError, match="is a pipe"):
        check_may_write(tmp_path / "pipe", overwrite=True)


def test_where_permissions_cannot_be_changed_files_are_still_written(tmp_path, monkeypatch):
    """As on FAT, and on network mounts of other systems."""

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr("pathlib.Path.chmod", refuse)
    for content in "12":
        write_text(tmp_path / "a.txt", content)
        with atomic_folder(tmp_path / "f", overwrite=True) as draft:
            (draft / "x").write_text(content)
    assert (tmp_path / "a.txt").read_text() == "2"
    assert (tmp_path / "f" / "x").read_text() == "2"


def test_permissions_stay_as_narrow_as_they_were(tmp_path):
    with atomic_folder(tmp_path / "f") as draft:
        (draft / "x").write_text("1")
    write_text(tmp_path / "a.txt", "1")
    usual = (tmp_path / "a.txt").stat().st_mode
    for path, mode in (
        (tmp_path / "f", 0o700),
        (tmp_path / "f" / "x", 0o600),
        (tmp_path / "a.txt", 0o600),
    ):
        path.chmod(mode)
    write_text(tmp_path / "a.txt", "2")
    with atomic_folder(tmp_path / "f", overwrite=True) as draft:
        (draft / "x").write_text("2")
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("f", "f/x", "a.txt")] == [
        "0o700",
        "0o600",
        "0o600",
    ]
    assert usual & 0o777 != 0o600  # a new file is as the user's mask says


def test_what_a_link_leads_to_is_written_and_the_link_stays(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("folder", "file", "new"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    write_text(tmp_path / "file", "1")
    for content in "12":
        with atomic_folder(tmp_path / "folder", overwrite=True) as draft:
            (draft / "x").write_text(content)
    assert (tmp_path / "disk" / "folder" / "x").read_text() == "2"
    assert (tmp_path / "disk" / "file").read_text() == "1"
    assert all((tmp_path / name).is_symlink() for name in ("folder", "file"))
