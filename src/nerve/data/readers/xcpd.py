"""XCP-D (all three generations of names, TSV and CIFTI) and giga_connectome.

| version | matrix |
|---|---|
| up to 0.6 | `…_atlas-A_measure-pearsoncorrelation_conmat.tsv` |
| 0.7 – 0.12 | `…_seg-A_stat-pearsoncorrelation_relmat.tsv` |
| from 26.0 | `…_atlas-A_stat-pearsoncorrelation_relmat.tsv` |
| giga_connectome | `…_seg-A_meas-PearsonCorrelation_desc-…_relmat.tsv`, or of another measure |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nerve.data.connectivity import VALUES, in_words, measure_of
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.cifti import MATRIX, SERIES, read_parcels
from nerve.data.readers.derivatives import (
    BidsName,
    Version,
    by_scan,
    of_one_task,
    one_version,
    parse_names,
    version_of,
)
from nerve.data.readers.opening import files_below
from nerve.data.readers.text import read_column, read_numbers

_MATRIX_SUFFIXES = ("relmat", "conmat", "boldmap")
_FD = ("framewise_displacement", "fd")
_MEAN_FD = ("mean_fd", "meanFD", "mean_framewise_displacement")


class XCPD(Reader):
    """Derivatives of XCP-D or giga_connectome."""

    describe = "XCP-D or giga_connectome derivatives (relmat/conmat and timeseries, TSV or CIFTI)"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per recording, all of one atlas and one variant."""
        names = parse_names(files_below(source, ".tsv", ".csv", MATRIX, SERIES))
        kinds = {
            "fc": [name for name in names if _is_matrix(name)],
            "series": [name for name in names if _is_series(name)],
        }
        kind, chosen, _ = one_version(kinds, options, _version, preferred="(?!meas-).*")
        tables = sorted(
            (name for name in names if name.extension == ".tsv"), key=lambda name: name.get("desc")
        )
        motion = by_scan(name for name in tables if name.suffix == "motion")
        outliers = by_scan(name for name in tables if name.suffix == "outliers")
        quality = by_scan(name for name in tables if name.suffix == "qc")
        # XCP-D writes the same numbers as TSV and as CIFTI, and TSV is read faster
        chosen.sort(key=lambda name: (name.extension != ".tsv", name.path))
        scans = []
        for name in _without_parts(by_scan(chosen)):
            extra = {
                "measure": _measure(name) if kind == "fc" else None,
                "removed": name.companion(outliers),
                "quality": name.companion(quality),
            }
            scans.append(name.as_scan(kind, motion_path=name.companion(motion), extra=extra))
        return of_one_task(scans, options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix or series with its labels; framewise displacement where XCP-D left it."""
        if scan.path.name.endswith((MATRIX, SERIES)):
            data = read_parcels(scan.path)
        else:
            numbers = read_numbers(scan.path)
            data = ScanData.of(scan.kind, numbers.values, labels=numbers.columns)
        motion, mean_fd = _motion(scan, None if data.series is None else len(data.series))
        measure = scan.extra["measure"]
        data = replace(data, motion=motion, mean_fd=mean_fd, measure=measure)
        if measure in (None, "pearson"):
            return data
        notes = (f"by their names the files hold {in_words(measure)}",)
        return replace(data, values=VALUES.get(measure, "other"), notes=notes)


def _is_matrix(name: BidsName) -> bool:
    """Of any measure that the name states.

    XCP-D's `boldmap` is a matrix only if it holds correlations.
    """
    if name.suffix not in _MATRIX_SUFFIXES or name.extension not in (".tsv", MATRIX):
        return False
    if not _statistic(name):
        return False
    return name.suffix != "boldmap" or _measure(name) == "pearson"


def _statistic(name: BidsName) -> str:
    return name.get("stat", "measure", "meas")


def _measure(name: BidsName) -> str:
    return measure_of(_statistic(name))


def _version(name: BidsName) -> Version:
    """Atlas and variant, of which a measure that is not Pearson's is a part."""
    version = version_of(name)
    if _is_series(name) or _measure(name) == "pearson":
        return version
    variant = f"meas-{_statistic(name)}"
    if version.variant:
        variant += f"_{version.variant}"
    return replace(version, variant=variant)


def _is_series(name: BidsName) -> bool:
    is_series = name.suffix == "timeseries" and name.extension in (".tsv", SERIES)
    return is_series and bool(name.get("seg", "atlas")) and name.get("stat") in ("", "mean")


def _without_parts(recordings: Mapping[Any, BidsName]) -> list[BidsName]:
    """Leave out runs where XCP-D also wrote all of them as one (`--combine-runs`).

    They would count twice.
    """
    names = sorted(recordings.values(), key=lambda name: name.path)
    recording = {
        name: replace(name, entities=name.entities | {"run": "", "dir": ""}).scan for name in names
    }
    joined = {recording[name] for name in names if not name.get("run", "dir")}
    return [name for name in names if not name.get("run", "dir") or recording[name] not in joined]


def _motion(scan: ScanFile, n_volumes: int | None) -> tuple[np.ndarray | None, float | None]:
    """Framewise displacement of the volumes in the series, and its mean over all volumes.

    XCP-D may have removed volumes from the series but not from the motion file; `_outliers.tsv`
    says which (1).
    """
    motion = None if scan.motion_path is None else read_column(scan.motion_path, _FD)
    if motion is None:
        if scan.extra["quality"] is None:
            return None, None
        run_means = read_column(scan.extra["quality"], _MEAN_FD)
        if run_means is None or not np.isfinite(run_means).all():
            return None, None
        return None, float(run_means.mean())
    mean_fd = float(np.nanmean(motion)) if np.isfinite(motion).any() else None
    if n_volumes is not None and len(motion) != n_volumes and scan.extra["removed"]:
        removed = read_column(scan.extra["removed"], _FD)
        if removed is not None and len(removed) == len(motion):
            is_kept = removed == 0
            if int(is_kept.sum()) == n_volumes:
                motion = motion[is_kept]
    return motion, mean_fd
