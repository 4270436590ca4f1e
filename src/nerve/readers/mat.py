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
        raise _damaged(path, participant, error) from error


def read_mat(path: Path, name: str, participant: str = "") -> np.ndarray:
    """One array of a `.mat`, as MATLAB shows it."""
    require_file(path, participant)
    try:
        if _is_hdf5(path):
            import h5py

            with h5py.File(path, "r") as file:
                array = np.asarray(file[name]).T  # HDF5 lists the axes of MATLAB's column-major arrays backwards
        else:
            array = _scipy_io(path, participant).loadmat(path, variable_names=[name])[name]
            array = array.toarray() if hasattr(array, "toarray") else array
    except NerveError:
        raise
    except Exception as error:
        raise _damaged(path, participant, error) from error
    return as_numbers(array, path, participant)


def read_mat_column(path: Path, name: str, column: int) -> np.ndarray:
    """One column of a (features, people) array; a v7.3 file is read only there, an older one is read once."""
    require_file(path)
    if not _is_hdf5(path):
        return _whole_mat(str(path), path.stat().st_mtime_ns, name)[:, column]
    try:
        return as_numbers(_open_hdf5(str(path), path.stat().st_mtime_ns)[name][column], path)
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise _damaged(path, "", error) from error


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
        raise _damaged(path, "", error) from error


def _scipy_io(path: Path, participant: str = "") -> Any:
    """scipy.io, once the file is known to be sound: its compiled parser can end the process on a damaged one."""
    import scipy.io

    refuse_unsound(path, f"{path} (participant {participant})" if participant else path)
    return scipy.io


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as stream:
        start = stream.read(520)
    return b"\x89HDF" in (start[:4], start[512:516])


def _hdf5_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    import h5py

    with h5py.File(path, "r") as file:
        return {
            name: tuple(reversed(item.shape))
            for name, item in file.items()
            if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub"
        }


def _hdf5_words(path: Path, name: str) -> tuple[str, ...]:
    import h5py

    with h5py.File(path, "r") as file:
        references = np.asarray(file[name]).ravel()
        return tuple("".join(map(chr, np.asarray(file[cell]).ravel())).strip() for cell in references)


@lru_cache(maxsize=1)
def _whole_mat(path: str, changed: int, name: str) -> np.ndarray:
    return read_mat(Path(path), name)


@lru_cache(maxsize=1)
def _open_hdf5(path: str, changed: int) -> Any:
    import h5py

    return h5py.File(path, "r")


def _damaged(path: Path, participant: str, error: BaseException) -> NerveError:
    cause = str(error).splitlines()[0] if str(error).strip() else type(error).__name__
    where = f"{path} (participant {participant})" if participant else path
    return problem(
        where,
        f"it cannot be read ({cause})",
        expected="a MATLAB file of version 5 to 7.3",
        remedy="Fetch or write it again, or leave the participant out.",
    )
