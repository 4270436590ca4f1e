"""The one parser of text: numbers with or without labels, and others' tables, in whatever separators and encoding."""

from __future__ import annotations

import codecs
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.formulas import unguarded_table
from nerve.readers.base import require_file
from nerve.readers.squares import read_square
from nerve.unpacking import LARGE_TABLE, PACKED, open_table, refuse_bomb, require_ending

MENDING = "Fetch or write it again, or leave the participant out."
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
class _Form:
    """How a text is written."""

    encoding: str
    separator: str
    decimal: str
    first: list[str]  # words of the first line that is no remark, or of the remark that names the columns
    second: list[str]
    n_remarks: int  # lines that begin with # before them

    @property
    def has_header(self) -> bool:
        words = self.first[1:] or self.first
        return any(not self.is_number(word) for word in words)

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
        return named or unnamed or not self.is_number(self.body[0])

    def is_number(self, word: str) -> bool:
        try:
            float(word.replace(self.decimal, "."))
        except ValueError:
            return word.lower() in _MISSING
        return True


def read_numbers(path: Path, participant: str = "") -> Numbers:
    """The numbers of a text file, and its labels.

    Tabs, commas, semicolons or blanks; decimal points or commas; with or without a header (`#1 #2 …` of `.1D` files
    too), a column of labels, or a tab before or after each line. Empty cells and ``n/a`` are NaN. Headers and first
    columns that pandas writes by itself (0, 1, 2 …) are dropped.
    """
    where = where_is(path, participant)
    with _sentences(where, "a table of numbers"):
        content = _content(require_file(path, participant), where)
        square = read_square(content) if isinstance(content, bytes) else None
        if square is not None:
            return Numbers(square[0], square[1], square[1])
        form = _form(content, path, where)
        table = _parsed(content, path, form)
        values, rows = _as_numbers(table, where), _row_labels(table) if form.has_index else None
    if not values.size:
        raise problem(where, "it holds no numbers", expected="a table of numbers", remedy=MENDING)
    _refuse_cut_line(content, form, values.shape[1] + form.has_index, where)
    columns = _column_labels(form, values.shape[1], where) if form.has_header else None
    _refuse_other_order(rows, columns, where)
    return _without_counting(*_without_edges(values, columns), rows)


def read_table(path: Path, participant: str = "", **options: Any) -> pd.DataFrame:
    """Somebody else's table with names of columns; `options` are those of `pandas.read_csv`. Excel's is read too."""
    where = where_is(path, participant)
    with _sentences(where, "a table with names of columns"):
        if path.suffix.lower() in (*_EXCEL, ".xls", ".ods"):
            return _read_excel(path, where, options)
        require_ending(path)
        content = _content(path, where)
        form = _form(content, path, where)
        blanks = len(form.first) == len(form.second) > 1
        separator = form.separator if form.separator != r"\s+" or blanks else "\t"
        common: dict[str, Any] = {
            "sep": separator,
            "decimal": form.decimal,
            "encoding": form.encoding,
            "skiprows": form.n_remarks,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return unguarded_table(pd.read_csv(_stream(content, path), low_memory=False, **(common | options)))


def read_column(path: Path, names: Sequence[str], participant: str = "") -> np.ndarray | None:
    """The first of these columns that a table has, as numbers; None where it has none of them."""
    table = read_table(require_file(path, participant), participant)
    if table.empty:
        raise problem(where_is(path, participant), "the file holds no rows of numbers", remedy="Write it again.")
    for name in names:
        if name in table.columns:
            return column_of_numbers(table, name, where_is(path, participant))
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


def first_lines(path: Path) -> tuple[list[str], list[str]]:
    """The words of the first two lines of a table."""
    with _sentences(path, "a table"):
        form = _form(_content(require_file(path), path), path, path)
    return form.first, form.second


def read_lines(path: Path) -> list[str]:
    """The lines of a text in any encoding, without those that are empty."""
    with _sentences(path, "a text file"):
        content = require_file(path).read_bytes()
        return [line.strip() for line in content.decode(_encoding(content, path)).splitlines() if line.strip()]


def where_is(path: Path, participant: str = "") -> str:
    """What sentences call a file."""
    return f"{path} (participant {participant})" if participant else str(path)


class _sentences:
    """Inside, whatever a parser, a codec or the system stumbles into becomes one sentence without their words."""

    def __init__(self, where: object, expected: str) -> None:
        self.where, self.expected = where, expected

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, NerveError):
            return
        if isinstance(error, OSError) and error.strerror:
            raise problem(self.where, f"could not be read ({error.strerror})") from error
        if isinstance(error, pd.errors.EmptyDataError):
            raise problem(self.where, "it holds no rows", expected=self.expected, remedy=MENDING) from error
        if isinstance(error, (ValueError, OSError, EOFError, OverflowError, LookupError, zlib.error)):
            raise problem(self.where, _found(error), expected=self.expected, remedy=MENDING) from error
        if isinstance(error, MemoryError):
            raise problem(self.where, "there is not enough memory to read it") from error


