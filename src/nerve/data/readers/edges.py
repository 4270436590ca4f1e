"""Tables of edges: wide (a row per participant, a column per edge) and long (a row per edge)."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers.base import N_OPENED_IN_FIND, Options, Reader, ScanData, ScanFile
from nerve.data.readers.opening import TEXT, files_below, is_data, keep_latest
from nerve.data.readers.participants_table import ID_COLUMNS
from nerve.data.readers.text import column_of_numbers, first_lines, is_number, read_table
from nerve.data.readers.unfolding import expected_sizes, find_unfolding, unfoldings

# names of the two columns of regions in a long table
_REGION_COLUMN = re.compile(
    r"(?:region|roi|node|label|parcel|seed|var|name)s?[_ .]?(?:[12ab]|i|j)"
    r"|source|target|from|to|i|j|row|col(?:umn)?",
    re.IGNORECASE,
)
_SESSIONS = ("session_id", "session", "ses", "visit", "eventname")
# what stands between the labels of two regions in the name of a column
_BETWEEN = (
    "<->", "->", "--", "__", "_to_", "_vs_", " - ", " to ",
    "~", "|", ":", "-", "/", ".", "_", " ",
)  # fmt: skip
_Ends = tuple[tuple[int, int], ...]  # positions of the two regions of each edge
# the columns of a long table: the two of regions, and that of the values
_Long = tuple[str, str, str]


@dataclass(frozen=True)
class _Wide:
    """The columns of a wide table, and the regions of each edge where names tell them."""

    edges: tuple[str, ...]
    labels: tuple[str, ...] = ()
    ends: _Ends = ()


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
        return [] if layout is None else _scans(files[0], layout, options)

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The matrix of one participant, with the labels that the columns name."""
        layout = scan.extra["layout"]
        unfolding = scan.extra["unfolding"]
        if isinstance(layout, _Wide):
            labels = layout.labels
            ends = layout.ends
            values = _values(scan.path, layout)[scan.extra["rows"][0]]
        else:
            labels, ends, values = _from_long(scan, layout)
        if unfolding is not None:
            note = f"the values of each participant are {unfolding}"
            return ScanData(unfolding.matrix(values, scan.path), notes=(note,))
        matrix = np.full((len(labels), len(labels)), np.nan)
        matrix[tuple(np.transpose(ends))] = values
        return ScanData(matrix=np.where(np.isnan(matrix), matrix.T, matrix), labels=labels)


def _scans(path: Path, layout: _Wide | _Long, options: Options) -> list[ScanFile]:
    """A scan per participant (and session) of the table, with its rows."""
    table = _table(path)
    id_column = _id_column(list(table.columns))
    session_columns = [
        name for name in table.columns if name.lower() in _SESSIONS and name != id_column
    ]
    ids = table[id_column].astype(str)
    sessions = pd.Series("", table.index)
    if session_columns:
        sessions = table[session_columns[0]].fillna("").astype(str)
    # (participant, session) → positions of its rows
    rows_of: Any = table.groupby([ids, sessions], sort=False).indices
    unfolding = None
    if isinstance(layout, _Wide):
        repeated = [participant for (participant, _), rows in rows_of.items() if len(rows) > 1]
        if repeated:
            raise problem(
                path,
                f"ids occur twice ({listed(repeated)})",
                expected="one row per participant and session",
            )
        if not layout.ends:
            first_rows = [rows[0] for rows in rows_of.values()][:N_OPENED_IN_FIND]
            vectors = [_values(path, layout)[row] for row in first_rows]
            unfolding = find_unfolding(vectors, options, path)
    scans = []
    for key, ((participant, session), rows) in enumerate(rows_of.items()):
        extra = {"layout": layout, "unfolding": unfolding, "rows": rows}
        scans.append(ScanFile(participant, path, "fc", session=session, key=key, extra=extra))
    return scans


@keep_latest
def _values(path: Path, wide: _Wide) -> np.ndarray:
    """The (rows, edges) values of a wide table."""
    edges = _table(path)[list(wide.edges)]
    if all(dtype.kind in "iufb" for dtype in edges.dtypes):
        return edges.to_numpy(np.float64)
    return np.column_stack([column_of_numbers(edges, name, path) for name in wide.edges])


