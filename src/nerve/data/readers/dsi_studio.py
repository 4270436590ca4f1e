"""DSI Studio: `<scan>.<atlas>.<measure>.<end|pass>.connectivity.mat`.

`name` is one text with the labels of all regions, a line (or word) each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.connectivity import measure_of
from nerve.data.readers.arrays import array_shapes, read_array, word_lists
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.names import scans_of_files
from nerve.data.readers.opening import files_below

ENDING = ".connectivity.mat"
_NAME = re.compile(
    r"(?P<scan>.+?)\.(?P<atlas>[^.]+)\.(?P<measure>[^.]+)(?:\.(?P<ends>end|pass))?\.connectivity\.mat"
)


@dataclass(frozen=True)
class _File:
    path: Path
    scan: str
    atlas: str
    measure: str  # the word of the name

    @property
    def version(self) -> tuple[str, str]:
        return self.atlas, self.measure


class DSIStudio(Reader):
    """Connectivity matrices of DSI Studio."""

    describe = "DSI Studio's ….connectivity.mat"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """One scan per file, of one atlas and one measure."""
        files = []
        for path in files_below(source, ENDING):
            file = _parse(path)
            if file is not None:
                files.append(file)
        if not files:
            return []
        files = _of_one_version(files, source, options)
        names = [file.path.with_name(f"{file.scan}.mat") for file in files]
        scans = scans_of_files(names, source, options)
        return [
            ScanFile(
                scan.participant,
                file.path,
                "fc",
                scan.session,
                scan.task,
                scan.run,
                extra={"measure": file.measure},
            )
            for scan, file in zip(scans, files, strict=True)
        ]

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix with the labels of `name`."""
        matrix = read_array(scan.path, "connectivity")
        measure = _measure(str(scan.extra["measure"]))
        labels = _labels(scan.path)
        if labels is not None and len(labels) != len(matrix):
            raise problem(scan.path, f"{len(labels)} names for {len(matrix)} regions")
        return ScanData(matrix=matrix, labels=labels, values="other", measure=measure)


def _parse(path: Path) -> _File | None:
    """The parts of a name, or None for another kind of file."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    ends = f".{match['ends']}" if match["ends"] else ""
    # the scan is what stands before the endings of images and tracts
    scan = re.split(r"\.(?:src|fib|sz|fz|trk|tt|odf|gqi|nii)\b", match["scan"])[0]
    return _File(path, scan, match["atlas"], match["measure"] + ends)


def _measure(word: str) -> str:
    base = word.split(".")[0]
    return "streamlines" if base in ("count", "ncount", "ncount2") else measure_of(base)


def _of_one_version(files: list[_File], source: Path, options: Options) -> list[_File]:
    """The files of one atlas, and of one measure and way of counting."""
    if options.atlas is not None:
        files = [
            file
            for file in files
            if options.atlas in (file.atlas, file.measure, f"{file.atlas}.{file.measure}")
        ]
    if options.measure is not None and len({file.version for file in files}) > 1:
        files = [file for file in files if _measure(file.measure) == options.measure] or files
    versions = sorted({file.version for file in files})
    if len(versions) != 1:
        words = [".".join(version) for version in versions] or ["no atlas of this name"]
        raise NerveError(
            f"{source}: DSI Studio's files hold several matrices of each participant "
            f"({listed(words, most=12)}), expected one. Name it with --atlas {words[0]}."
        )
    return files


def _labels(path: Path) -> tuple[str, ...] | None:
    """The labels of `name`, which is text or its codes."""
    words = word_lists(path).get("name")
    if words is None and "name" in array_shapes(path):
        codes = np.ravel(read_array(path, "name")).astype(int)
        words = ("".join(chr(code) for code in codes if 0 < code < 0x110000),)
    if words is None:
        return None
    text = "\n".join(words).strip()
    return tuple(text.split("\n")) if "\n" in text else tuple(text.split())
