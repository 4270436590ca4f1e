"""The one parser of text: numbers with or without labels, and tables, in any encoding."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve._utils.archives import LARGE_TABLE, PACKED, open_table, require_regular_file
from nerve._utils.errors import listed, problem
from nerve._utils.formulas import unguarded_table
from nerve.data.readers.frames import are_codes, find_frame
from nerve.data.readers.opening import MENDING, explained_errors, require_file

_MISSING = ("n/a", "na", "nan", "")
_INDEX_NAMES = ("", "node", "index", "label", "labels", "region", "roi", "name", "unnamed: 0")
# names of a first column that holds no region: times of the volumes
TIME_NAMES = (
    "time", "times", "t", "tr", "trs", "volume", "volumes", "vol", "frame", "frames", "timepoint",
    "timepoints", "seconds", "time_s", "time (s)", "time[s]", "onset",
)  # fmt: skip
# one remark per column: `#ROI 1: Precentral_L`
_NAMED_COLUMN = re.compile(
    r"#\s*(?:roi|region|node|column|label)\s*#?(\d+)\s*[:=,\t ]\s*(\S.*?)\s*", re.IGNORECASE
)
_REMARK_START = re.compile(r"(?:rois?|regions?|nodes?|labels?|columns?|names?):?", re.IGNORECASE)
_DISGUISES = {
    b"\x1f\x8b": "gzip",
    b"PK": "zip",
    b"\x80\x04": "pickle",
    b"\x80\x05": "pickle",
    b"\x93N": "NumPy",
}
# the encodings that labs' programs write; with more to choose from, short German words are taken
# for Chinese
_ENCODINGS = ["cp1252", "gb18030", "shift_jis", "euc_kr", "cp1251"]
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# bytes of text that are parsed at a time: pandas takes thirty times as much for short cells
_BLOCK = 1 << 20
_LONGEST_LINE = 1 << 24  # bytes: the names of 100,000 columns
_SAMPLE = 1 << 16  # bytes from which an encoding is guessed


@dataclass(frozen=True)
class Numbers:
    """A table of numbers, (rows, columns), with labels above columns and before rows, if any."""

    values: np.ndarray
    columns: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None
    header: str = ""  # what stands above the columns and before the rows, in words


@dataclass(frozen=True)
class _Text:
    """A text file, and how it is written."""

    path: Path
    content: bytes | None  # None for a packed or large one, which is read piece by piece
    encoding: str
    separator: str
    decimal: str
    # words of the first line that is no remark, or of the remark that names the columns
    first: list[str]
    second: list[str]
    n_remarks: int  # lines that begin with # before them
    mark: str  # what stands between two cells once blanks are replaced
    header: str = "auto"  # what the user says
    index: str = "auto"

    @cached_property
    def has_header(self) -> bool:
        """Whether the first line holds words; a header of numbers is found in `frames`."""
        if self.header == "no":
            return False
        words = self.first[1:] or self.first
        return any(not is_number(word, self.decimal) for word in words)

    @cached_property
    def is_timed(self) -> bool:
        """Whether the first column is named after time: it holds no region."""
        is_above = len(self.first) == len(self.body) > 2
        return self.has_header and is_above and self.first[0].lower() in TIME_NAMES

    @cached_property
    def body(self) -> list[str]:
        """The words of the first line of numbers."""
        return self.second if self.has_header else self.first

    @cached_property
    def has_index(self) -> bool:
        """Whether the first column names the rows."""
        if not self.body or self.index == "no":
            return False
        if self.has_header:
            if self.index == "yes" or self.is_timed:
                return True
            has_corner = len(self.first) == len(self.body)
            if has_corner and self.first[0].lower() in _INDEX_NAMES:
                return True
            if len(self.body) == len(self.first) + 1 and self.body[-1] != "":
                return True
        cell = self.body[0]
        if not self.has_header and cell == "" and self.second:  # a corner above words
            cell = self.second[0]
        return not is_number(cell, self.decimal)

    def lines(self) -> io.TextIOWrapper:
        """All its lines."""
        return io.TextIOWrapper(
            _stream(self.path, self.content), encoding=self.encoding, newline=None
        )


def is_number(word: str, decimal: str = ",") -> bool:
    """Whether a word is a number, or stands for a missing one."""
    try:
        float(word.replace(decimal, "."))
    except ValueError:
        return word.lower() in _MISSING
    return True


def read_numbers(
    path: Path, header: str = "auto", index: str = "auto", codes: Collection[str] = ()
) -> Numbers:
    """The numbers of a text file, and its labels.

    Tabs, commas, semicolons or blanks; decimal points or commas; with or without a header (`#1 #2
    …` of `.1D` files too), a column of labels, or a tab before or after each line. Empty cells and
    ``n/a`` are NaN. Headers and first columns of numbers are told from data by
    `nerve.data.readers.frames`; those that pandas writes by itself (0, 1, 2 …) are dropped.

    Parameters
    ----------
    path : Path
    header, index : {"auto", "yes", "no"}
        Whether the first line names the columns and the first column the rows, where the user says
        it.
    codes : collection of str
        Numbers by which the user's parcellation lists its regions.

    Returns
    -------
    Numbers
    """
    with explained_errors(require_file(path), "a table of numbers, as many in every line"):
        text = replace(_examine(path, _content(path)), header=header, index=index)
        _refuse_words(text)
        labels, values = _read_labels_and_values(text)
    if text.is_timed:
        labels = []
    rows = tuple(labels) if any(labels) else None  # an empty first column is a tab before each line
    if not text.has_header:
        values = _without_edges(values)
        if rows is not None and rows[0] == "" and all(rows[1:]):
            columns = tuple(f"{number:.0f}" for number in values[0])
            frame = "a header of numbers and a column of names"
            return Numbers(values[1:], columns, rows[1:], frame)
        if rows is not None:
            return Numbers(values, None, rows, "no header; the first column names the rows")
        return _without_frame(text, values, codes)
    has_corner = text.has_index and len(text.first) == len(text.body)
    words = text.first[1:] if has_corner else text.first
    columns = tuple(word.lstrip("#") for word in words)
    if len(columns) != values.shape[1]:
        raise problem(
            text.path, f"{len(columns)} labels stand above {values.shape[1]} columns of numbers"
        )
    if rows is not None and len(rows) == len(columns) and not all(row.isdigit() for row in rows):
        differing = [
            f"{row} against {column}"
            for row, column in zip(rows, columns, strict=True)
            if row != column
        ]
        if differing:
            raise problem(
                path,
                f"the rows are in another order than the columns ({listed(differing, most=2)})",
                expected="the same labels in the same order",
                remedy="Write the file again.",
            )
    above = "a header" if header == "auto" else f"a header (--header {header})"
    before = "no index" if rows is None else "a column of names"
    if text.is_timed:
        before = f"a first column {text.first[0]!r}, which is left out"
    return Numbers(values, columns, rows, f"{above} and {before}")


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Another program's table with names of columns; `options` are those of `pandas.read_csv`."""
    with explained_errors(path, "a table with names of columns"):
        require_regular_file(path)
        text = _examine(path, _content(path))
        has_one_word_per_column = len(text.first) == len(text.second) > 1
        if text.separator == r"\s+" and not has_one_word_per_column:
            options = {"sep": "\t", **options}  # one column, whose name has several words
        common: dict[str, Any] = {
            "sep": text.separator,
            "skiprows": text.n_remarks,
            "decimal": text.decimal,
        }
        with warnings.catch_warnings(action="ignore"), text.lines() as lines:
            return unguarded_table(pd.read_csv(lines, low_memory=False, **(common | options)))


