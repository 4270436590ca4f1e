"""GIFT's dynamic FC (`FNCdyn`) is refused: the windows of a scan are not scans."""

from __future__ import annotations

from pathlib import Path

from nerve._utils.errors import NerveError, problem
from nerve.data.readers.arrays import array_shapes, last_name
from nerve.data.readers.base import N_OPENED_IN_FIND, Options, Reader, ScanData, ScanFile
from nerve.data.readers.opening import files_below

_DYNAMIC = "fncdyn"


class GIFT(Reader):
    """Recognises dynamic FC of GIFT, so that its windows are not taken for time series."""

    describe = "GIFT's dynamic FC, which is refused"

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """Refuse files that hold `FNCdyn`, unless the user names another variable."""
        for path in files_below(source, ".mat")[:N_OPENED_IN_FIND]:
            try:
                shapes = array_shapes(path)
            except NerveError:  # reported when it is read
                continue
            dynamic = [name for name in shapes if last_name(name) == _DYNAMIC]
            if dynamic and options.variable in (None, *dynamic):
                shape = shapes[dynamic[0]]
                raise problem(
                    path,
                    f"{dynamic[0]} holds {shape[0]} windows of one scan (dynamic FC)",
                    expected="one matrix or vector per participant",
                    remedy="Average the windows in MATLAB, fc = mean(FNCdyn, 1), save fc alone "
                    "with save(file, 'fc'), and ingest these files; or name another array of "
                    "the file with --variable.",
                )
        return []

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """Nothing is read."""
        raise problem(scan.path, "windows of dynamic FC are not read")
