"""CBIG's MATLAB files: a matrix per participant, or the lower triangles of all in one array."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nerve._utils.errors import NerveError
from nerve.data.readers.arrays import (
    Shapes,
    array_shapes,
    choose_variable,
    read_array,
    read_slice,
    read_words,
)
from nerve.data.readers.base import N_OPENED_IN_FIND, Options, Reader, ScanData, ScanFile
from nerve.data.readers.names import scans_in_file, scans_of_files
from nerve.data.readers.opening import files_below
from nerve.data.readers.own_words import own_ids, own_labels
from nerve.data.readers.unfolding import from_triangle, unfoldings

_MATRICES = ("corr_mat", "fc_mat", "fc", "subj_final_corr_mat", "FC", "corrmat")
_TRIANGLES = ("features_rs", "features")
_LABELS = "struct_names"


class CBIG(Reader):
    """Per participant `corr_mat`, `fc_mat`, `fc` or `subj_final_corr_mat` (400 or 419 square).

    Or `features_rs`, an array of all participants.

    Both MATLAB v5 and v7.3. The columns of `features_rs` are participants, and a column is the
    lower triangle column by column, which is the upper one row by row. Labels come from a
    `struct_names.mat` beside the matrices.
    """

    describe = "CBIG .mat files, one matrix per participant or one features_rs of all"
    uses = ("variable",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """Files whose arrays have CBIG's names; only the first few are opened."""
        files = [path for path in files_below(source, ".mat") if path.stem != _LABELS]
        known = (*_MATRICES, *_TRIANGLES) if options.variable is None else (options.variable,)
        shapes: Shapes = {}
        for path in files[:N_OPENED_IN_FIND]:
            shapes = _shapes(path, known)
            if shapes:
                break
        if not shapes:
            return []
        triangles = [
            name
            for name in known
            if name in shapes and _holds_triangles(name, shapes[name], options.format == self.name)
        ]
        if triangles and len(files) == 1:
            name = triangles[0]
            n_participants = shapes[name][1]
            ids = own_ids(files[0], n_participants, options)
            if ids is not None:
                options = replace(options, ids=ids)
            return scans_in_file(files[0], n_participants, options, variable=name)
        if not any(rows == columns for rows, columns in shapes.values()):
            return []
        return scans_of_files(files, source, options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix as MATLAB shows it."""
        beside = scan.path.parent / f"{_LABELS}.mat"
        if scan.key is not None:
            column = read_slice(scan.path, scan.extra["variable"], int(scan.key), axis=1)
            matrix = from_triangle(column, "upper", scan.path)
        else:
            name = choose_variable(array_shapes(scan.path), _MATRICES, options.variable, scan.path)
            matrix = read_array(scan.path, name)
        if beside.is_file():
            labels: tuple[str, ...] | None = read_words(beside, _LABELS)
        else:
            labels = own_labels(scan.path, len(matrix))
        return ScanData(matrix=matrix, labels=labels)


def _shapes(path: Path, known: tuple[str, ...]) -> Shapes:
    """The arrays of two axes, if one of them is known."""
    try:
        shapes: Shapes = {
            name: shape
            for name, shape in array_shapes(path).items()
            if len(shape) == 2 and min(shape) > 1
        }
    except NerveError:  # a damaged file is reported when it is read
        return {}
    return shapes if set(known) & set(shapes) else {}


def _holds_triangles(name: str, shape: tuple[int, ...], is_stated: bool) -> bool:
    """Whether the columns of an array are CBIG's triangles: by its name, or by `--format cbig`.

    Elsewhere a triangle may be written in another order, which `plain` finds out.
    """
    is_upper_triangle = any(
        unfolding.order == "upper" and not unfolding.diagonal for unfolding in unfoldings(shape[0])
    )
    is_named_so = name in _TRIANGLES or (is_stated and shape[0] != shape[1])
    return is_upper_triangle and is_named_so