def read_column(path: Path, names: Sequence[str]) -> np.ndarray | None:
    """The first of these columns that a table has, as numbers; None where it has none of them."""
    table = read_table(require_file(path))
    if table.empty:
        raise problem(path, "the file holds no rows of numbers", remedy="Write it again.")
    for name in names:
        if name in table.columns:
            return column_of_numbers(table, name, path)
    return None


def column_of_numbers(table: pd.DataFrame, name: str, where: object) -> np.ndarray:
    """A column as numbers, missing values as NaN; text in it is refused."""
    # from text: an integer may be too long for a number
    values = pd.to_numeric(table[name].astype(str), errors="coerce")
    not_numbers = table[name][values.isna() & table[name].notna()]
    if len(not_numbers):
        cause = f"column {name} holds {not_numbers.iloc[0]!r} in row {not_numbers.index[0] + 1}"
        raise problem(where, cause, expected="numbers or n/a")
    return values.to_numpy(np.float64)


def first_lines(path: Path) -> tuple[list[str], list[str]]:
    """The words of the first two lines of a table."""
    with explained_errors(require_file(path), "a table"):
        text = _examine(path, None)
    return text.first, text.second


def first_column(path: Path) -> tuple[str, ...]:
    """The first word of each line, as it is written: `001` keeps its zeros."""
    with explained_errors(require_file(path), "a table"):
        text = _examine(path, _content(path))
        with text.lines() as lines:
            rows = itertools.islice(lines, text.n_remarks + text.has_header, None)
            return tuple(_cut(row, text.separator)[0] for row in rows if row.strip())


