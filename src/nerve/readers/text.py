"""The one parser of text: numbers with or without labels, and others' tables, in whatever separators and encoding."""

from __future__ import annotations

import codecs
import io
import re
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve.checks import listed, problem
from nerve.formulas import unguarded_table
from nerve.readers.opening import MENDING, require_file, sentences
from nerve.readers.squares import read_square
from nerve.unpacking import LARGE_TABLE, PACKED, open_table, refuse_bomb, require_ending

_MISSING = ("n/a", "na", "nan", "")
_INDEX_NAMES = ("", "node", "index", "label", "labels", "region", "roi", "name", "unnamed: 0")
_DISGUISES = {b"\x1f\x8b": "gzip", b"PK": "zip", b"\x80\x04": "pickle", b"\x80\x05": "pickle", b"\x93N": "NumPy"}
# the encodings that labs' programs write; with more to choose from, short German words are taken for Chinese
_ENCODINGS = ["cp1252", "gb18030", "shift_jis", "euc_kr", "cp1251"]
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_LONGEST_LINE = 1 << 24  # bytes: the names of 100,000 columns
_SAMPLE = 1 << 16  # bytes from which an encoding is guessed
_EXCEL = (".xlsx", ".xlsm")


@dataclass(frozen=True)
class Numbers:
    """A table of numbers: (rows, columns) values, and the labels above the columns and before the rows, if any."""

    values: np.ndarray
    columns: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _Text:
    """A text file, and how it is written."""

    path: Path
    content: bytes | None  # None for a packed or large one, which is read piece by piece
    encoding: str
    separator: str
    decimal: str
    first: list[str]  # words of the first line that is no remark, or of the remark that names the columns
    second: list[str]
    n_remarks: int  # lines that begin with # before them

    @property
    def has_header(self) -> bool:
        words = self.first[1:] or self.first
        return any(not is_number(word, self.decimal) for word in words)

    @property
    def body(self) -> list[str]:
        """The words of the first line of numbers."""
        return self.second if self.has_header else self.first

    @property
    def has_index(self) -> bool:
        """Whether the first column names the rows."""
        if not self.body:
            return False
        named = self.has_header and len(self.first) == len(self.body) and self.first[0].lower() in _INDEX_NAMES
        unnamed = self.has_header and len(self.body) == len(self.first) + 1 and self.body[-1] != ""
        return named or unnamed or not is_number(self.body[0], self.decimal)

    def parsed(self, **options: Any) -> pd.DataFrame:
        """What pandas makes of it."""
        common: dict[str, Any] = {"sep": self.separator, "skiprows": self.n_remarks, "low_memory": False} | options
        with _stream(self.path, self.content) as stream:
            return pd.read_csv(stream, decimal=self.decimal, encoding=self.encoding, **common)


def is_number(word: str, decimal: str = ",") -> bool:
    """Whether a word is a number, or stands for a missing one."""
    try:
        float(word.replace(decimal, "."))
    except ValueError:
        return word.lower() in _MISSING
    return True


def read_numbers(path: Path) -> Numbers:
    """The numbers of a text file, and its labels.

    Tabs, commas, semicolons or blanks; decimal points or commas; with or without a header (`#1 #2 …` of `.1D` files
    too), a column of labels, or a tab before or after each line. Empty cells and ``n/a`` are NaN. Headers and first
    columns that pandas writes by itself (0, 1, 2 …) are dropped.
    """
    with sentences(require_file(path), "a table of numbers, as many in every line"):
        content = _content(path)
        square = None if content is None else read_square(content)
        if square is not None:
            return Numbers(square[0], square[1], square[1])
        text = _read(path, content)
        table = text.parsed(
            header=None,
            skiprows=text.n_remarks + text.has_header,
            index_col=0 if text.has_index else None,
            na_values=["n/a"],
            comment="#" if path.suffix == ".1D" else None,
        )
        values = _as_numbers(table, path)
    if not values.size:
        raise problem(path, "it holds no numbers", expected="a table of numbers", remedy=MENDING)
    _refuse_cut_line(text, values.shape[1] + text.has_index)
    named = text.has_index and not table.index.isna().all()  # an empty first column is a tab before each line
    rows = tuple(str(label).strip() for label in table.index) if named else None
    columns = _column_labels(text, values.shape[1]) if text.has_header else None
    _refuse_other_order(rows, columns, path)
    if columns is None:
        values = _without_edges(values)
    return _without_counting(values) if columns is None and rows is None else Numbers(values, columns, rows)


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Somebody else's table with names of columns; `options` are those of `pandas.read_csv`. Excel's is read too."""
    with sentences(path, "a table with names of columns"):
        if path.suffix.lower() in (*_EXCEL, ".xls", ".ods"):
            return _read_excel(path, options)
        require_ending(path)
        text = _read(path, _content(path))
        if text.separator == r"\s+" and not len(text.first) == len(text.second) > 1:  # a name of several words
            options = {"sep": "\t", **options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return unguarded_table(text.parsed(**options))


def read_column(path: Path, names: Sequence[str]) -> np.ndarray | None:
    """The first of these columns that a table has, as numbers; None where it has none of them."""
    table = read_table(require_file(path))
    if table.empty:
        raise problem(path, "the file holds no rows of numbers", remedy="Write it again.")
    return next((column_of_numbers(table, name, path) for name in names if name in table.columns), None)


def column_of_numbers(table: pd.DataFrame, name: str, where: object) -> np.ndarray:
    """A column as numbers, missing values as NaN; text in it is refused."""
    values = pd.to_numeric(table[name].astype(str), errors="coerce")  # as text: an integer may be too long for a number
    text = table[name][values.isna() & table[name].notna()]
    if len(text):
        found = f"column {name} holds {text.iloc[0]!r} in row {text.index[0] + 1}"
        raise problem(where, found, expected="numbers or n/a")
    return values.to_numpy(np.float64)


def first_lines(path: Path) -> tuple[list[str], list[str]]:
    """The words of the first two lines of a table."""
    with sentences(require_file(path), "a table"):
        text = _read(path, _content(path))
    return text.first, text.second


def read_lines(path: Path) -> list[str]:
    """The lines of a text in any encoding, without those that are empty."""
    with sentences(require_file(path), "a text file"):
        content = path.read_bytes()
        return [line.strip() for line in content.decode(_encoding(content, path)).splitlines() if line.strip()]


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None for a packed or large one, which is read piece by piece."""
    if path.suffix.lower() in PACKED or path.stat().st_size > LARGE_TABLE:
        return None
    return path.read_bytes()


