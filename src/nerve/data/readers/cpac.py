"""RBC's C-PAC derivatives: matrices without header or index, and `.1D` time series.

Files have no labels; the atlas in the name (`Schaefer2018p400n17`) says which order the rows are
in. Missing parcels are rows of zeros with 1 on the diagonal, and are left so: the framework lists
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nerve._utils.errors import listed
from nerve.data.atlas_tables import SCHAEFER_SIZES
from nerve.data.parcellation import load_parcellation
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import (
    BidsName,
    Version,
    by_scan,
    of_one_task,
    one_version,
    parse_names,
    schaefer_of,
    version_of,
)
from nerve.data.readers.opening import files_below
from nerve.data.readers.text import read_numbers

_WITHDRAWN = (
    "WARNING: the Reproducible Brain Charts withdrew their C-PAC release in May 2026 (the "
    "repetition time was reset to "
    "1 s, so the band-pass filter is wrong): if these files are of it, use the XCP-D release of "
    "July 2026 instead."
)
_RECOMMENDED = "reg-36Parameter"  # by RBC, where several are there


class CPAC(Reader):
    """Derivatives of C-PAC as the Reproducible Brain Charts release them."""

    describe = "RBC C-PAC derivatives (…_correlations.tsv, …_timeseries.1D)"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per recording, of one atlas and one denoising strategy, links included."""
        names = parse_names(
            files_below(source, "_correlations.tsv", "_timeseries.1D", "_motion.1D")
        )
        kinds = {
            "fc": [n for n in names if _is_matrix(n)],
            "series": [n for n in names if _is_series(n)],
        }
        kind, chosen, version = one_version(kinds, options, _version, preferred=_RECOMMENDED)
        if not kind:
            return []
        motion = by_scan(
            n for n in names if n.suffix == "motion" and n.get("desc") == "FDJenkinson"
        )
        others = {_version(name) for name in kinds[kind]} - {version}
        same_atlas = sorted(other.variant for other in others if other.atlas == version.atlas)
        notes = [_WITHDRAWN]
        if same_atlas:
            notes.append(
                f"Matrices of {version.variant} were taken; the source also has "
                f"{listed(same_atlas)} (--atlas)."
            )
        more: dict[str, Any] = {"extra": {"atlas": version.atlas}, "notes": tuple(notes)}
        recordings = by_scan(chosen).values()
        return of_one_task(
            [n.as_scan(kind, motion_path=n.companion(motion), **more) for n in recordings], options
        )

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix or series, labelled by the atlas' name unless the user named an order."""
        values = read_numbers(scan.path).values
        motion = None if scan.motion_path is None else read_numbers(scan.motion_path).values[:, 0]
        labels = (
            None if options.order is not None else _labels(scan.extra["atlas"], values.shape[1])
        )
        stated = labels is not None
        notes = (
            f"The files have no labels: the order of the regions is that of {scan.extra['atlas']}.",
        ) * stated
        return ScanData.of(
            scan.kind, values, labels=labels, motion=motion, notes=notes, stated=stated
        )


def _is_matrix(name: BidsName) -> bool:
    return (
        name.suffix == "correlations"
        and name.extension == ".tsv"
        and name.get("desc").startswith("Pearson")
    )


def _is_series(name: BidsName) -> bool:
    return name.suffix == "timeseries" and name.extension == ".1D" and name.get("desc") == "Mean"


def _version(name: BidsName) -> Version:
    return version_of(name, "reg")


def _labels(atlas: str, n_regions: int) -> tuple[str, ...] | None:
    size, networks = schaefer_of(atlas)
    if size not in SCHAEFER_SIZES or size != n_regions:
        return None
    return load_parcellation(f"schaefer{size}-{networks}").labels
