"""Finding and opening files of others; errors of parsers become `NerveError`.

Broken links are listed too: what is wrong with them is said when they are read.
"""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from nerve._utils.errors import NerveError, problem

Result = TypeVar("Result")
MENDING = "Fetch or write it again, or leave the participant out."
TEXT = (".csv", ".tsv", ".txt", ".1D", ".csv.gz", ".tsv.gz", ".txt.gz")
# endings of files that nobody reads here → what makes them readable
_REMEDIES = {
    ".rds": "In R: write.csv(readRDS(file), file_csv, row.names = FALSE).",
    ".rdata": "In R: load(file), then write.csv(matrix, file_csv, row.names = FALSE).",
    ".parquet": "In Python: pandas.read_parquet(file).to_csv(file_csv, index=False).",
    ".feather": "In Python: pandas.read_feather(file).to_csv(file_csv, index=False).",
    ".pkl": "A pickle is never opened: save plain numbers with numpy.save.",
    ".pickle": "A pickle is never opened: save plain numbers with numpy.save.",
    ".pt": "A pickle is never opened: save plain numbers with numpy.save.",
    ".zip": "Unpack it first: only text files (.csv, .tsv, .txt) are read inside an archive.",
    ".gz": "Unpack it first.",
    ".tgz": "Unpack it first.",
    ".tar": "Unpack it first.",
    ".7z": "Unpack it first.",
    ".dcm": "DICOM images are preprocessed first, by fMRIPrep for example.",
    ".dtseries.nii": "Series of vertices need --atlas-image FILE.dlabel.nii.",
    ".nii": "Images of voxels need --atlas-image FILE and names as fMRIPrep gives them.",
    ".nii.gz": "Images of voxels need --atlas-image FILE and names as fMRIPrep gives them.",
    ".xlsx": "Save each sheet as .csv.",
    ".json": "Save the numbers as .csv or .npy.",
}
_FOLDERS_WITHOUT_DATA = {"figures", "log", "logs", "work", "scratch"}
# tables and lists that lie beside data
_NOT_DATA = re.compile(
    r"^(participants|regions|labels|dataset_description|subjects?|subjectids|ids|phenotyp\w*|exclusions|readme|license"
    r"|roi_orderkey\w*|roi_centerofmass\w*)\b"
    r"|(_motion|_qc|_confounds\w*|_dseg|_outliers|_events|_participants|_sessions|_scans)\.",
    re.IGNORECASE,
)


def files_below(source: Path, *endings: str) -> list[Path]:
    """List files, sorted.

    Hidden folders (`.git`, `.datalad`) and folders of figures and logs are passed over; a linked
    folder is entered once, so that a link to a folder above does no harm. Only regular files are
    listed, no pipes or devices.

    Parameters
    ----------
    source : Path
        A folder, or a file, which is then the only one.
    *endings : str
        How names must end; any if none is given.

    Returns
    -------
    list of Path
    """
    paths = []
    for path in _walk(source) if source.is_dir() else [source]:
        is_file_or_broken_link = os.path.isfile(path) or not os.path.exists(path)
        if path.name.endswith(endings or "") and is_file_or_broken_link:
            paths.append(path)
    return sorted(paths)


def matching_names(
    paths: Iterable[Path], pattern: re.Pattern[str]
) -> list[tuple[Path, re.Match[str]]]:
    """Choose the files whose whole name matches a pattern.

    Parameters
    ----------
    paths : iterable of Path
    pattern : compiled regular expression

    Returns
    -------
    list of (Path, Match)
        Each of these files, with what the pattern says of its name.
    """
    matching = []
    for path in paths:
        match = pattern.fullmatch(path.name)
        if match is not None:
            matching.append((path, match))
    return matching


def describe_seen(source: Path) -> tuple[str, str]:
    """Say which files lie below a source of which none could be read, and what would help.

    Parameters
    ----------
    source : Path

    Returns
    -------
    seen : str
        `12 files .parquet, 3 .rds`.
    remedy : str
        What makes the commonest of them readable.
    """
    endings: Counter[str] = Counter()
    for path in files_below(source):
        ending = path.suffix
        for double in (".nii.gz", ".dtseries.nii"):
            if path.name.endswith(double):
                ending = double
        endings[ending or "without an ending"] += 1
    if not endings:
        return "no files at all", "Name the folder that holds the matrices or time series."
    first, *others = endings.most_common()
    files = "file" if first[1] == 1 else "files"
    seen = [f"{first[1]} {files} {first[0]}"]
    seen += [f"{n_files} {ending}" for ending, n_files in others[:4]]
    if len(others) > 4:
        seen.append(f"{len(others) - 4} other endings")
    usual = "Save one matrix or time series per participant as .csv, .tsv, .npy or .mat."
    remedies = [
        _REMEDIES[ending.lower()]
        for ending, _ in endings.most_common()
        if ending.lower() in _REMEDIES
    ]
    return ", ".join(seen), " ".join([*dict.fromkeys(remedies[:2]), usual])


def is_data(path: Path) -> bool:
    """Tell whether a file may hold FC, by its name.

    Parameters
    ----------
    path : Path

    Returns
    -------
    bool
        False for a table of participants, and for a file of a cohort.
    """
    return not _NOT_DATA.search(path.name) and not (path.parent / "cohort.json").is_file()


def require_file(path: Path) -> Path:
    """Refuse a path that is not a file with content.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Path
        The same.
    """
    if path.is_symlink() and not path.exists():
        target = path.readlink()
        if "annex" in str(target):
            raise problem(
                path,
                "the link points to a git-annex file that was never fetched",
                remedy="Fetch it with `datalad get`.",
            )
        remedy = "Mend the link or leave the file out."
        raise problem(path, f"the link to {target} is broken", remedy=remedy)
    if path.is_dir():
        raise problem(path, "it is a folder")
    if not path.is_file():
        raise problem(path, "there is no such file or folder")
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
    """Turn the errors of parsers, codecs and the system into a `NerveError`.

    Files are someone else's bytes: each parser has a dozen errors of its own for damaged ones.

    Parameters
    ----------
    where : object
        The file, as the error names it.
    expected : str
        What should be there.
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
        raise problem(where, _describe_error(error), expected=expected, remedy=MENDING) from error


def keep_latest(read: Callable[..., Result]) -> Callable[..., Result]:
    """Make a function of a path keep its latest result until the file changes.

    Parameters
    ----------
    read : callable
        Of a path, and perhaps more arguments.

    Returns
    -------
    callable
    """

    @lru_cache(maxsize=1)
    def read_version(path: Path, modified: int, *arguments: Any) -> Result:
        return read(path, *arguments)

    def read_or_reuse(path: Path, *arguments: Any) -> Result:
        modified = path.stat().st_mtime_ns if path.exists() else 0
        return read_version(path, modified, *arguments)

    return read_or_reuse


def _walk(source: Path) -> Iterator[Path]:
    entered = set()
    # os.walk passes over folders that may not be read
    for folder, subfolders, files in os.walk(source, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:
            subfolders.clear()
            continue
        entered.add(real)
        subfolders[:] = [
            name for name in subfolders if name[0] != "." and name not in _FOLDERS_WITHOUT_DATA
        ]
        for name in files:
            if name[0] != ".":
                yield Path(folder, name)


def _describe_error(error: Exception) -> str:
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
