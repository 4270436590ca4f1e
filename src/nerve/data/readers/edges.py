"""Tables of edges: wide (one row per participant, one column per pair of regions) and long (one row per pair)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers.base import N_PROBES, Options, Reader, ScanData, ScanFile
from nerve.data.readers.opening import TEXT, files_below, is_data, keep_latest
from nerve.data.readers.participants_table import ID_COLUMNS
from nerve.data.readers.text import column_of_numbers, first_lines, is_number, read_table
from nerve.data.readers.unfolding import expected_sizes, find_unfolding, unfoldings

# names of the two columns of regions in a long table
_ENDS = re.compile(r"(?:region|roi|node|label|parcel|seed|var|name)s?[_ .]?(?:[12ab]|i|j)|source|target|from|to|i|j|row|col(?:umn)?", re.IGNORECASE)  # fmt: skip
_SESSIONS = ("session_id", "session", "ses", "visit", "eventname")
_BETWEEN = (
    "<->",
    "->",
    "--",
    "__",
    "_to_",
    "_vs_",
    " - ",
    " to ",
    "~",
    "|",
    ":",
    "-",
    "/",
    ".",
    "_",
    " ",
)
_Ends = tuple[tuple[int, int], ...]  # positions of the two regions of each edge


@dataclass(frozen=True)
class _Wide:
    """The columns of a wide table: edges, and either the labels at both ends of each edge or how to unfold."""

    edges: tuple[str, ...]
    labels: tuple[str, ...] = ()
    ends: _Ends = ()


_Long = tuple[
    str, str, str
]  # the columns of a long table: the two of regions, and that of the values


class Edges(Reader):
    """One table with the edges of all participants."""

    describe = "a table of edges, one row per participant or one per pair of regions"
    uses = ("unfolding",)

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The participants of the only table, if its first lines are those of a table of edges."""
        files = [path for path in files_below(source, *TEXT) if is_data(path)]
        if len(files) != 1:
            return []
        try:
            first, second = first_lines(files[0])
        except NerveError:  # another reader says what is wrong
            return []
        layout = _long(first, second) or _wide(first, second, options)
        return [] if layout is None else _people(files[0], layout, options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix of one participant, with the labels that the columns name."""
        layout, way = scan.extra["layout"], scan.extra["unfolding"]
        if isinstance(layout, _Wide):
            labels, ends, values = (
                layout.labels,
                layout.ends,
                _values(scan.path, layout)[scan.extra["rows"][0]],
            )
        else:
            labels, ends, values = _from_long(scan, layout)
        if way is not None:
            return ScanData(
                way.matrix(values, scan.path), notes=(f"the values of each participant are {way}",)
            )
        matrix = np.full((len(labels),) * 2, np.nan)
        matrix[tuple(np.transpose(ends))] = values
        return ScanData(matrix=np.where(np.isnan(matrix), matrix.T, matrix), labels=labels)


def _people(path: Path, layout: _Wide | _Long, options: Options) -> list[ScanFile]:
    """A scan per participant (and session) of the table, with the rows that are theirs."""
    table = _table(path)
    ids = _id_column(list(table.columns))
    sessions = [table[name] for name in table.columns if name.lower() in _SESSIONS and name != ids]
    session = sessions[0] if sessions else pd.Series("", table.index)
    rows: Any = table.groupby(
        [table[ids].astype(str), session.fillna("").astype(str)], sort=False
    ).indices
    way = None
    if isinstance(layout, _Wide):
        repeated = [person for (person, _), theirs in rows.items() if len(theirs) > 1]
        if repeated:
            raise problem(
                path,
                f"ids occur twice ({listed(repeated)})",
                expected="one row per participant and session",
            )
        if not layout.ends:
            some = [_values(path, layout)[theirs[0]] for theirs in list(rows.values())[:N_PROBES]]
            way = find_unfolding(some, options, path)
    extra = {"layout": layout, "unfolding": way}
    return [
        ScanFile(person, path, "fc", session=when, key=i, extra={**extra, "rows": theirs})
        for i, ((person, when), theirs) in enumerate(rows.items())
    ]


@keep_latest
def _values(path: Path, wide: _Wide) -> np.ndarray:
    """The (rows, edges) values of a wide table."""
    edges = _table(path)[list(wide.edges)]
    if all(dtype.kind in "iufb" for dtype in edges.dtypes):
        return edges.to_numpy(np.float64)
    return np.column_stack([column_of_numbers(edges, name, path) for name in wide.edges])


@keep_latest
def _table(path: Path) -> pd.DataFrame:
    first, _ = first_lines(path)
    words = [
        name
        for name in first
        if name in ID_COLUMNS or name == first[0] or name.lower() in _SESSIONS
    ]
    return read_table(path, dtype=dict.fromkeys(words, str), na_values=["n/a"])


def _id_column(columns: Sequence[str]) -> str:
    return next((name for name in ID_COLUMNS if name in columns), columns[0])


def _other_columns(columns: Sequence[str]) -> list[str]:
    """Those that hold neither ids nor sessions."""
    ids = _id_column(columns)
    return [name for name in columns if name != ids and name.lower() not in _SESSIONS]


def _long(first: Sequence[str], second: Sequence[str]) -> _Long | None:
    """What the columns of a long table are, or None if this is none."""
    if (
        not 4 <= len(first) <= 10
        or len(second) != len(first)
        or all(is_number(word) for word in first)
    ):
        return None
    numeric = {name: is_number(word) for name, word in zip(first, second, strict=True)}
    others = _other_columns(first)
    ends = [name for name in others if _ENDS.fullmatch(name)]
    if len(ends) != 2:
        ends = [name for name in others if not numeric[name]]
    values = [name for name in others if name not in ends and numeric[name]]
    return (
        (ends[0], ends[1], values[-1]) if len(ends) == 2 and values and len(values) <= 2 else None
    )


def _wide(first: Sequence[str], second: Sequence[str], options: Options) -> _Wide | None:
    """What the columns of a wide table are, or None if this is none."""
    if len(first) < 4 or len(second) != len(first) or all(is_number(word) for word in first[1:]):
        return None
    ids, others = _id_column(first), _other_columns(first)
    if len(others) < 3:  # columns of the same name, say
        return None
    named = _named_edges(others)
    if named is not None:
        return named
    stem, _ = Counter(re.sub(r"\d+$", "", name) for name in others).most_common(1)[0]
    counted = [name for name in others if re.fullmatch(rf"{re.escape(stem)}\d+", name)]
    fits = unfoldings(len(counted), expected_sizes(options))
    known = ids in ID_COLUMNS or not is_number(second[first.index(ids)])
    return (
        _Wide(tuple(counted))
        if fits and known and len(counted) >= len(others) - 8 and len(counted) > 9
        else None
    )


def _named_edges(columns: Sequence[str]) -> _Wide | None:
    """The columns that name two regions, the regions, and the two of each column.

    A name is cut at the mark that gives the two labels which occur most, since labels may hold the mark too. The cuts
    are right if each two regions have a column.
    """
    for mark in _BETWEEN:
        pairs = _cut_names([name for name in columns if mark in name], mark)
        labels = _in_order(label for ends in pairs.values() for label in ends)
        if len(labels) < 3 or len(pairs) < len(columns) - 50:
            continue
        distinct = {frozenset(ends) for ends in pairs.values() if ends[0] != ends[1]}
        if len(distinct) == len(labels) * (len(labels) - 1) // 2:
            at = {label: i for i, label in enumerate(labels)}
            return _Wide(tuple(pairs), labels, tuple((at[a], at[b]) for a, b in pairs.values()))
    return None


def _in_order(labels: Iterable[object]) -> tuple[str, ...]:
    """Each label once, in the order in which they come, or by number where they are numbers."""
    found = list(dict.fromkeys(map(str, labels)))
    return tuple(sorted(found, key=int) if all(label.isdigit() for label in found) else found)


def _cut_names(names: Sequence[str], mark: str) -> dict[str, tuple[str, str]]:
    """Each name as two labels; names that can be cut in several equally good ways are cut into labels of the others."""
    cuts = {name: _cuts(name, mark) for name in names}
    counts = Counter(label for ways in cuts.values() for way in ways for label in set(way))
    best: dict[str, list[tuple[str, str]]] = {}
    for name, ways in cuts.items():
        score = {way: min(counts[label] for label in way) for way in ways}
        best[name] = [way for way in ways if score[way] == max(score.values())]
    known = {label for ways in best.values() if len(ways) == 1 for label in ways[0]}
    fitting = {name: [way for way in ways if known.issuperset(way)] for name, ways in best.items()}
    return {name: ways[0] for name, ways in fitting.items() if len(ways) == 1}


def _cuts(name: str, mark: str) -> list[tuple[str, str]]:
    parts = name.split(mark)
    halves = (
        (mark.join(parts[:i]).strip(), mark.join(parts[i:]).strip()) for i in range(1, len(parts))
    )
    return [(left, right) for left, right in halves if left and right]


@keep_latest
def _regions(path: Path, columns: _Long) -> tuple[str, ...]:
    """The regions of a long table."""
    missing = [name for name in columns if name not in _table(path)]
    if missing:
        raise problem(
            path,
            f"its first line names {listed(missing)}, and the table has no such column",
            expected="the same columns in the first line and in the table",
            remedy="Look for quotation marks that are not closed.",
        )
    return _in_order(_table(path)[list(columns[:2])].to_numpy().ravel())


def _from_long(scan: ScanFile, columns: _Long) -> tuple[tuple[str, ...], _Ends, np.ndarray]:
    """The regions of a long table, and the edges of one participant with their values."""
    rows, labels = _table(scan.path).iloc[scan.extra["rows"]], _regions(scan.path, columns)
    at = {label: i for i, label in enumerate(labels)}
    left, right = (rows[name].astype(str).map(at) for name in columns[:2])
    if left.isna().any() or right.isna().any():
        raise problem(
            scan.path,
            "a row names no region",
            expected="two regions in every row",
            remedy="Mend that row.",
        )
    ends = tuple(zip(left, right, strict=True))
    if len(set(ends)) < len(ends):
        raise problem(
            scan.path, "a pair of regions occurs twice", expected="one row per pair of regions"
        )
    return labels, ends, column_of_numbers(rows, columns[2], scan.path)
