"""Plain arrays: a matrix, vector or time series per participant in `.npy .npz .csv .tsv .txt .mat`, or one of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from nerve.checks import NerveError, problem
from nerve.readers.arrays import choose_variable, npz_shapes, read_npy, read_npz, whole_npz
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import TEXT, files_below, is_data
from nerve.readers.mat import mat_shapes, read_mat, read_mat_slice
from nerve.readers.matrices import TOLERANCE
from nerve.readers.names import scan_of, scans_of
from nerve.readers.opening import once
from nerve.readers.stacks import axis_of_people, expected_sizes, people_of
from nerve.readers.text import Numbers, read_numbers
from nerve.readers.unfolding import Unfolding, proved_unfolding, unfoldings

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

    def find(self, source: Path, options: Options) -> list[Scan]:
        """One scan per file, or one per row or key of a file that holds many participants."""
        if source.suffix.lower() in (".pkl", ".pickle", ".pt", ".pth", ".joblib"):
            remedy = "Save plain numbers, as .npy or .tsv."
            raise problem(source, "it is a pickle, which is never opened", remedy=remedy)
        data = [path for path in files_below(source, *ENDINGS) if is_data(path)]
        files, left_out = _one_kind(_one_family(data), options)
        left_out |= {path: "another type of file is read" for path in data if path not in {*files, *left_out}}
        root = source if source.is_dir() else source.parent
        scans = _scans(files, root, options)
        if options.data == "auto" or options.unfolding == "auto":
            scans = _decided(scans, options)
        return scans + [Scan("", path, left_out=reason) for path, reason in left_out.items()]

    def read(self, scan: Scan, options: Options) -> Reading:
        """The array, as a matrix or, with volumes along the first axis, as a time series."""
        numbers = _load(scan, options)
        array = numbers.values
        kind = scan.kind or (options.data if options.data != "auto" else _kind_of(array))
        values = scan.extra.get("values")
        if array.ndim == 1 or (array.ndim == 2 and min(array.shape) == 1):
            way: Unfolding | None = scan.extra.get("unfolding")
            if way is None:
                way = _unfolding([array], options, scan.path)
            return Reading(matrix=way.matrix(array, scan.path), values=values, notes=(f"vectors are {way}",))
        if kind == "fc":
            counted = numbers.columns is None or all(label.isdigit() for label in numbers.columns)
            labels = numbers.rows if counted and numbers.rows is not None else numbers.columns
            return Reading(matrix=array, labels=labels, values=values)
        series, labels = _volumes_first(numbers, options, scan.path)
        return Reading(series=series, labels=labels)


def _one_family(files: Sequence[Path]) -> list[Path]:
    """The files of one type: arrays before MATLAB's before text, since lists and scores lie beside data as text."""
    for endings in ((".npy",), (".npz",), (".mat",), TEXT):
        family = [path for path in files if path.name.endswith(endings)]
        if family:
            return family
    return []


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
    many = {path: found for path in files if (found := _people_in(path, root, options, alone=len(files) == 1))}
    scans = [scan for found in many.values() for scan in found]
    single = [path for path in files if path not in many]
    scans += scans_of(single, root, options)
    z = bool(single) and all(_kind_in_name(path) == "z" for path in single) and options.values == "auto"
    notes = ("files are named after Fisher z and are read as such (--values r reads them as r)",)
    return [replace(scan, extra={**scan.extra, "values": "z"}, notes=notes) for scan in scans] if z else scans


def _people_in(path: Path, root: Path, options: Options, *, alone: bool) -> list[Scan]:
    """The participants of a file that holds many; empty for a file of one, or for one that cannot be read."""
    try:
        named = _named_people(path, root, options, alone=alone)
        name, shape = _stack_in(path, options, alone=alone)
        axis = None if named else axis_of_people(shape, options, partial(_slice, path, name))
    except (NerveError, OSError):  # reported when it is read
        return []
    return named if axis is None else people_of(path, shape[axis], options, axis=axis, variable=name)


def _stack_in(path: Path, options: Options, *, alone: bool) -> tuple[str, tuple[int, ...]]:
    """Name and shape of the array that may hold many participants; no shape where there is none."""
    name = ""
    if path.suffix == ".npy":
        shape = read_npy(path).shape
    elif path.name.endswith(TEXT):
        shape = _whole_text(path).values.shape if alone else ()
    else:
        shapes = npz_shapes(path) if path.suffix == ".npz" else mat_shapes(path)
        name = _stack_name(shapes, options, alone=alone)
        shape = shapes.get(name, ())
    many = len(shape) == 3 or (alone and len(shape) == 2 and path.suffix != ".npz")
    return name, shape if many else ()


