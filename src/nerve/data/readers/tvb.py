"""The Virtual Brain: `weights.txt` and `centres.txt` per participant, in an archive or a folder.

A line of `centres.txt` is the label of a region and its centre. Lengths and other files are left
out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nerve._utils.errors import NerveError, problem
from nerve.data.readers.archives import (
    members_of,
    read_member_lines,
    read_member_numbers,
    zips_below,
)
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.names import scans_of_files
from nerve.data.readers.opening import files_below
from nerve.data.readers.text import read_lines, read_numbers

WEIGHTS = "weights.txt"
CENTRES = ("centres.txt", "centers.txt")


class TVB(Reader):
    """Structural connectomes of The Virtual Brain."""

    describe = "The Virtual Brain's weights.txt and centres.txt, zipped or in folders"

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per archive, or per folder with both files."""
        archives = [path for path in zips_below(source) if _holds_both(path)]
        folders = []
        for path in files_below(source, WEIGHTS):
            if path.name == WEIGHTS and _centres_beside(path) is not None:
                folders.append(path)
        scans = scans_of_files([path.with_suffix(".txt") for path in archives], source, options)
        zipped = [replace(scan, path=path) for scan, path in zip(scans, archives, strict=True)]
        in_folders = scans_of_files(folders, source, options)
        return [replace(scan, kind="fc") for scan in [*zipped, *in_folders]]

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The weights with the labels of the centres."""
        if scan.path.suffix == ".zip":
            weights = read_member_numbers(scan.path, _member(scan.path, WEIGHTS), "no", "no")
            lines = read_member_lines(scan.path, _member(scan.path, *CENTRES))
        else:
            weights = read_numbers(scan.path, "no", "no")
            lines = read_lines(_centres_beside(scan.path) or scan.path)
        labels = tuple(line.split()[0] for line in lines if not line.startswith("#"))
        if len(labels) != len(weights.values):
            raise problem(
                scan.path,
                f"weights of {len(weights.values)} regions and {len(labels)} centres",
                expected="as many of both",
            )
        return ScanData(matrix=weights.values, labels=labels, values="other", measure="streamlines")


def _holds_both(path: Path) -> bool:
    try:
        members = [member.rpartition("/")[2] for member in members_of(path)]
    except NerveError:  # no archive, or a damaged one
        return False
    return WEIGHTS in members and any(name in members for name in CENTRES)


def _member(path: Path, *names: str) -> str:
    return next(name for name in members_of(path) if name.rpartition("/")[2] in names)


def _centres_beside(path: Path) -> Path | None:
    beside = [path.with_name(name) for name in CENTRES]
    return next((centres for centres in beside if centres.is_file()), None)
