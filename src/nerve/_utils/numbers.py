"""Columns of numbers with a few other cells: one "unknown" must not turn ages into categories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError, listed, problem

_MOSTLY = 0.5  # least share of numbers in a column that is treated as numbers

_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+)$")


def odd_cells(column: pd.Series) -> pd.Series:
    """Find the cells that are not numbers in a column that otherwise holds numbers.

    Parameters
    ----------
    column : Series
        A column of a table.

    Returns
    -------
    Series
        These cells; none for a column of words.

    Examples
    --------
    >>> odd_cells(pd.Series(["12", "unknown", "14.5", None])).tolist()
    ['unknown']
    >>> odd_cells(pd.Series(["F", "M"])).tolist()
    []
    >>> odd_cells(pd.Series(["12,5", "13,1"])).tolist()
    ['12,5', '13,1']
    >>> odd_cells(pd.Series(["8.1", "unknown", "unknown"])).tolist()
    ['unknown', 'unknown']
    """
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return column.iloc[:0]
    present = column.dropna()
    if not len(present):
        return present
    numbers = in_numbers(present)
    mostly_words = numbers.notna().mean() < _MOSTLY
    has_fractions = (numbers % 1).any()  # 8.1 is not the name of a category
    if mostly_words and not has_fractions:
        return present.iloc[:0]
    as_written = pd.to_numeric(present.astype(str).str.strip(), errors="coerce")
    return present[as_written.isna()]


def in_numbers(column: pd.Series) -> pd.Series:
    """Read the cells of a column as numbers, decimal commas included.

    Parameters
    ----------
    column : Series
        A column of a table.

    Returns
    -------
    Series of float
        NaN where a cell is not a number.
    """
    words = column.astype(str).str.strip().str.replace(_DECIMAL_COMMA, r"\1.\2", regex=True)
    return pd.to_numeric(words, errors="coerce").astype(float)


def as_numbers(
    table: pd.DataFrame, columns: Iterable[Any], *, missing: bool = False
) -> pd.DataFrame:
    """Convert columns that hold numbers, except for a few cells, to numbers.

    Parameters
    ----------
    table : DataFrame
        The table, which is not changed.
    columns : iterable
        Names of the columns. A column of words stays as it is.
    missing : bool
        Whether odd cells become missing values; otherwise they raise an error that names them.

    Returns
    -------
    DataFrame
        The table.
    """
    table = table.copy()
    for name in columns:
        odd = odd_cells(table[name])
        if not len(odd):
            continue
        others = table[name].dropna().index.difference(odd.index)
        if not missing or not len(others):
            raise _refusal(table, str(name), odd)
        numbers = table[name].where(~table.index.isin(odd.index)).astype("string")
        table[name] = pd.to_numeric(numbers, errors="coerce")
    return table


def _refusal(table: pd.DataFrame, name: str, odd: pd.Series) -> NerveError:
    """The error that names odd cells and their participants."""
    ids = table["participant_id"] if "participant_id" in table else table.index.to_series()
    pairs = zip(ids.loc[odd.index], odd, strict=True)
    cells = listed([f"{value!r} ({participant})" for participant, value in pairs], most=3)
    n_others = int(table[name].notna().sum()) - len(odd)
    if n_others == 0:
        return problem(
            name, f"its numbers have commas: {cells}", remedy="Write them with points, 12.5."
        )
    verb = "is not a number" if len(odd) == 1 else "are not numbers"
    return problem(
        f"column {name!r}",
        f"{cells} {verb} among {n_others} that are",
        expected="numbers, or categories throughout",
        remedy="Mend the cells, write n/a there, or say --non-numeric missing.",
    )
