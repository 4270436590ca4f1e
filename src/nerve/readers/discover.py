"""Find the scans below a source and the reader that knows them."""

from __future__ import annotations

from pathlib import Path

from nerve.checks import NerveError, listed, problem
from nerve.readers import READERS, get_reader
from nerve.readers.base import Options, Reader, Scan
from nerve.readers.opening import require_file


def discover(source: Path, format: str, options: Options) -> tuple[Reader, list[Scan]]:
    """The reader and its scans.

    Parameters
    ----------
    source : Path
        A folder or a file.
    format : str
        A name in `READERS`, or "auto" for the reader that finds most scans (of equals, the first in `READERS`); readers
        of files without any convention are asked only when no other finds anything.
    """
    if source.is_symlink() and not source.exists():
        require_file(source)
    if not source.exists():
        raise problem(source, "there is no such file or folder")
    if (source / "cohort.json").is_file():
        remedy = "Use it as it is, or `nerve.Cohort.load(...).align(...)`."
        raise problem(source, "this is a cohort already", remedy=remedy)
    if format == "auto":
        return _best(source, options)
    reader = get_reader(format)
    scans = reader.find(source, options)
    if not _read(scans):
        raise problem(source, f"no scans were found, expected {reader.describe}", remedy="Try --format auto.")
    return reader, scans


def _read(scans: list[Scan]) -> int:
    return sum(not scan.left_out for scan in scans)


def _best(source: Path, options: Options) -> tuple[Reader, list[Scan]]:
    refusals: list[NerveError] = []
    for fallback in (False, True):
        found: list[tuple[Reader, list[Scan]]] = []
        for reader in map(get_reader, READERS):
            if reader.fallback != fallback:
                continue
            try:
                found.append((reader, reader.find(source, options)))
            except NerveError as error:  # it knows the layout and wants a choice made
                refusals.append(error)
        best = max(found, key=lambda pair: _read(pair[1]), default=None)  # of equals the first
        if best is not None and _read(best[1]):
            return best
        if refusals:
            raise refusals[0]
    raise problem(
        source,
        "no scans were found",
        expected=f"one of {listed(READERS, most=20)}",
        remedy="See docs/howto/bring-your-own-cohort for the layouts, or name one with --format.",
    )