def _found(error: BaseException) -> str:
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if ragged:
        return f"line {ragged[2]} has {ragged[3]} values and the lines before it have {ragged[1]}"
    if isinstance(error, (EOFError, zlib.error)):
        return "the packed file is damaged or cut off"
    return "it cannot be read as text with as many values in every line"


def _content(path: Path, where: object) -> bytes | None:
    """The bytes of a file; None for a packed or large one, which is read piece by piece."""
    if path.suffix.lower() in PACKED or path.stat().st_size > LARGE_TABLE:
        return None
    return path.read_bytes()


def _stream(content: bytes | None, path: Path) -> BinaryIO:
    return open_table(path) if content is None else io.BytesIO(content)


def _form(content: bytes | None, path: Path, where: object) -> _Form:
    """Encoding, separator, decimal mark and first lines of a text."""
    with _stream(content, path) as stream:
        start = [stream.readline(_LONGEST_LINE) for _ in range(2)]
        _refuse_no_text(start[0], where)
        if len(start[0]) == _LONGEST_LINE:
            raise problem(where, "its first line does not end", expected="a table of numbers")
        encoding = _encoding(content if content is not None else b"".join(start), where)
        lines = io.TextIOWrapper(_stream(content, path), encoding=encoding, newline=None)
        with lines:
            return _form_of(lines, encoding, where)


def _form_of(lines: io.TextIOWrapper, encoding: str, where: object) -> _Form:
    remarks: list[str] = []
    line = lines.readline(_LONGEST_LINE)
    while line.startswith("#"):
        remarks.append(line)
        line = lines.readline(_LONGEST_LINE)
    if not line.strip() and not remarks:
        raise problem(where, "its first line is empty", expected="numbers", remedy=MENDING)
    following = lines.readline(_LONGEST_LINE)
    separator, decimal = _marks(line, following)
    first, second = _cut(line, separator), _cut(following, separator)
    if remarks:  # the last remark may name the columns: `#1 #2 …`
        named = [word.lstrip("#") for word in _cut(remarks[-1].lstrip("# "), _marks(remarks[-1], "")[0])]
        if len(named) == len(first) and (remarks[-1].count("#") > 1 or any(not _plain_number(word) for word in named)):
            return _Form(encoding, separator, decimal, [f"#{word}" for word in named], first, len(remarks) - 1)
    return _Form(encoding, separator, decimal, first, second, len(remarks))


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


def _refuse_no_text(start: bytes, where: object) -> None:
    if start[:2] in _DISGUISES:
        kind = _DISGUISES[start[:2]]
        raise problem(where, f"it is a {kind} file by its content", expected="a text file of numbers")
    if b"\0" in start and not start.startswith(tuple(_BOMS)):
        raise problem(where, "it is a binary file", expected="a text file of numbers")


def _encoding(content: bytes, where: object) -> str:
    for bom, name in _BOMS.items():
        if content.startswith(bom):
            return name
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # a sample that was cut inside a letter
            return "utf-8"
        return _guessed(content, error.start, where)
    return "utf-8"