def _stream(path: Path, content: bytes | None) -> BinaryIO:
    return open_table(path) if content is None else io.BytesIO(content)


def _read(path: Path, content: bytes | None) -> _Text:
    """The text with its encoding, separator, decimal mark and first lines."""
    with _stream(path, content) as stream:
        start = [stream.readline(_LONGEST_LINE) for _ in range(2)]
    _refuse_no_text(start[0], path)
    encoding = _encoding(content if content is not None else b"".join(start), path)
    with io.TextIOWrapper(_stream(path, content), encoding=encoding, newline=None) as lines:
        remarks: list[str] = []
        while (line := lines.readline(_LONGEST_LINE)).startswith("#"):
            remarks.append(line)
        following = lines.readline(_LONGEST_LINE)
    if not line.strip() and not remarks:
        raise problem(path, "its first line is empty", expected="numbers", remedy=MENDING)
    separator, decimal = _marks(line, following)
    first, second = _cut(line, separator), _cut(following, separator)
    if remarks:  # the last remark may name the columns: `#1 #2 …`
        named = [word.lstrip("#") for word in _cut(remarks[-1].lstrip("# "), _marks(remarks[-1], "")[0])]
        words = remarks[-1].count("#") > 1 or any(not is_number(word, ".") for word in named)
        if len(named) == len(first) and words:
            named = [f"#{word}" for word in named]
            return _Text(path, content, encoding, separator, decimal, named, first, len(remarks) - 1)
    return _Text(path, content, encoding, separator, decimal, first, second, len(remarks))


def _marks(first: str, second: str) -> tuple[str, str]:
    """The separator of the columns and the decimal mark."""
    with_comma = r"[-+]?\d*,\d+(?:e[-+]?\d+)?"
    for separator in ("\t", ";", r"\s+"):  # a decimal comma excludes the comma between columns
        for line in (first, second):
            cells = [cell for cell in _cut(line, separator) if cell]
            commas = [re.fullmatch(with_comma, cell, re.IGNORECASE) is not None for cell in cells]
            if len(cells) > 1 and (all(commas) if separator == r"\s+" else any(commas)):
                return separator, ","
    counts = {mark: first.strip("\r\n").count(mark) for mark in "\t;,"}
    separator = "\t" if counts["\t"] else max(";,", key=lambda mark: counts[mark])
    return (separator if counts[separator] else r"\s+"), "."


def _refuse_no_text(start: bytes, path: Path) -> None:
    if start[:2] in _DISGUISES:
        raise problem(path, f"it is a {_DISGUISES[start[:2]]} file by its content", expected="a text file of numbers")
    if b"\0" in start and not start.startswith(tuple(_BOMS)):
        raise problem(path, "it is a binary file", expected="a text file of numbers")
    if len(start) == _LONGEST_LINE:
        raise problem(path, "its first line does not end", expected="a table of numbers")


def _encoding(content: bytes, path: Path) -> str:
    for bom, name in _BOMS.items():
        if content.startswith(bom):
            return name
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # a sample that was cut inside a letter
            return "utf-8"
        return _guessed(content, error.start, path)
    return "utf-8"


