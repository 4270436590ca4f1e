"""Time series of all participants in one table: a row per volume, a column per region.

subject,TR,ROI_1,ROI_2 …
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.connectivity import MIN_VOLUMES
from nerve.data.readers.base import Options, Reader, ScanData, ScanFile
from nerve.data.readers.opening import TEXT, files_below, is_data, keep_latest
from nerve.data.readers.participants_table import ID_COLUMNS
from nerve.data.readers.text import (
    TIME_NAMES,
    column_of_numbers,
    first_lines,
    is_number,
    read_table,
)

_SESSIONS = ("session_id", "session", "ses", "visit", "eventname")
_RUNS = ("run", "run_id")
_FEWEST_REGIONS = 3


@dataclass(frozen=True)
class _Columns:
    """The columns of a long table of series, empty where there is none."""

    participant: str
    session: str
    run: str
    time: str
    regions: tuple[str, ...]


class LongSeries(Reader):
    """One table with the time series of all participants."""

    describe = "one table of time series: a row per participant and volume, a column per region"

    def find(self, source: Path, options: Options) -> list[ScanFile]:
        """The participants of the only table, if most of its ids stand in many rows."""
        files = [path for path in files_below(source, *TEXT) if is_data(path)]
        if len(files) != 1:
            return []
        path = files[0]
        try:
            columns = _columns(*first_lines(path))
            table = None if columns is None else _table(path, columns.participant)
        except NerveError:  # another reader says what is wrong
            return []
        if columns is None or table is None:
            return []
        keys = [name for name in (columns.participant, columns.session, columns.run) if name]
        rows: Any = table.groupby(keys, sort=False).indices
        if len(table) < MIN_VOLUMES * len(rows):
            return []
        scans = []
        for number, (key, positions) in enumerate(rows.items()):
            parts = dict(zip(keys, key if isinstance(key, tuple) else (key,), strict=True))
            scans.append(
                ScanFile(
                    str(parts[columns.participant]),
                    path,
                    "series",
                    session=str(parts.get(columns.session, "")),
                    run=str(parts.get(columns.run, "")),
                    key=number,
                    extra={"columns": columns, "rows": positions},
                )
            )
        return scans

    def read(self, scan: ScanFile, options: Options) -> ScanData:
        """The rows of one participant in the order of time, with the names of the columns."""
        columns: _Columns = scan.extra["columns"]
        rows = _table(scan.path, columns.participant).iloc[scan.extra["rows"]]
        if columns.time:
            times = column_of_numbers(rows, columns.time, scan.path)
            if len(np.unique(times)) < len(times):
                raise problem(
                    scan.path,
                    f"column {columns.time} has the same value in two rows of this participant",
                    expected="one row per volume",
                    remedy="Name the runs in a column run, or remove the rows that occur twice.",
                )
            rows = rows.iloc[np.argsort(times)]
        series = [column_of_numbers(rows, name, scan.path) for name in columns.regions]
        words = f"a header; column {columns.participant} holds ids"
        if columns.time:
            words += f", {columns.time} the volumes"
        return ScanData(series=np.column_stack(series), labels=columns.regions, header=words)


def _columns(first: list[str], second: list[str]) -> _Columns | None:
    """What the columns are, or None if this is no table of series."""
    if len(first) != len(second) or all(is_number(word) for word in first[1:]):
        return None
    participant = next((name for name in ID_COLUMNS if name in first), "")
    if not participant:
        return None
    session = _first_of(first, _SESSIONS)
    run = _first_of(first, _RUNS)
    time = _first_of(first, TIME_NAMES)
    others = [name for name in first if name not in (participant, session, run, time)]
    are_numbers = all(is_number(word) for word in second[-len(others) :])
    if len(others) < _FEWEST_REGIONS or not are_numbers or len(set(others)) < len(others):
        return None
    return _Columns(participant, session, run, time, tuple(others))


def _first_of(names: list[str], known: tuple[str, ...]) -> str:
    return next((name for name in names if name.lower() in known), "")


@keep_latest
def _table(path: Path, participant: str) -> pd.DataFrame:
    table = read_table(path, dtype={participant: str}, na_values=["n/a"])
    if table[participant].isna().any():
        row = int(table[participant].isna().to_numpy().argmax()) + 1
        raise problem(
            path, f"row {row} has no {participant}", expected=f"ids ({listed(ID_COLUMNS)})"
        )
    return table