def read_lines(path: Path) -> list[str]:
    """The lines of a text in any encoding, without those that are empty."""
    with explained_errors(require_file(path), "a text file"):
        content = path.read_bytes()
        return [
            line.strip()
            for line in content.decode(_encoding(content, path)).splitlines()
            if line.strip()
        ]


def _refuse_words(text: _Text) -> None:
    """Refuse what the user says of header or index where the words of the file contradict it."""
    has_words = any(not is_number(word, text.decimal) for word in text.first[1:])
    if text.header == "no" and has_words:
        raise problem(
            text.path,
            f"--header is no, and its first line holds words ({listed(text.first, most=3)})",
            remedy="Leave --header out.",
        )
    if text.index == "no" and text.body and not is_number(text.body[0], text.decimal):
        raise problem(
            text.path,
            f"--index is no, and its first column holds words ({text.body[0]!r})",
            remedy="Leave --index out.",
        )


def _without_frame(text: _Text, values: np.ndarray, codes: Collection[str]) -> Numbers:
    """The numbers without a header and an index that are numbers too."""
    frame = find_frame(values, text.path, text.header, text.index, codes)
    columns: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None
    if frame.header:
        first = values[0, 1:] if frame.index else values[0]
        if are_codes(first):
            columns = tuple(f"{number:.0f}" for number in first)
        values = values[1:]
    if frame.index:
        if not frame.is_time and are_codes(values[:, 0]):
            # as written, since 001 is an id; 1.0 is the number 1
            words = first_column(text.path)[int(frame.header) :]
            pairs = zip(words, values[:, 0], strict=True)
            rows = tuple(word if word.isdigit() else f"{number:.0f}" for word, number in pairs)
        values = values[:, 1:]
    return Numbers(values, columns, rows, frame.words)


def _read_labels_and_values(text: _Text) -> tuple[list[str], np.ndarray]:
    """Read what stands before the rows, and the numbers.

    Some megabytes at a time, so that the text is never held twice.
    """
    labels: list[str] = []
    blocks: list[np.ndarray] = []
    with text.lines() as lines:
        n_lines = sum(1 for _ in itertools.islice(lines, text.n_remarks + text.has_header))
        while block := lines.readlines(_BLOCK):
            n_rows = sum(len(values) for values in blocks)
            rows = _rows(text, block, n_lines, n_rows)
            n_lines += len(block)
            if text.has_index:
                cut = [row.partition(text.mark) for row in rows]
                labels += [label.strip().strip('"') for label, _, _ in cut]
                rows = [cells for _, _, cells in cut]
            blocks.append(_parse_rows(text, rows, n_rows))
    if not any(block.size for block in blocks):
        raise problem(
            text.path, "it holds no numbers", expected="a table of numbers", remedy=MENDING
        )
    return labels, np.concatenate(blocks)


