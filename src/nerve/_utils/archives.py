"""Which files may be opened: regular files, and packed files that unpack to a plausible size.

A few kilobytes can unpack to gigabytes (a zip or gzip bomb). Real data are seldom packed to less
than a hundredth of their size. A packed file that declares or yields more than that is refused
before it fills the memory, unless its content is small.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from nerve._utils.errors import NerveError, problem

_MOST_PACKED = 100  # most bytes of content per byte of a packed file

# bytes of content that are harmless, however few bytes they were packed into
_SMALL_TABLE = 2**25
_SMALL_ARRAY = 2**27
# bytes up to which a table that is not packed is read without counting its cells
LARGE_TABLE = 2**25

# bytes of memory per cell while a table is read, and memory allowed beyond twice the file's size
_BYTES_PER_CELL = 16
_SPARE_BYTES = 350 * 2**20

# ending of a file's name → function that opens it
PACKED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

_NOT_REGULAR = {
    stat.S_IFDIR: "folder",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
}


def refuse_bomb(where: object, packed: int, unpacked: int, small: int = _SMALL_ARRAY) -> None:
    """Refuse a packed file that unpacks to far more than real data would.

    Parameters
    ----------
    where : object
        The file, for the error.
    packed : int
        Its bytes.
    unpacked : int
        Bytes of its content.
    small : int
        Bytes of content that are harmless in any case.
    """
    if unpacked > max(small, _MOST_PACKED * packed):
        raise problem(
            where,
            f"its {packed:,} bytes unpack to {unpacked:,} or more",
            expected=f"at most {_MOST_PACKED} times as many",
            remedy="If this is right, save the file unpacked.",
        )


def require_regular_file(path: Path) -> None:
    """Refuse a folder, a device or a named pipe; ``/dev/fd/63`` of a shell's ``<(…)`` may be read.

    A file that does not exist raises the error of the operating system.

    Parameters
    ----------
    path : Path
        The file that is to be read.
    """
    file_type = _NOT_REGULAR.get(stat.S_IFMT(os.stat(path).st_mode))
    if file_type is None:
        return
    is_shell_pipe = file_type == "pipe" and path.parent.name == "fd"
    if not is_shell_pipe:
        raise NerveError(f"{path}: is a {file_type}, expected a file.")


def open_table(path: Path) -> BinaryIO:
    """Open a table, unpacked if the ending of its name says so.

    Bytes and cells of a packed or large table are counted as it is read. It must not unpack to more
    than real data would, nor have more cells than there can be numbers in a file of its size.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    binary file
        The bytes of the table.
    """
    require_regular_file(path)
    is_packed = path.suffix.lower() in PACKED
    if not is_packed and path.stat().st_size <= LARGE_TABLE:
        return open(path, "rb")
    return io.BufferedReader(_CountedFile(path), 2**20)


class _CountedFile(io.RawIOBase):
    """A file that counts its bytes and cells as they are read, and refuses too many."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._n_bytes = 0
        self._n_cells = 0
        open_file = PACKED.get(path.suffix.lower(), open)
        self._stream = open_file(path, "rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        self._n_bytes += len(content)
        for separator in (b"\t", b",", b" ", b";", b"\n"):
            self._n_cells += content.count(separator)
        if self._n_bytes > self._size:
            refuse_bomb(self._path, self._size, self._n_bytes, _SMALL_TABLE)
        if _BYTES_PER_CELL * self._n_cells > 2 * self._size + _SPARE_BYTES:
            raise problem(
                self._path,
                f"it holds more than {self._n_cells:,} cells in {self._size:,} bytes",
                expected="a table of numbers that are written out",
                remedy="Save such a table as .npy.",
            )
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()
