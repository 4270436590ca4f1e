"""ABIDE Preprocessed: `<FILE_ID>_rois_<atlas>.1D`, volumes × regions, first line `#1 #2 …`."""

from __future__ import annotations

import re
from pathlib import Path

from nerve._utils.errors import problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import Version, one_version
from nerve.data.readers.opening import files_below
from nerve.data.readers.text import read_numbers

_NAME = re.compile(r"(?P<person>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D")


class ABIDE(Reader):
    """Time series of ABIDE Preprocessed (`abide.org` pipelines C-PAC, CCS, DPARSF, NIAK)."""

    describe = "ABIDE Preprocessed time series, <FILE_ID>_rois_<atlas>.1D"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The series of one atlas; several atlases in one folder need `--atlas`."""
        named = [
            (path, match)
            for path in files_below(source, ".1D")
            if (match := _NAME.fullmatch(path.name))
        ]
        _, chosen, version = one_version(
            {"series": named}, options, lambda one: Version(one[1]["atlas"])
        )
        extra = {"atlas": version.atlas}
        return [ScanFile(match["person"], path, "series", extra=extra) for path, match in chosen]

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The series, with the numbers of the regions as labels."""
        numbers, known = read_numbers(scan.path), options.rows
        if known is not None and known.name.startswith("schaefer"):
            found = f"the series are of the atlas {scan.extra['atlas']} by their name"
            remedy = "Describe the atlas: --parcellation TSV with columns label and network."
            raise problem(
                scan.path, found, expected=f"{known.name}, which --parcellation says", remedy=remedy
            )
        return ScanData(series=numbers.values, labels=numbers.columns)
