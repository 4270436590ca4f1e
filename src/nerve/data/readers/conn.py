"""CONN's first-level results: `resultsROI_Condition001.mat` of all participants, or one file per participant.

`Z` is R × R2 (× participants) of Fisher z, with an empty diagonal; `names` are the R sources and `names2` the R2
targets, among which the sources are found by name.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from nerve._utils.errors import problem
from nerve.data.readers.arrays import array_shapes, read_array, read_slice, read_words
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import of_one_task
from nerve.data.readers.names import scans_in_file
from nerve.data.readers.opening import files_below

_ONE = re.compile(r"resultsROI_(Subject\d+)_(Condition\d+)\.mat")
_ALL = re.compile(r"resultsROI_(Condition\d+)\.mat")


class CONN(Reader):
    """ROI-to-ROI matrices of the CONN toolbox."""

    describe = "CONN's resultsROI_Condition001.mat or resultsROI_Subject001_Condition001.mat"

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The files of single participants where there are any, else the participants of the file of all."""
        files = files_below(source, ".mat")
        single = [(path, found) for path in files if (found := _ONE.fullmatch(path.name))]
        if single:
            return of_one_task(
                [ScanFile(found[1], path, "fc", task=found[2]) for path, found in single], options
            )
        group = [(path, found[1]) for path in files if (found := _ALL.fullmatch(path.name))]
        chosen = [pair for pair in group if options.task in (None, pair[1])]
        return of_one_task(
            [scan for path, task in chosen for scan in _people(path, task, options)], options
        )

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """Fisher z with the labels of `names`."""
        sources, targets = read_words(scan.path, "names"), read_words(scan.path, "names2")
        z = (
            read_array(scan.path, "Z")
            if scan.key is None
            else read_slice(scan.path, "Z", int(scan.key), axis=2)
        )
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


def _people(path: Path, task: str, options: Options) -> list[ScanFile]:
    shape = array_shapes(path).get("Z", ())
    if len(shape) != 3:
        raise problem(path, f"Z has shape {shape}", expected="sources x targets x participants")
    return scans_in_file(path, shape[2], options, task=task)
