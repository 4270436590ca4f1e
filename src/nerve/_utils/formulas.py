"""Guard text that a spreadsheet would run as a formula.

Excel and similar programs run a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line
end: a participant called ``=cmd|'/c calc'!A1`` would start a program when the table is opened. So an
apostrophe is put before such text when a table is written, and removed when it is read. Numbers are
not changed. Text that already begins with apostrophes gets one more, so that reading gives back
exactly what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_GUARDED = re.compile(r"''*[=+\-@\t\r\n]")


def guarded(value: Any) -> Any:
    """Put an apostrophe before a cell that a spreadsheet would run.

    Parameters
    ----------
    value : object
        A cell.

    Returns
    -------
    object
        The cell, changed only if it is such text.

    Examples
    --------
    >>> guarded("=1+1"), guarded("-0.5"), guarded("DMN-A"), guarded("'=x")
    ("'=1+1", '-0.5', 'DMN-A', "''=x")
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value):
        return f"'{value}"
    return value


def unguarded(value: Any) -> Any:
    """Undo `guarded`.

    Parameters
    ----------
    value : object
        A cell.

    Returns
    -------
    object
        The cell as it was.

    Examples
    --------
    >>> unguarded("'=1+1"), unguarded("'s Gravenhage")
    ('=1+1', "'s Gravenhage")
    """
    if isinstance(value, str) and _GUARDED.match(value):
        return value[1:]
    return value


def guarded_table(table: pd.DataFrame) -> pd.DataFrame:
    """Guard every text cell and column name of a table.

    Parameters
    ----------
    table : DataFrame
        The table, which is not changed.

    Returns
    -------
    DataFrame
        The table itself where there is nothing to guard.
    """
    return _map_text(table, guarded)


def unguarded_table(table: pd.DataFrame) -> pd.DataFrame:
    """Undo `guarded_table`.

    Parameters
    ----------
    table : DataFrame
        The table, which is not changed.

    Returns
    -------
    DataFrame
        The table itself where nothing was guarded.
    """
    return _map_text(table, unguarded)


def any_text(table: pd.DataFrame, condition: Callable[[str], bool]) -> bool:
    """Whether a condition holds for any column name or text cell of a table.

    Parameters
    ----------
    table : DataFrame
        The table.
    condition : callable
        Of a text.

    Returns
    -------
    bool
        Whether there is such a text.
    """
    names = [name for name in table.columns if isinstance(name, str)]
    if any(condition(name) for name in names):
        return True
    return any(_any_cell(column, condition) for column in _text_columns(table).values())


def _map_text(table: pd.DataFrame, change: Callable[[Any], Any]) -> pd.DataFrame:
    """Change column names and text cells; the table itself where nothing changes."""
    names = [change(name) for name in table.columns]
    if names != list(table.columns):
        table = table.set_axis(names, axis=1)
    positions = [
        position
        for position, column in _text_columns(table).items()
        if _any_cell(column, lambda text: change(text) != text)
    ]
    if not positions:
        return table
    table = table.copy()
    for position in positions:
        table.isetitem(position, table.iloc[:, position].map(change).array)
    return table


def _text_columns(table: pd.DataFrame) -> dict[int, pd.Series]:
    """Columns that may hold text, by their positions: names may occur twice."""
    # by types first: a table may have a hundred thousand columns of numbers
    positions = [k for k, dtype in enumerate(table.dtypes) if dtype.kind in "OT"]
    return {position: table.iloc[:, position] for position in positions}


def _any_cell(column: pd.Series, condition: Callable[[str], bool]) -> bool:
    return any(isinstance(value, str) and condition(value) for value in column.unique())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
