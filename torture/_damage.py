"""Hypothesis strategies for bad input: damaged files, changed settings.

A damage is a small object that changes one file in place. Its repr says what it does, so that the
example that hypothesis prints can be repeated.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from torture._layouts import encoded

Strategy = st.SearchStrategy[Callable[[Path], None]]
ARRAY_FILES = ("npy", "npz", "mat5", "hdf5", "nifti", "cifti")
TEXT_FILES = ("text", "gz")


@dataclass(frozen=True)
class Damage:
    """A function of the bytes of a file, with its arguments."""

    change: Callable[..., bytes]
    arguments: dict[str, Any]

    def __call__(self, path: Path) -> None:
        """Change the file."""
        path.write_bytes(self.change(path.read_bytes(), **self.arguments))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.change.__name__}({arguments})"[:500]


def damages(content: bytes, file_type: str, name: str, *, not_files: bool = False) -> Strategy:
    """Every damage to a file of this type; with `not_files` also links, pipes and folders."""
    strategies = [_byte_damages(content)]
    if not_files:
        strategies.append(st.builds(Replaced, st.sampled_from(NOT_FILES)))
    if file_type in TEXT_FILES:
        strategies.append(_table_damages(content))
    if file_type == "npy":
        strategies.append(_damage(change_npy_header, shape=st.sampled_from(WRONG_SHAPES)))
    if file_type in ARRAY_FILES:
        file_types = st.just(file_type)
        strategies.append(
            _damage(replace_array, file_type=file_types, name=st.just(name), array=OTHER_ARRAYS)
        )
    return st.one_of(strategies)


def _damage(change: Callable[..., bytes], **arguments: st.SearchStrategy[Any]) -> Strategy:
    return st.fixed_dictionaries(arguments).map(lambda drawn: Damage(change, drawn))


# ---- bytes


def _byte_damages(content: bytes) -> Strategy:
    # Headers stand at the beginning: half of the places are there.
    place = st.integers(0, min(len(content), 400)) | st.integers(0, len(content))
    return st.one_of(
        _damage(truncate, length=place),
        _damage(flip_bits, places=st.lists(place, min_size=1, max_size=20), bit=st.integers(0, 7)),
        _damage(insert, place=place, inserted=INSERTED | st.binary(min_size=1, max_size=40)),
        _damage(remove, place=place, n_bytes=st.integers(1, 200)),
        _damage(repeat, place=place, n_bytes=st.integers(1, 2000)),
        _damage(replace, new=st.sampled_from(OTHER_CONTENTS) | st.binary(max_size=2000)),
        _damage(recode, how=st.sampled_from(sorted(RECODINGS))),
    )


INSERTED = st.sampled_from([b"\0\0", b"\xe9", b"\xef\xbb\xbf", b"\n\n", b"\t", b'"', b"# note\n"])
OTHER_CONTENTS = [
    b"",
    b"\n",
    b"\t\n",
    b"0.5\n",
    b"1 2 3\n4 5 6\n7 8 9\n",
    bytes(4096),
    b"<!DOCTYPE html><html><body>404</body></html>\n",
    b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05numpy\x94.",
]


def truncate(content: bytes, length: int) -> bytes:
    return content[:length]


def flip_bits(content: bytes, places: list[int], bit: int) -> bytes:
    changed = bytearray(content)
    for place in places:
        if place < len(changed):
            changed[place] ^= 1 << bit
    return bytes(changed)


def insert(content: bytes, place: int, inserted: bytes) -> bytes:
    return content[:place] + inserted + content[place:]


def remove(content: bytes, place: int, n_bytes: int) -> bytes:
    return content[:place] + content[place + n_bytes :]


def repeat(content: bytes, place: int, n_bytes: int) -> bytes:
    return content[: place + n_bytes] + content[place:]


def replace(content: bytes, new: bytes) -> bytes:
    return new


def recode(content: bytes, how: str) -> bytes:
    return RECODINGS[how](content)


def _byteswapped(content: bytes) -> bytes:
    end = len(content) // 4 * 4
    return np.frombuffer(content[:end], np.uint32).byteswap().tobytes() + content[end:]


def _zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("file", content)
    return stream.getvalue()


RECODINGS: dict[str, Callable[[bytes], bytes]] = {
    "utf-16": lambda content: content.decode("latin-1").encode("utf-16"),
    "Windows line ends": lambda content: content.replace(b"\n", b"\r\n"),
    "old Mac line ends": lambda content: content.replace(b"\n", b"\r"),
    "gzip": gzip.compress,
    "gzip twice": lambda content: gzip.compress(gzip.compress(content)),
    "gzip cut off": lambda content: gzip.compress(content)[:-9],
    "zip": _zipped,
    "other byte order": _byteswapped,
    "long line": lambda content: content + b"1 " * 1_000_000,
    "many lines": lambda content: content + b"1\n" * 100_000,
}


# ---- tables of text


def _table_damages(content: bytes) -> Strategy:
    _, rows = _table(content)
    n_columns = max(len(row) for row in rows)
    row = st.integers(0, len(rows) - 1)
    column = st.integers(0, n_columns - 1)
    word = st.sampled_from(CELLS) | st.text(max_size=20)
    return st.one_of(
        _damage(swap_columns, first=column, second=column),
        _damage(swap_rows, first=row, second=row),
        _damage(change_header, column=column, name=word),
        _damage(change_cells, every=st.integers(1, 20), word=word),
        _damage(change_column, column=column, words=st.lists(word, min_size=1, max_size=5)),
        _damage(keep_columns, n_columns=st.integers(0, n_columns)),
        _damage(keep_rows, first=row, last=row),
        _damage(lengthen_row, row=row, word=word),
        _damage(change_separator, separator=st.sampled_from([";", "|", ",", " ", "\t\t"])),
        _damage(widen, n_columns=st.just(10_000)),
        _damage(quote_cells, closing=st.sampled_from(['"', ""])),
    )


CELLS = [
    "", " ", "NaN", "n/a", "-inf", "1e308", "1e9999", "9" * 500, "abc", "١٢٣", "0,5", "=1+1", "../../escaped",
    "/etc/passwd", "a/b", "..", "C:\\x", "sub-\u202etxt", "💥", "a\x0bb", "x" * 5000,
]  # fmt: skip


def _table(content: bytes) -> tuple[str, list[list[str]]]:
    """The separator and the cells; a packed table is read as what it unpacks to."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    text = content.decode("utf-8", "replace")
    separator = next((mark for mark in "\t,;" if mark in text), " ")
    return separator, [line.split(separator) for line in text.splitlines()]


