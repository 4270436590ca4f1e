"""Arrays of `.npy`, `.npz` and MATLAB's `.mat` files: never unpickled, and one sentence when a file is not one.

MATLAB's v5 to v7 go through scipy, v7.3 (HDF5, where arrays lie transposed) through h5py.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io
from numpy.lib import format as npy

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import listed, problem
from nerve.data.readers.mat5 import refuse_unsound
from nerve.data.readers.opening import MENDING, explained_errors, keep_latest, require_file

Shapes = dict[str, tuple[int, ...]]
_NUMERIC = (
    "double",
    "single",
    "int",
    "uint",
    "logical",
    "sparse",
)  # what MATLAB calls arrays of numbers


def array_shapes(path: Path) -> Shapes:
    """Names and shapes of the arrays of numbers in a file, as NumPy or MATLAB shows them; a `.npy` has one, unnamed."""
    if path.suffix == ".npy":
        return {"": read_array(path).shape}
    if path.suffix == ".npz":
        return _npz_shapes(path)
    with _matlab(path) as file:
        if file is None:
            return {
                name: shape
                for name, shape, kind in scipy.io.whosmat(path)
                if kind.startswith(_NUMERIC)
            }
        own = [name for name in file if _is_own(file, name)]
        return {
            name: tuple(reversed(file[name].shape)) for name in own if _holds_numbers(file[name])
        }


def _npz_shapes(path: Path) -> Shapes:
    """From their headers alone; objects are left out."""
    shapes: Shapes = {}
    with (
        explained_errors(require_file(path), "an .npz archive of arrays"),
        zipfile.ZipFile(path) as archive,
    ):
        for member in archive.namelist():
            with archive.open(member) as stream:
                first = npy.read_magic(stream) == (1, 0)
                shape, _, dtype = (
                    npy.read_array_header_1_0 if first else npy.read_array_header_2_0
                )(stream)
            if not dtype.hasobject:
                shapes[member.removesuffix(".npy")] = shape
    return shapes


def read_array(path: Path, name: str = "") -> np.ndarray:
    """One array: that of a `.npy`, memory-mapped, or the one of that name. Arrays of objects are pickles: refused."""
    if path.suffix == ".mat":
        return _read_mat(path, name)
    with explained_errors(require_file(path), "an array of numbers"):
        if path.suffix == ".npz":
            archive = _open_npz(path)
            for member in archive.zip.infolist():
                if member.filename in (name, f"{name}.npy"):
                    refuse_bomb(path, path.stat().st_size, member.file_size)
            return as_numbers(archive[name], path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise problem(path, "it is an archive of arrays", remedy="Name it .npz.")
        return as_numbers(array, path)


def read_slice(path: Path, name: str, index: int, axis: int) -> np.ndarray:
    """One slice along an axis of an array; MATLAB's v7.3 is read only there, other files are read once."""
    if path.suffix != ".mat" or not h5py.is_hdf5(require_file(path)):
        return np.asarray(_whole_array(path, name).take(index, axis))
    with explained_errors(path, "a whole MATLAB file"):
        dataset = own_dataset(_open_hdf5(path), name, path, along=axis)
        backwards = dataset.ndim - 1 - axis  # HDF5 lists MATLAB's column-major axes backwards
        return as_numbers(dataset[(slice(None),) * backwards + (index,)].T, path)


def read_words(path: Path, name: str) -> tuple[str, ...]:
    """A cell array of words (labels, ids) of a `.mat`, as in CBIG's `struct_names.mat`."""
    with _matlab(path) as file:
        if file is None:
            words = np.asarray(
                scipy.io.loadmat(path, variable_names=[name])[name], dtype=object
            ).ravel()
            return tuple(
                str(np.asarray(word).ravel()[0]).strip() if np.size(word) else "" for word in words
            )
        cells = [file[cell] for cell in own_dataset(file, name, path)[()].ravel()]
        for cell in cells:
            refuse_giant(path, cell.shape, cell.dtype.itemsize)
        return tuple("".join(map(chr, np.asarray(cell).ravel())).strip() for cell in cells)


def _read_mat(path: Path, name: str) -> np.ndarray:
    with _matlab(path) as file:
        if file is not None:
            array = own_dataset(file, name, path)[
                ()
            ].T  # HDF5 lists MATLAB's column-major axes backwards
        else:
            array = scipy.io.loadmat(path, variable_names=[name])[name]
        if hasattr(array, "toarray"):
            refuse_giant(path, array.shape, 8)
            array = array.toarray()
        return as_numbers(array, path)


@contextmanager
def _matlab(path: Path) -> Iterator[h5py.File | None]:
    """The HDF5 file of version 7.3; None for an older one, once it is known to be sound.

    The compiled parser of scipy can end the process on a damaged file, so that such a file is refused first.
    """
    with explained_errors(require_file(path), "a whole MATLAB file of version 5 to 7.3"):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                yield file
        else:
            refuse_unsound(path, path)
            yield None


def _is_own(file: Any, name: str) -> bool:
    return isinstance(file.get(name, getlink=True), h5py.HardLink)


def own_dataset(file: Any, name: str, path: Path, along: int | None = None) -> Any:
    """A dataset whose numbers lie in this file, and no more of them (in a slice `along` an axis, or all) than could.

    HDF5 may link to other files, or keep or compose a dataset's numbers there: to read such a file would be to read
    whatever file of the user's it names.

    Parameters
    ----------
    file : h5py.File
    name : str
        Of the dataset.
    path : Path
        Of the file, for errors.
    along : int, optional
        The axis along which one slice is read at a time.

    Returns
    -------
    h5py.Dataset
    """
    if not _is_own(file, name):
        raise problem(
            path, f"{name!r} is a link to another place", expected="numbers in the file itself"
        )
    dataset = file[name]
    if not hasattr(dataset, "is_virtual") or dataset.is_virtual or dataset.external:
        raise problem(
            path, f"{name!r} holds no numbers of its own", expected="numbers in the file itself"
        )
    shape = list(dataset.shape)
    if along is not None and along < len(shape):
        shape[len(shape) - 1 - along] = 1
    refuse_giant(path, shape, dataset.dtype.itemsize)
    return dataset


def refuse_giant(path: Path, shape: Any, itemsize: int) -> None:
    """Refuse an array of more bytes than a file of this size can hold, however it was packed."""
    refuse_bomb(path, path.stat().st_size, itemsize * int(np.prod(shape, dtype=object)))


def _holds_numbers(item: Any) -> bool:
    """Whether it is an array of numbers to MATLAB too, which keeps objects and functions as numbers with a mark."""
    if getattr(item, "shape", None) is None or item.dtype.kind not in "fiub":  # a group, or nothing
        return False
    kind = item.attrs.get("MATLAB_class", b"double")
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    return "MATLAB_object_decode" not in item.attrs and kind.startswith(_NUMERIC)


_whole_array = keep_latest(read_array)


_open_hdf5 = keep_latest(h5py.File)


@keep_latest
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
        raise problem(
            path,
            f"there is no variable {wanted!r}",
            expected=expected,
            remedy="Name it with --variable.",
        )
    found = [name for name in (wanted, *known) if name in shapes]
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1]
    if found or len(matrices) == 1:
        return (found or matrices)[0]
    held, remedy = (
        listed(shapes) or "no arrays",
        "Say which with --variable." if shapes else MENDING,
    )
    raise problem(path, f"it holds {held}", expected="one matrix or time series", remedy=remedy)
