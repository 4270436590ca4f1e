"""Locks, by `filelock`: the operating system holds them, so that killing a process frees its locks.

The holder writes its process number into the lock file, so that others can say which process is at
work, and the number that its machine draws at each start. The name of the machine is not written: a
lock file that a killed process leaves may be passed on with the folder. Such a file does not lock
anything, and the next holder removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from nerve._utils.errors import NerveError, problem

# errors of file systems that have no locks (some network mounts): the work goes on without them
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


@contextmanager
def explaining_write_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system inside into one sentence.

    Parameters
    ----------
    path : Path
        What is written inside. Python's error about a null byte in its name is explained too.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and "\0" not in str(path):
            raise
        reason = getattr(error, "strerror", None) or error
        raise problem(
            path,
            f"could not write ({reason})",
            remedy="Check that the folder exists, can be written to and has space left.",
        ) from error


@contextmanager
def holding(path: Path) -> Iterator[bool]:
    """Hold a lock file, if no other process does.

    Parameters
    ----------
    path : Path
        The lock file. It is removed at the end.

    Yields
    ------
    bool
        Whether the lock is held; False, at once, if another process holds it.
    """
    # Checked first, because taking a lock empties its file, and giving it back removes the file.
    if path.is_file() and not is_lock_file(path):
        raise problem(
            path,
            "nerve needs this name for its lock, but the file is not a lock of nerve",
            remedy="Move it elsewhere: nothing of yours is replaced.",
        )
    lock = filelock.FileLock(path, blocking=False, fallback_to_soft=False)
    with explaining_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except filelock.Timeout:
            held = False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            held = True
        else:
            held = True
    if not held:
        yield False
        return
    with suppress(OSError):  # the lock is held also if the disk is full
        path.write_text(f"process {os.getpid()} on {_machine_number()}\n")
    try:
        yield True
    finally:
        # Removed while it is held: a process that has opened it meanwhile sees that, and tries again.
        with suppress(OSError):
            path.unlink()
        lock.release()


@contextmanager
def only_one(path: Path, target: Path) -> Iterator[None]:
    """Hold a lock file while something is written, or raise an error that names its holder.

    Parameters
    ----------
    path : Path
        The lock file.
    target : Path
        What is written, for the error.
    """
    with holding(path) as held:
        if not held:
            process = holder(path) or "another process"
            raise NerveError(
                f"{target}: {process} is writing it. "
                "Wait until that has ended, or choose another folder."
            )
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds a lock file now.

    Parameters
    ----------
    path : Path
        The lock file.

    Returns
    -------
    bool
        False also where there is no such file.
    """
    try:
        with open(path) as stream:
            # shared, so that several processes can check at the same time
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_lock_file(path: Path) -> bool:
    """Whether a file is one that a holder of a lock wrote, or is about to write.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    bool
        False for a file with any other content.
    """
    try:
        if not path.is_file():
            return False
        with open(path, "rb") as stream:
            content = stream.read(200)
    except OSError:
        return False
    return re.fullmatch(rb"(process \d+ on [0-9a-f]+\n)?", content) is not None


def holder(path: Path) -> str:
    """Name the process that took a lock last.

    Parameters
    ----------
    path : Path
        The lock file.

    Returns
    -------
    str
        The process, and whether it is one of this machine; empty if there is no such lock.
    """
    try:
        process, _, machine = path.read_text().strip().partition(" on ")
    except (OSError, ValueError):
        return ""
    if not machine:
        return process
    place = "this machine" if machine == _machine_number() else "another machine"
    return f"{process} on {place}"


def _machine_number() -> str:
    """A number of this machine: on Linux the one that it draws when it starts."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return hashlib.blake2b(platform.node().encode(), digest_size=4).hexdigest()
