"""Ways in which a file can be bad. Each takes a sound file's bytes (or path) and a generator, and damages it."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Generator = np.random.Generator
Rows = list[list[str]]
PICKLE = b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05numpy\x94."


def _somewhere(content: bytes, rng: Generator) -> int:
    """A position; half of the time near the beginning, where headers are."""
    end = min(len(content), 400) if rng.random() < 0.5 else len(content)
    return int(rng.integers(0, max(end, 1)))


def _flipped(content: bytes, rng: Generator, bits: int) -> bytes:
    changed = bytearray(content)
    for _ in range(bits if changed else 0):
        changed[_somewhere(content, rng)] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _swapped(content: bytes, width: int) -> bytes:
    end = len(content) // width * width
    return np.frombuffer(content[:end], f"u{width}").byteswap().tobytes() + content[end:]


def _insert(content: bytes, rng: Generator, more: bytes) -> bytes:
    place = _somewhere(content, rng)
    return content[:place] + more + content[place:]


def _without(content: bytes, rng: Generator) -> bytes:
    place = _somewhere(content, rng)
    return content[:place] + content[place + int(rng.integers(1, 200)) :]


def _repeated(content: bytes, rng: Generator) -> bytes:
    place = _somewhere(content, rng)
    part = content[place : place + int(rng.integers(1, 2000))]
    return content[:place] + part * 3 + content[place:]


def _zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("file", content)
    return stream.getvalue()


def _unpacked(content: bytes) -> bytes:
    """A .gz that is not one, or gzip in disguise."""
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else gzip.compress(content)


BYTES: dict[str, Callable[[bytes, Generator], bytes]] = {
    "cut anywhere": lambda c, r: c[: int(r.integers(0, max(len(c), 1)))],
    "cut in the header": lambda c, r: c[: int(r.integers(1, 200))],
    "cut at the end": lambda c, r: c[: -int(r.integers(1, 20))],
    "empty": lambda c, r: b"",
    "one byte": lambda c, r: bytes([int(r.integers(256))]),
    "line end": lambda c, r: b"\n",
    "zeros": lambda c, r: bytes(len(c)),
    "binary": lambda c, r: r.bytes(int(r.integers(1, 5000))),
    "latin-1": lambda c, r: _insert(c, r, "é".encode("latin-1")),
    "latin-1 first": lambda c, r: b"\xe9" + c,
    "utf-16": lambda c, r: c.decode("latin-1").encode("utf-16"),
    "BOM": lambda c, r: b"\xef\xbb\xbf" + c,
    "Windows line ends": lambda c, r: c.replace(b"\n", b"\r\n"),
    "old Mac line ends": lambda c, r: c.replace(b"\n", b"\r"),
    "gzip in disguise": lambda c, r: _unpacked(c),
    "gzip twice": lambda c, r: gzip.compress(gzip.compress(c)),
    "gzip cut off": lambda c, r: gzip.compress(c)[:-9],
    "zip in disguise": lambda c, r: _zipped(c),
    "pickle in disguise": lambda c, r: PICKLE,
    "HTML page": lambda c, r: b"<!DOCTYPE html><html><body>404</body></html>\n",
    "NUL bytes": lambda c, r: _insert(c, r, b"\0\0"),
    "swapped bytes": lambda c, r: _swapped(c, 2),
    "swapped words": lambda c, r: _swapped(c, 4),
    "one bit": lambda c, r: _flipped(c, r, 1),
    "twenty bits": lambda c, r: _flipped(c, r, 20),
    "bytes inserted": lambda c, r: _insert(c, r, r.bytes(int(r.integers(1, 40)))),
    "bytes lost": _without,
    "part repeated": _repeated,
    "rubbish after": lambda c, r: c + r.bytes(100),
}


def _table(content: bytes) -> tuple[str, Rows]:
    text = content.decode("utf-8", "replace")
    separator = next((mark for mark in "\t,;" if mark in text), " ")
    return separator, [line.split(separator) for line in text.splitlines()]


def _text(change: Callable[[Rows, Generator], Rows]) -> Callable[[bytes, Generator], bytes]:
    def changed(content: bytes, rng: Generator) -> bytes:
        separator, rows = _table(content)
        return "".join(separator.join(row) + "\n" for row in change(rows, rng)).encode(
            "utf-8", "replace"
        )

    return changed


def _cells(word: str, share: float) -> Callable[[Rows, Generator], Rows]:
    """Some cells below the first row replaced."""

    def change(rows: Rows, rng: Generator) -> Rows:
        return [rows[0]] + [
            [word if rng.random() < share else cell for cell in row] for row in rows[1:]
        ]

    return change


def _first_cells(*words: str) -> Callable[[Rows, Generator], Rows]:
    """The first column, where ids and labels stand."""

    def change(rows: Rows, rng: Generator) -> Rows:
        return [rows[0]] + [[words[i % len(words)], *row[1:]] for i, row in enumerate(rows[1:])]

    return change


def _other_separator(content: bytes, mark: bytes) -> bytes:
    separator, _ = _table(content)
    return content.replace(separator.encode(), mark)


def _one_more(rows: Rows, rng: Generator) -> Rows:
    row = int(rng.integers(0, len(rows)))
    return [[*cells, "7"] if i == row else cells for i, cells in enumerate(rows)]


TEXT: dict[str, Callable[[bytes, Generator], bytes]] = {
    "all NaN": _text(_cells("NaN", 1.0)),
    "some n/a": _text(_cells("n/a", 0.3)),
    "some inf": _text(_cells("-inf", 0.1)),
    "huge numbers": _text(_cells("1e308", 0.5)),
    "beyond floats": _text(_cells("1e9999", 0.3)),
    "a long integer": _text(_cells("9" * 500, 0.05)),
    "words": _text(_cells("abc", 0.05)),
    "other digits": _text(_cells("١٢٣", 0.2)),
    "commas as points": _text(_cells("0,5", 0.4)),
    "no rows": _text(lambda rows, r: rows[:1]),
    "no columns": _text(lambda rows, r: [[] for _ in rows]),
    "0 x 0": lambda c, r: b"\t\n",
    "1 x 1": lambda c, r: b"0.5\n",
    "one column": _text(lambda rows, r: [row[:1] for row in rows]),
    "one row": _text(lambda rows, r: rows[1:2]),
    "not square": _text(lambda rows, r: [row[:-3] for row in rows]),
    "ragged": _text(lambda rows, r: [row[: int(r.integers(0, len(row) + 1))] for row in rows]),
    "one cell more": _text(_one_more),
    "equal headers": _text(lambda rows, r: [[rows[0][-1]] * len(rows[0]), *rows[1:]]),
    "header twice": _text(lambda rows, r: [rows[0], *rows]),
    "columns twice": _text(lambda rows, r: [row + row for row in rows]),
    "rows twice": _text(lambda rows, r: rows + rows[1:]),
    "rows shuffled": _text(lambda rows, r: [rows[i] for i in r.permutation(len(rows))]),
    "numbers as header": _text(lambda rows, r: [[str(i) for i in range(len(rows[0]))], *rows[1:]]),
    "no header": _text(lambda rows, r: rows[1:]),
    "10,000 columns": _text(
        lambda rows, r: [(row * (10_000 // max(len(row), 1) + 1))[:10_000] for row in rows]
    ),
    "a line of 2 MB": lambda c, r: c + b"1 " * 1_000_000,
    "100,000 lines": lambda c, r: c + b"1\n" * 100_000,
    "open quote": lambda c, r: c.replace(b"\n", b'\n"', 1),
    "quoted": _text(lambda rows, r: [[f'"{cell}"' for cell in row] for row in rows]),
    "separators at the end": lambda c, r: c.replace(b"\n", b"\t\t\n"),
    "blank lines": lambda c, r: c.replace(b"\n", b"\n\n\n"),
    "semicolons": lambda c, r: _other_separator(c, b";"),
    "pipes": lambda c, r: _other_separator(c, b"|"),
    "paths as ids": _text(_first_cells("../../escaped", "/etc/passwd", "a/b", "..", "C:\\x")),
    "strange ids": _text(
        _first_cells("sub-\u202etxt", "💥", " ", "=1+1", "-", "a\x0bb", "x" * 5000)
    ),
    "paths as headers": _text(lambda rows, r: [["../../up", "/etc/x", *rows[0][2:]], *rows[1:]]),
    "comment": lambda c, r: b"# a remark\n" + c,
    "lines of numbers only": lambda c, r: b"1 2 3\n4 5 6\n7 8 9\n",
}


def arrays(sound: np.ndarray, rng: Generator) -> dict[str, Any]:
    """Arrays that a file may hold instead of the one that belongs there."""
    small = np.asarray(sound, np.float64)
    n = small.shape[-1]
    broken = small.copy()
    broken[..., 0, 0] = np.inf
    return {
        "0 x 0": np.zeros((0, 0)),
        "0 rows": small[:0],
        "1 x 1": np.ones((1, 1)),
        "scalar": np.float64(3),
        "vector": small.ravel(),
        "not square": small[..., :-2],
        "half": small[: len(small) // 2],
        "cube": np.stack([small] * 3),
        "six dimensions": small.reshape(*small.shape, 1, 1, 1, 1),
        "NaN": np.full_like(small, np.nan),
        "inf": broken,
        "huge": small * 1e300,
        "beyond float32": small * 1e39,
        "tiny": small * 1e-310,
        "negative": -small,
        "not symmetric": small + np.triu(np.ones((n, n)), 1),
        "constant": np.ones_like(small),
        "zeros": np.zeros_like(small),
        "integers": (small * 100).astype(np.int64),
        "bytes": np.abs(small * 100).astype(np.uint8),
        "truth": small > 0,
        "half precision": small.astype(np.float16),
        "complex": small.astype(complex),
        "other byte order": small.astype(">f8"),
        "Fortran order": np.asfortranarray(small),
        "10,000 columns": np.tile(small[:3], 10_000 // n + 1)[:, :10_000],
        "noise": rng.normal(size=small.shape),
    }


NUMPY_ONLY: dict[str, Any] = {
    "words": np.array([["a", "b"], ["c", "d"]]),
    "objects": np.array([[{}, []], [None, "x"]], object),
    "dates": np.array([["2020-01-01"]], "datetime64[D]"),
    "records": np.zeros((3, 3), [("a", "f8"), ("b", "i4")]),
    "long double": np.eye(3, dtype=np.longdouble),
    "void": np.zeros((3, 3), "V8"),
}


def npy_header(
    shape: str, descr: str = "'<f8'", *, version: tuple[int, int] = (1, 0), data: bytes = b""
) -> bytes:
    """An `.npy` whose header says what it likes."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    length = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + length + text + data


