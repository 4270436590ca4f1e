"""UK Biobank netmats: the upper triangle column by column, 210 values (21 nodes) or 1,485 (55 nodes) per participant.

Either one text file with a row per participant, the id in the first column or in a file of ids, or the bulk files
`<eid>_<field>_<instance>_<array>.txt` of one row each. Nodes are ICA components without networks: the user supplies a
table that puts them into groups. Entries are z statistics of correlations, not r, and are kept as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from nerve.checks import NerveError, listed, problem
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import files_below
from nerve.readers.opening import once
from nerve.readers.text import is_number, read_numbers
from nerve.readers.unfolding import from_triangle
from nerve.readers.versions import Version, choose_version

N_NODES = (21, 55)
NOT_CORRELATIONS = (
    "Entries of UK Biobank netmats are z statistics, not r: they are kept as they are "
    "(--values z turns Fisher's z into r)."
)
_BULK = re.compile(r"(\d+)_(2575[0-3])_(\d+)_(\d+)\.txt$")
_TEXT = (".txt", ".csv", ".tsv", ".dat")
_NAMED = re.compile(r"netmat|ukb|2575[0-3]", re.IGNORECASE)
_LONGEST_ROW = 1 << 22  # bytes: a first line longer than this is no row of netmats


class UKB(Reader):
    """Netmats of the UK Biobank."""

    name = "ukb"
    describe = "UK Biobank netmats (text, one row per participant, 210 or 1,485 values)"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """The bulk files of one field, or the rows of one table."""
        files = files_below(source, *_TEXT)
        bulk = [(path, found) for path in files if (found := _BULK.match(path.name))]
        if bulk:
            field = choose_version((Version(found[2]) for _, found in bulk), options).atlas
            return _one_visit([Scan(m[1], path, "fc", session=m[3]) for path, m in bulk if m[2] == field], options)
        tables = [path for path in files if _n_leading(path) is not None]
        if len(tables) > 1:
            chosen = choose_version((Version(path.stem) for path in tables), options).atlas
            tables = [path for path in tables if path.stem == chosen]
        return _rows(tables[0], options) if tables else []

    def read(self, scan: Scan, options: Options) -> Reading:
        """One participant's matrix, with 1 on the diagonal."""
        rows = _one_row(scan.path) if scan.key is None else _numbers(scan.path).values
        values = rows[int(scan.key or 0), scan.extra.get("skip", 0) :]
        matrix = from_triangle(values, "lower", scan.path)
        if options.values == "z":
            return Reading(matrix, values="z")
        return Reading(matrix, values="other", notes=(NOT_CORRELATIONS,))


def _one_row(path: Path) -> np.ndarray:
    """The numbers of a bulk file, (1, n); one that holds more is not of one participant."""
    rows = _numbers(path).values if path.stat().st_size <= _LONGEST_ROW else np.zeros((0, 0))
    if len(rows) != 1:
        found = f"it holds {len(rows)} rows" if len(rows) else "it is longer than a row can be"
        raise problem(path, found, expected="one row of values: a bulk file is of one participant")
    return rows


def _one_visit(scans: list[Scan], options: Options) -> list[Scan]:
    """The first visit of each participant, unless the user names one: visits are years apart, and z is not averaged."""
    if options.session is not None:
        return scans
    first: dict[str, Scan] = {}
    for scan in sorted(scans, key=lambda scan: int(scan.session)):
        first.setdefault(scan.participant, scan)
    if len(first) == len(scans):
        return scans
    note = "some participants have several imaging visits: the first visit of each is read (--session takes another)"
    return [replace(scan, notes=(note,)) for scan in first.values()]


def _n_leading(path: Path) -> int | None:
    """How many columns of ids (0 or 1) stand before the values of the first row; None for other tables.

    Only tables of the Biobank's two sizes with its ids, or named after netmats, are its netmats: of others it is not
    known how they are unfolded.
    """
    sizes = {n * (n - 1) // 2 for n in N_NODES}
    try:
        with open(path, "rb") as stream:
            words = stream.readline(_LONGEST_ROW).decode("latin-1").replace(",", " ").split()
    except OSError:
        return None
    for skip in (0, 1):
        known = _NAMED.search(path.name) or (skip and words and re.fullmatch(r"\d{7}", words[0]))
        if known and len(words) - skip in sizes and all(is_number(word) for word in words[skip:]):
            return skip
    return None


def _rows(path: Path, options: Options) -> list[Scan]:
    skip, numbers = _n_leading(path) or 0, _numbers(path)
    ids = numbers.rows or [str(int(number)) for number in numbers.values[:, 0]] if skip else options.ids
    n_rows, n_columns = numbers.values.shape
    if ids is None:
        raise NerveError(
            f"{path}: the {n_rows} rows hold {n_columns} values and no ids, expected an id in the first column. "
            "Give the ids in the order of the rows with --ids FILE."
        )
    if len(ids) != n_rows:
        raise problem(path, f"{n_rows} rows for {len(ids)} ids", expected="one id per row")
    repeated = [person for person, count in Counter(ids).items() if count > 1]
    if repeated:  # z statistics are not averaged
        raise problem(path, f"ids occur twice ({listed(repeated)})", expected="one row per participant")
    extra = {"skip": int(skip and numbers.rows is None)}
    return [Scan(person, path, "fc", key=i, extra=extra) for i, person in enumerate(ids)]


_numbers = once(read_numbers)
