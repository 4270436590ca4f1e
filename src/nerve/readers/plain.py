"""Plain arrays: a matrix, vector or time series per participant in `.npy .npz .csv .tsv .txt .mat`, or one of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import NerveError, problem
from nerve.readers.arrays import Shapes, array_shapes, choose_variable, read_array, read_slice
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.matrices import TOLERANCE
from nerve.readers.names import people_of, scan_of, scans_of
from nerve.readers.opening import TEXT, files_below, is_data, once
from nerve.readers.text import Numbers, read_numbers
from nerve.readers.unfolding import Unfolding, expected_sizes, proved_unfolding, unfoldings

ENDINGS = (*TEXT, ".npy", ".npz", ".mat")
NAMES = ("fc", "connectivity", "matrix", "corr", "corr_mat", "conn", "timeseries", "series", "ts", "data", "arr_0")
# words of a name that tell what the file holds, the most telling first
_HOLDS = {
    "z": re.compile(r"z|fisher|fisherz|zfc\w*|zcorr\w*|zmat\w*|zscores?", re.IGNORECASE),
    "series": re.compile(r"(roi)?(ts|tc|timeseries|timecourses?|series|signals?|bold)", re.IGNORECASE),
    "fc": re.compile(r"(roi)?(rs)?(fc\w*|corr\w*|conn\w*|netmats?\d?|pearson|matrix)", re.IGNORECASE),
}
_WORDS = {"z": "Fisher z", "series": "time series", "fc": "matrices"}
_PROBES = 5


class Plain(Reader):
    """Files without any convention but one participant each, or one array (or archive) of all participants.

    What the files hold (matrices or time series, which unfolding of vectors) is decided once for a source: so that a
    damaged matrix is never taken for a time series.
    """

    name = "plain"
    describe = "plain arrays (npy, npz, csv, tsv, mat), one per participant or one for all"
    fallback = True

    def __init__(self) -> None:
        self._probed: dict[Any, Numbers] = {}  # what `find` had to read, until it is asked for

    def find(self, source: Path, options: Options) -> list[Scan]:
        """One scan per file, or one per row or key of a file that holds many participants."""
        if source.suffix.lower() in (".pkl", ".pickle", ".pt", ".pth", ".joblib"):
            remedy = "Save plain numbers, as .npy or .tsv."
            raise problem(source, "it is a pickle, which is never opened", remedy=remedy)
        data = [path for path in files_below(source, *ENDINGS) if is_data(path)]
        # arrays before MATLAB's before text, since lists and scores lie beside data as text
        families = ([path for path in data if path.name.endswith(one)] for one in (".npy", ".npz", ".mat", TEXT))
        files, left_out = _one_kind(next(filter(None, families), []), options)
        left_out |= {path: "another type of file is read" for path in data if path not in {*files, *left_out}}
        scans = _scans(files, source if source.is_dir() else source.parent, options)
        if options.data == "auto" or options.unfolding == "auto":
            scans = self._decided(scans, options)
        return scans + [Scan("", path, left_out=reason) for path, reason in left_out.items()]

    def read(self, scan: Scan, options: Options) -> Reading:
        """The array, as a matrix or, with volumes along the first axis, as a time series."""
        numbers = self._probed.pop(scan.entry, None) or _load(scan, options)
        array = numbers.values
        kind = scan.kind or (options.data if options.data != "auto" else _kind_of(array))
        values = scan.extra.get("values")
        if _is_vector(array):
            way: Unfolding = scan.extra.get("unfolding") or proved_unfolding([array], options, scan.path)
            return Reading(matrix=way.matrix(array, scan.path), values=values, notes=(f"vectors are {way}",))
        if kind == "fc":
            counted = numbers.columns is None or all(label.isdigit() for label in numbers.columns)
            labels = numbers.rows if counted and numbers.rows is not None else numbers.columns
            return Reading(matrix=array, labels=labels, values=values)
        series, labels = _volumes_first(numbers, options)
        return Reading(series=series, labels=labels)

    def _decided(self, scans: Sequence[Scan], options: Options) -> list[Scan]:
        """Decide from the first scans that can be read whether they are matrices or series, and how vectors unfold."""
        for scan in scans[:_PROBES]:
            with suppress(NerveError):  # reported when it is read
                self._probed[scan.entry] = _load(scan, options)
        arrays = [numbers.values for numbers in self._probed.values()]
        if not arrays:
            return list(scans)
        vectors = [array.ravel() for array in arrays if _is_vector(array)]
        same = [vector for vector in vectors if len(vector) == len(vectors[0])]
        extra = {"unfolding": proved_unfolding(same, options, scans[0].path)} if same else {}
        kind = "fc" if "fc" in map(_kind_of, arrays) else "series"
        kind = options.data if options.data != "auto" else kind
        return [replace(scan, kind=kind, extra={**scan.extra, **extra}) for scan in scans]


def _one_kind(files: Sequence[Path], options: Options) -> tuple[list[Path], dict[Path, str]]:
    """The files of one kind, where names tell of several: r, Fisher z and time series of the same participants."""
    kinds = {path: _kind_in_name(path) for path in files}
    present = [kind for kind in ("fc", "z", "series") if kind in kinds.values()]
    if len(present) < 2:
        return list(files), {}
    wanted = "series" if options.prefers_series and "series" in present else present[0]
    if options.values == "z" and "z" in present:
        wanted = "z"
    reason = f"it holds {{}} by its name, and {_WORDS[wanted]} are read"
    left_out = {path: reason.format(_WORDS[kind]) for path, kind in kinds.items() if kind not in ("", wanted)}
    return [path for path in files if path not in left_out], left_out


def _kind_in_name(path: Path) -> str:
    words = re.split(r"[_\-. ]", path.name)[:-1]
    return next((kind for kind, pattern in _HOLDS.items() if any(pattern.fullmatch(word) for word in words)), "")


def _scans(files: list[Path], root: Path, options: Options) -> list[Scan]:
    """The scans of files of one participant each, or of the participants of each file."""
    many = {path: _people_in(path, root, options, alone=len(files) == 1) for path in files}
    single = [path for path in files if not many[path]]
    scans = [scan for found in many.values() for scan in found] + scans_of(single, root, options)
    z = bool(single) and all(_kind_in_name(path) == "z" for path in single) and options.values == "auto"
    notes = ("files are named after Fisher z and are read as such (--values r reads them as r)",)
    return [replace(scan, extra={**scan.extra, "values": "z"}, notes=notes) for scan in scans] if z else scans


def _people_in(path: Path, root: Path, options: Options, *, alone: bool) -> list[Scan]:
    """The participants of a file that holds many; empty for a file of one, or for one that cannot be read."""
    try:
        if path.name.endswith(TEXT):
            shapes = {"": _whole_text(path).values.shape} if alone else {}
            named = _named_rows(path, options) if alone else []
        else:
            shapes = array_shapes(path)
            named = _named_arrays(path, root, shapes, options)
        name = _stack_name(shapes, options, flat=alone and path.suffix != ".npz")
        axis = None if named or name is None else _axis_of_people(path, name, shapes[name], options)
    except (NerveError, OSError):  # reported when it is read
        return []
    if name is None or axis is None:
        return named
    return people_of(path, shapes[name][axis], options, axis=axis, variable=name)


def _named_arrays(path: Path, root: Path, shapes: Shapes, options: Options) -> list[Scan]:
    """The participants of an `.npz` that holds an array of each under their id."""
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if path.suffix != ".npz" or options.variable in shapes or len(matrices) < 2 or set(matrices) & set(NAMES):
        return []
    session = scan_of(path, root).session
    return [Scan(name, path, session=session, key=name) for name in matrices]


def _named_rows(path: Path, options: Options) -> list[Scan]:
    """Rows of vectors after an id; the first number of a row is its id where only then the others fit."""
    numbers = _whole_text(path)
    array, sizes = numbers.values, expected_sizes(options)
    if sizes & set(array.shape):
        return []
    if numbers.rows is not None and numbers.columns is None and unfoldings(array.shape[1], sizes):
        return [Scan(person, path, key=i) for i, person in enumerate(numbers.rows)]
    whole = np.array_equal(array[:, 0], np.round(array[:, 0]))
    if whole and sizes and unfoldings(array.shape[1] - 1, sizes) and not unfoldings(array.shape[1], sizes):
        return [Scan(str(int(one)), path, key=i, extra={"skip": 1}) for i, one in enumerate(array[:, 0])]
    return []


def _stack_name(shapes: Shapes, options: Options, *, flat: bool) -> str | None:
    """The array that may hold many participants: the one that the user named, one of three axes, or the only `flat`."""
    stacks = [name for name, shape in shapes.items() if len(shape) == 3]
    tables = [name for name, shape in shapes.items() if flat and len(shape) == 2 and (not name or min(shape) > 1)]
    if options.variable is not None:
        return options.variable if options.variable in {*stacks, *tables} else None
    return stacks[0] if stacks else tables[0] if len(tables) == 1 else None


def _axis_of_people(path: Path, name: str, shape: tuple[int, ...], options: Options) -> int | None:
    """The axis of an array along which participants lie; None for the array of one participant."""
    n_ids, sizes = len(options.ids or ()), expected_sizes(options)
    if len(shape) == 3:
        square = [axis for axis in (0, 2) if len({*shape[:axis], *shape[axis + 1 :]}) == 1]
        matrices = [axis for axis in square if _is_symmetric(_slice(path, name, 0, axis))]
        fitting = [axis for axis in matrices if shape[axis] == n_ids] or matrices
        if fitting:
            return fitting[0]
        return next((axis for axis in (0, 2) if shape[axis] == n_ids), 0)  # time series
    if sizes & set(shape) or (shape[0] == shape[1] and n_ids != shape[0]):
        return None
    ways = {axis: unfoldings(shape[1 - axis], sizes) for axis in (0, 1)}
    vectors = [axis for axis in (0, 1) if any(sizes or way.order != "square" for way in ways[axis])]
    fitting = [axis for axis in vectors if shape[axis] == n_ids] or vectors
    return fitting[0] if fitting else None


def _is_symmetric(slice_: np.ndarray) -> bool:
    slice_ = np.nan_to_num(np.asarray(slice_, np.float64), posinf=1.0, neginf=-1.0)
    return bool(np.allclose(slice_, slice_.T, atol=TOLERANCE))


def _slice(path: Path, variable: str, index: int, axis: int) -> np.ndarray:
    """What one participant has of the array of all."""
    if path.name.endswith(TEXT):
        return _whole_text(path).values.take(index, axis)
    return read_slice(path, variable, index, axis)


def _is_vector(array: np.ndarray) -> bool:
    return array.ndim == 1 or (array.ndim == 2 and min(array.shape) == 1)


def _kind_of(array: np.ndarray) -> str:
    """`fc` for a square array, a vector, or one with ones along its diagonal (a matrix that was cut off)."""
    if array.ndim != 2 or _is_vector(array) or array.shape[0] == array.shape[1]:
        return "fc"
    return "fc" if np.all(np.abs(np.diagonal(array).astype(float) - 1) <= TOLERANCE) else "series"


def _load(scan: Scan, options: Options) -> Numbers:
    path = scan.path
    if isinstance(scan.key, str):
        array = read_array(path, scan.key)
    elif scan.key is not None:
        array = _slice(path, scan.extra.get("variable", ""), scan.key, scan.extra.get("axis", 0))
        array = array[scan.extra.get("skip", 0) :]
    elif path.name.endswith(TEXT):
        return _whole_text(path)
    else:
        name = "" if path.suffix == ".npy" else choose_variable(array_shapes(path), NAMES, options.variable, path)
        array = read_array(path, name)
    return Numbers(array)


_whole_text = once(read_numbers)


def _volumes_first(numbers: Numbers, options: Options) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """(volumes, regions) and the labels; turned round where labels or numbers say that the rows are regions."""
    array = numbers.values
    counted = numbers.rows is None or all(re.fullmatch(r"[A-Za-z]*\d+(\.0)?", row) for row in numbers.rows)
    if numbers.rows is not None and not counted:
        return array.T, numbers.rows
    fits = [size in expected_sizes(options) for size in array.shape]
    if fits == [True, False] and (numbers.columns is None or len(numbers.columns) not in expected_sizes(options)):
        return array.T, numbers.rows
    return array, numbers.columns