def _table_bytes(separator: str, rows: list[list[str]], packed: bool) -> bytes:
    """The inverse of `_table`, packed by gzip if asked for."""
    text = "".join(separator.join(row) + "\n" for row in rows)
    content = text.encode("utf-8", "replace")
    return gzip.compress(content) if packed else content


def _on_table(change: Callable[..., list[list[str]]]) -> Callable[..., bytes]:
    """Make a function of the cells a function of the bytes."""

    def changed(content: bytes, **arguments: Any) -> bytes:
        separator, rows = _table(content)
        return _table_bytes(separator, change(rows, **arguments), content[:2] == b"\x1f\x8b")

    changed.__name__ = change.__name__
    return changed


@_on_table
def swap_columns(rows: list[list[str]], first: int, second: int) -> list[list[str]]:
    for row in rows:
        if max(first, second) < len(row):
            row[first], row[second] = row[second], row[first]
    return rows


@_on_table
def swap_rows(rows: list[list[str]], first: int, second: int) -> list[list[str]]:
    rows[first], rows[second] = rows[second], rows[first]
    return rows


@_on_table
def change_header(rows: list[list[str]], column: int, name: str) -> list[list[str]]:
    if column < len(rows[0]):
        rows[0][column] = name
    return rows


@_on_table
def change_cells(rows: list[list[str]], every: int, word: str) -> list[list[str]]:
    """Put a word into every n-th cell below the header."""
    number = 0
    for row in rows[1:]:
        for column in range(len(row)):
            if number % every == 0:
                row[column] = word
            number += 1
    return rows


