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

from nerve.checks import NerveError, problem

MOST_PACKED = 100  # times smaller than its content
SMALL_TABLE, SMALL_ARRAY = 2**25, 2**27  # bytes: below them any packing is harmless
_PACKED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_OTHER_KINDS = {stat.S_ISDIR: "folder", stat.S_ISCHR: "device", stat.S_ISBLK: "device", stat.S_ISSOCK: "socket"}


def refuse_bomb(where: object, packed: int, unpacked: int, small: int = SMALL_ARRAY) -> None:
    """Refuse content of `unpacked` bytes in a file of `packed` bytes, where that is no real data's proportion."""
    if unpacked > max(small, MOST_PACKED * packed):
        raise problem(
            where,
            f"its {packed:,} bytes unpack to {unpacked:,} or more",
            expected=f"at most {MOST_PACKED} times as many",
            remedy="If it is what it should be, save it unpacked.",
        )


def require_ending(path: Path) -> None:
    """Refuse what is no file: a folder, a device, a pipe with a name. (`/dev/fd/63` of a shell's ``<(…)`` is fine.)

    Errors of the system (there is no such file) are left to whoever opens it.
    """
    mode = os.stat(path).st_mode
    kind = next((name for is_kind, name in _OTHER_KINDS.items() if is_kind(mode)), "")
    if stat.S_ISFIFO(mode) and path.parent.name != "fd":
        kind = "pipe"
    if kind:
        raise NerveError(f"{path}: is a {kind}, expected a file.")


def open_table(path: Path) -> BinaryIO:
    """The bytes of a table, unpacked as the ending of its name says, but never more than real data unpack to."""
    require_ending(path)
    if path.suffix.lower() not in _PACKED:
        return open(path, "rb")
    return io.BufferedReader(_Unpacked(path), 2**20)


class _Unpacked(io.RawIOBase):
    """A packed file that counts what it gives."""

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._given = path, path.stat().st_size, 0
        self._stream = _PACKED[path.suffix.lower()](path, "rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        self._given += len(content)
        refuse_bomb(self._path, self._size, self._given, SMALL_TABLE)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._stream.close()
        super().close()
