"""MATLAB files: v5 to v7 through scipy, v7.3 (HDF5, where arrays lie transposed) through h5py."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import NerveError, problem
from nerve.readers.arrays import as_numbers
from nerve.readers.base import require_file
from nerve.readers.mat5 import refuse_unsound
from nerve.readers.text import MENDING, where_is
from nerve.unpacking import refuse_bomb

_MATLAB = "a whole MATLAB file of version 5 to 7.3"


def mat_shapes(path: Path, participant: str = "") -> dict[str, tuple[int, ...]]:
    """Names and shapes of the numeric arrays in a `.mat`, as MATLAB shows them."""
    require_file(path, participant)
    try:
        if _is_hdf5(path):
            return _hdf5_shapes(path)
        numeric = ("double", "single", "int", "uint", "logical", "sparse")
        found = _scipy_io(path, participant).whosmat(path)
        return {name: shape for name, shape, kind in found if kind.startswith(numeric)}
    except NerveError:
        raise
    except Exception as error:  # a damaged file: whatever the parser of scipy or h5py stumbles into
        raise damaged(path, participant, _MATLAB, error) from error


def read_mat(path: Path, name: str, participant: str = "") -> np.ndarray:
    """One array of a `.mat`, as MATLAB shows it."""
    require_file(path, participant)
    try:
        if _is_hdf5(path):
            import h5py

            with h5py.File(path, "r") as file:
                array = own_dataset(file, name, path)[()].T  # HDF5 lists MATLAB's column-major axes backwards
        else:
            array = _scipy_io(path, participant).loadmat(path, variable_names=[name])[name]
            if hasattr(array, "toarray"):
                refuse_bomb(path, path.stat().st_size, 8 * int(np.prod(array.shape, dtype=object)))
                array = array.toarray()
    except NerveError:
        raise
    except Exception as error:
        raise damaged(path, participant, _MATLAB, error) from error
    return as_numbers(array, path, participant)


def read_mat_slice(path: Path, name: str, index: int, axis: int) -> np.ndarray:
    """One slice along an axis of an array; a v7.3 file is read only there, an older one is read once."""
    require_file(path)
    if not _is_hdf5(path):
        return _whole_mat(str(path), path.stat().st_mtime_ns, name).take(index, axis)
    try:
        file = _open_hdf5(str(path), path.stat().st_mtime_ns)
        dataset = own_dataset(file, name, path, along=axis)
        backwards = dataset.ndim - 1 - axis  # HDF5 lists MATLAB's column-major axes backwards
        return as_numbers(dataset[(slice(None),) * backwards + (index,)].T, path)
    except NerveError:
        raise
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise damaged(path, "", _MATLAB, error) from error


def read_mat_words(path: Path, name: str) -> tuple[str, ...]:
    """A cell array of words (labels, ids), as in CBIG's `struct_names.mat`."""
    require_file(path)
    try:
        if _is_hdf5(path):
            return _hdf5_words(path, name)
        cells = np.asarray(_scipy_io(path).loadmat(path, variable_names=[name])[name], dtype=object).ravel()
        return tuple(str(np.asarray(cell).ravel()[0]).strip() if np.size(cell) else "" for cell in cells)
    except NerveError:
        raise
    except Exception as error:
        raise damaged(path, "", _MATLAB, error) from error


def _scipy_io(path: Path, participant: str = "") -> Any:
    """scipy.io, once the file is known to be sound: its compiled parser can end the process on a damaged one."""
    import scipy.io

    refuse_unsound(path, where_is(path, participant))
    return scipy.io


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

    link = file.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise problem(path, f"{name!r} is a link to another place", expected="numbers in the file itself")
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
        raise problem(path, f"{name!r} holds no numbers of its own", expected="numbers in the file itself")
    shape = list(dataset.shape)
    if along is not None and along < len(shape):
        shape[len(shape) - 1 - along] = 1
    refuse_bomb(path, path.stat().st_size, dataset.dtype.itemsize * int(np.prod(shape, dtype=object)))
    return dataset


def _hdf5_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    import h5py

    with h5py.File(path, "r") as file:
        own = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
        return {name: tuple(reversed(file[name].shape)) for name in own if _holds_numbers(file[name])}


def _holds_numbers(item: Any) -> bool:
    """Whether it is an array of numbers to MATLAB too, which keeps objects and functions as numbers with a mark."""
    import h5py

    if not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub" or item.shape is None:
        return False
    kind = item.attrs.get("MATLAB_class", b"double")
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    return "MATLAB_object_decode" not in item.attrs and kind.startswith(("double", "single", "int", "uint", "logical"))


def _hdf5_words(path: Path, name: str) -> tuple[str, ...]:
    import h5py

    with h5py.File(path, "r") as file:
        references = own_dataset(file, name, path)[()].ravel()
        cells = [file[cell] for cell in references]
        for cell in cells:
            refuse_bomb(path, path.stat().st_size, cell.dtype.itemsize * int(np.prod(cell.shape, dtype=object)))
        return tuple("".join(map(chr, np.asarray(cell).ravel())).strip() for cell in cells)


@lru_cache(maxsize=1)
def _whole_mat(path: str, changed: int, name: str) -> np.ndarray:
    return read_mat(Path(path), name)


@lru_cache(maxsize=1)
def _open_hdf5(path: str, changed: int) -> Any:
    import h5py

    return h5py.File(path, "r")


def damaged(path: Path, participant: str, expected: str, error: BaseException) -> NerveError:
    """The sentence about a file that its parser stumbles over, without the words of the parser."""
    found = f"it has no variable {error.args[0]!r}" if type(error) is KeyError and error.args else "it cannot be read"
    return problem(where_is(path, participant), found, expected=expected, remedy=MENDING)