@_on_table
def change_column(rows: list[list[str]], column: int, words: list[str]) -> list[list[str]]:
    for number, row in enumerate(rows[1:]):
        if column < len(row):
            row[column] = words[number % len(words)]
    return rows


@_on_table
def keep_columns(rows: list[list[str]], n_columns: int) -> list[list[str]]:
    return [row[:n_columns] for row in rows]


@_on_table
def keep_rows(rows: list[list[str]], first: int, last: int) -> list[list[str]]:
    return rows[first : last + 1]


@_on_table
def lengthen_row(rows: list[list[str]], row: int, word: str) -> list[list[str]]:
    rows[row].append(word)
    return rows


@_on_table
def widen(rows: list[list[str]], n_columns: int) -> list[list[str]]:
    wide_rows = []
    for row in rows:
        n_repeats = n_columns // max(len(row), 1) + 1
        wide_rows.append((row * n_repeats)[:n_columns])
    return wide_rows


@_on_table
def quote_cells(rows: list[list[str]], closing: str) -> list[list[str]]:
    quoted_rows = []
    for row in rows:
        quoted_rows.append([f'"{cell}{closing}' for cell in row])
    return quoted_rows


def change_separator(content: bytes, separator: str) -> bytes:
    _, rows = _table(content)
    return _table_bytes(separator, rows, content[:2] == b"\x1f\x8b")


# ---- arrays

WRONG_SHAPES = [
    "(1000, 1000)", "(10000000, 10000000)", "(99999999999999999999, 99999999999999999999)", "(-1, 21)", "('a', 'b')",
    "__import__('os').getcwd()", "(" * 5000 + ")" * 5000, "()", "(0, 0)", "(0,)", "(21, 21, 1, 1)",
]  # fmt: skip
_TYPES = st.sampled_from(
    ["f8", "f4", "f2", ">f8", "i8", "u1", "?", "c16", "U3", "O", "M8[D]", "V8"]
)
_SHAPES = st.sampled_from([(21, 21), (21, 20), (60, 21), (0, 0), (), (441,), (3, 10_000)])


