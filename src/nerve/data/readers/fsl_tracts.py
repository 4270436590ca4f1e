"""FSL's probtrackx2 in network mode: `fdt_network_matrix` and `waytotal` in a folder each.

Entry (i, j) counts the samples from seed i that reached j, so that the matrix is not symmetric and
rows depend on how many samples each seed sent. Each row is divided by its waytotal, and the mean of
the matrix and its mirror is taken.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from nerve._utils.errors import problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.names import scans_of_files
from nerve.data.readers.opening import files_below
from nerve.data.readers.text import read_numbers

MATRIX = "fdt_network_matrix"
_TOTALS = "waytotal"
_NOTE = "each row was divided by its waytotal, then the mean of the matrix and its mirror taken"


class FSLTracts(Reader):
    """Structural connectomes of probtrackx2."""

    describe = "FSL's fdt_network_matrix with waytotal, one folder per participant"

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per folder."""
        paths = [path for path in files_below(source, MATRIX) if path.name == MATRIX]
        # the names of all files are the same: only their folders differ
        names = [path.with_name("matrix.txt") for path in paths]
        scans = scans_of_files(names, source, options)
        return [
            replace(scan, path=path, kind="fc") for scan, path in zip(scans, paths, strict=True)
        ]

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The share of the samples of each seed that reached the other, in both directions."""
        beside = scan.path.with_name(_TOTALS)
        if not beside.is_file():
            raise problem(
                scan.path,
                f"there is no {_TOTALS} beside it",
                expected="the number of samples of each seed, by which rows are divided",
                remedy=f"Copy {_TOTALS} of the same run of probtrackx2 into its folder.",
            )
        counts = read_numbers(scan.path, "no", "no").values
        totals = read_numbers(beside, "no", "no").values.ravel()
        if counts.shape != (len(totals), len(totals)):
            shape = " x ".join(map(str, counts.shape))
            raise problem(scan.path, f"the matrix is {shape} for {len(totals)} waytotals")
        shares = counts / np.where(totals > 0, totals, 1)[:, None]
        return ScanData(
            matrix=(shares + shares.T) / 2, values="other", measure="streamlines", notes=(_NOTE,)
        )
