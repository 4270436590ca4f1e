"""Numbers from `.npy` and `.npz` files: fast, never unpickling, one sentence when a file is not one."""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import NerveError, listed, problem
from nerve.readers.base import require_file
from nerve.readers.text import MENDING, where_is
from nerve.unpacking import refuse_bomb


def read_npy(path: Path, participant: str = "") -> np.ndarray:
    """An array, memory-mapped; arrays of objects are pickles and are refused."""
    require_file(path, participant)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header: whatever numpy stumbles into, tokenize.TokenError among others
        raise _unreadable(path, participant, "an array of numbers", error) from error
    if not isinstance(array, np.ndarray):  # an .npz in disguise
        raise problem(where_is(path, participant), "it is an archive of arrays", remedy="Name it .npz.")
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
                refuse_bomb(where_is(path, participant), path.stat().st_size, member.file_size)
        array = archive[name]
    except NerveError:
        raise
    except KeyError as error:
        raise problem(where_is(path, participant), f"there is no array {name!r}") from error
    except Exception as error:
        raise _unreadable(path, participant, "an array of numbers", error) from error
    return as_numbers(array, path, participant)


@lru_cache(maxsize=1)
def whole_npz(path: Path, name: str, changed: int) -> np.ndarray:
    """One array of an `.npz` that holds many participants, unpacked once; `changed` is when the file changed."""
    return read_npz(path, name)


@lru_cache(maxsize=2)
def _open_npz(path: str, changed: int) -> Any:
    return np.load(path, allow_pickle=False)


def as_numbers(array: Any, path: Path, participant: str = "") -> np.ndarray:
    """The array, if it holds real numbers."""
    array = np.asanyarray(array)
    if array.dtype.kind not in "fiub":
        kind = "complex numbers" if array.dtype.kind == "c" else f"values of type {array.dtype}"
        raise problem(where_is(path, participant), f"it holds {kind}", expected="real numbers")
    return array


def choose_variable(
    shapes: dict[str, tuple[int, ...]], known: tuple[str, ...], wanted: str | None, path: Path, participant: str = ""
) -> str:
    """The array to read: the one that the user named, a known name, or the only one there is."""
    if wanted is not None:
        if wanted in shapes:
            return wanted
        raise problem(
            where_is(path, participant),
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
        where_is(path, participant),
        f"it holds {listed(shapes) or 'no arrays'}",
        expected="one matrix or time series",
        remedy="Say which with --variable." if shapes else MENDING,
    )


def _unreadable(path: Path, participant: str, expected: str, error: BaseException) -> NerveError:
    if "pickle" in str(error).lower() or "Python objects" in str(error):
        cause = "it holds Python objects, and a pickle is never opened"
        return problem(where_is(path, participant), cause, expected=expected, remedy="Save plain numbers instead.")
    cause = f"it cannot be read: {getattr(error, 'strerror', None) or 'it is damaged, cut off or of another kind'}"
    return problem(where_is(path, participant), cause, expected=expected, remedy=MENDING)
