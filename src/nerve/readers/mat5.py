"""Whether a MAT v5 file is sound, before scipy's compiled parser reads it.

On a damaged file that parser can end the whole process: a data type that does not exist, or that of an imaginary part
that is not there, is looked up in a table of pointers. So the tags are walked here first: every element must be of a
known type and end inside its parent.

    element = type (4 bytes), size (4 bytes), data, padding to 8     or, small: size (2), type (2), data (4)
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from nerve.checks import problem
from nerve.unpacking import refuse_bomb

_HEADER = 128
_PREFIX = 1 << 16  # bytes of a variable whose tags are looked at; those of a numeric array lie in the first 200
_MATRIX, _COMPRESSED = 14, 15
_DATA_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}
_NUMERIC_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
_SPARSE, _NUMERIC_CLASSES = 5, range(6, 16)
_HANDLES = (16, 17)  # functions and opaque objects
_DEEPEST = 20  # cells within cells


class _UnsoundError(Exception):
    """What is wrong, for the sentence."""


def refuse_unsound(source: Path | bytes, where: object) -> None:
    """Raise a `NerveError` unless the tags of a MAT v5 file (or its bytes) fit together."""
    try:
        data = memoryview(source if isinstance(source, bytes) else _mapped(source))
        order = _byte_order(bytes(data[:_HEADER]))
        for kind, content in _elements(data[_HEADER:], order, top=True):
            if kind == _COMPRESSED:
                _check_compressed(content, order)
            elif kind == _MATRIX:
                _check_matrix(content[:_PREFIX], order, whole=len(content) <= _PREFIX)
            else:
                raise _UnsoundError(f"a variable is of type {kind}")
    except (_UnsoundError, struct.error, zlib.error, OSError) as error:
        cause = error if isinstance(error, _UnsoundError) else "it was cut off, or a size is wrong"
        raise problem(
            where, f"the MATLAB file is damaged ({cause})", expected="a whole file", remedy="Copy or save it again."
        ) from error


def _mapped(path: Path) -> mmap.mmap | bytes:
    """The file without reading it whole: group files hold gigabytes."""
    with open(path, "rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


def _byte_order(header: bytes) -> str:
    marks = {b"IM": "<", b"MI": ">"}
    if len(header) < _HEADER or header[126:128] not in marks:
        raise _UnsoundError("it has no MATLAB header")
    return marks[header[126:128]]


def _elements(
    data: memoryview, order: str, *, top: bool = False, whole: bool = True
) -> Iterator[tuple[int, memoryview]]:
    """Type and content of the elements that stand one after another; a prefix (not `whole`) may end in one."""
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        start, after = at + 8, at + 8 + size
        if kind >> 16 and not top:  # a small element: both numbers in four bytes, the data in the next four
            kind, size = kind & 0xFFFF, kind >> 16
            start, after = at + 4, at + 8
            if size > 4:
                raise _UnsoundError("a small element is larger than four bytes")
        if start + size > len(data):
            if not whole:
                yield kind, data[start:]
                return
            raise _UnsoundError("it was cut off, or a size is wrong")
        yield kind, data[start : start + size]
        at = after if kind == _COMPRESSED else after + (-after % 8)
    if whole and any(data[at:]):
        raise _UnsoundError("something is left over at the end")


def _check_compressed(content: memoryview, order: str) -> None:
    inner = zlib.decompressobj().decompress(content, _PREFIX)
    if len(inner) >= 8:
        refuse_bomb("the MATLAB file", len(content), struct.unpack_from(order + "I", inner, 4)[0])
    whole = len(inner) < _PREFIX
    found = list(_elements(memoryview(inner), order, top=True, whole=whole))
    if len(found) != 1 or found[0][0] != _MATRIX:
        raise _UnsoundError("a compressed variable does not unpack to one array")
    _check_matrix(found[0][1], order, whole=whole)


def _check_matrix(content: memoryview, order: str, *, whole: bool, depth: int = 0) -> None:
    """Flags, dimensions and name, then data or nested arrays."""
    if len(content) == 0:  # how MATLAB writes an empty cell
        return
    if depth > _DEEPEST:
        raise _UnsoundError("arrays are nested too deeply")
    parts = list(_elements(content, order, whole=whole))
    if not parts or parts[0][0] != 6 or len(parts[0][1]) != 8:
        raise _UnsoundError("an array lacks its flags")
    array_class = parts[0][1][0 if order == "<" else 3]
    if array_class in _HANDLES:  # have a layout of their own, which scipy does not look into
        return
    if len(parts) < 3 or parts[1][0] not in (5, 6):
        raise _UnsoundError("an array lacks its dimensions or name")
    n_dimensions = len(parts[1][1]) // 4
    if not 2 <= n_dimensions <= 32 or min(struct.unpack_from(f"{order}{n_dimensions}i", parts[1][1])) < 0:
        raise _UnsoundError("an array has impossible dimensions")
    allowed = _NUMERIC_TYPES if array_class in (*_NUMERIC_CLASSES, _SPARSE) else _DATA_TYPES | {_MATRIX}
    is_complex = bool(parts[0][1][1 if order == "<" else 2] & 0x08)
    n_data = {**dict.fromkeys(_NUMERIC_CLASSES, 1), _SPARSE: 3}.get(array_class)
    if n_data and (is_complex or whole) and len(parts) != 3 + n_data + is_complex:
        raise _UnsoundError("an array has no data, or too much")  # a long complex array is no FC either
    for i, (kind, inner) in enumerate(parts[2:]):
        if kind not in (allowed if i else _DATA_TYPES):
            raise _UnsoundError(f"an array of class {array_class} holds data of type {kind}")
        if kind == _MATRIX:
            _check_matrix(inner, order, whole=whole, depth=depth + 1)
