"""Plain arrays: a file per participant (`.npy .npz .csv .tsv .txt .mat .h5`), or one of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve.data.readers.arrays import (
    Shapes,
    array_shapes,
    choose_variable,
    last_name,
    named_variable,
    read_array,
    read_slice,
)
from nerve.data.readers.base import N_OPENED_IN_FIND, Options, Reader, ScanData, ScanFile
from nerve.data.readers.ids import normal_id
from nerve.data.readers.matrices import TOLERANCE, is_symmetric
from nerve.data.readers.modalities import refuse_several_measures
from nerve.data.readers.names import scan_of_file, scans_in_file, scans_of_files
from nerve.data.readers.nested import HDF5
from nerve.data.readers.opening import TEXT, files_below, is_data, keep_latest
from nerve.data.readers.own_words import own_ids, own_labels
from nerve.data.readers.regions import known_codes
from nerve.data.readers.text import Numbers, first_column, read_numbers
from nerve.data.readers.unfolding import Unfolding, expected_sizes, find_unfolding, unfoldings

ENDINGS = (*TEXT, ".npy", ".npz", ".mat", *HDF5)
# names of arrays in archives, the most telling first
NAMES = (
    "fc", "connectivity", "matrix", "corr", "corr_mat", "conn", "timeseries", "series", "ts",
    "data", "arr_0",
)  # fmt: skip
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
_Z_NOTE = "files are named after Fisher z and are read as such (--values r reads them as r)"


class Plain(Reader):
    """Files without any convention: one per participant, or one array (or archive) of all.

    What the files hold (matrices or time series, which unfolding of vectors) is decided once for a
    source, so that a damaged matrix is never taken for a time series.
    """

    describe = "plain arrays (npy, npz, csv, tsv, mat, h5), one per participant or one for all"
    uses: ClassVar[tuple[str, ...]] = ("variable", "unfolding", "header", "index")
    fallback = True

    def __init__(self) -> None:
        # what `find` had to read, until `read` asks for it
        self._loaded: dict[Any, Numbers] = {}

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file, or one per row or key of a file that holds many participants."""
        if source.suffix.lower() in (".pkl", ".pickle", ".pt", ".pth", ".joblib"):
            remedy = "Save plain numbers, as .npy or .tsv."
            raise problem(source, "it is a pickle, which is never opened", remedy=remedy)
        data = [path for path in files_below(source, *ENDINGS) if is_data(path)]
        # arrays before MATLAB's before text, since lists and scores lie beside data as text
        of_one_type: list[Path] = []
        for ending in (".npy", ".npz", ".mat", HDF5, TEXT):
            of_one_type = [path for path in data if path.name.endswith(ending)]
            if of_one_type:
                break
        files, left_out = _choose_content(of_one_type, options)
        files_that_are_read = set(files)
        for path in data:
            if path not in files_that_are_read and path not in left_out:
                left_out[path] = "another type of file is read"
        refuse_several_measures(files, source, options)
        others = [ScanFile("", path, left_out=reason) for path, reason in left_out.items()]
        return self.decide_content(_scans(files, source, options), options) + others

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The array, as a matrix or, with volumes along the first axis, as a time series."""
        numbers = self._loaded.pop(scan.entry, None) or self.load(scan, options)
        array = numbers.values
        values = scan.extra.get("values")
        content = _content_of_array(array)
        if content == "vector":
            unfolding: Unfolding | None = scan.extra.get("unfolding")
            if unfolding is None:
                unfolding = find_unfolding([array], options, scan.path)
            matrix = unfolding.matrix(array, scan.path)
            return ScanData(
                matrix=matrix,
                labels=_own_labels(scan, len(matrix)),
                values=values,
                notes=(f"vectors are {unfolding}",),
                header=numbers.header,
            )
        if options.data != "auto":
            content = options.data
        elif scan.kind:
            content = scan.kind
        if content == "fc":
            columns = numbers.columns
            columns_only_count = columns is None or all(label.isdigit() for label in columns)
            labels = columns
            if columns_only_count and numbers.rows is not None:
                labels = numbers.rows
            labels = labels or _own_labels(scan, len(array) if array.ndim else 0)
            return ScanData(matrix=array, labels=labels, values=values, header=numbers.header)
        series, labels = _volumes_first(numbers, options)
        labels = labels or _own_labels(scan, series.shape[-1])
        return ScanData(series=series, labels=labels, header=numbers.header)

    def load(self, scan: ScanFile, options: Options) -> Numbers:
        """The numbers of one scan."""
        return _load(scan, options)

    def decide_content(self, scans: Sequence[ScanFile], options: Options) -> list[ScanFile]:
        """Decide from the first scans whether all are matrices or series, and how vectors unfold.

        Parameters
        ----------
        scans : sequence of ScanFile
        options : Options

        Returns
        -------
        list of ScanFile
            With their kind.
        """
        for scan in scans[:N_OPENED_IN_FIND]:
            with suppress(NerveError):  # reported when it is read
                self._loaded[scan.entry] = self.load(scan, options)
        arrays = [numbers.values for numbers in self._loaded.values()]
        if not arrays:
            return list(scans)
        contents = {_content_of_array(array) for array in arrays}
        vectors = [array for array in arrays if _content_of_array(array) == "vector"]
        extra: dict[str, Any] = {}
        if vectors:
            of_one_size = [vector for vector in vectors if vector.size == vectors[0].size]
            extra["unfolding"] = find_unfolding(of_one_size, options, scans[0].path)
        kind = "series" if contents == {"series"} else "fc"
        return [replace(scan, kind=kind, extra={**scan.extra, **extra}) for scan in scans]


def _choose_content(files: Sequence[Path], options: Options) -> tuple[list[Path], dict[Path, str]]:
    """Choose among r, Fisher z and series of the same participants, where names tell them apart.

    Returns the files that are read, and why each other is not.
    """
    contents = {path: _content_in_name(path) for path in files}
    present = [content for content in ("fc", "z", "series") if content in contents.values()]
    if len(present) < 2:
        return list(files), {}
    wanted = present[0]
    if options.prefers_series and "series" in present:
        wanted = "series"
    if options.values == "z" and "z" in present:
        wanted = "z"
    kept = []
    left_out = {}
    for path, content in contents.items():
        if content in ("", wanted):
            kept.append(path)
        else:
            left_out[path] = (
                f"it holds {_WORDS[content]} by its name, and {_WORDS[wanted]} are read"
            )
    return kept, left_out


def _content_in_name(path: Path) -> str:
    """What a file holds by the words of its name: a key of `_HOLDS`, or an empty string."""
    words = re.split(r"[_\-. ]", path.name)[:-1]
    for content, pattern in _HOLDS.items():
        if any(pattern.fullmatch(word) for word in words):
            return content
    return ""


def _scans(files: list[Path], source: Path, options: Options) -> list[ScanFile]:
    """The scans of files of one participant each, or of the participants of each file."""
    scans = []
    single = []
    for path in files:
        scans_of_path = _scans_in(path, source, options, is_only_file=len(files) == 1)
        scans += scans_of_path
        if not scans_of_path:
            single.append(path)
    scans += scans_of_files(single, source, options)
    all_named_z = bool(single) and all(_content_in_name(path) == "z" for path in single)
    if not all_named_z or options.values != "auto":
        return scans
    return [replace(scan, extra={**scan.extra, "values": "z"}, notes=(_Z_NOTE,)) for scan in scans]


def _scans_in(path: Path, source: Path, options: Options, *, is_only_file: bool) -> list[ScanFile]:
    """The participants of a file of many; empty for a file of one, or that cannot be read."""
    is_text = path.name.endswith(TEXT)
    if is_text and not is_only_file:
        return []
    try:
        if is_text:
            scans = _scans_of_rows(path, options)
            if scans:
                return scans
            shapes = {"": _text(path, options).values.shape}
        else:
            shapes = array_shapes(path)
        if options.variable is None and path.suffix in (".npz", *HDF5):
            scans = _archive_scans(path, source, shapes)
            if scans:
                return scans
        may_be_table = is_only_file and (path.suffix != ".npz" or "ids" in options.typed)
        name = _stack_name(shapes, options, path, may_be_table=may_be_table)
        if name is None:
            return []
        axis = _participant_axis(path, name, shapes[name], options)
    except _AmbiguousRows:
        raise
    except (NerveError, OSError):  # reported when it is read
        return []
    if axis is None:
        return []
    n_participants = shapes[name][axis]
    ids = None if is_text else own_ids(path, n_participants, options)
    if ids is not None:
        options = replace(options, ids=ids)
    return scans_in_file(path, n_participants, options, axis=axis, variable=name)


def _archive_scans(path: Path, source: Path, shapes: Shapes) -> list[ScanFile]:
    """An array of each participant under their id, or in a group of HDF5 that has the id's name."""
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1]
    if len(matrices) < 2:
        return []
    groups = [name.rpartition("/")[0] for name in matrices]
    if all(groups) and len({last_name(name) for name in matrices}) == 1:
        scans = []
        for name, group in zip(matrices, groups, strict=True):
            scan = scan_of_file(Path(f"{group}.h5"), Path())
            participant = scan.participant if "sub-" in group else group.rpartition("/")[2]
            scans.append(replace(scan, participant=participant, path=path, key=name))
        return scans
    if any(groups) or {last_name(name) for name in matrices} & set(NAMES):
        return []
    session = scan_of_file(path, source).session
    return [ScanFile(name, path, session=session, key=name) for name in matrices]


