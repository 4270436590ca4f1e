"""Numbers from `.npy` and `.npz` files: fast, never unpickling, one sentence when a file is not one."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from nerve.checks import listed, problem
from nerve.readers.opening import MENDING, once, require_file, sentences
from nerve.unpacking import refuse_bomb

Shapes = dict[str, tuple[int, ...]]


def read_npy(path: Path) -> np.ndarray:
    """An array, memory-mapped; arrays of objects are pickles and are refused."""
    with sentences(require_file(path), "an array of numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):  # an .npz in disguise
        raise problem(path, "it is an archive of arrays", remedy="Name it .npz.")
    return as_numbers(array, path)


def npz_shapes(path: Path) -> Shapes:
    """Names and shapes of the arrays in an `.npz`, from their headers alone; objects are left out."""
    shapes: Shapes = {}
    with sentences(require_file(path), "an .npz archive of arrays"), zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                first = npy.read_magic(stream) == (1, 0)
                shape, _, dtype = (npy.read_array_header_1_0 if first else npy.read_array_header_2_0)(stream)
            if not dtype.hasobject:
                shapes[member.removesuffix(".npy")] = shape
    return shapes


def read_npz(path: Path, name: str) -> np.ndarray:
    """One array of an `.npz`; only that one is read, and not if it unpacks to far more than the file holds."""
    with sentences(require_file(path), "an array of numbers"):
        archive = _open_npz(path)
        if name not in archive.files:
            raise problem(path, f"there is no array {name!r}")
        for member in archive.zip.infolist():
            if member.filename in (name, f"{name}.npy"):
                refuse_bomb(path, path.stat().st_size, member.file_size)
        return as_numbers(archive[name], path)


whole_npz = once(read_npz)  # an array of all participants is unpacked once


@once
def _open_npz(path: Path) -> Any:
    return np.load(path, allow_pickle=False)


def as_numbers(array: Any, path: Path) -> np.ndarray:
    """The array, if it holds real numbers."""
    array = np.asanyarray(array)
    if array.dtype.kind not in "fiub":
        kind = "complex numbers" if array.dtype.kind == "c" else f"values of type {array.dtype}"
        raise problem(path, f"it holds {kind}", expected="real numbers")
    return array


def choose_variable(shapes: Shapes, known: Sequence[str], wanted: str | None, path: Path) -> str:
    """The array to read: the one that the user named, a known name, or the only one there is."""
    if wanted is not None and wanted not in shapes:
        expected = f"one of {listed(shapes)}"
        raise problem(path, f"there is no variable {wanted!r}", expected=expected, remedy="Name it with --variable.")
    found = [name for name in (wanted, *known) if name in shapes]
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1]
    if found or len(matrices) == 1:
        return (found or matrices)[0]
    raise problem(
        path,
        f"it holds {listed(shapes) or 'no arrays'}",
        expected="one matrix or time series",
        remedy="Say which with --variable." if shapes else MENDING,
    )