def _guessed(content: bytes, start: int, where: object) -> str:
    """The encoding in which the text makes most sense; that of Western Europe wherever it is as good as another."""
    from charset_normalizer import from_bytes

    sample = content[max(0, start - _SAMPLE // 2) : start + _SAMPLE // 2]
    matches = [(match.chaos, _ENCODINGS.index(match.encoding)) for match in from_bytes(sample, cp_isolation=_ENCODINGS)]
    if not matches:
        raise problem(where, "its encoding is not known", expected="a text file", remedy="Save it as UTF-8.")
    return _ENCODINGS[min(matches)[1]]


def _parsed(content: bytes | None, path: Path, form: _Form) -> pd.DataFrame:
    with _stream(content, path) as stream:
        return pd.read_csv(
            stream,
            sep=form.separator,
            decimal=form.decimal,
            encoding=form.encoding,
            header=None,
            skiprows=form.n_remarks + form.has_header,
            index_col=0 if form.has_index else None,
            na_values=["n/a"],
            comment="#" if path.suffix == ".1D" else None,
            low_memory=False,
        )


def _as_numbers(table: pd.DataFrame, where: object) -> np.ndarray:
    text = [i for i, dtype in enumerate(table.dtypes) if dtype.kind not in "iufb"]
    if text:
        column = table.iloc[:, text[0]]
        words = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
        if len(words):
            row = list(table.index).index(words.index[0]) + 1
            raise problem(
                where, f"column {text[0] + 1} holds text ({str(words.iloc[0])[:40]!r} in row {row} of the numbers)",
                expected="a table of numbers, n/a for missing ones", remedy=MENDING,
            )  # fmt: skip
    return table.to_numpy(np.float64)


def _row_labels(table: pd.DataFrame) -> tuple[str, ...] | None:
    """The first column, unless it is empty (a tab before each line)."""
    return None if table.index.isna().all() else tuple(str(label).strip() for label in table.index)


def _column_labels(form: _Form, n_columns: int, where: object) -> tuple[str, ...]:
    words = form.first[1:] if form.has_index and len(form.first) == len(form.body) else form.first
    labels = tuple(word.lstrip("#") for word in words)
    if len(labels) != n_columns:
        raise problem(where, f"{len(labels)} labels stand above {n_columns} columns of numbers")
    return labels


def _refuse_other_order(rows: tuple[str, ...] | None, columns: tuple[str, ...] | None, where: object) -> None:
    counted = rows is not None and all(row.isdigit() for row in rows)
    if rows is None or columns is None or counted or rows == columns or len(rows) != len(columns):
        return
    differing = [f"{row} against {column}" for row, column in zip(rows, columns, strict=True) if row != column]
    raise problem(
        where,
        f"the rows are in another order than the columns ({listed(differing, most=2)})",
        expected="the same labels in the same order",
        remedy="Write the file again.",
    )


def _refuse_cut_line(content: bytes | None, form: _Form, n_columns: int, where: object) -> None:
    """Pandas fills a short last line with missing values; it means that the file was cut off."""
    if content is None or form.encoding.startswith("utf-16"):
        return
    tail = content.rstrip(b"\r\n ")
    newline = max(tail.rfind(b"\n"), tail.rfind(b"\r"))
    line = tail[newline + 1 :].decode(form.encoding, "replace")
    found = len(_cut(line, form.separator))
    if newline > 0 and found < n_columns and not line.startswith("#"):
        found_words = f"the last line has {found} of {n_columns} values: the file was cut off"
        raise problem(where, found_words, remedy=MENDING)


def _without_edges(values: np.ndarray, columns: tuple[str, ...] | None) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Without an empty first or last column that only a separator at the end of each line makes.

    A matrix whose first region is missing has an empty first column too, but then its first row is empty as well.
    """
    empty = np.isnan(values).all(axis=0)
    for edge in (0, -1):
        if values.shape[1] > 1 and empty[edge] and values.shape[0] != values.shape[1] and columns is None:
            values = values[:, 1:] if edge == 0 else values[:, :-1]
    return values, columns


def _without_counting(values: np.ndarray, columns: tuple[str, ...] | None, rows: tuple[str, ...] | None) -> Numbers:
    """Without the 0, 1, 2 … that pandas writes above columns and before rows unless it is told not to."""
    if columns is None and rows is None and values.shape[0] > 2 and values.shape[1] > 1:
        counted = [_counts(values[1:, 0]) and np.isnan(values[0, 0]), False]
        inner = values[:, 1:] if counted[0] else values
        counted[1] = _counts(inner[0])
        if counted[1]:
            return Numbers(inner[1:])
    return Numbers(values, columns, rows)


def _counts(numbers: np.ndarray) -> bool:
    """Whether they are 0, 1, 2 … or 1, 2, 3 …"""
    return len(numbers) > 2 and any(np.array_equal(numbers, np.arange(len(numbers)) + first) for first in (0, 1))


def _cut(line: str, separator: str) -> list[str]:
    line = line.rstrip("\r\n")
    words = line.split() if separator == r"\s+" else line.split(separator)
    return [word.strip().strip('"') for word in words]


def _plain_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read_excel(path: Path, where: object, options: dict[str, Any]) -> pd.DataFrame:
    """The first sheet of a workbook, read through the extra `excel`."""
    if path.suffix.lower() not in _EXCEL:
        raise problem(where, "this kind of workbook is not read", remedy="Save it as .xlsx or .csv.")
    try:
        import openpyxl  # noqa: F401
    except ImportError as error:
        remedy = "Install it (`pip install openpyxl`), or save the sheet as .csv."
        raise problem(where, "workbooks of Excel need the package openpyxl", remedy=remedy) from error
    try:
        with zipfile.ZipFile(require_file(path)) as archive:
            refuse_bomb(path, path.stat().st_size, sum(member.file_size for member in archive.infolist()))
        return unguarded_table(pd.read_excel(path, **options))
    except NerveError:
        raise
    except Exception as error:  # a damaged workbook: zipfile, the parser of XML and openpyxl have errors of their own
        raise problem(where, "it is not a whole workbook", expected="an .xlsx file", remedy="Save it again.") from error