def _scans_of_rows(path: Path, options: Options) -> list[ScanFile]:
    """A scan per row, where each row is an id and a vector; empty for other tables.

    The first number of a row is its id where only then the others fit.
    """
    numbers = _text(path, options)
    sizes = expected_sizes(options)
    n_rows, n_values = numbers.values.shape
    ids = None if numbers.columns else numbers.rows
    skip = 0
    if ids is None and sizes and n_values > 1 and not unfoldings(n_values, sizes):
        skip = 1
        if np.all(numbers.values[:, 0] % 1 == 0):
            ids = first_column(path)
    if ids is None or len(ids) < n_rows:
        return []
    if not unfoldings(n_values - skip, sizes):
        return []
    if sizes & {n_rows, n_values} and not _are_typed_ids(ids, options):
        is_series = options.data == "series" or _are_regions(ids, options)
        if is_series or n_rows == n_values or n_values in sizes:
            return []
        raise _AmbiguousRows(
            f"{path}: its {n_rows} rows of {n_values - skip} values after a word can be the "
            f"vectors of {n_rows} participants, or the time series of as many regions. Say which: "
            "--ids FILE with the participants in the order of the rows, or --data series."
        )
    options = replace(options, ids=ids)
    return scans_in_file(path, n_rows, options, axis=0, variable="", skip=skip)


