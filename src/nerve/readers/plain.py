"""Plain arrays: a matrix or a time series a person in `.npy .npz .csv .tsv .txt .mat`, or one array of all people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerve.checks import NerveError, problem
from nerve.readers.arrays import choose_variable, npz_shapes, read_npy, read_npz, read_numbers, whole_npz
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import files_below, place
from nerve.readers.mat import mat_shapes, read_mat
from nerve.readers.matrices import TOLERANCE, from_triangle, regions_of_triangle
from nerve.readers.names import scan_of
from nerve.readers.regions import N_ASEG

TEXT = (".csv", ".tsv", ".txt", ".1D", ".csv.gz", ".tsv.gz", ".txt.gz")
ENDINGS = (*TEXT, ".npy", ".npz", ".mat")
NAMES = ("fc", "connectivity", "matrix", "corr", "corr_mat", "conn", "timeseries", "series", "ts", "data", "arr_0")
# tables and lists that lie beside data
_NOT_DATA = re.compile(
    r"^(participants|regions|labels|dataset_description|subjects?|ids|phenotyp\w*|exclusions|readme|license)\b"
    r"|(_motion|_qc|_confounds\w*|_dseg|_outliers|_events|_participants|_sessions|_scans)\.",
    re.IGNORECASE,
)
_PROBES = 3


class Plain(Reader):
    """Files without any convention but one person each, or one array (or archive) of all people.

    Whether the files hold matrices or time series is decided once for a source, from the first that can be read: so
    that a damaged matrix is never taken for a time series.
    """

    name = "plain"
    describe = "plain arrays (npy, npz, csv, tsv, mat), one a person or one for all"
    fallback = True

    def find(self, source: Path, options: Options) -> list[Scan]:
        """One scan a file, or one a row or key of a file that holds many people."""
        if source.suffix.lower() in (".pkl", ".pickle", ".pt", ".pth", ".joblib"):
            raise problem(
                source, "it is a pickle, which is never opened", remedy="Save plain numbers, as .npy or .tsv."
            )
        files = _one_family([path for path in files_below(source, *ENDINGS) if _may_be_data(path)])
        root = source if source.is_dir() else source.parent
        scans: list[Scan] = []
        for path in files:
            scans += _scans_of(path, root, options, alone=len(files) == 1)
        return scans if options.data != "auto" else _with_kind(scans, options)

    def read(self, scan: Scan, options: Options) -> Reading:
        """The array, as a matrix or, with volumes along the first axis, as a time series."""
        array, labels = _load(scan, options)
        kind = scan.kind or (options.data if options.data != "auto" else _kind_of(array))
        if array.ndim == 1 or (array.ndim == 2 and min(array.shape) == 1):
            return Reading(matrix=from_triangle(array, place(scan)), labels=None)
        if kind == "fc":
            return Reading(matrix=array, labels=labels)
        return Reading(series=_volumes_first(array, labels, options, place(scan)), labels=labels)


def _may_be_data(path: Path) -> bool:
    return not _NOT_DATA.search(path.name) and not (path.parent / "cohort.json").is_file()


def _one_family(files: Sequence[Path]) -> list[Path]:
    """The files of one type: arrays before MATLAB's before text, since lists and scores lie beside data as text."""
    for endings in ((".npy",), (".npz",), (".mat",), TEXT):
        family = [path for path in files if path.name.endswith(endings)]
        if family:
            return family
    return []


def _scans_of(path: Path, root: Path, options: Options, alone: bool) -> list[Scan]:
    known = options.ids or ()
    if path.suffix == ".npz":
        return _archive(path, root, options)
    if path.suffix != ".npy" or not (alone or _is_stack(path)):
        return [scan_of(path, root, known)]
    shape = read_npy(path).shape
    rows_are_people = len(shape) == 3 or (
        len(shape) == 2 and regions_of_triangle(shape[1]) > 0 and (len(known) == shape[0] or shape[0] != shape[1])
    )
    if not rows_are_people or (len(shape) == 2 and _expected(options) & set(shape)):
        return [scan_of(path, root, known)]
    return _people_of(path, shape[0], options)


