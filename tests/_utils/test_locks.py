"""One process writes at a time; a killed process blocks no other and leaves nothing half done."""

import errno
import itertools
import multiprocessing
import os
import shutil
import signal
import socket

import filelock
import pytest

from nerve._utils.errors import NerveError
from nerve._utils.files import atomic_file, atomic_folder, write_text
from nerve._utils.locks import holder, holding, is_held, only_one

FORKED = multiprocessing.get_context("fork")  # as real a process as another, without its imports


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory, monkeypatch):
    """Folders are removed here: nothing of value is the current one."""
    monkeypatch.chdir(tmp_path_factory.mktemp("current"))


def wait_inside(block, entered) -> None:
    with block:
        entered.set()
        signal.pause()


def start(block):
    """A process that has entered the block."""
    entered = FORKED.Event()
    process = FORKED.Process(target=wait_inside, args=(block, entered), daemon=True)
    process.start()
    assert entered.wait(600)
    return process


def kill(process) -> None:
    process.kill()
    process.join()


def test_a_lock_names_its_holder_and_leaves_no_file(tmp_path):
    lock = tmp_path / "deep" / "lock"
    with holding(lock) as mine:
        assert mine
        assert is_held(lock)
        assert str(os.getpid()) in holder(lock)
        with (
            pytest.raises(
                NerveError, match=rf"run: process {os.getpid()} on this machine is writing it"
            ),
            only_one(lock, "run"),
        ):
            pass
    assert not is_held(lock)
    assert os.listdir(lock.parent) == []


def test_a_lock_is_given_back_after_an_error_and_after_a_kill(tmp_path):
    lock = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), holding(lock):
        1 / 0  # noqa: B018
    assert not is_held(lock)
    other = start(holding(lock))
    assert is_held(lock)
    kill(other)
    assert (
        socket.gethostname() not in lock.read_text()
    )  # it stays, and may be shared with the folder
    assert lock.exists()
    assert not is_held(lock)
    with holding(lock) as mine:
        assert mine
    assert not lock.exists()


def test_a_folder_that_another_process_writes_is_refused_until_that_process_ends(tmp_path):
    folder = tmp_path / "cohort"
    other = start(atomic_folder(folder))
    with (
        pytest.raises(NerveError, match=rf"cohort: process {other.pid} on this machine"),
        atomic_folder(folder),
    ):
        pass
    kill(other)
    assert not folder.exists()
    with atomic_folder(folder) as draft:
        (draft / "x").write_text("1")
    assert os.listdir(tmp_path) == [
        "cohort"
    ]  # the draft and the lock of the killed one are gone too


def test_drafts_of_killed_processes_are_removed_and_those_of_running_ones_kept(tmp_path):
    file = tmp_path / "scores.tsv"
    dead, alive = (start(atomic_file(file)) for _ in range(2))
    kill(dead)
    assert len(os.listdir(tmp_path)) == 2
    (tmp_path / ".scores.tsv.mine").write_text("of the user")
    write_text(file, "new")
    names = set(os.listdir(tmp_path)) - {"scores.tsv", ".scores.tsv.mine"}
    assert len(names) == 1
    kill(alive)
    with atomic_file(file, "w") as stream:
        stream.write("newer")
    assert set(os.listdir(tmp_path)) == {"scores.tsv", ".scores.tsv.mine"}


def replace_and_die(folder, step) -> None:
    """Replace a folder, and be killed before one of the last steps."""
    count = itertools.count(1)

    def dying(do):
        def last(*arguments, **options):
            if next(count) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return do(*arguments, **options)

        return last

    os.replace, shutil.rmtree = dying(os.replace), dying(shutil.rmtree)
    with atomic_folder(folder, overwrite=True) as draft:
        (draft / "x").write_text("new")


@pytest.mark.parametrize(("step", "kept"), [(1, "old"), (2, "old"), (3, "old"), (4, "new")])
def test_killed_while_a_folder_is_replaced_the_old_or_the_new_one_is_whole(tmp_path, step, kept):
    """An overwrite ends with: record written, old one aside, new one in its place, old one removed. Killed before each of them."""
    folder = tmp_path / "cohort"
    with atomic_folder(folder) as draft:
        (draft / "x").write_text("old")
    process = FORKED.Process(target=replace_and_die, args=(folder, step))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(ZeroDivisionError), atomic_folder(folder, overwrite=True):
        1 / 0  # noqa: B018
    assert (folder / "x").read_text() == kept
    assert os.listdir(tmp_path) == ["cohort"]


def test_on_a_file_system_without_locks_the_work_goes_on(tmp_path, monkeypatch):
    def no_locks(lock) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", no_locks)
    with only_one(tmp_path / "lock", tmp_path / "run"):
        assert (tmp_path / "lock").exists()
    assert os.listdir(tmp_path) == []