@keep_latest
def _table(path: Path) -> pd.DataFrame:
    """The table, with ids and sessions as text."""
    names, _ = first_lines(path)
    text_columns = [
        name
        for name in names
        if name in ID_COLUMNS or name == names[0] or name.lower() in _SESSIONS
    ]
    return read_table(path, dtype=dict.fromkeys(text_columns, str), na_values=["n/a"])


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
    ends = [name for name in others if _REGION_COLUMN.fullmatch(name)]
    if len(ends) != 2:
        ends = [name for name in others if not numeric[name]]
    values = [name for name in others if name not in ends and numeric[name]]
    if len(ends) != 2 or not 1 <= len(values) <= 2:
        return None
    return ends[0], ends[1], values[-1]


def _wide(first: Sequence[str], second: Sequence[str], options: Options) -> _Wide | None:
    """What the columns of a wide table are, or None if this is none."""
    if len(first) < 4 or len(second) != len(first) or all(is_number(word) for word in first[1:]):
        return None
    id_column = _id_column(first)
    others = _other_columns(first)
    if len(others) < 3:  # columns of the same name, say
        return None
    named = _named_edges(others)
    if named is not None:
        return named

    # columns that count the edges: edge_1, edge_2 …
    stem, _ = Counter(re.sub(r"\d+$", "", name) for name in others).most_common(1)[0]
    counted = [name for name in others if re.fullmatch(rf"{re.escape(stem)}\d+", name)]
    if len(counted) < 10 or len(counted) < len(others) - 8:
        return None
    has_ids = id_column in ID_COLUMNS or not is_number(second[first.index(id_column)])
    if not has_ids or not unfoldings(len(counted), expected_sizes(options)):
        return None
    return _Wide(tuple(counted))


def _named_edges(columns: Sequence[str]) -> _Wide | None:
    """The columns that name two regions, the regions, and the two of each column.

    A name is cut at the mark that gives the two labels which occur most, since labels may hold the
    mark too. The cuts are right if each two regions have a column.
    """
    for mark in _BETWEEN:
        pairs = _cut_names([name for name in columns if mark in name], mark)
        labels = _in_order(itertools.chain.from_iterable(pairs.values()))
        if len(labels) < 3 or len(pairs) < len(columns) - 50:
            continue
        distinct = {frozenset(pair) for pair in pairs.values() if pair[0] != pair[1]}
        if len(distinct) == len(labels) * (len(labels) - 1) // 2:
            position = {label: i for i, label in enumerate(labels)}
            ends = tuple((position[left], position[right]) for left, right in pairs.values())
            return _Wide(tuple(pairs), labels, ends)
    return None


def _in_order(labels: Iterable[object]) -> tuple[str, ...]:
    """Each label once, in the order in which they come, or by number where they are numbers."""
    distinct = list(dict.fromkeys(str(label) for label in labels))
    if all(label.isdigit() for label in distinct):
        distinct.sort(key=int)
    return tuple(distinct)


def _cut_names(names: Sequence[str], mark: str) -> dict[str, tuple[str, str]]:
    """Each name as the labels of two regions, of names that can be cut in one way only.

    A name that holds the mark several times can be cut in several ways. The best has labels that
    occur in many names; of equally good ones, that whose labels are those of names with one best
    cut.
    """
    cuts_of = {name: _cuts(name, mark) for name in names}
    counts: Counter[str] = Counter()
    for cuts in cuts_of.values():
        for cut in cuts:
            counts.update(set(cut))
    best_cuts_of = {}
    known_labels: set[str] = set()
    for name, cuts in cuts_of.items():
        score = {cut: min(counts[label] for label in cut) for cut in cuts}
        best_cuts = [cut for cut in cuts if score[cut] == max(score.values())]
        best_cuts_of[name] = best_cuts
        if len(best_cuts) == 1:
            known_labels.update(best_cuts[0])
    pairs = {}
    for name, best_cuts in best_cuts_of.items():
        fitting = [cut for cut in best_cuts if known_labels.issuperset(cut)]
        if len(fitting) == 1:
            pairs[name] = fitting[0]
    return pairs


def _cuts(name: str, mark: str) -> list[tuple[str, str]]:
    """The ways to cut a name in two at a mark that it may hold several times."""
    parts = name.split(mark)
    cuts = []
    for i in range(1, len(parts)):
        left = mark.join(parts[:i]).strip()
        right = mark.join(parts[i:]).strip()
        if left and right:
            cuts.append((left, right))
    return cuts


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
    rows = _table(scan.path).iloc[scan.extra["rows"]]
    labels = _regions(scan.path, columns)
    position = {label: i for i, label in enumerate(labels)}
    left = rows[columns[0]].astype(str).map(position)
    right = rows[columns[1]].astype(str).map(position)
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