def _rows(text: _Text, lines: list[str], n_before: int, n_rows_before: int) -> list[str]:
    """The lines that are neither empty nor remarks, with one mark between cells.

    One that is shorter or longer than the others is refused, because pandas would fill a
    short line with missing values. A line of tabs alone is the last row of an upper triangle if the
    matrix still lacks a row; others stand at the end of spreadsheets.
    """
    rows: list[str] = []
    if text.path.suffix == ".1D":
        lines = [line.partition("#")[0] for line in lines]
    for i, line in enumerate(lines):
        row = text.mark.join(line.split()) if text.separator == r"\s+" else line.rstrip("\n")
        n_cells = row.count(text.mark) + 1
        is_blank = not row.strip()
        lacks_rows = n_rows_before + len(rows) < len(text.body) == n_cells > 1
        is_empty_row = is_blank and not lacks_rows
        if is_empty_row or row.startswith("#"):
            continue
        if n_cells != len(text.body):
            is_cut_off = n_cells < len(text.body) and i == len(lines) - 1
            if is_cut_off:
                raise problem(
                    text.path,
                    f"the last line has {n_cells} of {len(text.body)} values: the file was cut off",
                    remedy=MENDING,
                )
            raise problem(
                text.path,
                f"line {n_before + i + 1} has {n_cells} values and the first has {len(text.body)}",
                expected="as many in every line",
                remedy=MENDING,
            )
        rows.append(row)
    return rows


def _parse_rows(text: _Text, rows: list[str], n_before: int) -> np.ndarray:
    """The numbers of some rows; as one column, since pandas takes long to make hundreds."""
    if not rows:
        return np.empty((0, len(text.body) - text.has_index))
    column = "\n".join(rows).replace(text.mark, "\n").replace('"', "") + "\n"
    try:
        numbers = pd.read_csv(
            io.StringIO(column),
            names=["number"],
            sep=text.mark,
            decimal=text.decimal,
            dtype=np.float64,
            quoting=csv.QUOTE_NONE,
            skip_blank_lines=False,
            low_memory=False,
        )
    except ValueError:
        for row_number, row in enumerate(rows, start=n_before + 1):
            for column_number, word in enumerate(_cut(row, text.mark), start=1):
                if not is_number(word, text.decimal):
                    raise problem(
                        text.path,
                        f"column {column_number} holds text ({word[:40]!r} in row {row_number} of "
                        "the numbers)",
                        expected="a table of numbers, n/a for missing ones",
                        remedy=MENDING,
                    ) from None
        raise
    return numbers.to_numpy().reshape(len(rows), -1)


def _content(path: Path) -> bytes | None:
    """The bytes of a file; None for a packed or large one, which is read piece by piece."""
    piecewise = path.suffix.lower() in PACKED or path.stat().st_size > LARGE_TABLE
    return None if piecewise else path.read_bytes()


def _stream(path: Path, content: bytes | None) -> BinaryIO:
    return open_table(path) if content is None else io.BytesIO(content)


def _examine(path: Path, content: bytes | None) -> _Text:
    """Find out how a text is written: encoding, separator, decimal mark and first lines."""
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
    first = _cut(line, separator)
    second = _cut(following, separator)
    column_names = _names_in_remarks(remarks, len(first))
    if column_names:
        second = first
        first = [f"#{name}" for name in column_names]
        remarks.pop()  # the lines before the numbers are counted without the header
    mark = "\t" if separator == r"\s+" else separator
    return _Text(path, content, encoding, separator, decimal, first, second, len(remarks), mark)


