"""MATLAB files: v5 to v7 through scipy, v7.3 (HDF5, where arrays lie transposed) through h5py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import problem
from nerve.readers.arrays import as_numbers
from nerve.readers.mat5 import refuse_unsound
from nerve.readers.opening import once, require_file, sentences
from nerve.unpacking import refuse_bomb

_NUMERIC = ("double", "single", "int", "uint", "logical", "sparse")  # what MATLAB calls arrays of numbers


def mat_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the numeric arrays in a `.mat`, as MATLAB shows them."""
    with _opened(path) as (scipy_io, file):
        if file is None:
            return {name: shape for name, shape, kind in scipy_io.whosmat(path) if kind.startswith(_NUMERIC)}
        import h5py

        own = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
        return {name: tuple(reversed(file[name].shape)) for name in own if _holds_numbers(file[name])}


def read_mat(path: Path, name: str) -> np.ndarray:
    """One array of a `.mat`, as MATLAB shows it."""
    with _opened(path) as (scipy_io, file):
        if file is not None:
            array = own_dataset(file, name, path)[()].T  # HDF5 lists MATLAB's column-major axes backwards
        else:
            array = scipy_io.loadmat(path, variable_names=[name])[name]
        if hasattr(array, "toarray"):
            _refuse_bomb(path, array.shape, 8)
            array = array.toarray()
        return as_numbers(array, path)


def read_mat_slice(path: Path, name: str, index: int, axis: int) -> np.ndarray:
    """One slice along an axis of an array; a v7.3 file is read only there, an older one is read once."""
    if not _is_hdf5(require_file(path)):
        return _whole_mat(path, name).take(index, axis)
    with sentences(path, "a whole MATLAB file"):
        dataset = own_dataset(_open_hdf5(path), name, path, along=axis)
        backwards = dataset.ndim - 1 - axis  # HDF5 lists MATLAB's column-major axes backwards
        return as_numbers(dataset[(slice(None),) * backwards + (index,)].T, path)


def read_mat_words(path: Path, name: str) -> tuple[str, ...]:
    """A cell array of words (labels, ids), as in CBIG's `struct_names.mat`."""
    with _opened(path) as (scipy_io, file):
        if file is None:
            words = np.asarray(scipy_io.loadmat(path, variable_names=[name])[name], dtype=object).ravel()
            return tuple(str(np.asarray(word).ravel()[0]).strip() if np.size(word) else "" for word in words)
        cells = [file[cell] for cell in own_dataset(file, name, path)[()].ravel()]
        for cell in cells:
            _refuse_bomb(path, cell.shape, cell.dtype.itemsize)
        return tuple("".join(map(chr, np.asarray(cell).ravel())).strip() for cell in cells)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Any]]:
    """scipy.io and None, or None and the HDF5 file of version 7.3.

    The compiled parser of scipy can end the process on a damaged file, so that such a file is refused first.
    """
    with sentences(require_file(path), "a whole MATLAB file of version 5 to 7.3"):
        if _is_hdf5(path):
            import h5py

            with h5py.File(path, "r") as file:
                yield None, file
        else:
            import scipy.io

            refuse_unsound(path, path)
            yield scipy.io, None


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as stream:
        start = stream.read(520)
    return b"\x89HDF" in (start[:4], start[512:516])


def own_dataset(file: Any, name: str, path: Path, along: int | None = None) -> Any:
    """A dataset whose numbers lie in this file, and no more of them (in a slice `along` an axis, or all) than could.

    HDF5 may link to other files, or keep or compose a dataset's numbers there: to read such a file would be to read
    whatever file of the user's it names.
    """
    import h5py

    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise problem(path, f"{name!r} is a link to another place", expected="numbers in the file itself")
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
        raise problem(path, f"{name!r} holds no numbers of its own", expected="numbers in the file itself")
    shape = list(dataset.shape)
    if along is not None and along < len(shape):
        shape[len(shape) - 1 - along] = 1
    _refuse_bomb(path, shape, dataset.dtype.itemsize)
    return dataset


def _refuse_bomb(path: Path, shape: Any, itemsize: int) -> None:
    refuse_bomb(path, path.stat().st_size, itemsize * int(np.prod(shape, dtype=object)))


def _holds_numbers(item: Any) -> bool:
    """Whether it is an array of numbers to MATLAB too, which keeps objects and functions as numbers with a mark."""
    import h5py

    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub" or item.shape is None:
        return False
    kind = item.attrs.get("MATLAB_class", b"double")
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    return "MATLAB_object_decode" not in item.attrs and kind.startswith(_NUMERIC)


_whole_mat = once(read_mat)


@once
def _open_hdf5(path: Path) -> Any:
    import h5py

    return h5py.File(path, "r")
