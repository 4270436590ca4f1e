"""The files below a source, links that lead nowhere included: they are explained when they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

TEXT = (".csv", ".tsv", ".txt", ".1D", ".csv.gz", ".tsv.gz", ".txt.gz")
_FOLDERS_WITHOUT_DATA = {"figures", "log", "logs", "work", "scratch"}
# tables and lists that lie beside data
_NOT_DATA = re.compile(
    r"^(participants|regions|labels|dataset_description|subjects?|subjectids|ids|phenotyp\w*|exclusions|readme|license"
    r"|roi_orderkey\w*|roi_centerofmass\w*)\b"
    r"|(_motion|_qc|_confounds\w*|_dseg|_outliers|_events|_participants|_sessions|_scans)\.",
    re.IGNORECASE,
)


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


def is_data(path: Path) -> bool:
    """Whether a file may hold FC by its name: it is no table of participants, and not part of a cohort."""
    return not _NOT_DATA.search(path.name) and not (path.parent / "cohort.json").is_file()


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
                if entry.name not in _FOLDERS_WITHOUT_DATA:
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