class _AmbiguousRows(NerveError):
    """Rows that are vectors of participants or time series of regions."""


def _are_typed_ids(ids: Sequence[str], options: Options) -> bool:
    """Whether the user named these participants with `--ids`."""
    return "ids" in options.typed and [normal_id(word) for word in ids] == list(options.ids or ())


def _are_regions(words: Sequence[str], options: Options) -> bool:
    """Whether words are labels of the user's regions."""
    return options.file_regions is not None and set(words) <= set(options.file_regions.labels)


def _stack_name(shapes: Shapes, options: Options, path: Path, *, may_be_table: bool) -> str | None:
    """The array that may hold many participants.

    It is the one that the user named, one of three axes or, if it may be a table, the only one of
    two axes.
    """
    stacks = [name for name, shape in shapes.items() if len(shape) == 3]
    tables = []
    if may_be_table:
        for name, shape in shapes.items():
            if len(shape) == 2 and (not name or min(shape) > 1):
                tables.append(name)
    if options.variable is not None:
        name = named_variable(shapes, options.variable, path)
        return name if name in {*stacks, *tables} else None
    if stacks:
        known = [name for name in stacks if last_name(name) in NAMES]
        return (known or stacks)[0]
    return tables[0] if len(tables) == 1 else None


def _participant_axis(
    path: Path, name: str, shape: tuple[int, ...], options: Options
) -> int | None:
    """The axis of an array along which participants lie; None for the array of one participant."""
    n_ids = len(options.ids or ())
    sizes = expected_sizes(options)
    axes = []
    if len(shape) == 3:
        for axis in (0, 2):
            others = {*shape[:axis], *shape[axis + 1 :]}
            if len(others) == 1 and is_symmetric(_slice(path, name, 0, axis, options)):
                axes.append(axis)
        if not axes:  # time series
            axes = [0, 2]
    elif "ids" in options.typed and n_ids == shape[0] != shape[1] and unfoldings(shape[1], sizes):
        return 0
    elif sizes & set(shape) or (shape[0] == shape[1] and n_ids != shape[0]):
        return None
    else:
        for axis in (0, 1):
            candidates = unfoldings(shape[1 - axis], sizes)
            if any(sizes or unfolding.order != "square" for unfolding in candidates):
                axes.append(axis)
    for axis in axes:
        if shape[axis] == n_ids:
            return axis
    return axes[0] if axes else None


