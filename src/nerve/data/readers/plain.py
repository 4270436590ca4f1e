"""Plain arrays: a matrix, vector or time series per participant in `.npy .npz .csv .tsv .txt .mat`, or one of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve.data.readers.arrays import Shapes, array_shapes, choose_variable, read_array, read_slice
from nerve.data.readers.base import N_PROBES, Options, Reader, ScanData, ScanFile
from nerve.data.readers.matrices import TOLERANCE, is_symmetric
from nerve.data.readers.names import scan_of_file, scans_in_file, scans_of_files
from nerve.data.readers.opening import TEXT, files_below, is_data, keep_latest
from nerve.data.readers.text import Numbers, read_numbers
from nerve.data.readers.unfolding import Unfolding, expected_sizes, find_unfolding, unfoldings

ENDINGS = (*TEXT, ".npy", ".npz", ".mat")
NAMES = (
    "fc",
    "connectivity",
    "matrix",
    "corr",
    "corr_mat",
    "conn",
    "timeseries",
    "series",
    "ts",
    "data",
    "arr_0",
)
# words of a name that tell what the file holds, the most telling first
_HOLDS = {
    "z": re.compile(r"z|fisher|fisherz|zfc\w*|zcorr\w*|zmat\w*|zscores?", re.IGNORECASE),
    "series": re.compile(
        r"(roi)?(ts|tc|timeseries|timecourses?|series|signals?|bold)", re.IGNORECASE
    ),
    "fc": re.compile(
        r"(roi)?(rs)?(fc\w*|corr\w*|conn\w*|netmats?\d?|pearson|matrix)", re.IGNORECASE
    ),
}
_WORDS = {"z": "Fisher z", "series": "time series", "fc": "matrices"}


class Plain(Reader):
    """Files without any convention but one participant each, or one array (or archive) of all participants.

    What the files hold (matrices or time series, which unfolding of vectors) is decided once for a source: so that a
    damaged matrix is never taken for a time series.
    """

    describe = "plain arrays (npy, npz, csv, tsv, mat), one per participant or one for all"
    fallback = True

    def __init__(self) -> None:
        self._probed: dict[Any, Numbers] = {}  # what `find` had to read, until it is asked for

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file, or one per row or key of a file that holds many participants."""
        if source.suffix.lower() in (".pkl", ".pickle", ".pt", ".pth", ".joblib"):
            remedy = "Save plain numbers, as .npy or .tsv."
            raise problem(source, "it is a pickle, which is never opened", remedy=remedy)
        data = [path for path in files_below(source, *ENDINGS) if is_data(path)]
        # arrays before MATLAB's before text, since lists and scores lie beside data as text
        families = (
            [path for path in data if path.name.endswith(one)]
            for one in (".npy", ".npz", ".mat", TEXT)
        )
        files, left_out = _one_kind(next(filter(None, families), []), options)
        left_out |= {
            path: "another type of file is read" for path in data if path not in {*files, *left_out}
        }
        others = [ScanFile("", path, left_out=reason) for path, reason in left_out.items()]
        return self._decided(_scans(files, source, options), options) + others

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The array, as a matrix or, with volumes along the first axis, as a time series."""
        numbers = self._probed.pop(scan.entry, None) or _load(scan, options)
        array, kind, values = numbers.values, _kind_of(numbers.values), scan.extra.get("values")
        if kind == "vector":
            way: Unfolding = scan.extra.get("unfolding") or find_unfolding(
                [array], options, scan.path
            )
            return ScanData(
                matrix=way.matrix(array, scan.path), values=values, notes=(f"vectors are {way}",)
            )
        kind = options.data if options.data != "auto" else scan.kind or kind
        if kind == "fc":
            counted = numbers.columns is None or all(label.isdigit() for label in numbers.columns)
            labels = numbers.rows if counted and numbers.rows is not None else numbers.columns
            return ScanData(matrix=array, labels=labels, values=values)
        series, labels = _volumes_first(numbers, options)
        return ScanData(series=series, labels=labels)

    def _decided(self, scans: Sequence[ScanFile], options: Options) -> list[ScanFile]:
        """Decide from the first scans that can be read whether they are matrices or series, and how vectors unfold."""
        for scan in scans[:N_PROBES]:
            with suppress(NerveError):  # reported when it is read
                self._probed[scan.entry] = _load(scan, options)
        arrays = [numbers.values for numbers in self._probed.values()]
        if not arrays:
            return list(scans)
        kinds = list(map(_kind_of, arrays))
        vectors = [array for array, kind in zip(arrays, kinds, strict=True) if kind == "vector"]
        same = [vector for vector in vectors if vector.size == vectors[0].size]
        extra = {"unfolding": find_unfolding(same, options, scans[0].path)} if same else {}
        kind = "series" if set(kinds) == {"series"} else "fc"
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
    left_out = {
        path: reason.format(_WORDS[kind])
        for path, kind in kinds.items()
        if kind not in ("", wanted)
    }
    return [path for path in files if path not in left_out], left_out


def _kind_in_name(path: Path) -> str:
    words = re.split(r"[_\-. ]", path.name)[:-1]
    return next(
        (
            kind
            for kind, pattern in _HOLDS.items()
            if any(pattern.fullmatch(word) for word in words)
        ),
        "",
    )


def _scans(files: list[Path], source: Path, options: Options) -> list[ScanFile]:
    """The scans of files of one participant each, or of the participants of each file."""
    many = {path: _people_in(path, source, options, alone=len(files) == 1) for path in files}
    single = [path for path in files if not many[path]]
    scans = [scan for found in many.values() for scan in found] + scans_of_files(
        single, source, options
    )
    z = (
        bool(single)
        and all(_kind_in_name(path) == "z" for path in single)
        and options.values == "auto"
    )
    notes = ("files are named after Fisher z and are read as such (--values r reads them as r)",)
    return (
        [replace(scan, extra={**scan.extra, "values": "z"}, notes=notes) for scan in scans]
        if z
        else scans
    )


def _people_in(path: Path, source: Path, options: Options, *, alone: bool) -> list[ScanFile]:
    """The participants of a file that holds many; empty for a file of one, or for one that cannot be read."""
    is_text = path.name.endswith(TEXT)
    if is_text and not alone:
        return []
    try:
        if is_text and (named := _named_rows(path, options)):
            return named
        shapes = {"": _whole_text(path).values.shape} if is_text else array_shapes(path)
        matrices = [name for name, shape in shapes.items() if len(shape) == 2]
        several = path.suffix == ".npz" and options.variable not in shapes and len(matrices) > 1
        if several and not set(matrices) & set(
            NAMES
        ):  # an array of each participant under their id
            session = scan_of_file(path, source).session
            return [ScanFile(name, path, session=session, key=name) for name in matrices]
        name = _stack_name(shapes, options, flat=alone and path.suffix != ".npz")
        axis = None if name is None else _axis_of_people(path, name, shapes[name], options)
    except (NerveError, OSError):  # reported when it is read
        return []
    if name is None or axis is None:
        return []
    return scans_in_file(path, shapes[name][axis], options, axis=axis, variable=name)


def _named_rows(path: Path, options: Options) -> list[ScanFile]:
    """Rows of vectors after an id; the first number of a row is its id where only then the others fit."""
    numbers, sizes = _whole_text(path), expected_sizes(options)
    (n_rows, n_values), skip, ids = (
        numbers.values.shape,
        0,
        None if numbers.columns else numbers.rows,
    )
    if ids is None and sizes and n_values > 1 and not unfoldings(n_values, sizes):
        first = numbers.values[:, 0].tolist()
        skip, ids = 1, tuple(str(int(one)) for one in first if one.is_integer())
    if (
        ids is None
        or len(ids) < n_rows
        or sizes & {n_rows, n_values}
        or not unfoldings(n_values - skip, sizes)
    ):
        return []
    return scans_in_file(path, n_rows, replace(options, ids=ids), axis=0, variable="", skip=skip)


def _stack_name(shapes: Shapes, options: Options, *, flat: bool) -> str | None:
    """The array that may hold many participants: the one that the user named, one of three axes, or the only `flat`."""
    stacks = [name for name, shape in shapes.items() if len(shape) == 3]
    tables = [
        name
        for name, shape in shapes.items()
        if flat and len(shape) == 2 and (not name or min(shape) > 1)
    ]
    if options.variable is not None:
        return options.variable if options.variable in {*stacks, *tables} else None
    return stacks[0] if stacks else tables[0] if len(tables) == 1 else None


def _axis_of_people(path: Path, name: str, shape: tuple[int, ...], options: Options) -> int | None:
    """The axis of an array along which participants lie; None for the array of one participant."""
    n_ids, sizes = len(options.ids or ()), expected_sizes(options)
    if len(shape) == 3:
        square = [axis for axis in (0, 2) if len({*shape[:axis], *shape[axis + 1 :]}) == 1]
        axes = [axis for axis in square if is_symmetric(_slice(path, name, 0, axis))] or [
            0,
            2,
        ]  # or time series
    elif sizes & set(shape) or (shape[0] == shape[1] and n_ids != shape[0]):
        return None
    else:
        ways = {axis: unfoldings(shape[1 - axis], sizes) for axis in (0, 1)}
        axes = [
            axis for axis in (0, 1) if any(sizes or way.order != "square" for way in ways[axis])
        ]
    return next((axis for axis in axes if shape[axis] == n_ids), axes[0] if axes else None)


def _slice(path: Path, variable: str, index: int, axis: int) -> np.ndarray:
    """What one participant has of the array of all."""
    if path.name.endswith(TEXT):
        return _whole_text(path).values.take(index, axis)
    return read_slice(path, variable, index, axis)


def _kind_of(array: np.ndarray) -> str:
    """`vector`, `series`, or `fc`: a square array, or one with ones along its diagonal (a matrix that was cut off)."""
    if array.size == max(array.shape, default=0):
        return "vector"
    square = array.ndim != 2 or array.shape[0] == array.shape[1]
    return (
        "fc"
        if square or np.all(np.abs(np.diagonal(array).astype(float) - 1) <= TOLERANCE)
        else "series"
    )


def _load(scan: ScanFile, options: Options) -> Numbers:
    path = scan.path
    if isinstance(scan.key, str):
        return Numbers(read_array(path, scan.key))
    if scan.key is not None:
        array = _slice(path, scan.extra["variable"], scan.key, scan.extra["axis"])
        return Numbers(array[scan.extra.get("skip", 0) :])
    if path.name.endswith(TEXT):
        return _whole_text(path)
    name = (
        ""
        if path.suffix == ".npy"
        else choose_variable(array_shapes(path), NAMES, options.variable, path)
    )
    return Numbers(read_array(path, name))


_whole_text = keep_latest(read_numbers)


def _volumes_first(numbers: Numbers, options: Options) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """(volumes, regions) and the labels; turned round where labels or numbers say that the rows are regions."""
    labelled = not all(re.fullmatch(r"[A-Za-z]*\d+(\.0)?", row) for row in numbers.rows or ())
    if labelled or [size in expected_sizes(options) for size in numbers.values.shape] == [
        True,
        False,
    ]:
        return numbers.values.T, numbers.rows
    return numbers.values, numbers.columns
