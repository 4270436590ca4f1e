"""Numbers from text, `.npy`, `.npz` and `.mat` files: fast, never unpickling, one sentence when a file is not one."""

from __future__ import annotations

import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.readers.base import require_file
from nerve.unpacking import open_table, refuse_bomb

MISSING_WORDS = ("n/a", "na", "nan", "")
_INDEX_NAMES = ("", "node", "label", "labels", "region", "roi", "name", "unnamed: 0")
_LONGEST_LINE = 1 << 24  # bytes: the names of 100,000 columns
_TAIL = 1 << 20  # bytes: more than the longest line of 4,000 regions
_MENDING = "Fetch or write it again, or leave the participant out."


def read_numbers(path: Path, participant: str = "") -> tuple[np.ndarray, tuple[str, ...] | None]:
    """A table of numbers and its column labels, if it has any.

    Tabs, commas, semicolons or blanks; with or without a header (`#1 #2 …` of `.1D` files too) and an index column.
    Empty cells and ``n/a`` are NaN.

    Returns
    -------
    numbers : (rows, columns) float64 array
    labels : tuple of str or None
        The header, without the name of the index column.
    """
    require_file(path, participant)
    separator, first, second = _first_lines(path, participant)
    has_header = any(not _is_number(word) for word in first[1:]) or (len(first) == 1 and not _is_number(first[0]))
    body = second if has_header else first
    has_index = bool(body) and not _is_number(body[0])
    if has_header and len(first) == len(body) and first[0].lower() in _INDEX_NAMES:
        has_index = True
    try:
        with open_table(path) as stream:
            table = _parsed(stream, separator, has_header, has_index)
        numbers = table.to_numpy(np.float64)
    except NerveError:
        raise
    except (ValueError, OSError, EOFError, OverflowError, MemoryError, zlib.error) as error:
        raise _unreadable(path, participant, "a table of numbers", error) from error
    if not numbers.size:
        raise problem(_where(path, participant), "it holds no numbers", expected="a table of numbers", remedy=_MENDING)
    _refuse_cut_line(path, numbers, separator, participant)
    if not has_header:
        return numbers, None
    labels = tuple(word.lstrip("#") for word in (first[1:] if has_index and len(first) == len(body) else first))
    if len(labels) != numbers.shape[1]:
        raise problem(
            _where(path, participant), f"{len(labels)} labels stand above {numbers.shape[1]} columns of numbers"
        )
    return numbers, labels


def _parsed(stream: BinaryIO, separator: str, has_header: bool, has_index: bool) -> pd.DataFrame:
    return pd.read_csv(
        stream,
        sep=separator,
        header=None,
        skiprows=1 if has_header else 0,
        index_col=0 if has_index else None,
        na_values=["n/a"],
        low_memory=False,
    )


