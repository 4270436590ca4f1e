"""Tables of edges: wide (one row per participant, one column per pair of regions) and long (one row per pair)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import TEXT, files_below, is_data
from nerve.readers.opening import once
from nerve.readers.participants import ID_COLUMNS
from nerve.readers.text import column_of_numbers, first_lines, is_number, read_table
from nerve.readers.unfolding import Unfolding, proved_unfolding, unfoldings

# names of the two columns of regions in a long table
_ENDS = re.compile(r"(?:region|roi|node|label|parcel|seed|var|name)s?[_ .]?(?:[12ab]|i|j)|source|target|from|to|i|j|row|col(?:umn)?", re.IGNORECASE)  # fmt: skip  # noqa: E501
_SESSIONS = ("session_id", "session", "ses", "visit", "eventname")
_BETWEEN = ("<->", "->", "--", "__", "_to_", "_vs_", " - ", " to ", "~", "|", ":", "-", "/", ".", "_", " ")
_PROBES = 5


@dataclass(frozen=True)
class _Wide:
    """The columns of a wide table: edges, and either the labels at both ends of each edge or how to unfold."""

    edges: tuple[str, ...]
    labels: tuple[str, ...] = ()
    ends: tuple[tuple[int, int], ...] = ()


class Edges(Reader):
    """One table with the edges of all participants."""

    name = "edges"
    describe = "a table of edges, one row per participant or one per pair of regions"

    def find(self, source: Path, options: Options) -> list[Scan]:
        """The participants of the only table, if its first lines are those of a table of edges."""
        files = [path for path in files_below(source, *TEXT) if is_data(path)]
        if len(files) != 1:
            return []
        try:
            first, second = first_lines(files[0])
        except NerveError:  # another reader says what is wrong
            return []
        if _long_columns(first, second) is not None:
            return _people(files[0], None, options)
        wide = _wide(first, second, options)
        return [] if wide is None else _people(files[0], wide, options)

    def read(self, scan: Scan, options: Options) -> Reading:
        """The matrix of one participant, with the labels that the columns name."""
        wide: _Wide | None = scan.extra["wide"]
        if wide is None:
            rows = _table(scan.path).iloc[list(scan.extra["rows"])]
            return _from_long(rows, scan.path, _all_labels(scan.path))
        values = _values(scan.path, wide)[scan.extra["rows"][0]]
        way: Unfolding | None = scan.extra.get("unfolding")
        if way is not None:
            notes = (f"the values of each participant are {way}",)
            return Reading(matrix=way.matrix(values, scan.path), notes=notes)
        matrix = np.full((len(wide.labels),) * 2, np.nan)
        matrix[tuple(np.transpose(wide.ends))] = values
        return Reading(matrix=_mirrored(matrix), labels=wide.labels)


def _people(path: Path, wide: _Wide | None, options: Options) -> list[Scan]:
    """A scan per participant (and session) of the wide or long table, with the rows that are theirs."""
    table = _table(path)
    names = [str(name) for name in table.columns]
    ids = _id_column(names)
    session = next((name for name in names if name.lower() in _SESSIONS and name != ids), None)
    sessions = [""] * len(table) if session is None else table[session].astype(str)
    rows: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(table[ids].astype(str), sessions, strict=True)):
        rows.setdefault(key, []).append(i)
    repeated = [person for (person, _), theirs in rows.items() if len(theirs) > 1]
    if wide is not None and repeated:
        raise problem(path, f"ids occur twice ({listed(repeated)})", expected="one row per participant and session")
    extra: dict[str, Any] = {"wide": wide}
    if wide is not None and not wide.ends:
        some = [_values(path, wide)[theirs[0]] for theirs in list(rows.values())[:_PROBES]]
        regions = options.rows
        extra["unfolding"] = proved_unfolding(some, options.unfolding, regions, path, options.values)
    return [
        Scan(person, path, "fc", session=when, key=i, extra={**extra, "rows": theirs})
        for i, ((person, when), theirs) in enumerate(rows.items())
    ]


@once
def _values(path: Path, wide: _Wide) -> np.ndarray:
    """The (rows, edges) values of a wide table."""
    edges = _table(path)[list(wide.edges)]
    if all(dtype.kind in "iufb" for dtype in edges.dtypes):
        return edges.to_numpy(np.float64)
    return np.column_stack([column_of_numbers(edges, name, path) for name in wide.edges])


@once
def _table(path: Path) -> pd.DataFrame:
    first, _ = first_lines(path)
    words = [name for name in first if name in ID_COLUMNS or name == first[0] or name.lower() in _SESSIONS]
    return read_table(path, dtype=dict.fromkeys(words, str), na_values=["n/a"])


def _id_column(columns: Sequence[str]) -> str:
    return next((name for name in ID_COLUMNS if name in columns), columns[0])


def _long_columns(first: Sequence[str], second: Sequence[str]) -> tuple[str, str, str] | None:
    """The two columns of regions and that of the values, or None if this is no long table."""
    if not 4 <= len(first) <= 10 or len(second) != len(first) or all(is_number(word) for word in first):
        return None
    ids = _id_column(first)
    others = [name for name in first if name != ids and name.lower() not in _SESSIONS]
    ends = [name for name in others if _ENDS.fullmatch(name)]
    content = dict(zip(first, second, strict=True))
    if len(ends) != 2:
        ends = [name for name in others if not is_number(content[name])]
    values = [name for name in others if name not in ends and is_number(content[name])]
    return (ends[0], ends[1], values[-1]) if len(ends) == 2 and values and len(values) <= 2 else None


def _wide(first: Sequence[str], second: Sequence[str], options: Options) -> _Wide | None:
    """What the columns of a wide table are, or None if this is none."""
    if len(first) < 4 or len(second) != len(first) or all(is_number(word) for word in first[1:]):
        return None
    ids = _id_column(first)
    others = [name for name in first if name != ids and name.lower() not in _SESSIONS]
    if len(others) < 3:  # columns of the same name, say
        return None
    named = _named_edges(others)
    if named is not None:
        return _Wide(*named)
    regions = options.rows
    stem, _ = Counter(re.sub(r"\d+$", "", name) for name in others).most_common(1)[0]
    counted = [name for name in others if re.fullmatch(rf"{re.escape(stem)}\d+", name)]
    fits = unfoldings(len(counted), {regions.n_regions} if regions else ())
    known = ids in ID_COLUMNS or not is_number(second[first.index(ids)])
    return _Wide(tuple(counted)) if fits and known and len(counted) >= len(others) - 8 and len(counted) > 9 else None


def _named_edges(
    columns: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[int, int], ...]] | None:
    """The columns that name two regions, the regions, and the two of each column.

    A name is cut at the mark that gives the two labels which occur most, since labels may hold the mark too. The cuts
    are right if each two regions have a column.
    """
    for mark in _BETWEEN:
        pairs = _cut_names([name for name in columns if mark in name], mark)
        labels = list(dict.fromkeys(label for ends in pairs.values() for label in ends))
        if len(labels) < 3 or len(pairs) < len(columns) - 50:
            continue
        if all(label.isdigit() for label in labels):
            labels.sort(key=int)
        distinct = {frozenset(ends) for ends in pairs.values() if ends[0] != ends[1]}
        if len(distinct) == len(labels) * (len(labels) - 1) // 2:
            at = {label: i for i, label in enumerate(labels)}
            return tuple(pairs), tuple(labels), tuple((at[a], at[b]) for a, b in pairs.values())
    return None


def _cut_names(names: Sequence[str], mark: str) -> dict[str, tuple[str, str]]:
    """Each name as two labels; names that can be cut in several equally good ways are cut into labels of the others."""
    cuts = {name: _cuts(name, mark) for name in names}
    counts = Counter(label for ways in cuts.values() for way in ways for label in set(way))
    pairs: dict[str, tuple[str, str]] = {}
    unsure: dict[str, list[tuple[str, str]]] = {}
    for name, ways in cuts.items():
        score = {way: min(counts[label] for label in way) for way in ways}
        best = [way for way in ways if score[way] == max(score.values())]
        if len(best) == 1:
            pairs[name] = best[0]
        elif best:
            unsure[name] = best
    known = {label for way in pairs.values() for label in way}
    for name, ways in unsure.items():
        fitting = [way for way in ways if known.issuperset(way)]
        if len(fitting) == 1:
            pairs[name] = fitting[0]
    return {name: pairs[name] for name in names if name in pairs}


def _cuts(name: str, mark: str) -> list[tuple[str, str]]:
    parts = name.split(mark)
    halves = ((mark.join(parts[:i]).strip(), mark.join(parts[i:]).strip()) for i in range(1, len(parts)))
    return [(left, right) for left, right in halves if left and right]


@once
def _all_labels(path: Path) -> tuple[str, str, str, tuple[str, ...]]:
    """The columns of a long table, and the regions in the order in which they come."""
    table, (first, second) = _table(path), first_lines(path)
    found = _long_columns(first, second)
    assert found is not None
    one, other, value = found
    labels = list(dict.fromkeys(str(name) for pair in zip(table[one], table[other], strict=True) for name in pair))
    if all(label.isdigit() for label in labels):
        labels.sort(key=int)
    return one, other, value, tuple(labels)


def _from_long(rows: pd.DataFrame, where: object, known: tuple[str, str, str, tuple[str, ...]]) -> Reading:
    one, other, value, labels = known
    at = {label: i for i, label in enumerate(labels)}
    matrix = np.full((len(labels),) * 2, np.nan)
    left, right = ([at[str(name)] for name in rows[column]] for column in (one, other))
    numbers = column_of_numbers(rows, value, where)
    if len(set(zip(left, right, strict=True))) < len(left):
        raise problem(where, "a pair of regions occurs twice", expected="one row per pair of regions")
    matrix[left, right] = numbers
    return Reading(matrix=_mirrored(matrix), labels=labels)


def _mirrored(matrix: np.ndarray) -> np.ndarray:
    """Entries that only one triangle has, in both."""
    return np.where(np.isnan(matrix), matrix.T, matrix)