def _guessed(content: bytes, start: int, path: Path) -> str:
    """The encoding in which the text makes most sense; that of Western Europe wherever it is as good as another."""
    from charset_normalizer import from_bytes

    sample = content[max(0, start - _SAMPLE // 2) : start + _SAMPLE // 2]
    matches = [(match.chaos, _ENCODINGS.index(match.encoding)) for match in from_bytes(sample, cp_isolation=_ENCODINGS)]
    if not matches:
        raise problem(path, "its encoding is not known", expected="a text file", remedy="Save it as UTF-8.")
    return _ENCODINGS[min(matches)[1]]


def _as_numbers(table: pd.DataFrame, path: Path) -> np.ndarray:
    for i in [i for i, dtype in enumerate(table.dtypes) if dtype.kind not in "iufb"][:1]:
        column = table.iloc[:, i].reset_index(drop=True)
        words = column[pd.to_numeric(column.astype(str), errors="coerce").isna() & column.notna()]
        if len(words):
            word = f"{str(words.iloc[0])[:40]!r} in row {words.index[0] + 1} of the numbers"
            expected = "a table of numbers, n/a for missing ones"
            raise problem(path, f"column {i + 1} holds text ({word})", expected=expected, remedy=MENDING)
    return table.to_numpy(np.float64)


def _column_labels(text: _Text, n_columns: int) -> tuple[str, ...]:
    words = text.first[1:] if text.has_index and len(text.first) == len(text.body) else text.first
    labels = tuple(word.lstrip("#") for word in words)
    if len(labels) != n_columns:
        raise problem(text.path, f"{len(labels)} labels stand above {n_columns} columns of numbers")
    return labels


def _refuse_other_order(rows: tuple[str, ...] | None, columns: tuple[str, ...] | None, path: Path) -> None:
    if rows is None or columns is None or len(rows) != len(columns) or all(row.isdigit() for row in rows):
        return
    differing = [f"{row} against {column}" for row, column in zip(rows, columns, strict=True) if row != column]
    if differing:
        raise problem(
            path,
            f"the rows are in another order than the columns ({listed(differing, most=2)})",
            expected="the same labels in the same order",
            remedy="Write the file again.",
        )


def _refuse_cut_line(text: _Text, n_columns: int) -> None:
    """Pandas fills a short last line with missing values; it means that the file was cut off."""
    if text.content is None or text.encoding.startswith("utf-16"):
        return
    tail = text.content.rstrip(b"\r\n ")
    newline = max(tail.rfind(b"\n"), tail.rfind(b"\r"))
    line = tail[newline + 1 :].decode(text.encoding, "replace")
    n_found = len(_cut(line, text.separator))
    if newline > 0 and n_found < n_columns and not line.startswith("#"):
        found = f"the last line has {n_found} of {n_columns} values: the file was cut off"
        raise problem(text.path, found, remedy=MENDING)


def _without_edges(values: np.ndarray) -> np.ndarray:
    """Without an empty first or last column that only a separator at the end of each line makes.

    A matrix whose first region is missing has an empty first column too, but then its first row is empty as well.
    """
    for edge, inner in ((0, slice(1, None)), (-1, slice(None, -1))):
        if values.shape[1] > 1 and values.shape[0] != values.shape[1] and np.isnan(values[:, edge]).all():
            values = values[:, inner]
    return values


def _without_counting(values: np.ndarray) -> Numbers:
    """Without the 0, 1, 2 … that pandas writes above columns and before rows unless it is told not to."""
    if values.shape[0] <= 2 or values.shape[1] <= 1:
        return Numbers(values)
    before_rows = np.isnan(values[0, 0]) and _counts(values[1:, 0])
    inner = values[:, 1:] if before_rows else values
    return Numbers(inner[1:] if _counts(inner[0]) else values)


def _counts(numbers: np.ndarray) -> bool:
    """Whether they are 0, 1, 2 … or 1, 2, 3 …"""
    return len(numbers) > 2 and any(np.array_equal(numbers, np.arange(len(numbers)) + first) for first in (0, 1))


def _cut(line: str, separator: str) -> list[str]:
    line = line.rstrip("\r\n")
    words = line.split() if separator == r"\s+" else line.split(separator)
    return [word.strip().strip('"') for word in words]


def _read_excel(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """The first sheet of a workbook, read through the extra `excel`."""
    if path.suffix.lower() not in _EXCEL:
        raise problem(path, "this kind of workbook is not read", remedy="Save it as .xlsx or .csv.")
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        remedy = "Install it (`pip install openpyxl`), or save the sheet as .csv."
        raise problem(path, "workbooks of Excel need the package openpyxl", remedy=remedy) from error
    with sentences(require_file(path), "a whole .xlsx file"):
        with zipfile.ZipFile(path) as archive:
            refuse_bomb(path, path.stat().st_size, sum(member.file_size for member in archive.infolist()))
        return unguarded_table(pd.read_excel(path, **options))
