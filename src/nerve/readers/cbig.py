"""CBIG's MATLAB files: a matrix per participant, or one array of all participants' lower triangles."""

from __future__ import annotations

from pathlib import Path

from nerve.checks import NerveError
from nerve.readers.arrays import choose_variable
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import files_below
from nerve.readers.mat import mat_shapes, read_mat, read_mat_slice, read_mat_words
from nerve.readers.names import scans_of
from nerve.readers.stacks import people_of
from nerve.readers.unfolding import from_triangle, unfoldings

MATRICES = ("corr_mat", "fc_mat", "fc", "subj_final_corr_mat", "FC", "corrmat")
TRIANGLES = ("features_rs", "features")
_LABELS = "struct_names"
_PROBES = 5


class CBIG(Reader):
    """Per subject `corr_mat`, `fc_mat`, `fc` or `subj_final_corr_mat` (400 or 419 square); group `features_rs`.

    Both MATLAB v5 and v7.3. The columns of `features_rs` are participants, and a column is the lower triangle column by
    column, which is the upper one row by row. Labels come from a `struct_names.mat` beside the matrices.
    """

    name = "cbig"
    describe = "CBIG .mat files, one matrix per participant or one features_rs of all"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """Files whose arrays have CBIG's names; only the first few are opened."""
        files = [path for path in files_below(source, ".mat") if path.stem != _LABELS]
        known = (*MATRICES, *TRIANGLES) if options.variable is None else (options.variable,)
        shapes: dict[str, tuple[int, ...]] = {}
        for path in files[:_PROBES]:
            try:
                shapes = {name: shape for name, shape in mat_shapes(path).items() if len(shape) == 2}
            except NerveError:  # a damaged file is reported when it is read
                continue
            if set(known) & set(shapes):
                break
        else:
            return []
        triangles = next((name for name in known if name in shapes and _holds_triangles(name, shapes[name])), None)
        if triangles is not None and len(files) == 1:
            return people_of(files[0], shapes[triangles][1], options, variable=triangles)
        root = source if source.is_dir() else source.parent
        return scans_of(files, root, options, "fc")

    def read(self, scan: Scan, options: Options) -> Reading:
        """The matrix as MATLAB shows it."""
        labels = _labels_beside(scan.path)
        if scan.key is not None:
            column = read_mat_slice(scan.path, scan.extra["variable"], int(scan.key), axis=1)
            return Reading(matrix=from_triangle(column, "upper", scan.path), labels=labels)
        shapes = mat_shapes(scan.path)
        name = choose_variable(shapes, MATRICES, options.variable, scan.path)
        return Reading(matrix=read_mat(scan.path, name), labels=labels)


def _holds_triangles(name: str, shape: tuple[int, ...]) -> bool:
    is_triangle = any(way.order == "upper" and not way.diagonal for way in unfoldings(shape[0]))
    return is_triangle and (name in TRIANGLES or shape[0] != shape[1])


def _labels_beside(path: Path) -> tuple[str, ...] | None:
    file = path.parent / f"{_LABELS}.mat"
    return read_mat_words(file, _LABELS) if file.is_file() else None
