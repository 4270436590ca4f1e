"""Numbers in text files, with or without labels, by pandas' parser."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.readers.base import require_file
from nerve.readers.squares import read_square
from nerve.unpacking import LARGE_TABLE, PACKED, open_table

_INDEX_NAMES = ("node", "", "unnamed: 0", "index", "label", "region")
_TAIL = 1 << 18  # bytes: more than the longest line of some 8,000 regions


def read_numbers(path: Path, participant: str = "") -> np.ndarray:
    """A (rows, columns) array from whitespace-separated text without a header; lines with `#` are comments."""
    table = _parse(path, participant, sep=_separator(path), header=None, comment="#", dtype=np.float64)
    _refuse_cut_line(path, participant, table.shape[1])
    return table.to_numpy()


def read_labelled(path: Path, participant: str = "") -> tuple[np.ndarray, tuple[str, ...] | None]:
    """A (rows, columns) array and the column labels, from tab-separated text with a header.

    A first column of row labels (`Node`) is used to check that rows and columns are in the same order. A header that
    only counts (0, 1, 2 …) is no label.
    """
    square = read_square(require_file(path, participant))
    if square is not None:
        return square
    where = _where(path, participant)
    named = _first_line(path, participant).split("\t")[0].strip(' "').lower() in _INDEX_NAMES
    table = _parse(path, participant, sep="\t", index_col=0 if named else None)
    if not named:
        table = _text_as_index(table)
    rows = None if isinstance(table.index, pd.RangeIndex) else tuple(str(row).strip() for row in table.index)
    _refuse_cut_line(path, participant, table.shape[1] + (rows is not None), separator=b"\t")
    labels = tuple(str(column).strip() for column in table.columns)
    text = [label for label, dtype in zip(labels, table.dtypes, strict=True) if dtype.kind not in "iuf"]
    if text or not labels:
        found = f"column {listed(text, most=3)} holds text" if text else "there are no columns of numbers"
        raise problem(where, found, expected="numbers, or n/a for missing")
    values = table.to_numpy(np.float64)
    if rows is not None and len(rows) == len(labels) and rows != labels:
        raise problem(
            where,
            f"the rows are in another order than the columns ({listed(_differing(rows, labels), most=2)})",
            expected="the same labels in the same order",
            remedy="Write the file again.",
        )
    return values, None if all(label.isdigit() for label in labels) else labels


def read_column(path: Path, names: Sequence[str], participant: str = "") -> np.ndarray | None:
    """The first of these columns that a table has, as numbers; None where it has none of them."""
    table = _parse(path, participant, sep="\t")
    for name in names:
        if name in table.columns:
            return column_of_numbers(table, name, _where(path, participant))
    return None


def column_of_numbers(table: pd.DataFrame, name: str, where: object) -> np.ndarray:
    """A column as numbers, missing values as NaN; text in it is refused."""
    values = pd.to_numeric(table[name], errors="coerce")
    text = table[name][values.isna() & table[name].notna()]
    if len(text):
        raise problem(
            where, f"column {name} holds {text.iloc[0]!r} in row {text.index[0] + 1}", expected="numbers or n/a"
        )
    return values.to_numpy(np.float64)


def _parse(path: Path, participant: str, **options: Any) -> pd.DataFrame:
    where = _where(path, participant)
    require_file(path, participant)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.ParserWarning)
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            if path.stat().st_size > LARGE_TABLE and path.suffix.lower() not in PACKED:
                with open_table(path) as stream:  # which counts its cells
                    table = pd.read_csv(stream, low_memory=False, **options)
            else:
                table = pd.read_csv(path, compression=None, low_memory=False, **options)
    except NerveError:
        raise
    except OSError as error:
        raise problem(where, f"the file could not be read ({error.strerror or error})") from error
    except (ValueError, OverflowError, MemoryError) as error:  # parser errors and wrong encodings are ValueErrors
        raise problem(
            where,
            f"the file is not a table of numbers ({_cause(error)})",
            expected="text, one row a line",
            remedy="Write it again; if it is compressed, unpack it or name it .gz." if _is_gzip(path) else "",
        ) from error
    if table.empty:
        raise problem(where, "the file holds no rows of numbers", remedy="Write it again.")
    return table


def _text_as_index(table: pd.DataFrame) -> pd.DataFrame:
    """A first column of text becomes the index, as pandas itself makes it where the header is a word short."""
    is_text = len(table.columns) > 0 and table.dtypes.iloc[0].kind not in "iuf"
    return table.set_index(table.columns[0]) if is_text and isinstance(table.index, pd.RangeIndex) else table


def _first_line(path: Path, participant: str) -> str:
    require_file(path, participant)
    try:
        with open(path, "rb") as stream:
            return stream.readline(_TAIL).decode("utf-8-sig", "replace")
    except OSError as error:
        raise problem(_where(path, participant), f"the file could not be read ({error.strerror or error})") from error


def _separator(path: Path) -> str:
    """A tab if the first row of numbers is clearly tab-separated, which pandas parses fastest; else any white space."""
    try:
        with open(path, "rb") as stream:
            first = next((line for line in stream if not line.startswith(b"#")), b"").strip(b"\r\n")
    except OSError:
        return r"\s+"
    return "\t" if b"\t" in first and b" " not in first and first == first.strip() else r"\s+"


def _refuse_cut_line(path: Path, participant: str, n_columns: int, separator: bytes | None = None) -> None:
    """Pandas fills a short last line with missing values; it means that the file was cut off."""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL))
        tail = stream.read().rstrip()
    newline = tail.rfind(b"\n")
    line = tail[newline + 1 :]
    if newline < 0 or line.lstrip().startswith(b"#"):
        return
    found = len(line.split(separator))
    if found < n_columns:
        raise problem(
            _where(path, participant),
            f"the last line has {found} of {n_columns} values: the file was cut off",
            remedy="Copy or write it again.",
        )


def _where(path: Path, participant: str) -> str:
    return f"{path} (participant {participant})" if participant else str(path)


def _is_gzip(path: Path) -> bool:
    with open(path, "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def _differing(rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [f"{row} against {column}" for row, column in zip(rows, columns, strict=True) if row != column]


def _cause(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
