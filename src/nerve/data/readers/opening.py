"""Finding and opening others' files: what a parser stumbles into becomes one sentence.

Links that lead nowhere are found too: they are explained when they are read.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from nerve._utils.errors import NerveError, problem

Result = TypeVar("Result")
MENDING = "Fetch or write it again, or leave the participant out."
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
    found = _walk(source) if source.is_dir() else [source]
    named = [path for path in found if path.name.endswith(endings or "")]
    return sorted(path for path in named if os.path.isfile(path) or not os.path.exists(path))


def is_data(path: Path) -> bool:
    """Whether a file may hold FC by its name: it is no table of participants, and not part of a cohort."""
    return not _NOT_DATA.search(path.name) and not (path.parent / "cohort.json").is_file()


def _walk(source: Path) -> Iterator[Path]:
    entered = set()
    for folder, folders, files in os.walk(
        source, followlinks=True
    ):  # which passes over what may not be read
        real = os.path.realpath(folder)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = [
            name for name in folders if name[0] != "." and name not in _FOLDERS_WITHOUT_DATA
        ]
        yield from (Path(folder, name) for name in files if name[0] != ".")


def require_file(path: Path) -> Path:
    """The path, if it holds content; otherwise one sentence about what it is instead."""
    if path.is_symlink() and not path.exists():
        found, remedy = (
            f"the link to {path.readlink()} is broken",
            "Mend the link or leave the file out.",
        )
        if "annex" in str(path.readlink()):
            found, remedy = (
                "the link points to a git-annex file that was never fetched",
                "Fetch it with `datalad get`.",
            )
        raise problem(path, found, remedy=remedy)
    if not path.is_file():
        raise problem(
            path, "it is a folder" if path.is_dir() else "there is no such file or folder"
        )
    if path.stat().st_size == 0:
        raise problem(path, "the file is empty", remedy=MENDING)
    with open(path, "rb") as stream:
        start = stream.read(64)
    if b"annex/objects" in start or start.startswith(b"version https://git-lfs"):
        raise problem(
            path,
            "the file is a placeholder whose content was never fetched",
            remedy="Use `datalad get`.",
        )
    return path


@contextmanager
def explained_errors(where: object, expected: str) -> Iterator[None]:
    """Inside, what a parser, a codec or the system stumbles into becomes one sentence without their words.

    Files are someone else's bytes: each parser has a dozen errors of its own for damaged ones.
    """
    try:
        yield
    except NerveError:
        raise
    except MemoryError as error:
        raise problem(where, "there is not enough memory to read it") from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename and error.strerror:
            raise problem(where, f"it could not be read ({error.strerror})") from error
        raise problem(where, _found(error), expected=expected, remedy=MENDING) from error


def _found(error: Exception) -> str:
    words = str(error)
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", words)
    if ragged:
        return f"line {ragged[2]} has {ragged[3]} values and the lines before it have {ragged[1]}"
    if type(error) is KeyError and error.args:
        return f"it has no variable {error.args[0]!r}"
    if isinstance(error, pd.errors.EmptyDataError):
        return "it holds no rows"
    if isinstance(error, (EOFError, zlib.error)):
        return "the packed file is damaged or cut off"
    if "pickle" in words.lower() or "Python objects" in words:
        return "it holds Python objects, and a pickle is never opened"
    return "it could not be read: it is damaged, cut off or of another kind"


def keep_latest(read: Callable[..., Result]) -> Callable[..., Result]:
    """The same function of a path (and more), whose latest result is kept until the file changes."""

    @lru_cache(maxsize=1)
    def kept(path: Path, changed: int, *rest: Any) -> Result:
        return read(path, *rest)

    def found(path: Path, *rest: Any) -> Result:
        return kept(path, path.stat().st_mtime_ns if path.exists() else 0, *rest)

    return found
