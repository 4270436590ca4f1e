"""UK Biobank netmats: upper triangles column by column, 210 values (21 nodes) or 1,485 (55).

Either one text file with a row per participant, the id in the first column or in a file of ids, or
the bulk files `<eid>_<field>_<instance>_<array>.txt` of one row each. Nodes are ICA components
without networks: the user supplies a table that puts them into groups. Entries are z statistics of
correlations, not r, and are kept as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.derivatives import Version, one_version
from nerve.data.readers.names import scans_in_file
from nerve.data.readers.opening import files_below, keep_latest, matching_names
from nerve.data.readers.text import first_lines, is_number, read_numbers
from nerve.data.readers.unfolding import from_triangle

_N_NODES = (21, 55)
_NOT_CORRELATIONS = (
    "Entries of UK Biobank netmats are z statistics, not r, and are kept (--values z turns "
    "Fisher's into r)."
)
_BULK = re.compile(r"(\d+)_(2575[0-3])_(\d+)_(\d+)\.txt")
_TEXT = (".txt", ".csv", ".tsv", ".dat")
_NAMED = re.compile(r"netmat|ukb|2575[0-3]", re.IGNORECASE)


class UKB(Reader):
    """Netmats of the UK Biobank."""

    describe = "UK Biobank netmats (text, one row per participant, 210 or 1,485 values)"
    uses = ("atlas",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The bulk files of one field, or the rows of one table."""
        files = files_below(source, *_TEXT)
        bulk = matching_names(files, _BULK)
        if bulk:
            _, chosen, _ = one_version({"fc": bulk}, options, _field_of)
            return [ScanFile(match[1], path, "fc", session=match[3]) for path, match in chosen]
        tables = [path for path in files if _n_leading(path) is not None]
        _, tables, _ = one_version({"fc": tables}, options, lambda path: Version(path.stem))
        return _rows(tables[0], options) if tables else []

    def complete_options(self, options: Options, scans: list[ScanFile]) -> Options:
        """Take the first visit of each participant by default: visits are years apart."""
        return replace(options, repeats="first") if options.repeats == "average" else options

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """One participant's matrix, with 1 on the diagonal."""
        rows = _numbers(scan.path).values
        if scan.key is None and len(rows) != 1:
            expected = "one row of values: a bulk file is of one participant"
            raise problem(scan.path, f"it holds {len(rows)} rows", expected=expected)
        row = rows[int(scan.key or 0)]
        n_skipped = scan.extra.get("skip", 0)
        matrix = from_triangle(row[n_skipped:], "lower", scan.path)
        if options.values == "z":
            return ScanData(matrix, values="z")
        return ScanData(matrix, values="other", notes=(_NOT_CORRELATIONS,))


def _field_of(file: tuple[Path, re.Match[str]]) -> Version:
    """The field of a bulk file, which says how many nodes it has."""
    _, match = file
    return Version(match[2])


def _n_leading(path: Path) -> int | None:
    """How many columns of ids (0 or 1) stand before the values of the first row.

    None for other tables.

    Only tables of the Biobank's two sizes with its ids, or named after netmats, are its netmats: of
    others it is not known how they are unfolded.
    """
    sizes = {n * (n - 1) // 2 for n in _N_NODES}
    try:
        words, _ = first_lines(path)
    except NerveError:  # reported when it is read, or by another reader
        return None
    is_named = _NAMED.search(path.name) is not None
    starts_with_id = bool(words) and re.fullmatch(r"\d{7}", words[0]) is not None
    for n_leading in (0, 1):
        is_netmat = is_named or (n_leading == 1 and starts_with_id)
        values = words[n_leading:]
        if is_netmat and len(values) in sizes and all(is_number(value) for value in values):
            return n_leading
    return None


def _rows(path: Path, options: Options) -> list[ScanFile]:
    """A scan per row, named by the first column where that holds ids."""
    numbers = _numbers(path)
    n_skipped = 0
    if _n_leading(path):
        if numbers.rows is not None:
            ids = numbers.rows
        else:
            ids = tuple(str(int(number)) for number in numbers.values[:, 0])
            n_skipped = 1  # the column of ids is among the numbers
        options = replace(options, ids=ids)
    scans = scans_in_file(path, len(numbers.values), options, skip=n_skipped)
    repeated = [participant for participant, count in Counter(options.ids).items() if count > 1]
    if repeated:  # z statistics are not averaged
        raise problem(
            path, f"ids occur twice ({listed(repeated)})", expected="one row per participant"
        )
    return scans


_numbers = keep_latest(read_numbers)
