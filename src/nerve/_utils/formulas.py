"""Text that a spreadsheet would run: an apostrophe goes before it when a table is written, and off when it is read.

A cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end is a formula to Excel and its kin, whoever wrote
it: a participant called ``=cmd|'/c calc'!A1`` would be run by whoever opens the table. Numbers are left alone, and what
already begins with apostrophes gets one more, so that reading gives back exactly what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_GUARDED = re.compile(r"''*[=+\-@\t\r\n]")


def guarded(value: Any) -> Any:
    """A cell that no spreadsheet runs.

    Examples
    --------
    >>> guarded("=1+1"), guarded("-0.5"), guarded("DMN-A"), guarded("'=x")
    ("'=1+1", '-0.5', 'DMN-A', "''=x")
    """
    return (
        f"'{value}"
        if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value)
        else value
    )


def unguarded(value: Any) -> Any:
    """The inverse of `guarded`.

    Examples
    --------
    >>> unguarded("'=1+1"), unguarded("'s Gravenhage")
    ('=1+1', "'s Gravenhage")
    """
    return value[1:] if isinstance(value, str) and _GUARDED.match(value) else value


def guarded_table(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text cell and column name guarded."""
    return _changed(table, guarded)


def unguarded_table(table: pd.DataFrame) -> pd.DataFrame:
    """The inverse of `guarded_table`."""
    return _changed(table, unguarded)


def any_text(table: pd.DataFrame, wanted: Callable[[str], bool]) -> bool:
    """Whether a column name or a text cell is as wanted."""
    names = any(isinstance(name, str) and wanted(name) for name in table.columns)
    return names or any(_holds(column, wanted) for _, column in _text_columns(table))


def _changed(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    """Column names and text cells changed; the table itself where nothing changes."""
    names = [change(name) for name in table.columns]
    if names != list(table.columns):
        table = table.set_axis(names, axis=1)
    columns = [
        i for i, column in _text_columns(table) if _holds(column, lambda text: change(text) != text)
    ]
    table = table.copy() if columns else table
    for i in columns:
        table.isetitem(i, table.iloc[:, i].map(change).array)
    return table


def _text_columns(table: pd.DataFrame) -> list[tuple[int, pd.Series]]:
    return [(i, column) for i, (_, column) in enumerate(table.items()) if column.dtype.kind in "OT"]


def _holds(column: pd.Series, wanted: Callable[[str], bool]) -> bool:
    return any(isinstance(value, str) and wanted(value) for value in column.unique())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