def read_npy(path: Path, participant: str = "") -> np.ndarray:
    """An array, memory-mapped; arrays of objects are pickles and are refused."""
    require_file(path, participant)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header: whatever numpy stumbles into, tokenize.TokenError among others
        raise _unreadable(path, participant, "an array of numbers", error) from error
    if not isinstance(array, np.ndarray):  # an .npz in disguise
        raise problem(_where(path, participant), "it is an archive of arrays", remedy="Name it .npz.")
    return as_numbers(array, path, participant)


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays in an `.npz`, from their headers alone; objects are left out."""
    require_file(path)
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as stream:
                    version = np.lib.format.read_magic(stream)
                    read = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, _, dtype = read(stream)
                if not dtype.hasobject:
                    shapes[member.removesuffix(".npy")] = shape
    except Exception as error:  # a damaged archive: zipfile, zlib, struct and numpy each have errors of their own
        raise _unreadable(path, "", "an .npz archive of arrays", error) from error
    return shapes


def read_npz(path: Path, name: str, participant: str = "") -> np.ndarray:
    """One array of an `.npz`; only that one is read, and not if it unpacks to far more than the file holds."""
    try:
        archive = _open_npz(str(path), path.stat().st_mtime_ns)
        for member in archive.zip.infolist() if archive.zip else []:
            if member.filename in (name, f"{name}.npy"):
                refuse_bomb(_where(path, participant), path.stat().st_size, member.file_size)
        array = archive[name]
    except NerveError:
        raise
    except KeyError as error:
        raise problem(_where(path, participant), f"there is no array {name!r}") from error
    except Exception as error:
        raise _unreadable(path, participant, "an array of numbers", error) from error
    return as_numbers(array, path, participant)


@lru_cache(maxsize=1)
def whole_npz(path: Path, name: str, changed: int) -> np.ndarray:
    """One array of an `.npz` that holds many people, unpacked once; `changed` is the time at which the file changed."""
    return read_npz(path, name)


@lru_cache(maxsize=2)
def _open_npz(path: str, changed: int) -> Any:
    return np.load(path, allow_pickle=False)


def as_numbers(array: Any, path: Path, participant: str = "") -> np.ndarray:
    """The array, if it holds real numbers."""
    array = np.asanyarray(array)
    if array.dtype.kind not in "fiub":
        kind = "complex numbers" if array.dtype.kind == "c" else f"values of type {array.dtype}"
        raise problem(_where(path, participant), f"it holds {kind}", expected="real numbers")
    return array


def choose_variable(
    shapes: dict[str, tuple[int, ...]], known: tuple[str, ...], wanted: str | None, path: Path, participant: str = ""
) -> str:
    """The array to read: the one that the user named, a known name, or the only one there is."""
    if wanted is not None:
        if wanted in shapes:
            return wanted
        raise problem(
            _where(path, participant),
            f"there is no variable {wanted!r}",
            expected=f"one of {listed(shapes)}",
            remedy="Name it with --variable.",
        )
    for name in known:
        if name in shapes:
            return name
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1]
    if len(matrices) == 1:
        return matrices[0]
    raise problem(
        _where(path, participant),
        f"it holds {listed(shapes) or 'no arrays'}",
        expected="one matrix or time series",
        remedy="Say which with --variable." if shapes else _MENDING,
    )


def _first_lines(path: Path, participant: str) -> tuple[str, list[str], list[str]]:
    """The separator, and the first two lines that are not empty cut at it."""
    disguises = {b"\x1f\x8b": "gzip", b"PK": "zip", b"\x80\x04": "pickle", b"\x80\x05": "pickle", b"\x93N": "NumPy"}
    try:
        with open_table(path) as stream:
            lines = [stream.readline(_LONGEST_LINE) for _ in range(2)]
        if lines[0][:2] in disguises:
            found = f"it is a {disguises[lines[0][:2]]} file by its content"
            raise problem(_where(path, participant), found, expected="a text file of numbers")
        if len(lines[0]) == _LONGEST_LINE:
            raise problem(_where(path, participant), "its first line does not end", expected="a table of numbers")
        first, second = (line.decode("utf-8-sig") for line in lines)
    except NerveError:
        raise
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, participant, "a text file", error) from error
    if "\0" in first:
        raise problem(_where(path, participant), "it is a binary file", expected="a text file of numbers")
    if not first.strip():
        raise problem(_where(path, participant), "its first line is empty", expected="numbers", remedy=_MENDING)
    separator = next((mark for mark in "\t,;" if mark in first.strip("\r\n")), r"\s+")
    return separator, _cut(first, separator), _cut(second, separator)


def _refuse_cut_line(path: Path, numbers: np.ndarray, separator: str, participant: str) -> None:
    """Pandas fills a short last line with missing values; it means that the file was cut off."""
    if not len(numbers) or not np.isnan(numbers[-1, -1]) or path.suffix == ".gz":
        return
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL))
        lines = stream.read().decode("utf-8", "replace").rstrip().splitlines()
    found = len(_cut(lines[-1], separator))
    if len(lines) > 1 and found < numbers.shape[1]:
        raise problem(
            _where(path, participant),
            f"the last line has {found} of {numbers.shape[1]} values: the file was cut off",
            remedy=_MENDING,
        )


def _cut(line: str, separator: str) -> list[str]:
    line = line.rstrip("\r\n")
    words = line.split() if separator == r"\s+" else line.split(separator)
    return [word.strip().strip('"') for word in words]


def _is_number(word: str) -> bool:
    if word.lower() in MISSING_WORDS:
        return True
    try:
        float(word)
    except ValueError:
        return False
    return True


def _where(path: Path, participant: str) -> str:
    return f"{path} (participant {participant})" if participant else str(path)


def _unreadable(path: Path, participant: str, expected: str, error: BaseException) -> NerveError:
    cause = str(error).splitlines()[0].strip() if str(error).strip() else type(error).__name__
    if "pickle" in cause.lower() or "Python objects" in cause:
        cause = "it holds Python objects, and a pickle is never opened"
        return problem(_where(path, participant), cause, expected=expected, remedy="Save plain numbers instead.")
    return problem(_where(path, participant), f"it cannot be read ({cause})", expected=expected, remedy=_MENDING)
