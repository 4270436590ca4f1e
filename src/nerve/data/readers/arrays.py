"""Arrays of `.npy`, `.npz`, HDF5 and MATLAB's `.mat` files; nothing is unpickled.

MATLAB's v5 to v7 go through scipy, v7.3 (HDF5, where arrays lie transposed) through h5py. What lies
inside structs, groups and cell arrays is found by `nerve.data.readers.nested`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
from numpy.lib import format as npy

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import did_you_mean, listed, problem
from nerve.data.readers.nested import (
    HDF5,
    NUMERIC_CLASSES,
    contents_of_hdf5,
    contents_of_mat5,
    dataset_shape,
    open_matlab,
    own_dataset,
    read_cells,
    refuse_giant,
    require_own,
)
from nerve.data.readers.opening import MENDING, explained_errors, keep_latest, require_file

Shapes = dict[str, tuple[int, ...]]


def array_shapes(path: Path) -> Shapes:
    """Names and shapes of the arrays of numbers in a file, as NumPy or MATLAB shows them.

    A `.npy` has one array, without a name.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict
        Name, with the structs or groups above it, → shape. Cells of one shape are a stack.
    """
    if path.suffix == ".npy":
        return {"": read_array(path).shape}
    if path.suffix == ".npz":
        return _npz_shapes(path)
    with open_matlab(path) as file:
        if file is not None:
            is_matlab = path.suffix not in HDF5
            arrays = contents_of_hdf5(file, is_matlab=is_matlab).arrays
            return {
                name: dataset_shape(file, key, is_matlab=is_matlab) for name, key in arrays.items()
            }
        shapes = {}
        for name, shape, matlab_class in scipy.io.whosmat(path):
            if matlab_class.startswith(NUMERIC_CLASSES):
                shapes[name] = shape
        for name, value in contents_of_mat5(path).arrays.items():
            shapes[name] = np.shape(value)
        return shapes


def word_lists(path: Path) -> dict[str, tuple[str, ...]]:
    """The lists of words in a file (labels, ids), by name; of `.npz` also arrays of text.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict
        Name → words.
    """
    if path.suffix == ".npy":
        return {}
    if path.suffix == ".npz":
        return {
            name: tuple(str(word).strip() for word in _read_npz(path, name).ravel())
            for name, (_, kind) in _npz_members(path).items()
            if kind in "US"
        }
    with open_matlab(path) as file:
        if file is None:
            return contents_of_mat5(path).words
        return contents_of_hdf5(file, is_matlab=path.suffix not in HDF5).words


def read_array(path: Path, name: str = "") -> np.ndarray:
    """One array: that of a `.npy`, memory-mapped, or the one of that name.

    Arrays of objects are pickles: refused.

    Parameters
    ----------
    path : Path
    name : str
        With the structs or groups above it.

    Returns
    -------
    array
    """
    if path.suffix == ".npz":
        return as_numbers(_read_npz(path, name), path)
    if path.suffix != ".npy":
        return _read_named(path, name)
    with explained_errors(require_file(path), "an array of numbers"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise problem(path, "it is an archive of arrays", remedy="Name it .npz.")
        return as_numbers(array, path)


def read_slice(path: Path, name: str, index: int, axis: int) -> np.ndarray:
    """One slice along an axis of an array.

    Of HDF5 only that slice is read; other files are read once.

    Parameters
    ----------
    path : Path
    name : str
    index, axis : int

    Returns
    -------
    array
    """
    if path.suffix in (".npy", ".npz") or not h5py.is_hdf5(require_file(path)):
        return np.asarray(_latest_array(path, name).take(index, axis))
    with explained_errors(path, "a whole HDF5 or MATLAB file"):
        file = _open_hdf5(path)
        dataset = require_own(file, _key_of(file, name, path), path)
        if h5py.check_ref_dtype(dataset.dtype) is not None:
            return np.asarray(_latest_array(path, name).take(index, axis))
        # MATLAB's column-major axes are listed backwards
        axis_of_file = dataset.ndim - 1 - axis if path.suffix == ".mat" else axis
        shape = [*dataset.shape[:axis_of_file], *dataset.shape[axis_of_file + 1 :]]
        refuse_giant(path, shape, dataset.dtype.itemsize)
        content = dataset[(slice(None),) * axis_of_file + (index,)]
        return as_numbers(content.T if path.suffix == ".mat" else content, path)


def read_words(path: Path, name: str) -> tuple[str, ...]:
    """A cell array of words (labels, ids) of a `.mat`, as in CBIG's `struct_names.mat`.

    Parameters
    ----------
    path : Path
    name : str

    Returns
    -------
    tuple of str
    """
    words = word_lists(path)
    if name not in words:
        with explained_errors(path, "a list of words"):
            raise KeyError(name)
    return words[name]


def read_cell_array(path: Path, name: str) -> list[np.ndarray]:
    """The arrays of a cell array of MATLAB, which may differ in shape.

    Parameters
    ----------
    path : Path
    name : str

    Returns
    -------
    list of array
    """
    with open_matlab(path) as file:
        if file is None:
            return contents_of_mat5(path).cells[name]
        key = _key_of(file, name, path)
        require_own(file, key, path)
        cells = read_cells(file, key, path)
    if cells is None:
        raise problem(path, f"{name} is no cell array", expected="a cell per region")
    return cells


def as_numbers(array: Any, path: Path) -> np.ndarray:
    """The array, if it holds real numbers."""
    array = np.asanyarray(array)
    if array.dtype.kind not in "fiub":
        kind = "complex numbers" if array.dtype.kind == "c" else f"values of type {array.dtype}"
        raise problem(path, f"it holds {kind}", expected="real numbers")
    return array


def choose_variable(shapes: Shapes, known: Sequence[str], wanted: str | None, path: Path) -> str:
    """The array to read: the one that the user named, a known name, or the only one there is.

    Parameters
    ----------
    shapes : dict
        Names, with the structs or groups above them, → shapes.
    known : sequence of str
        Names of arrays that hold FC or series, the most telling first.
    wanted : str, optional
        What the user named.
    path : Path
        For errors.

    Returns
    -------
    str
    """
    if wanted is not None:
        return named_variable(shapes, wanted, path)
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1]
    for name in known:
        if name in shapes:
            return name
    for name in known:
        nested = [name_in_file for name_in_file in shapes if last_name(name_in_file) == name]
        if len(nested) == 1:
            return nested[0]
        if nested:
            break
    if len(matrices) == 1:
        return matrices[0]
    content = listed(shapes, most=12) or "no arrays"
    remedy = "Say which with --variable." if shapes else MENDING
    raise problem(path, f"it holds {content}", expected="one matrix or time series", remedy=remedy)


def named_variable(shapes: Shapes, wanted: str, path: Path) -> str:
    """The array that the user named, with dots or slashes between structs and groups.

    Parameters
    ----------
    shapes : dict
    wanted : str
    path : Path
        For errors.

    Returns
    -------
    str
    """
    for name in shapes:
        if name.replace("/", ".") == wanted.strip("/").replace("/", "."):
            return name
    raise problem(
        path,
        f"there is no variable {wanted!r}",
        expected=f"one of {listed(shapes, most=12)}",
        remedy=f"Name it with --variable.{did_you_mean(wanted, list(shapes))}",
    )


def last_name(name: str) -> str:
    """The name of an array without the structs or groups above it, in small letters.

    Parameters
    ----------
    name : str

    Returns
    -------
    str

    Examples
    --------
    >>> last_name("results.FC"), last_name("group/fc")
    ('fc', 'fc')
    """
    return name.replace("/", ".").rpartition(".")[2].lower()


def _npz_members(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of the arrays of an archive, from their headers alone.

    Objects are left out.
    """
    members: dict[str, tuple[tuple[int, ...], str]] = {}
    with (
        explained_errors(require_file(path), "an .npz archive of arrays"),
        zipfile.ZipFile(path) as archive,
    ):
        for member in archive.namelist():
            with archive.open(member) as stream:
                if npy.read_magic(stream) == (1, 0):
                    shape, _, dtype = npy.read_array_header_1_0(stream)
                else:
                    shape, _, dtype = npy.read_array_header_2_0(stream)
            if not dtype.hasobject:
                members[member.removesuffix(".npy")] = (shape, dtype.kind)
    return members