LYING_NPY = {
    "more than the file": npy_header("(1000, 1000)"),
    "more than memory": npy_header("(10000000, 10000000)"),
    "beyond integers": npy_header("(99999999999999999999, 99999999999999999999)"),
    "negative shape": npy_header("(-1, 21)", data=bytes(800)),
    "shape of words": npy_header("('a', 'b')"),
    "code for a shape": npy_header("__import__('os').getcwd()"),
    "deep header": npy_header("(" * 5000 + ")" * 5000),
    "long header": npy_header("(3, 3)" + " " * 60_000, data=bytes(72)),
    "version 9": npy_header("(3, 3)", version=(9, 0), data=bytes(72)),
    "huge item": npy_header("(2, 2)", "'<U999999999'"),
    "objects": npy_header("(2, 2)", "'|O'", data=PICKLE),
}

INSTEAD = (
    "nothing", "folder", "link to itself", "link to nothing", "link in a ring", "link to a folder",
    "link to zeros without end", "pipe",
)  # fmt: skip


def replaced(path: Path, how: str) -> None:
    """Put something else than a file in the place of a file."""
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "link to itself":
        path.symlink_to(path.name)
    elif how == "link to nothing":
        path.symlink_to("nowhere")
    elif how == "link in a ring":
        path.with_name("ring").symlink_to(path.name)
        path.symlink_to("ring")
    elif how == "link to a folder":
        path.symlink_to("..")
    elif how == "link to zeros without end":
        path.symlink_to("/dev/zero")
    elif how == "pipe":
        os.mkfifo(path)
