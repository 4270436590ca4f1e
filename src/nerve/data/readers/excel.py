"""Tables in workbooks of Excel: one sheet, up to the size that a table of participants may have.

The sheet is the one that the user names (`--sheet`), or the only one with a column of ids. The row
that names the columns may have a title or a line of remarks above it.

A sheet may hold one cell in its last row and column, 17 thousand million cells away from the first.
So the size is looked at before rows are read, and again with every row.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import NerveError, did_you_mean, listed, problem
from nerve._utils.formulas import unguarded_table
from nerve.data.readers.opening import explained_errors, require_file

ENDINGS = (".xlsx", ".xlsm")
NOT_READ = (".xls", ".ods")
_MOST_ROWS = 200_000
_MOST_CELLS = 10_000_000  # rows × columns
_HEADER_WITHIN = 30  # rows in which the names of the columns are looked for


def read_workbook(
    path: Path, options: dict[str, Any], sheet: str | None = None, key_columns: Iterable[str] = ()
) -> pd.DataFrame:
    """Read one sheet of a workbook.

    Parameters
    ----------
    path : Path
    options : dict
        Options of `pandas.read_csv` that say what cells mean (`dtype`, `na_values`).
    sheet : str, optional
        Its name, or its number from 1; by default the only sheet with content, or with one of the
        `key_columns`.
    key_columns : iterable of str
        Names of columns of ids, by which a header is recognised.

    Returns
    -------
    DataFrame
        `attrs["notes"]` says which sheet and which row of it, where that is not the first.
    """
    if path.suffix.lower() not in ENDINGS:
        raise problem(path, "this kind of workbook is not read", remedy="Save it as .xlsx or .csv.")
    try:
        import openpyxl
    except ImportError as error:
        remedy = "Install it (`pip install 'nerve-fc[excel]'`), or save the sheet as .csv."
        raise problem(
            path, "workbooks of Excel need the package openpyxl", remedy=remedy
        ) from error
    from pandas.io.parsers import TextParser  # type: ignore[attr-defined]

    keys = frozenset(key_columns)
    with explained_errors(require_file(path), "a whole .xlsx file"):
        with zipfile.ZipFile(path) as archive:
            refuse_bomb(
                path, path.stat().st_size, sum(member.file_size for member in archive.infolist())
            )
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            chosen = _choose_sheet(path, workbook.worksheets, sheet, keys)
            declared_rows = chosen.max_row or 0
            if declared_rows > _MOST_ROWS:
                raise _too_large(path, f"it has {declared_rows:,} rows")
            chosen.reset_dimensions()  # what a file declares may be less than what it holds
            rows = _read_rows(path, chosen.iter_rows(values_only=True))
            n_sheets = len(workbook.worksheets)
            title = chosen.title
        finally:
            workbook.close()
        header_row = _header_row(rows[:_HEADER_WITHIN], keys)
        table = unguarded_table(TextParser(rows[header_row:], header=0, **options).read())
    notes = []
    if n_sheets > 1:
        notes.append(f"sheet {title!r} of {n_sheets} is read")
    if header_row:
        notes.append(f"the columns are named in row {header_row + 1}")
    table.attrs["notes"] = notes
    return table


def _choose_sheet(path: Path, sheets: Sequence[Any], wanted: str | None, keys: Set[str]) -> Any:
    """The sheet that the user names, or the only one that can be meant."""
    titles = [sheet.title for sheet in sheets]
    if wanted is not None:
        if wanted in titles:
            return sheets[titles.index(wanted)]
        if wanted.isdecimal() and 0 < int(wanted) <= len(sheets):
            return sheets[int(wanted) - 1]
        raise problem(
            path,
            f"it has no sheet {wanted!r}",
            expected=f"one of {listed(titles)}, or a number from 1 to {len(titles)}",
            remedy=did_you_mean(wanted, titles).strip(),
        )
    with_content = []
    with_ids = []
    for sheet in sheets:
        first_rows = _first_rows(sheet)
        if any(first_rows):
            with_content.append(sheet)
        if any(keys & set(row) for row in first_rows):
            with_ids.append(sheet)
    candidates = with_ids or with_content
    if len(candidates) > 1:
        names = listed(sheet.title for sheet in candidates)
        have = "have a column of ids" if with_ids else "hold a table"
        raise problem(
            path,
            f"{len(candidates)} of its sheets {have} ({names})",
            expected="one table",
            remedy="Say which: --sheet NAME.",
        )
    return candidates[0] if candidates else sheets[0]


def _first_rows(sheet: Any) -> list[list[str]]:
    """The words of the rows in which a header may stand."""
    sheet.reset_dimensions()
    rows = []
    for row in sheet.iter_rows(max_row=_HEADER_WITHIN, values_only=True):
        rows.append([str(cell).strip() for cell in row if cell is not None])
    return rows


def _header_row(rows: Sequence[Sequence[Any]], keys: Set[str]) -> int:
    """Which of the first rows names the columns: one with ids, else the first full one of words."""
    width = max((len(row) for row in rows), default=0)
    full_rows = []
    for number, row in enumerate(rows):
        words = [str(cell).strip() for cell in row if cell != ""]
        if len(words) <= width / 2:
            continue
        if keys & set(words):
            return number
        if all(isinstance(cell, str) for cell in row):
            full_rows.append(number)
    return full_rows[0] if full_rows else 0


def _read_rows(path: Path, rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """The cells of a sheet as a full rectangle, without empty rows and columns at its end."""
    kept: list[list[Any]] = []
    n_cells = 0
    n_rows_with_content = 0
    width = 0
    for number, row in enumerate(rows, start=1):
        n_cells += len(row)
        if number > _MOST_ROWS:
            raise _too_large(path, f"it has cells beyond row {_MOST_ROWS:,}")
        if n_cells > _MOST_CELLS:
            raise _too_large(path, f"it has more than {_MOST_CELLS:,} cells")
        cells = [_cell(value) for value in row]
        while cells and cells[-1] == "":
            cells.pop()
        kept.append(cells)
        if cells:
            n_rows_with_content = number
            width = max(width, len(cells))
    if n_rows_with_content * width > _MOST_CELLS:
        raise _too_large(path, f"it has {n_rows_with_content:,} rows and {width:,} columns")
    return [cells + [""] * (width - len(cells)) for cells in kept[:n_rows_with_content]]


def _cell(value: Any) -> Any:
    """A cell as a table of text would have it: empty, missing, a whole number, or as it is."""
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith("#"):
        from openpyxl.cell.cell import ERROR_CODES

        return np.nan if value in ERROR_CODES else value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _too_large(path: Path, cause: str) -> NerveError:
    expected = f"at most {_MOST_ROWS:,} rows and {_MOST_CELLS:,} cells in a workbook"
    remedy = (
        "Delete rows and columns that hold nothing, or save the sheet as .csv, which may be longer."
    )
    return problem(path, cause, expected=expected, remedy=remedy)