def _npz_shapes(path: Path) -> Shapes:
    return {name: shape for name, (shape, kind) in _npz_members(path).items() if kind not in "US"}


def _read_npz(path: Path, name: str) -> Any:
    with explained_errors(require_file(path), "an .npz archive of arrays"):
        archive = _open_npz(path)
        for member in archive.zip.infolist():
            if member.filename in (name, f"{name}.npy"):
                refuse_bomb(path, path.stat().st_size, member.file_size)
        return archive[name]


def _read_named(path: Path, name: str) -> np.ndarray:
    """An array of a MATLAB or HDF5 file by its path in it."""
    with open_matlab(path) as file:
        if file is None:
            nested = contents_of_mat5(path).arrays
            if name in nested:
                array = np.asarray(nested[name])
            else:
                array = scipy.io.loadmat(path, variable_names=[name])[name]
        else:
            key = _key_of(file, name, path)
            dataset = own_dataset(file, key, path)
            cells = read_cells(file, key, path)
            if cells is not None:
                array = np.asarray(cells)
            else:
                array = dataset[()]
                if path.suffix == ".mat":
                    array = array.T  # HDF5 lists MATLAB's column-major axes backwards
        if hasattr(array, "toarray"):
            refuse_giant(path, array.shape, 8)
            array = array.toarray()
        return as_numbers(array, path)


def _key_of(file: h5py.File, name: str, path: Path) -> str:
    """The name of a data set, whose groups stand before slashes."""
    return name.replace(".", "/") if path.suffix == ".mat" and name not in file else name


_latest_array = keep_latest(read_array)


_open_hdf5 = keep_latest(h5py.File)


@keep_latest
def _open_npz(path: Path) -> Any:
    return np.load(path, allow_pickle=False)
