"""Whether a MAT v5 file is sound, checked before scipy's compiled parser reads it.

On a damaged file that parser can end the whole process (scipy 1.17 does): a data type that does not
exist, or that of an imaginary part that is not there, is looked up in a table of pointers. So the
tags are checked here first: every element must be of a known type and end inside its parent, and
must not unpack to more than real data do.

    element = type (4 bytes), size (4 bytes), data, padding to 8
    small element = size (2), type (2), data (4)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import problem

_HEADER = 128
# bytes of a variable whose tags are looked at; those of a numeric array lie in the first 200
_PREFIX = 1 << 16
_MATRIX = 14
_COMPRESSED = 15
_DATA_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}
_NUMERIC_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
_SPARSE = 5
_NUMERIC_CLASSES = range(6, 16)
# code of a data type of version 4 → bytes per number
_BYTES_OF_VERSION_4 = {0: 8, 1: 4, 2: 4, 3: 2, 4: 2, 5: 1}
_HANDLES = (16, 17)  # functions and opaque objects
_DEEPEST = 20  # cells within cells


def refuse_unsound(source: Path | bytes, where: object) -> None:
    """Raise a `NerveError` unless the tags of a MAT v5 file (or its bytes) fit together."""
    try:
        if isinstance(source, bytes):
            data = memoryview(source)
        else:
            data = np.memmap(source, mode="r").data  # may be gigabytes
        if _check_version_4(data, where):
            return
        order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:_HEADER]), "")
        _require(order != "")
        for kind, content in _elements(data[_HEADER:], order, top=True):
            if kind == _COMPRESSED:
                _check_compressed(content, order)
            else:
                _require(kind == _MATRIX)
                is_complete = len(content) <= _PREFIX
                _check_matrix(content[:_PREFIX], order, is_complete=is_complete)
    except (struct.error, zlib.error, OSError) as error:
        raise problem(
            where,
            "the MATLAB file is damaged: it was cut off, or its parts do not fit together",
            expected="a whole file",
            remedy="Copy or save it again.",
        ) from error


def _check_version_4(data: memoryview, where: object) -> bool:
    """Whether the bytes are of version 4 (as DSI Studio writes it), whose arrays all fit into them.

    Each array: type, rows, columns, whether complex, length of the name (4 bytes each), name, data.
    """
    if len(data) < 20 or bytes(data[:4]).count(0) == 0:
        return False
    order = "<" if struct.unpack_from("<I", data)[0] < 5000 else ">"
    at = 0
    while at < len(data):
        _require(at + 20 <= len(data))
        kind, rows, columns, is_complex, n_name = struct.unpack_from(order + "5i", data, at)
        size = _BYTES_OF_VERSION_4.get(kind // 10 % 10)
        _require(0 <= kind < 5000 and size is not None and is_complex in (0, 1))
        _require(min(rows, columns) >= 0 and 0 < n_name < 1000)
        at += 20 + n_name + rows * columns * (size or 1) * (1 + is_complex)
        _require(at <= len(data))
    return True


def _require(sound: bool) -> None:
    if not sound:
        raise struct.error("the file is not sound")


def _elements(
    data: memoryview, order: str, *, top: bool = False, is_complete: bool = True
) -> Iterator[tuple[int, memoryview]]:
    """Type and content of the elements that stand one after another.

    `top` says that they stand in the file itself, where no element is small. Data that are not
    complete (the beginning of a long variable) may end inside an element.
    """
    at = 0
    while at + 8 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        start = at + 8
        end = start + size
        if kind >> 16 and not top:
            # a small element: both numbers in four bytes, the data in the next four
            size = kind >> 16
            kind = kind & 0xFFFF
            start = at + 4
            end = at + 8
            _require(size <= 4)
        if start + size > len(data):
            _require(not is_complete)
            yield kind, data[start:]
            return
        yield kind, data[start : start + size]
        at = end if kind == _COMPRESSED else end + (-end % 8)
    _require(not is_complete or not any(data[at:]))


def _check_compressed(content: memoryview, order: str) -> None:
    """A compressed element holds one array; only its beginning is unpacked."""
    inner = zlib.decompressobj().decompress(content, _PREFIX)
    if len(inner) >= 8:
        refuse_bomb("the MATLAB file", len(content), struct.unpack_from(order + "I", inner, 4)[0])
    is_complete = len(inner) < _PREFIX
    elements = list(_elements(memoryview(inner), order, top=True, is_complete=is_complete))
    _require([kind for kind, _ in elements] == [_MATRIX])
    _, matrix = elements[0]
    _check_matrix(matrix, order, is_complete=is_complete)


def _check_matrix(content: memoryview, order: str, *, is_complete: bool, depth: int = 0) -> None:
    """Flags, dimensions and name, then data or nested arrays."""
    if len(content) == 0:  # how MATLAB writes an empty cell
        return
    _require(depth <= _DEEPEST)
    parts = list(_elements(content, order, is_complete=is_complete))
    _require(len(parts) > 0 and parts[0][0] == 6 and len(parts[0][1]) == 8)
    array_class = parts[0][1][0 if order == "<" else 3]
    if array_class in _HANDLES:  # have a layout of their own, which scipy does not look into
        return
    _require(len(parts) > 2 and parts[1][0] in (5, 6))
    n_dimensions = len(parts[1][1]) // 4
    _require(
        2 <= n_dimensions <= 32
        and min(struct.unpack_from(f"{order}{n_dimensions}i", parts[1][1])) >= 0
    )
    allowed = (
        _NUMERIC_TYPES if array_class in (*_NUMERIC_CLASSES, _SPARSE) else _DATA_TYPES | {_MATRIX}
    )
    is_complex = bool(parts[0][1][1 if order == "<" else 2] & 0x08)
    n_data = {**dict.fromkeys(_NUMERIC_CLASSES, 1), _SPARSE: 3}.get(array_class)
    if n_data and (is_complex or is_complete):  # a long complex array is no FC either
        _require(len(parts) == 3 + n_data + is_complex)
    for i, (kind, inner) in enumerate(parts[2:]):
        _require(kind in (allowed if i else _DATA_TYPES))
        if kind == _MATRIX:
            _check_matrix(inner, order, is_complete=is_complete, depth=depth + 1)