def _names_in_remarks(remarks: Sequence[str], n_columns: int) -> list[str]:
    """The names of the columns in a remark (`#1 #2 …`, `#ROI a b …`), or in a remark each."""
    for remark in reversed(remarks):
        cells = _cut(remark.lstrip("# \t"), _marks(remark, "")[0])
        named = [word.lstrip("#") for word in cells]
        if len(named) == n_columns + 1 and _REMARK_START.fullmatch(named[0]):
            named = named[1:]
        is_named = remark.count("#") > 1 or any(not is_number(word, ".") for word in named)
        if len(named) == n_columns and (is_named or n_columns > 2):
            return named
    numbered = {}
    for remark in remarks:
        match = _NAMED_COLUMN.fullmatch(remark.rstrip("\r\n"))
        if match:
            numbered[int(match[1])] = match[2]
    if len(numbered) == n_columns:
        return [numbered[number] for number in sorted(numbered)]
    return []


def _marks(first: str, second: str) -> tuple[str, str]:
    """The separator of the columns and the decimal mark."""
    with_comma = r"[-+]?\d*,\d+(?:e[-+]?\d+)?"
    # a decimal comma excludes the comma between columns
    for separator, line in itertools.product(("\t", ";", r"\s+"), (first, second)):
        cells = [cell for cell in _cut(line, separator) if cell]
        has_comma = [re.fullmatch(with_comma, cell, re.IGNORECASE) is not None for cell in cells]
        is_decimal = all(has_comma) if separator == r"\s+" else any(has_comma)
        if len(cells) > 1 and is_decimal:
            return separator, ","
    counts = {mark: first.strip("\r\n").count(mark) for mark in "\t;,"}
    if counts["\t"]:
        return "\t", "."
    separator = max(";,", key=lambda mark: counts[mark])
    return (separator if counts[separator] else r"\s+"), "."


def _refuse_no_text(start: bytes, path: Path) -> None:
    """Refuse what is another kind of file, or one endless line."""
    binary = b"\0" in start and not start.startswith(tuple(_BOMS))
    kind = _DISGUISES.get(start[:2], "binary" if binary else "")
    if kind:
        raise problem(
            path, f"it is a {kind} file by its content", expected="a text file of numbers"
        )
    if len(start) == _LONGEST_LINE:
        raise problem(path, "its first line does not end", expected="a table of numbers")


def _encoding(content: bytes, path: Path) -> str:
    """The encoding in which the text makes most sense.

    That of Western Europe wherever it is as good as another.
    """
    for bom, name in _BOMS.items():
        if content.startswith(bom):
            return name
    try:
        content.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":  # a sample that was cut inside a letter
            return "utf-8"
        start = error.start
    from charset_normalizer import from_bytes

    sample = content[max(0, start - _SAMPLE // 2) : start + _SAMPLE // 2]
    matches = [
        (match.chaos, _ENCODINGS.index(match.encoding))
        for match in from_bytes(sample, cp_isolation=_ENCODINGS)
    ]
    if not matches:
        raise problem(
            path, "its encoding is not known", expected="a text file", remedy="Save it as UTF-8."
        )
    return _ENCODINGS[min(matches)[1]]


def _without_edges(values: np.ndarray) -> np.ndarray:
    """Without an empty first or last column that only a separator at the end of each line makes.

    A matrix whose first region is missing has an empty first column too, but then its first row is
    empty as well.
    """
    for edge, inner in ((0, slice(1, None)), (-1, slice(None, -1))):
        n_rows, n_columns = values.shape
        if n_columns > 1 and n_rows != n_columns and np.isnan(values[:, edge]).all():
            values = values[:, inner]
    return values


def _cut(line: str, separator: str) -> list[str]:
    """The cells of a line, without blanks and quotation marks around them."""
    line = line.rstrip("\r\n")
    words = line.split() if separator == r"\s+" else line.split(separator)
    return [word.strip().strip('"') for word in words]
