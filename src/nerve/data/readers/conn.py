"""CONN: matrices (`resultsROI_Condition001.mat`, or one file per participant) and time series.

`Z` is R × R2 (× participants) of Fisher z, with an empty diagonal; `names` are the R sources and
`names2` the R2 targets, among which the sources are found by name.
`ROI_Subject001_Condition001.mat` holds the time series: a cell of `data` per name, volumes x 1 for
a region and more columns for white matter and the like, which are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve.data.readers.arrays import (
    array_shapes,
    read_array,
    read_cell_array,
    read_slice,
    read_words,
)
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import of_one_task
from nerve.data.readers.names import scans_in_file
from nerve.data.readers.opening import files_below, matching_names

_MATRIX_OF_PARTICIPANT = re.compile(r"resultsROI_(Subject\d+)_(Condition\d+)\.mat")
_SERIES = re.compile(r"ROI_(Subject\d+)_(?:(Condition\d+)|Session(\d+))\.mat")
_MATRICES_OF_ALL = re.compile(r"resultsROI_(Condition\d+)\.mat")


class CONN(Reader):
    """ROI-to-ROI matrices and time series of regions of the CONN toolbox."""

    describe = "CONN's resultsROI_….mat (matrices) or ROI_Subject001_….mat (time series)"

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The files of single participants if there are any, else those in the file of all."""
        files = files_below(source, ".mat")
        series = _series_scans(files)
        files_of_participants = matching_names(files, _MATRIX_OF_PARTICIPANT)
        files_of_all = matching_names(files, _MATRICES_OF_ALL)
        has_matrices = bool(files_of_participants or files_of_all)
        if series and (options.prefers_series or not has_matrices):
            return of_one_task(series, options)
        scans = []
        for path, match in files_of_participants:
            scans.append(ScanFile(match[1], path, "fc", task=match[2]))
        if not scans:
            for path, match in files_of_all:
                if options.task in (None, match[1]):
                    scans += _scans_of_all(path, match[1], options)
        return of_one_task(scans, options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """Fisher z with the labels of `names`, or the series of the regions."""
        if scan.kind == "series":
            return _read_series(scan)
        sources = read_words(scan.path, "names")
        targets = read_words(scan.path, "names2")
        if scan.key is None:
            z = read_array(scan.path, "Z")
        else:
            z = read_slice(scan.path, "Z", int(scan.key), axis=2)
        if z.ndim != 2 or z.shape != (len(sources), len(targets)):
            raise problem(
                scan.path, f"Z is {z.shape} for {len(sources)} names and {len(targets)} names2"
            )
        lacking = [name for name in sources if name not in targets]
        if lacking:
            raise problem(
                scan.path,
                f"{len(lacking)} of names are not among names2",
                expected="square results",
            )
        matrix = np.array(z[:, [targets.index(name) for name in sources]], np.float64)
        np.fill_diagonal(matrix, 0.0)
        return ScanData(matrix=matrix, labels=sources, values="z")


def _series_scans(files: list[Path]) -> list[ScanFile]:
    """The files of time series; `Condition000` is the whole scan and stands for its conditions."""
    scans = []
    for path, match in matching_names(files, _SERIES):
        condition = match[2] or ""
        session = match[3] or ""
        scans.append(ScanFile(match[1], path, "series", session=session, task=condition))
    all_conditions = [scan for scan in scans if scan.task == "Condition000"]
    return all_conditions or scans


def _read_series(scan: ScanFile) -> ScanData:
    """The series of all regions with one column each.

    Volumes of weight 0 are of other conditions.
    """
    names = read_words(scan.path, "names")
    cells = read_cell_array(scan.path, "data")
    if len(names) != len(cells):
        raise problem(scan.path, f"{len(cells)} cells of data for {len(names)} names")
    volumes = max(map(len, cells), default=0)
    labels = []
    columns = []
    for name, cell in zip(names, cells, strict=True):
        if cell.shape == (volumes, 1):
            labels.append(name)
            columns.append(cell[:, 0])
    if not columns:
        raise problem(scan.path, "no cell of data is a series", expected="volumes x 1 for a region")
    series = np.column_stack(columns).astype(np.float64)
    notes = []
    n_others = len(cells) - len(columns)
    if n_others:
        notes.append(f"{n_others} of CONN's names have several series each and are left out")
    weights = _weights(scan.path, volumes)
    if weights is not None and not weights.all():
        series = series[weights]
        notes.append("volumes outside the condition (weight 0) are left out")
    return ScanData(series=series, labels=tuple(labels), notes=tuple(notes))


def _weights(path: Path, volumes: int) -> np.ndarray | None:
    """Whether each volume belongs to the condition, where the file says so."""
    try:
        first_cell = read_cell_array(path, "conditionweights")[0]
    except (NerveError, KeyError):
        return None
    weights = np.ravel(first_cell)
    return weights > 0 if len(weights) == volumes else None


def _scans_of_all(path: Path, task: str, options: Options) -> list[ScanFile]:
    """The scans in a file of all participants."""
    shape = array_shapes(path).get("Z", ())
    if len(shape) != 3:
        raise problem(path, f"Z has shape {shape}", expected="sources x targets x participants")
    return scans_in_file(path, shape[2], options, task=task)
