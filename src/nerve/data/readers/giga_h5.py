"""Reads giga_connectome before version 0.5: HDF5 files with a group per participant and session.

A file is of all participants (`atlas-MIST_desc-simple.h5`) or of one (`…_relmat.h5`). The arrays
are named after the scan, the atlas and its resolution:
`sub-1_task-rest_run-1_atlas-MIST_desc-64_connectome` and `…_timeseries`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py

from nerve.data.readers.arrays import as_numbers
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import (
    BidsName,
    of_one_task,
    one_version,
    parse_name,
    version_of,
)
from nerve.data.readers.nested import own_dataset
from nerve.data.readers.opening import explained_errors, files_below, require_file

_KINDS = {"connectome": "fc", "timeseries": "series"}


class GigaH5(Reader):
    """HDF5 files of giga_connectome."""

    describe = "giga_connectome's .h5 files, one for all participants or one each"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per array, all of one atlas and one resolution."""
        kinds: dict[str, list[tuple[BidsName, str]]] = {"fc": [], "series": []}
        for path in files_below(source, ".h5", ".hdf5"):
            for name, key in _arrays(path):
                kinds[_KINDS[name.suffix]].append((name, key))
        kind, chosen, _ = one_version(kinds, options, lambda array: version_of(array[0]))
        return of_one_task([name.as_scan(kind, key=key) for name, key in chosen], options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix or series; these files hold no labels."""
        with explained_errors(require_file(scan.path), "a whole HDF5 file"):
            with h5py.File(scan.path, "r") as file:
                array = own_dataset(file, str(scan.key), scan.path)[()]
            return ScanData.of(scan.kind, as_numbers(array, scan.path))


def _arrays(path: Path) -> Iterator[tuple[BidsName, str]]:
    """Name and path of each array that is named as giga_connectome names them.

    A session may stand only above them.
    """
    keys: list[str] = []
    try:
        with h5py.File(require_file(path), "r") as file:  # visiting follows no links to other files
            file.visit(keys.append)
    except Exception:  # another kind of file, or a damaged one
        return
    for key in sorted(keys):
        *above, last = key.split("/")
        name = parse_name(f"{last}.h5")
        if name is not None and name.suffix in _KINDS:
            session = next((part[4:] for part in above if part.startswith("ses-")), name.get("ses"))
            yield replace(name, path=path, entities=name.entities | {"ses": session}), key
