"""Columns that are numbers but for a few cells: one "unknown" must not turn an age into a hundred categories."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from nerve.checks import listed, problem

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
    """
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return column.iloc[:0]
    present = column.dropna()
    if not len(present) or in_numbers(present).notna().mean() < MOSTLY:
        return present.iloc[:0]
    return present[pd.to_numeric(present.astype(str).str.strip(), errors="coerce").isna()]


def in_numbers(column: pd.Series) -> pd.Series:
    """The cells as numbers, decimal commas included; NaN where a cell is not one."""
    return pd.Series([_number(str(cell).strip()) for cell in column], column.index, float)


def _number(word: str) -> float:
    try:
        return float(_DECIMAL_COMMA.sub(r"\1.\2", word)) if "_" not in word else math.nan  # 1_000 is Python's only
    except ValueError:
        return math.nan


def as_numbers(table: pd.DataFrame, columns: Iterable[Any], *, missing: bool = False) -> pd.DataFrame:
    """The table with such columns as numbers: odd cells become missing if asked for, and are refused by name if not."""
    table = table.copy()
    for name in columns:
        odd = odd_cells(table[name])
        if not len(odd):
            continue
        if not missing or not len(table[name].dropna().index.difference(odd.index)):
            raise _refusal(table, str(name), odd)
        table[name] = pd.to_numeric(table[name].where(~table.index.isin(odd.index)).astype("string"), errors="coerce")
    return table


def _refusal(table: pd.DataFrame, name: str, odd: pd.Series) -> Exception:
    ids = table["participant_id"] if "participant_id" in table else table.index.to_series()
    cells = listed((f"{value!r} ({one})" for one, value in zip(ids.loc[odd.index], odd, strict=True)), most=3)
    others = int(table[name].notna().sum()) - len(odd)
    if not others:
        return problem(name, f"its numbers have commas: {cells}", remedy="Write them with points, 12.5.")
    return problem(
        f"column {name!r}",
        f"{cells} {'is not a number' if len(odd) == 1 else 'are not numbers'} among {others} that are",
        expected="numbers, or categories throughout",
        remedy="Mend the cells, write n/a there, or say --non-numeric missing.",
    )
