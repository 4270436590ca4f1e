"""Tables in workbooks of Excel: the first sheet, read row by row, up to a size that a table of participants may have.

A sheet may hold one cell in its last row and column, 17 thousand million cells away from the first. So the size is
looked at before rows are read, and again with every row.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import NerveError, problem
from nerve._utils.formulas import unguarded_table
from nerve.data.readers.opening import explained_errors, require_file

ENDINGS = (".xlsx", ".xlsm")
NOT_READ = (".xls", ".ods")
MOST_ROWS = 200_000
MOST_CELLS = 10_000_000  # rows × columns


def read_workbook(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """Read the first sheet of a workbook.

    Parameters
    ----------
    path : Path
    options : dict
        Options of `pandas.read_csv` that say what cells mean (`dtype`, `na_values`).

    Returns
    -------
    DataFrame
        The first row names the columns.
    """
    if path.suffix.lower() not in ENDINGS:
        raise problem(path, "this kind of workbook is not read", remedy="Save it as .xlsx or .csv.")
    try:
        import openpyxl
    except ImportError as error:
        remedy = "Install it (`pip install openpyxl`), or save the sheet as .csv."
        raise problem(
            path, "workbooks of Excel need the package openpyxl", remedy=remedy
        ) from error
    from pandas.io.parsers import TextParser  # type: ignore[attr-defined]

    with explained_errors(require_file(path), "a whole .xlsx file"):
        with zipfile.ZipFile(path) as archive:
            refuse_bomb(
                path, path.stat().st_size, sum(member.file_size for member in archive.infolist())
            )
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheet = workbook.worksheets[0]
            declared_rows = sheet.max_row or 0
            if declared_rows > MOST_ROWS:
                raise _too_large(path, f"it has {declared_rows:,} rows")
            sheet.reset_dimensions()  # what a file declares may be less than what it holds
            rows = _read_rows(path, sheet.iter_rows(values_only=True))
        finally:
            workbook.close()
        return unguarded_table(TextParser(rows, header=0, **options).read())


def _read_rows(path: Path, rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """The cells of a sheet as a full rectangle, without empty rows and columns at its end."""
    kept: list[list[Any]] = []
    n_cells = 0
    n_rows_with_content = 0
    width = 0
    for number, row in enumerate(rows, start=1):
        n_cells += len(row)
        if number > MOST_ROWS:
            raise _too_large(path, f"it has cells beyond row {MOST_ROWS:,}")
        if n_cells > MOST_CELLS:
            raise _too_large(path, f"it has more than {MOST_CELLS:,} cells")
        cells = [_cell(value) for value in row]
        while cells and cells[-1] == "":
            cells.pop()
        kept.append(cells)
        if cells:
            n_rows_with_content = number
            width = max(width, len(cells))
    if n_rows_with_content * width > MOST_CELLS:
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


def _too_large(path: Path, found: str) -> NerveError:
    expected = f"at most {MOST_ROWS:,} rows and {MOST_CELLS:,} cells in a workbook"
    remedy = (
        "Delete rows and columns that hold nothing, or save the sheet as .csv, which may be longer."
    )
    return problem(path, found, expected=expected, remedy=remedy)
