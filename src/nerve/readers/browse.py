"""The files below a source, links that lead nowhere included: they are explained when they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nerve.readers.base import Scan

_NOT_DATA = {"figures", "log", "logs", "work", "scratch"}


def files_below(source: Path, *endings: str) -> list[Path]:
    """Files whose name ends in one of `endings` (any, if none is given), sorted; `source` itself if it is a file.

    Hidden folders (`.git`, `.datalad`) and folders of figures and logs are passed over; a linked folder is entered
    once, so that a link to a folder above does no harm.
    """
    if not source.is_dir():
        found: Iterator[Path] = iter([source] if source.is_file() or source.is_symlink() else [])
    else:
        found = _walk(source)
    return sorted(path for path in found if not endings or path.name.endswith(endings))


def place(scan: Scan) -> str:
    """File and participant, for error sentences."""
    return f"{scan.path} (participant {scan.participant})"


def _walk(source: Path) -> Iterator[Path]:
    entered = set()
    for folder, folders, files in os.walk(source, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_DATA]
        for name in files:
            if not name.startswith("."):
                yield Path(folder, name)
