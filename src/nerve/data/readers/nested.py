"""Arrays and lists of words inside `.mat` and `.h5` files, by their path: structs, groups, cells.

    results.FC          a field of a MATLAB struct
    derivatives/fc      a data set in a group of HDF5
    data                a cell array (or field of a struct array) of arrays of one shape: a stack

Version 7.3 of MATLAB is HDF5: arrays lie transposed, and cells are references.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import problem
from nerve.data.readers.mat5 import refuse_unsound
from nerve.data.readers.opening import explained_errors, keep_latest, require_file

HDF5 = (".h5", ".hdf5")
# what MATLAB calls arrays of numbers
NUMERIC_CLASSES = ("double", "single", "int", "uint", "logical", "sparse")
_OWN_GROUPS = ("#refs#", "#subsystem#")
_DEEPEST = 10
_MOST_WORDS = 200_000


@dataclass
class Contents:  # numpydoc ignore=PR02
    """What lies in a file, by path.

    Parameters
    ----------
    arrays : dict
        Path → array, list of arrays (a stack), or name of a data set of HDF5.
    words : dict
        Path → list of words.
    cells : dict
        Path → arrays of a cell array, of any shapes (of MATLAB's version 5 to 7).
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cells: dict[str, list[np.ndarray]] = field(default_factory=dict)


@contextmanager
def open_matlab(path: Path) -> Iterator[h5py.File | None]:
    """Open the HDF5 file of version 7.3; None for an older one, once it is known to be sound.

    The compiled parser of scipy can end the process on a damaged file, so that such a file is
    refused first.

    Parameters
    ----------
    path : Path
    """
    with explained_errors(require_file(path), "a whole MATLAB file of version 5 to 7.3"):
        if h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                yield file
        else:
            refuse_unsound(path, path)
            yield None


@keep_latest
def contents_of_mat5(path: Path) -> Contents:
    """The structs, cell arrays and texts of a MATLAB file of version 5 to 7.

    Parameters
    ----------
    path : Path
        A sound file.

    Returns
    -------
    Contents
        Without plain arrays of numbers at the top, which are read one at a time.
    """
    contents = Contents()
    for name, _, kind in scipy.io.whosmat(path):
        if kind in ("struct", "cell", "char"):
            value = scipy.io.loadmat(path, variable_names=[name])[name]
            _add_value(contents, name, value)
    return contents


def _visit_datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Go through the data sets of an HDF5 file that lie in the file itself.

    Links to other places are not followed: to read such a file would be to read whatever file of
    the user's it names.

    Parameters
    ----------
    file : h5py.File

    Yields
    ------
    name : str
        With slashes between groups.
    dataset : h5py.Dataset
    """
    seen = set()
    groups: list[tuple[str, Any]] = [("", file)]
    while groups:
        above, group = groups.pop(0)
        for key in group:
            if not above and key in _OWN_GROUPS:
                continue
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                continue
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen or above.count("/") > _DEEPEST:
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                groups.append((f"{above}{key}/", item))
            elif isinstance(item, h5py.Dataset):
                yield f"{above}{key}", item


def contents_of_hdf5(file: h5py.File, *, is_matlab: bool) -> Contents:
    """The arrays (as names of data sets) and lists of words of an HDF5 file.

    Parameters
    ----------
    file : h5py.File
    is_matlab : bool
        MATLAB's version 7.3.

    Returns
    -------
    Contents
    """
    contents = Contents()
    for key, dataset in _visit_datasets(file):
        name = key.replace("/", ".") if is_matlab else key
        if _is_text(dataset):
            contents.words[name] = _words_of(dataset)
        elif h5py.check_ref_dtype(dataset.dtype) is not None:
            cells = list(_cells(file, dataset))
            if cells and all(_is_text_cell(cell) for cell in cells):
                words = ["" if _is_empty(cell) else "".join(_words_of(cell)) for cell in cells]
                contents.words[name] = tuple(words)
            elif cells and all(_is_numeric(cell) and cell.size == 1 for cell in cells):
                contents.words[name] = tuple(f"{float(cell[()].ravel()[0]):g}" for cell in cells)
            elif all(map(_is_numeric, cells)) and len({cell.shape for cell in cells}) == 1:
                contents.arrays[name] = key
        elif _is_numeric(dataset):
            contents.arrays[name] = key
    return contents


def dataset_shape(file: h5py.File, key: str, *, is_matlab: bool) -> tuple[int, ...]:
    """The shape of a data set as NumPy or MATLAB shows it; cells of one shape are a stack.

    Parameters
    ----------
    file : h5py.File
    key : str
    is_matlab : bool

    Returns
    -------
    tuple of int
    """
    dataset = file[key]
    if h5py.check_ref_dtype(dataset.dtype) is not None:
        cells = list(_cells(file, dataset))
        return (len(cells), *_shown(cells[0].shape, is_matlab))
    return _shown(dataset.shape, is_matlab)


def read_cells(file: h5py.File, key: str, path: Path) -> list[np.ndarray] | None:
    """The arrays of a cell array of version 7.3; None where the data set is no cell array.

    Parameters
    ----------
    file : h5py.File
    key : str
    path : Path
        For errors.

    Returns
    -------
    list of array, or None
    """
    dataset = file[key]
    if h5py.check_ref_dtype(dataset.dtype) is None:
        return None
    cells = list(_cells(file, dataset))
    refuse_giant(path, (len(cells), *cells[0].shape), cells[0].dtype.itemsize)
    return [np.asarray(cell[()]).T for cell in cells]


def refuse_giant(path: Path, shape: Any, itemsize: int) -> None:
    """Refuse an array of more bytes than a file of this size can hold, however it was packed.

    Parameters
    ----------
    path : Path
    shape : sequence of int
    itemsize : int
        Bytes per number.
    """
    refuse_bomb(path, path.stat().st_size, itemsize * int(np.prod(shape, dtype=object)))


def own_dataset(file: Any, name: str, path: Path) -> Any:
    """A dataset whose numbers lie in this file, and no more of them than could.

    HDF5 may link to other files, or keep or compose a dataset's numbers there: to read such a file
    would be to read whatever file of the user's it names.

    Parameters
    ----------
    file : h5py.File
    name : str
        Of the dataset.
    path : Path
        Of the file, for errors.

    Returns
    -------
    h5py.Dataset
    """
    dataset = require_own(file, name, path)
    refuse_giant(path, dataset.shape, dataset.dtype.itemsize)
    return dataset


def require_own(file: Any, name: str, path: Path) -> Any:
    """A dataset of any size whose numbers lie in this file; parameters as of `own_dataset`."""
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        link = file.get("/".join(parts[:depth]), getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise problem(
                path, f"{name!r} is a link to another place", expected="numbers in the file itself"
            )
    dataset = file[name]
    if not hasattr(dataset, "is_virtual") or dataset.is_virtual or dataset.external:
        raise problem(
            path, f"{name!r} holds no numbers of its own", expected="numbers in the file itself"
        )
    return dataset


def _add_value(contents: Contents, name: str, value: Any, depth: int = 0) -> None:
    """Add what a variable, a field or a cell array holds."""
    value = np.asanyarray(value)
    if depth > _DEEPEST or value.size == 0:
        return
    if value.dtype.names:
        for part in value.dtype.names:
            elements = list(value[part].ravel())
            path = f"{name}.{part}"
            if len(elements) == 1:
                _add_value(contents, path, elements[0], depth + 1)
            else:
                _add_elements(contents, path, elements)
    elif value.dtype.kind == "O":
        _add_elements(contents, name, list(value.ravel()))
    elif value.dtype.kind in "US":
        contents.words[name] = tuple(str(word).strip() for word in value.ravel())
    elif value.dtype.kind in "fiub" and depth > 0:
        contents.arrays[name] = value


def _add_elements(contents: Contents, name: str, elements: list[Any]) -> None:
    """Add the cells of a cell array: words, or arrays of one shape."""
    arrays = [np.asanyarray(element) for element in elements]
    if all(array.dtype.kind in "US" or array.size == 0 for array in arrays):
        words = []
        for array in arrays:
            words.append(str(array.ravel()[0]).strip() if array.size else "")
        contents.words[name] = tuple(words)
    elif all(array.dtype.kind in "fiub" for array in arrays):
        contents.cells[name] = arrays
        _add_numeric_cells(contents, name, arrays)


def _add_numeric_cells(contents: Contents, name: str, arrays: list[Any]) -> None:
    """Single numbers are words (ids, labels); arrays of one shape are a stack."""
    shapes = {array.shape for array in arrays}
    if all(array.size == 1 for array in arrays):
        contents.words[name] = tuple(f"{float(np.ravel(array)[0]):g}" for array in arrays)
    elif len(shapes) == 1:
        contents.arrays[name] = arrays


def _shown(shape: tuple[int, ...], is_matlab: bool) -> tuple[int, ...]:
    """The axes as MATLAB shows them, which HDF5 lists backwards."""
    return tuple(reversed(shape)) if is_matlab else tuple(shape)


def _cells(file: h5py.File, dataset: h5py.Dataset) -> Iterator[h5py.Dataset]:
    """What the references of a cell array point to, in MATLAB's order."""
    if dataset.size > _MOST_WORDS:
        return
    for reference in dataset[()].ravel():
        item = file[reference]
        if isinstance(item, h5py.Dataset) and not item.is_virtual and not item.external:
            yield item


def _class_of(dataset: Any) -> str:
    name = dataset.attrs.get("MATLAB_class", b"")
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)