def _array(name: str, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """An array of this type and shape, filled with one value, which may be not finite."""
    if name in ("f8", "f4", "f2", ">f8"):
        return st.floats(width=16).map(lambda value: np.full(shape, value, name))
    return st.just(np.zeros(shape, name))


_ARRAYS_OF_MANY_TYPES = _TYPES.flatmap(
    lambda name: _SHAPES.flatmap(lambda shape: _array(name, shape))
)
_SMALL_ARRAYS = arrays(np.float64, array_shapes(min_dims=1, max_dims=4, max_side=6))
OTHER_ARRAYS = _ARRAYS_OF_MANY_TYPES | _SMALL_ARRAYS


def replace_array(content: bytes, file_type: str, name: str, array: np.ndarray) -> bytes:
    """A file with another array, or the sound file if the format cannot hold that array."""
    with contextlib.suppress(Exception):
        return encoded(file_type, array, name)
    return content


def change_npy_header(content: bytes, shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content[128:]


# ---- something else than a file

NOT_FILES = (
    "nothing", "folder", "link to itself", "link to nothing", "link in a ring", "link to a folder",
    "link to zeros without end", "pipe",
)  # fmt: skip


@dataclass(frozen=True)
class Replaced:
    """Something else in the place of a file."""

    by: str

    def __call__(self, path: Path) -> None:
        """Replace the file."""
        path.unlink()
        if self.by == "folder":
            path.mkdir()
        elif self.by == "link to itself":
            path.symlink_to(path.name)
        elif self.by == "link to nothing":
            path.symlink_to("nowhere")
        elif self.by == "link in a ring":
            path.with_name("ring").symlink_to(path.name)
            path.symlink_to("ring")
        elif self.by == "link to a folder":
            path.symlink_to("..")
        elif self.by == "link to zeros without end":
            path.symlink_to("/dev/zero")
        elif self.by == "pipe":
            os.mkfifo(path)


# ---- settings: nested values in YAML or JSON

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(CELLS)
)
VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def changed_settings(content: bytes, name: str) -> Strategy:
    """One entry replaced, removed or renamed, or text that is strange YAML, or damaged bytes."""
    settings = yaml.safe_load(content)
    write = _as_json if name.endswith(".json") else _as_yaml
    paths = list(_paths(settings))
    any_path = st.sampled_from(paths)
    entry_path = st.sampled_from([path for path in paths if path])
    first_key = str(next(iter(settings)))
    texts = st.sampled_from(STRANGE_YAML).map(lambda text: text.replace("KEY", first_key).encode())

    def change_value(content: bytes, path: tuple[Any, ...], value: Any) -> bytes:
        return write(_with_value(settings, path, value))

    def remove_entry(content: bytes, path: tuple[Any, ...]) -> bytes:
        return write(_without(settings, path))

    def rename_entry(content: bytes, path: tuple[Any, ...]) -> bytes:
        return write(_without(settings, path, f"{path[-1]}s"))

    return st.one_of(
        _damage(change_value, path=any_path, value=VALUES),
        _damage(remove_entry, path=entry_path),
        _damage(rename_entry, path=entry_path),
        _damage(replace, new=texts),
        _byte_damages(content),
    )


def _yaml_bomb() -> str:
    """Aliases of aliases: ten levels, each nine times as long as the level before."""
    text = "&a [x, x, x, x, x, x, x, x, x]"
    for alias, anchor in zip("abcdefghi", "bcdefghij", strict=True):
        text += f", &{anchor} [{', '.join([f'*{alias}'] * 9)}]"
    return text


STRANGE_YAML = [
    "KEY: !!python/object/apply:os.system ['touch escaped']\n",
    "KEY: !strange 1\n",
    "KEY: 2020-99-99\n",
    "KEY: " + "9" * 5000 + "\n",
    "KEY: 0o777777777777777777777777777777\n",
    "KEY: " + "[" * 3000 + "]" * 3000 + "\n",
    "KEY: " + "{a: " * 3000 + "1" + "}" * 3000 + "\n",
    f"KEY: [{_yaml_bomb()}]\n",
    "KEY: &me [*me]\n",
    "KEY: 1\n<<: [1, 2]\n",
    "&a {KEY: 1, <<: *a}\n",
    "KEY: 1\nKEY: 2\n",
    "? [1, 2]\n: 3\nKEY: 1\n",
    "1: 2\n2.5: 3\ntrue: 4\nnull: 5\nKEY: 1\n",
    "\tKEY: 1\n",
    "KEY: 1\n---\nKEY: 2\n",
    "- KEY\n- 2\n",
    "KEY\n",
    "42\n",
    "KEY: !!binary aGVsbG8=\n",
    "KEY: !!set {a, b}\n",
    'KEY: "abc\n',
    "%YAML 9.9\n---\nKEY: 1\n",
    "KEY: =\n",
    "KEY: \x07\n",
    "k" * 3000 + ": 1\n",
    "".join(f"k{number}: 1\n" for number in range(5000)),
]


def _paths(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside nested mappings and lists."""
    yield path
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _paths(value, (*path, key))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _paths(value, (*path, number))


def _with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a place."""
    if not path:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[path[0]] = _with_value(content[path[0]], path[1:], value)
    return copy


def _without(content: Any, path: tuple[Any, ...], new_key: str | None = None) -> Any:
    """A copy without the entry at a place, or with another key for it."""
    copy = dict(content) if isinstance(content, dict) else list(content)
    if len(path) > 1:
        copy[path[0]] = _without(content[path[0]], path[1:], new_key)
        return copy
    value = copy.pop(path[0])
    if new_key is not None and isinstance(copy, dict):
        copy[new_key] = value
    return copy


def _as_yaml(content: Any) -> bytes:
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text.encode("utf-8", "replace")


def _as_json(content: Any) -> bytes:
    """JSON in Python's dialect (NaN and Infinity)."""
    return json.dumps(content).encode()
