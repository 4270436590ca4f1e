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
    once, so that a link to a folder above does no harm. What is no file (a pipe, a device) is passed over.
    """
    if not source.is_dir():
        found: Iterator[Path] = iter([source] if source.is_file() or not source.exists() else [])
    else:
        found = _walk(source)
    return sorted(path for path in found if not endings or path.name.endswith(endings))


def place(scan: Scan) -> str:
    """File and participant, for error sentences."""
    return f"{scan.path} (participant {scan.participant})"


def _walk(source: Path) -> Iterator[Path]:
    entered, folders = set(), [str(source)]
    while folders:
        folder = folders.pop()
        real = os.path.realpath(folder)
        if real in entered:
            continue
        entered.add(real)
        for entry in _entries(folder):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                if entry.name not in _NOT_DATA:
                    folders.append(entry.path)
            elif _is_file(entry):
                yield Path(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # a folder that may not be read holds nothing for us
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link that leads nowhere."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True