def _is_empty(dataset: Any) -> bool:
    return "MATLAB_empty" in dataset.attrs or dataset.size == 0


def _is_text_cell(cell: Any) -> bool:
    """Whether a cell is a word; one without MATLAB's mark is if it is a row of whole numbers."""
    is_marked = "MATLAB_class" in cell.attrs
    is_row = cell.dtype.kind in "iu" and cell.size == max(cell.shape, default=0)
    return _is_empty(cell) or _is_text(cell) or (is_row and not is_marked)


def _is_text(dataset: Any) -> bool:
    if "MATLAB_empty" in dataset.attrs:
        return False
    is_string = h5py.check_string_dtype(dataset.dtype) is not None or dataset.dtype.kind == "S"
    return dataset.size <= _MOST_WORDS and (is_string or _class_of(dataset) == "char")


def _is_numeric(item: Any) -> bool:
    """Whether it is an array of numbers to MATLAB too, which marks numbers that are objects."""
    if getattr(item, "shape", None) is None or item.dtype.kind not in "fiub":
        return False
    is_plain = "MATLAB_object_decode" not in item.attrs and "MATLAB_empty" not in item.attrs
    return is_plain and (_class_of(item) or "double").startswith(NUMERIC_CLASSES)


def _words_of(dataset: Any) -> tuple[str, ...]:
    """The words of a data set of text.

    MATLAB keeps a character per number, and a column per row of text.
    """
    content = np.asarray(dataset[()])
    if content.dtype.kind in "iu":
        rows = np.atleast_2d(content.T)
        return tuple("".join(map(chr, row)).strip("\0 ") for row in rows)
    words = []
    for word in content.ravel():
        text = word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
        words.append(text.strip())
    return tuple(words)
