"""What lies on disk, known by its content: an array is hashed once, then recognised by its size and times.

`.digests.json` beside the arrays keeps what was read: size, time of writing, time of the last change of any sort (which
nobody can set back) and digest. A file that differs in one of the first three is read again. The file is only a
short cut: where it is missing or cannot be written, the arrays are read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import NerveError
from nerve.files import read_json, write_json

KEPT = ".digests.json"
_CHUNK = 2**24  # bytes read at a time


class ArrayDigest:
    """The digest of an array that comes in pieces along its first axis."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._rows = 0
        self._rest = ""

    def add(self, rows: np.ndarray) -> None:
        """Take in (k, …) more rows."""
        self._hash.update(np.ascontiguousarray(rows).data)
        self._rows += len(rows)
        self._rest = f"{rows.dtype.str} {rows.shape[1:]}"

    def hexdigest(self) -> str:
        """The digest of values, type and shape."""
        complete = self._hash.copy()
        complete.update(f"{self._rows} {self._rest}".encode())
        return complete.hexdigest()[:32]


def digest_of(pieces: Iterable[np.ndarray]) -> str:
    """The digest of an array in pieces."""
    digest = ArrayDigest()
    for piece in pieces:
        digest.add(piece)
    return digest.hexdigest()


def file_digest(path: Path, array: np.ndarray) -> str:
    """The digest of the array that was opened from `path`; it is read only if the file is not the one last read."""
    kept = _kept(path.parent).get(path.name)
    if isinstance(kept, dict) and kept.get("seen") == _seen(path):
        return str(kept.get("digest"))
    step = max(1, _CHUNK // max(1, array[:1].nbytes))
    digest = digest_of(array[start : start + step] for start in range(0, len(array), step))
    remember(path, digest)
    return digest


def remember(path: Path, digest: str) -> None:
    """Keep the digest of a file beside it, if that is possible."""
    kept = _kept(path.parent)
    kept[path.name] = {"seen": _seen(path), "digest": digest}
    with suppress(NerveError):  # a folder that cannot be written to
        write_json(path.parent / KEPT, kept)


def text_digest(*parts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _kept(folder: Path) -> dict[str, Any]:
    with suppress(NerveError):
        content = read_json(folder / KEPT)
        return content if isinstance(content, dict) else {}
    return {}


def _seen(path: Path) -> list[int]:
    stat = os.stat(path)
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
