"""What may be opened: files that end, and packed files that do not unpack to far more than data of their size ever do.

A few kilobytes can unpack to gigabytes (a zip or gzip bomb). Real data pack by less than a hundredth, so a packed file
that claims or gives more than that, and more than a small file could need, is refused before it fills the memory.
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

MOST_PACKED = 100  # times smaller than its content
SMALL_TABLE, SMALL_ARRAY = 2**25, 2**27  # bytes: below them any packing is harmless
LARGE_TABLE = 2**25  # bytes: below them no table of numbers is too large
_CELL, _SPARE = 16, 350 * 2**20  # bytes
PACKED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_OTHER_KINDS = {
    stat.S_IFDIR: "folder",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFSOCK: "socket",
}
_OTHER_KINDS[stat.S_IFIFO] = "pipe"


def refuse_bomb(where: object, packed: int, unpacked: int, small: int = SMALL_ARRAY) -> None:
    """Refuse content of `unpacked` bytes in a file of `packed` bytes, where that is no real data's proportion."""
    if unpacked > max(small, MOST_PACKED * packed):
        found, expected = (
            f"its {packed:,} bytes unpack to {unpacked:,} or more",
            f"at most {MOST_PACKED} times as many",
        )
        raise problem(
            where, found, expected=expected, remedy="If it is what it should be, save it unpacked."
        )


def require_ending(path: Path) -> None:
    """Refuse what is no file: a folder, a device, a pipe with a name. (`/dev/fd/63` of a shell's ``<(…)`` is fine.)

    Errors of the system (there is no such file) are left to whoever opens it.
    """
    kind = _OTHER_KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind and not (kind == "pipe" and path.parent.name == "fd"):
        raise NerveError(f"{path}: is a {kind}, expected a file.")


def open_table(path: Path) -> BinaryIO:
    """The bytes of a table, unpacked as the ending of its name says.

    A packed or large one is counted as it is read: it may not unpack to more than real data do, nor hold more cells
    than numbers could be written in its size (each takes sixteen bytes while a table is read).
    """
    require_ending(path)
    if path.suffix.lower() not in PACKED and path.stat().st_size <= LARGE_TABLE:
        return open(path, "rb")
    return io.BufferedReader(_Counted(path), 2**20)


class _Counted(io.RawIOBase):
    """A file that counts what it gives, in bytes and in cells."""

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._given, self._cells = path, path.stat().st_size, 0, 0
        self._stream = PACKED.get(path.suffix.lower(), open)(path, "rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        self._given += len(content)
        self._cells += sum(content.count(mark) for mark in (b"\t", b",", b" ", b";", b"\n"))
        if self._given > self._size:
            refuse_bomb(self._path, self._size, self._given, SMALL_TABLE)
        if _CELL * self._cells > 2 * self._size + _SPARE:
            found = f"it holds more than {self._cells:,} cells in {self._size:,} bytes"
            expected = "a table of numbers that are written out"
            raise problem(self._path, found, expected=expected, remedy="Save such a table as .npy.")
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()
