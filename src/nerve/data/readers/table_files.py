"""Tables of Parquet, Feather, SPSS (`.sav`) and Stata (`.dta`), with cells as text would have.

Two packages read them: pyarrow and pyreadstat (extra `tables`). Columns keep their codes: what SPSS
or Stata calls the codes (1 = male) is told in the plan and never put in their place, because a
scale of 1 to 4 would no longer be numbers.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import listed, problem
from nerve._utils.formulas import unguarded_table
from nerve.data.readers.opening import explained_errors, require_file

_ARROW = {".parquet": "parquet", ".feather": "feather"}
_STATISTICS = (".sav", ".zsav", ".dta")
ENDINGS = (*_ARROW, *_STATISTICS)
_BYTES_PER_CELL = 8


def read_table_file(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """Read a table of Parquet, Feather, SPSS or Stata.

    Parameters
    ----------
    path : Path
    options : dict
        Options of `pandas.read_csv` that say what cells mean (`dtype`, `na_values`).

    Returns
    -------
    DataFrame
        `attrs["notes"]` says what the file calls its codes, and which codes it declares as missing.
    """
    ending = path.suffix.lower()
    package = "pyarrow" if ending in _ARROW else "pyreadstat"
    if find_spec(package) is None:
        remedy = "Install it (`pip install 'nerve-fc[tables]'`), or save the table as .csv."
        raise problem(path, f"{ending} tables need the package {package}", remedy=remedy)
    with explained_errors(require_file(path), f"a whole {ending} file"):
        if ending in _ARROW:
            table, notes = _read_arrow(path, _ARROW[ending])
        else:
            table, notes = _read_statistics(path, ending)
        table = _as_text_has_it(table, options)
    table.attrs["notes"] = notes
    return table


def with_named_index(table: pd.DataFrame) -> pd.DataFrame:
    """Make columns of an index that has names; one without a name only counts the rows.

    Parameters
    ----------
    table : DataFrame

    Returns
    -------
    DataFrame
    """
    names = [name for name in table.index.names if name is not None]
    is_new = bool(names) and not set(names) & set(table.columns)
    return table.reset_index(drop=not is_new)


def _read_arrow(path: Path, file_format: str) -> tuple[pd.DataFrame, list[str]]:
    """Parquet or Feather; an index that has a name is a column."""
    from pyarrow.dataset import dataset as open_dataset

    dataset = open_dataset(path, format=file_format)
    n_cells = dataset.count_rows() * len(dataset.schema)
    refuse_bomb(path, path.stat().st_size, _BYTES_PER_CELL * n_cells)
    table = dataset.to_table().to_pandas()
    return with_named_index(table), []


def _read_statistics(path: Path, ending: str) -> tuple[pd.DataFrame, list[str]]:
    """SPSS or Stata: codes as they are, those that the file declares as missing empty."""
    import pyreadstat

    read = pyreadstat.read_dta if ending == ".dta" else pyreadstat.read_sav
    _, head = read(path, metadataonly=True, user_missing=True)
    n_cells = (head.number_rows or 0) * (head.number_columns or 0)
    refuse_bomb(path, path.stat().st_size, _BYTES_PER_CELL * n_cells)
    table, facts = read(path)
    notes = []
    labels = [
        f"{column} {listed(_pairs_in_words(names), most=4)}"
        for column, names in facts.variable_value_labels.items()
    ]
    if labels:
        notes.append(
            f"columns keep their codes, which the file calls: {'; '.join(labels[:6])}"
            + (f"; and those of {len(labels) - 6} columns more" if len(labels) > 6 else "")
        )
    declared = {**head.missing_ranges, **head.missing_user_values}
    if declared:
        columns = listed(declared, most=6)
        notes.append(f"codes that the file declares as missing are missing (columns {columns})")
    return table, notes


def _pairs_in_words(labels: dict[Any, str]) -> list[str]:
    """`1 = male`, `2 = female`."""
    pairs = []
    for code, label in labels.items():
        number = f"{code:g}" if isinstance(code, (int, float)) else str(code)
        pairs.append(f"{number} = {label}")
    return pairs


def _as_text_has_it(table: pd.DataFrame, options: dict[str, Any]) -> pd.DataFrame:
    """The table once written as text and read again, so that ids and missing values are read alike.

    Whole numbers are written without `.0`: SPSS knows no integers.
    """
    table = table.rename(columns=str)
    for name in table.columns[table.dtypes.map(pd.api.types.is_float_dtype)]:
        known = table[name].dropna()
        if (known % 1 == 0).all() and (known.abs() < 2**53).all():
            table[name] = table[name].astype("Int64")
    text = io.StringIO(table.to_csv(index=False))
    return unguarded_table(pd.read_csv(text, low_memory=False, **options))
