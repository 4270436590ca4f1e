"""Columns that are numbers but for a few cells: one "unknown" must not turn an age into a hundred categories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from nerve._utils.errors import listed, problem

_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+)$")
MOSTLY = 0.5  # share of the cells from which on a column is meant to be numbers


def odd_cells(column: pd.Series) -> pd.Series:
    """The cells that are not numbers in a column that otherwise holds numbers; none where it holds words.

    Examples
    --------
    >>> odd_cells(pd.Series(["12", "unknown", "14.5", None])).tolist(), odd_cells(pd.Series(["F", "M"])).tolist()
    (['unknown'], [])
    >>> odd_cells(pd.Series(["12,5", "13,1"])).tolist()
    ['12,5', '13,1']
    >>> odd_cells(pd.Series(["8.1", "unknown", "unknown"])).tolist()
    ['unknown', 'unknown']
    """
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return column.iloc[:0]
    present = column.dropna()
    numbers = in_numbers(present)
    if not len(present) or (
        numbers.notna().mean() < MOSTLY and not (numbers % 1).any()
    ):  # 8.1 is no category
        return present.iloc[:0]
    return present[pd.to_numeric(present.astype(str).str.strip(), errors="coerce").isna()]


def in_numbers(column: pd.Series) -> pd.Series:
    """The cells as numbers, decimal commas included; NaN where a cell is not one."""
    words = column.astype(str).str.strip().str.replace(_DECIMAL_COMMA, r"\1.\2", regex=True)
    return pd.to_numeric(words, errors="coerce").astype(float)


def as_numbers(
    table: pd.DataFrame, columns: Iterable[Any], *, missing: bool = False
) -> pd.DataFrame:
    """The table with such columns as numbers: odd cells become missing if asked for, and are refused by name if not."""
    table = table.copy()
    for name in columns:
        odd = odd_cells(table[name])
        if not len(odd):
            continue
        if not missing or not len(table[name].dropna().index.difference(odd.index)):
            raise _refusal(table, str(name), odd)
        table[name] = pd.to_numeric(
            table[name].where(~table.index.isin(odd.index)).astype("string"), errors="coerce"
        )
    return table


def _refusal(table: pd.DataFrame, name: str, odd: pd.Series) -> Exception:
    ids = table["participant_id"] if "participant_id" in table else table.index.to_series()
    cells = listed(
        (f"{value!r} ({one})" for one, value in zip(ids.loc[odd.index], odd, strict=True)), most=3
    )
    others = int(table[name].notna().sum()) - len(odd)
    if not others:
        return problem(
            name, f"its numbers have commas: {cells}", remedy="Write them with points, 12.5."
        )
    found = f"{cells} {'is not a number' if len(odd) == 1 else 'are not numbers'} among {others} that are"
    remedy = "Mend the cells, write n/a there, or say --non-numeric missing."
    return problem(
        f"column {name!r}", found, expected="numbers, or categories throughout", remedy=remedy
    )
