"""ABIDE Preprocessed: `<FILE_ID>_rois_<atlas>.1D`, volumes × regions, first line `#1 #2 …`."""

from __future__ import annotations

import re
from pathlib import Path

from nerve._utils.errors import problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import Version, one_version
from nerve.data.readers.opening import files_below, matching_names
from nerve.data.readers.text import read_numbers

_NAME = re.compile(r"(?P<participant>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D")


class ABIDE(Reader):
    """Time series of ABIDE Preprocessed (`abide.org` pipelines C-PAC, CCS, DPARSF, NIAK)."""

    describe = "ABIDE Preprocessed time series, <FILE_ID>_rois_<atlas>.1D"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The series of one atlas; several atlases in one folder need `--atlas`."""
        files = matching_names(files_below(source, ".1D"), _NAME)
        _, chosen, version = one_version({"series": files}, options, _version)
        extra = {"atlas": version.atlas}
        return [
            ScanFile(match["participant"], path, "series", extra=extra) for path, match in chosen
        ]

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The series, with the numbers of the regions as labels."""
        numbers = read_numbers(scan.path)
        regions = options.file_regions
        if regions is not None and regions.name.startswith("schaefer"):
            raise problem(
                scan.path,
                f"the series are of the atlas {scan.extra['atlas']} by their name",
                expected=f"{regions.name}, which --parcellation says",
                remedy="Describe the atlas: --parcellation TSV with columns label and network.",
            )
        return ScanData(series=numbers.values, labels=numbers.columns)


def _version(file: tuple[Path, re.Match[str]]) -> Version:
    _, match = file
    return Version(match["atlas"])
