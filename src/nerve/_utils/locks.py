"""One process at a time: locks that the operating system holds, so that a kill frees them.

A lock is a file in which its holder has written its process, and its machine as a number that the machine draws when it
starts: after a kill the file may stay, and be shared with the folder. What counts is the system's lock on the file
(`flock`), not that the file exists: one that a killed process left behind is free, and the next holder removes it when
it is done.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from nerve._utils.errors import NerveError, problem

_HELD = (
    errno.EWOULDBLOCK,
    errno.EACCES,
)  # any other error: this file system knows no locks, and we go on without


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Inside, an error of the operating system becomes one sentence, and so does a name that no file can have."""
    try:
        yield
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and "\0" not in str(path):
            raise
        found = f"could not write ({getattr(error, 'strerror', None) or error})"
        remedy = "Check that the folder exists, can be written to and has space left."
        raise problem(path, found, remedy=remedy) from error


@contextmanager
def holding(path: Path) -> Iterator[bool]:
    """Hold the lock file `path`; gives False, at once, if another process holds it."""
    stream = _opened(path)
    while (mine := _lock(stream, fcntl.LOCK_EX)) and not is_still(path, stream.fileno()):
        stream.close()  # its last holder has just removed it
        stream = _opened(path)
    with stream:
        if not mine:
            yield False
            return
        with suppress(OSError):  # a full disk keeps nobody from holding a lock
            stream.truncate(0)
            os.write(
                stream.fileno(), f"process {os.getpid()} on {_machine()}\n".encode()
            )  # nothing to be flushed
        try:
            yield True
        finally:
            with suppress(OSError):
                path.unlink()  # while it is still held: whoever has opened it sees that it is gone, and opens it anew


def _opened(path: Path) -> IO[str]:
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "a+")


@contextmanager
def only_one(path: Path, what: Path) -> Iterator[None]:
    """Hold the lock file while `what` is written, or refuse in a sentence that names the process which holds it."""
    with holding(path) as mine:
        if not mine:
            who = holder(path) or "another process"
            raise NerveError(
                f"{what}: {who} is writing it. Wait until that has ended, or choose another folder."
            )
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file now."""
    try:
        with open(path) as stream:
            return not _lock(stream, fcntl.LOCK_SH)
    except OSError:
        return False


def holder(path: Path) -> str:
    """Who took the lock last: process, and whether it is one of this machine."""
    try:
        process, _, machine = path.read_text().strip().partition(" on ")
    except (OSError, ValueError):
        return ""
    return (
        f"{process} on {'this' if machine == _machine() else 'another'} machine"
        if machine
        else process
    )


def _machine() -> str:
    """A number that only processes of this machine know, until it starts again; empty where there is none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return ""


def is_still(path: str | Path, descriptor: int) -> bool:
    """Whether the open file is the one that has this name."""
    with suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _lock(stream: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True
