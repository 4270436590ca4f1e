"""ABIDE Preprocessed: `<FILE_ID>_rois_<atlas>.1D`, volumes × regions, first line `#1 #2 …`."""

from __future__ import annotations

import re
from pathlib import Path

from nerve.checks import NerveError, listed, one_of, problem
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import files_below, place
from nerve.readers.text import read_numbers

_NAME = re.compile(r"(?P<person>.+)_rois_(?P<atlas>[A-Za-z0-9]+)\.1D")


class ABIDE(Reader):
    """Time series of ABIDE Preprocessed (`abide.org` pipelines C-PAC, CCS, DPARSF, NIAK)."""

    name = "abide"
    describe = "ABIDE Preprocessed time series, <FILE_ID>_rois_<atlas>.1D"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """The series of one atlas; several atlases in one folder need `--atlas`."""
        named = [(path, match) for path in files_below(source, ".1D") if (match := _NAME.fullmatch(path.name))]
        atlases = sorted({match["atlas"] for _, match in named})
        if not atlases:
            return []
        if options.atlas is not None:
            one_of("--atlas", options.atlas, atlases)
        elif len(atlases) > 1:
            raise NerveError(
                f"{source}: there are series of several atlases ({listed(atlases)}). Choose one with --atlas."
            )
        atlas = options.atlas or atlases[0]
        extra = {"atlas": atlas}
        return [Scan(match["person"], path, "series", extra=extra) for path, match in named if match["atlas"] == atlas]

    def read(self, scan: Scan, options: Options) -> Reading:
        """The series, with the numbers of the regions as labels."""
        numbers = read_numbers(scan.path, scan.participant)
        known = options.order or options.parcellation
        if known is not None and known.name.startswith("schaefer"):
            raise problem(
                place(scan),
                f"the series are of the atlas {scan.extra['atlas']} by their name",
                expected=f"{known.name}, which --parcellation says",
                remedy="Describe the atlas: --parcellation TSV with columns label and network.",
            )
        return Reading(series=numbers.values, labels=numbers.columns)
