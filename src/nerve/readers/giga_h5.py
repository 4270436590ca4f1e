"""giga_connectome before version 0.5: HDF5 files with a group per participant and session.

A file is of all participants (`atlas-MIST_desc-simple.h5`) or of one (`…_relmat.h5`). The arrays are named after the
scan, the atlas and its resolution: `sub-1_task-rest_run-1_atlas-MIST_desc-64_connectome` and `…_timeseries`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nerve.readers.arrays import as_numbers
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.bids import BidsName, parse_name
from nerve.readers.browse import files_below
from nerve.readers.mat import own_dataset
from nerve.readers.opening import require_file, sentences
from nerve.readers.versions import choose_version, chosen_kind, of_one_task, version_of

_KINDS = {"connectome": "fc", "timeseries": "series"}


class GigaH5(Reader):
    """HDF5 files of giga_connectome."""

    name = "giga_h5"
    describe = "giga_connectome's .h5 files, one for all participants or one each"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """One scan per array, all of one atlas and one resolution."""
        arrays = [found for path in files_below(source, ".h5", ".hdf5") for found in _arrays(path)]
        kinds = {kind: [one for one in arrays if _KINDS[one[2].suffix] == kind] for kind in ("fc", "series")}
        kind = chosen_kind(kinds, options)
        if not kind:
            return []
        version = choose_version((version_of(name) for _, _, name in kinds[kind]), options)
        chosen = [one for one in kinds[kind] if version_of(one[2]) == version]
        scans = [replace(name.as_scan(kind, key=key), path=path) for path, key, name in chosen]
        return of_one_task([replace(scan, session=_session(str(scan.key)) or scan.session) for scan in scans], options)

    def read(self, scan: Scan, options: Options) -> Reading:
        """The matrix or series; these files hold no labels."""
        import h5py

        with sentences(require_file(scan.path), "a whole HDF5 file"), h5py.File(scan.path, "r") as file:
            return Reading.of(scan.kind, as_numbers(own_dataset(file, str(scan.key), scan.path)[()], scan.path))


def _arrays(path: Path) -> Iterator[tuple[Path, str, BidsName]]:
    """The arrays of a file that are named as giga_connectome names them."""
    import h5py

    keys: list[str] = []

    def visit(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            keys.append(key)

    try:
        with h5py.File(require_file(path), "r") as file:
            file.visititems(visit)  # which follows no links to other files
    except Exception:  # another kind of file, or a damaged one
        return
    for key in sorted(keys):
        name = parse_name(f"{key.rpartition('/')[2]}.h5")
        if name is not None and name.suffix in _KINDS:
            yield path, key, name


def _session(key: str) -> str:
    return next((part[4:] for part in key.split("/")[:-1] if part.startswith("ses-")), "")
