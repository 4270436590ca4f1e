"""XCP-D (all three generations of names, TSV and CIFTI) and giga_connectome.

| version | matrix |
|---|---|
| up to 0.6 | `…_atlas-A_measure-pearsoncorrelation_conmat.tsv` |
| 0.7 – 0.12 | `…_seg-A_stat-pearsoncorrelation_relmat.tsv` |
| from 26.0 | `…_atlas-A_stat-pearsoncorrelation_relmat.tsv` |
| giga_connectome | `…_seg-A_meas-PearsonCorrelation_desc-…_relmat.tsv`, or of another measure |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerve.measures import VALUES, in_words, measure_of
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.bids import SCAN_ENTITIES, BidsName, by_scan, parse_names, path_of
from nerve.readers.browse import files_below
from nerve.readers.cifti import MATRIX, SERIES, read_parcels
from nerve.readers.text import read_column, read_numbers
from nerve.readers.versions import Version, choose_version, chosen_kind, of_one_task, version_of

_MATRIX_SUFFIXES = ("relmat", "conmat", "boldmap")
_FD = ("framewise_displacement", "fd")
_MEAN_FD = ("mean_fd", "meanFD", "mean_framewise_displacement")


class XCPD(Reader):
    """Derivatives of XCP-D or giga_connectome."""

    name = "xcpd"
    describe = "XCP-D or giga_connectome derivatives (relmat/conmat and timeseries, TSV or CIFTI)"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """One scan a recording, all of one atlas and one variant."""
        names = parse_names(files_below(source, ".tsv", ".csv", MATRIX, SERIES))
        kinds = {"fc": [n for n in names if _is_matrix(n)], "series": [n for n in names if _is_series(n)]}
        kind = chosen_kind(kinds, options)
        if not kind:
            return []
        versions = {name: _version(name) for name in kinds[kind]}
        plain = {versions[name].variant for name in kinds[kind] if _measure(name) == "pearson"}
        preferred = dict.fromkeys(plain, 0) if len(plain) == 1 else {}  # of several the user must choose
        version = choose_version(versions.values(), options, preferred=preferred)
        chosen = [name for name in kinds[kind] if versions[name] == version]
        motion = by_scan(sorted((n for n in names if _is_motion(n)), key=lambda n: n.get("desc")))
        removed = by_scan(n for n in names if n.suffix == "outliers" and n.extension == ".tsv")
        quality = by_scan(n for n in names if n.suffix == "qc")
        scans = []
        for name in _without_parts(_text_first(chosen)):
            extra = {"removed": path_of(name, removed), "quality": path_of(name, quality)}
            measure = _measure(name) if kind == "fc" else None
            path = path_of(name, motion)
            scans.append(name.as_scan(kind, motion_path=path, extra={**extra, "measure": measure}))
        return of_one_task(scans, options)

    def read(self, scan: Scan, options: Options) -> Reading:
        """The matrix or series with its labels; framewise displacement where XCP-D left it."""
        if scan.path.name.endswith((MATRIX, SERIES)):
            reading = read_parcels(scan.path)
        else:
            numbers = read_numbers(scan.path)
            reading = Reading.of(scan.kind, numbers.values, labels=numbers.columns)
        motion, mean_fd = _motion(scan, None if reading.series is None else len(reading.series))
        measure = scan.extra["measure"]
        reading = replace(reading, motion=motion, mean_fd=mean_fd, measure=measure)
        if measure in (None, "pearson"):
            return reading
        notes = (f"by their names the files hold {in_words(measure)}",)
        return replace(reading, values=VALUES.get(measure, "other"), notes=notes)


def _is_matrix(name: BidsName) -> bool:
    """Of any measure that the name states; XCP-D's `boldmap` is a matrix only if it holds correlations."""
    if name.suffix not in _MATRIX_SUFFIXES or name.extension not in (".tsv", MATRIX) or not _statistic(name):
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
    return replace(version, variant="_".join(filter(None, (f"meas-{_statistic(name)}", version.variant))))


def _is_series(name: BidsName) -> bool:
    named = name.suffix == "timeseries" and name.extension in (".tsv", SERIES)
    return named and bool(name.get("seg", "atlas")) and name.get("stat") in ("", "mean")


def _is_motion(name: BidsName) -> bool:
    return name.suffix == "motion" and name.extension == ".tsv"


def _text_first(names: Iterable[BidsName]) -> list[BidsName]:
    """One file a recording: XCP-D writes the same numbers as TSV and as CIFTI, and TSV is read faster."""
    first = by_scan(sorted(names, key=lambda name: (name.extension != ".tsv", name.path)))
    return sorted(first.values(), key=lambda name: name.path)


def _without_parts(names: list[BidsName]) -> list[BidsName]:
    """Runs are left out where XCP-D also wrote all of them as one (`--combine-runs`): they would count twice."""
    joined = {_recording(name) for name in names if not name.get("run", "dir")}
    return [name for name in names if not name.get("run", "dir") or _recording(name) not in joined]


def _recording(name: BidsName) -> tuple[str, ...]:
    return tuple(name.get(key) for key in SCAN_ENTITIES if key not in ("run", "dir"))


def _motion(scan: Scan, n_volumes: int | None) -> tuple[np.ndarray | None, float | None]:
    """Framewise displacement of the volumes in the series, and its mean over all volumes.

    XCP-D may have removed volumes from the series but not from the motion file; `_outliers.tsv` says which (1).
    """
    motion = None
    if scan.motion_path is not None:
        motion = read_column(scan.motion_path, _FD)
    if motion is None:
        return None, _mean_from_quality(scan)
    mean_fd = float(np.nanmean(motion)) if np.isfinite(motion).any() else None
    if n_volumes is not None and len(motion) != n_volumes and scan.extra["removed"]:
        removed = read_column(scan.extra["removed"], _FD)
        if removed is not None and len(removed) == len(motion) and int((removed == 0).sum()) == n_volumes:
            motion = motion[removed == 0]
    return motion, mean_fd


def _mean_from_quality(scan: Scan) -> float | None:
    path = scan.extra["quality"]
    if path is None or path.suffix != ".tsv":
        return None
    column = read_column(path, _MEAN_FD)
    return None if column is None or not np.isfinite(column).all() else float(column.mean())