def _stack_name(shapes: dict[str, tuple[int, ...]], options: Options, *, alone: bool) -> str:
    """The array that the user named, one of three axes, or the only one of two."""
    if options.variable is not None:
        return options.variable
    stacks = [name for name, shape in shapes.items() if len(shape) == 3]
    flat = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1]
    return stacks[0] if stacks else flat[0] if alone and len(flat) == 1 else ""


def _slice(path: Path, variable: str, index: int, axis: int) -> np.ndarray:
    """What one participant has of the array of all."""
    if path.suffix == ".npy":
        return np.asarray(read_npy(path).take(index, axis))
    if path.suffix == ".npz":
        return whole_npz(path, variable).take(index, axis)
    if path.suffix == ".mat":
        return read_mat_slice(path, variable, index, axis)
    return _whole_text(path).values.take(index, axis)


def _named_people(path: Path, root: Path, options: Options, *, alone: bool) -> list[Scan]:
    """The participants of a file that names them: arrays of an `.npz` under their ids, or rows that begin so."""
    if path.suffix == ".npz":
        shapes = npz_shapes(path)
        matrices = [name for name, shape in shapes.items() if len(shape) == 2]
        if options.variable in shapes or len(matrices) < 2 or set(matrices) & set(NAMES):
            return []
        session = scan_of(path, root).session
        return [Scan(name, path, session=session, key=name) for name in matrices]
    return _named_rows(path, options) if alone and path.name.endswith(TEXT) else []


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


def _decided(scans: Sequence[Scan], options: Options) -> list[Scan]:
    """Decide from the first scans that can be read whether they are matrices or series, and how vectors unfold."""
    arrays = []
    for scan in scans[:_PROBES]:
        try:
            arrays.append(_load(scan, options).values)
        except NerveError:  # reported when it is read
            continue
    if not arrays:
        return list(scans)
    kind = "fc" if "fc" in map(_kind_of, arrays) else "series"
    vectors = [array.ravel() for array in arrays if array.ndim == 1 or min(array.shape) == 1]
    same = [vector for vector in vectors if len(vector) == len(vectors[0])]
    extra = {"unfolding": _unfolding(same, options, scans[0].path)} if same else {}
    kind = options.data if options.data != "auto" else kind
    return [replace(scan, kind=kind, extra={**scan.extra, **extra}) for scan in scans]


def _unfolding(vectors: list[np.ndarray], options: Options, where: object) -> Unfolding:
    return proved_unfolding(vectors, options.unfolding, options.rows, where, options.values)


def _kind_of(array: np.ndarray) -> str:
    """`fc` for a square array, a vector, or one with ones along its diagonal (a matrix that was cut off)."""
    if array.ndim != 2 or min(array.shape) == 1 or array.shape[0] == array.shape[1]:
        return "fc"
    diagonal = np.diagonal(array).astype(float)
    return "fc" if np.all(np.abs(diagonal - 1) <= TOLERANCE) else "series"


def _load(scan: Scan, options: Options) -> Numbers:
    numbers = _numbers(scan, options)
    if numbers.values.ndim == 0:
        raise problem(scan.path, "it holds a single number", expected="a matrix or a time series")
    return numbers


def _numbers(scan: Scan, options: Options) -> Numbers:
    path = scan.path
    if isinstance(scan.key, str):
        return Numbers(read_npz(path, scan.key))
    if scan.key is not None:
        array = _slice(path, scan.extra.get("variable", ""), scan.key, scan.extra.get("axis", 0))
        return Numbers(array[scan.extra.get("skip", 0) :])
    if path.name.endswith(TEXT):
        return read_numbers(path)
    if path.suffix == ".npy":
        return Numbers(np.asarray(read_npy(path)))
    shapes, read = (mat_shapes, read_mat) if path.suffix == ".mat" else (npz_shapes, read_npz)
    return Numbers(read(path, choose_variable(shapes(path), NAMES, options.variable, path)))


_whole_text = once(read_numbers)


def _volumes_first(numbers: Numbers, options: Options, where: object) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """(volumes, regions) and the labels; turned round where labels or numbers say that the rows are regions."""
    array = numbers.values
    if array.ndim != 2:
        raise problem(where, f"the time series has shape {array.shape}", expected="(volumes, regions)")
    counted = numbers.rows is None or all(re.fullmatch(r"[A-Za-z]*\d+(\.0)?", row) for row in numbers.rows)
    if numbers.rows is not None and not counted:
        return array.T, numbers.rows
    fits = [size in expected_sizes(options) for size in array.shape]
    if fits == [True, False] and (numbers.columns is None or len(numbers.columns) not in expected_sizes(options)):
        return array.T, numbers.rows
    return array, numbers.columns