def _slice(path: Path, variable: str, index: int, axis: int, options: Options) -> np.ndarray:
    """What one participant has of the array of all."""
    if path.name.endswith(TEXT):
        return _text(path, options).values.take(index, axis)
    return read_slice(path, variable, index, axis)


def _content_of_array(array: np.ndarray) -> str:
    """`vector`, `series` or `fc`: a square array, or one with ones along its diagonal (cut off)."""
    if array.size == max(array.shape, default=0):
        return "vector"
    if array.ndim != 2 or array.shape[0] == array.shape[1]:
        return "fc"
    has_unit_diagonal = np.all(np.abs(np.diagonal(array).astype(float) - 1) <= TOLERANCE)
    return "fc" if has_unit_diagonal else "series"


def _load(scan: ScanFile, options: Options) -> Numbers:
    """The numbers of one scan: of an entry of an archive, a slice of a stack, or a file."""
    path = scan.path
    if isinstance(scan.key, str):
        return Numbers(read_array(path, scan.key))
    if scan.key is not None:
        array = _slice(path, scan.extra["variable"], scan.key, scan.extra["axis"], options)
        return Numbers(array[scan.extra.get("skip", 0) :])
    if path.name.endswith(TEXT):
        return _text(path, options)
    name = ""
    if path.suffix != ".npy":
        name = choose_variable(array_shapes(path), NAMES, options.variable, path)
    return Numbers(read_array(path, name))


_latest_text = keep_latest(read_numbers)


def _own_labels(scan: ScanFile, n_regions: int) -> tuple[str, ...] | None:
    """The labels that a file of arrays holds beside them."""
    if scan.path.name.endswith((*TEXT, ".npy")):
        return None
    return own_labels(scan.path, n_regions)


def _text(path: Path, options: Options) -> Numbers:
    """The numbers of a text, with the header and index that the user names."""
    return _latest_text(path, options.header, options.index, known_codes(options.file_regions))


def _volumes_first(numbers: Numbers, options: Options) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """(volumes, regions) and the labels; transposed where the rows are regions."""
    row_names = numbers.rows or ()
    rows_only_count = all(re.fullmatch(r"[A-Za-z]*\d+(\.0)?", name) for name in row_names)
    sizes = expected_sizes(options)
    n_rows, n_columns = numbers.values.shape
    only_rows_fit = n_rows in sizes and n_columns not in sizes
    if not rows_only_count or only_rows_fit:
        return numbers.values.T, numbers.rows
    return numbers.values, numbers.columns