def _is_stack(path: Path) -> bool:
    try:
        return read_npy(path).ndim == 3
    except NerveError:  # reported when it is read
        return False


def _archive(path: Path, root: Path, options: Options) -> list[Scan]:
    """An `.npz` is one person's if it has one matrix or a known name, all people's if each array is one of theirs."""
    known = options.ids or ()
    try:
        shapes = npz_shapes(path)
    except NerveError:  # reported when it is read
        return [scan_of(path, root, known)]
    stacked = [name for name, shape in shapes.items() if len(shape) == 3]
    if stacked:
        name = options.variable if options.variable in stacked else stacked[0]
        return _people_of(path, shapes[name][0], options, variable=name)
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if options.variable in shapes or len(matrices) < 2 or set(matrices) & set(NAMES):
        return [scan_of(path, root, known)]
    session = scan_of(path, root).session
    return [Scan(name, path, session=session, key=name) for name in matrices]


def _people_of(path: Path, n_people: int, options: Options, variable: str = "") -> list[Scan]:
    ids = options.ids
    if ids is None or len(ids) != n_people:
        found = "no ids are known" if ids is None else f"there are {len(ids)} ids"
        raise problem(
            path,
            f"it holds {n_people} people and {found}",
            remedy="Give the ids in the order of its rows: --ids FILE, one a line, or --participants TSV.",
        )
    return [Scan(person, path, key=i, extra={"variable": variable}) for i, person in enumerate(ids)]


def _with_kind(scans: Sequence[Scan], options: Options) -> list[Scan]:
    """Decide from the first scans that can be read whether the source holds matrices or time series."""
    kinds = []
    for scan in scans[:_PROBES]:
        try:
            kinds.append(_kind_of(_load(scan, options)[0]))
        except NerveError:  # reported when it is read
            continue
    if not kinds:
        return list(scans)
    kind = "fc" if "fc" in kinds else "series"
    return [replace(scan, kind=kind) for scan in scans]


def _kind_of(array: np.ndarray) -> str:
    """`fc` for a square array, a vector, or one with ones along its diagonal (a matrix that was cut off)."""
    if array.ndim != 2 or min(array.shape) == 1 or array.shape[0] == array.shape[1]:
        return "fc"
    diagonal = np.diagonal(array).astype(float)
    return "fc" if np.all(np.abs(diagonal - 1) <= TOLERANCE) else "series"


def _load(scan: Scan, options: Options) -> tuple[np.ndarray, tuple[str, ...] | None]:
    path, person = scan.path, scan.participant
    if path.name.endswith(TEXT):
        return read_numbers(path, person)
    if path.suffix == ".mat":
        name = choose_variable(mat_shapes(path, person), NAMES, options.variable, path, person)
        return read_mat(path, name, person), None
    if path.suffix == ".npy":
        array = read_npy(path, person)
        return np.asarray(array if scan.key is None else array[int(scan.key)]), None
    if isinstance(scan.key, str):
        return read_npz(path, scan.key, person), None
    if scan.key is not None:
        return whole_npz(path, scan.extra["variable"], path.stat().st_mtime_ns)[scan.key], None
    return read_npz(path, choose_variable(npz_shapes(path), NAMES, options.variable, path, person), person), None


def _expected(options: Options) -> set[int]:
    """Numbers of regions that would fit what the user said."""
    order = options.order or options.parcellation
    return set() if order is None else {order.n_regions, order.n_regions + N_ASEG}


def _volumes_first(array: np.ndarray, labels: tuple[str, ...] | None, options: Options, where: str) -> np.ndarray:
    """(volumes, regions), turned round where only the first axis has as many entries as there are regions."""
    if array.ndim != 2:
        raise problem(where, f"the time series has shape {array.shape}", expected="(volumes, regions)")
    fits = [size in _expected(options) for size in array.shape]
    return array.T if labels is None and fits == [True, False] else array
