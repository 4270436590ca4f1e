"""Opening somebody else's file: it must hold content, and whatever a parser stumbles into becomes one sentence."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from nerve.checks import NerveError, problem

Result = TypeVar("Result")
MENDING = "Fetch or write it again, or leave the participant out."


def require_file(path: Path) -> Path:
    """The path, if it holds content; otherwise one sentence about what it is instead."""
    if path.is_symlink() and not path.exists():
        target = str(path.readlink())
        if "annex" in target:
            found = "the link points to a git-annex file that was never fetched"
            raise problem(path, found, remedy="Fetch it with `datalad get`.")
        raise problem(path, f"the link to {target} is broken", remedy="Mend the link or leave the file out.")
    if not path.is_file():
        raise problem(path, "there is no such file")
    if path.stat().st_size == 0:
        raise problem(path, "the file is empty", remedy=MENDING)
    with open(path, "rb") as stream:
        start = stream.read(64)
    if b"annex/objects" in start or start.startswith(b"version https://git-lfs"):
        raise problem(path, "the file is a placeholder whose content was never fetched", remedy="Use `datalad get`.")
    return path


@contextmanager
def sentences(where: object, expected: str) -> Iterator[None]:
    """Inside, what a parser, a codec or the system stumbles into becomes one sentence without their words.

    Files are someone else's bytes: each parser has a dozen errors of its own for damaged ones.
    """
    try:
        yield
    except NerveError:
        raise
    except MemoryError as error:
        raise problem(where, "there is not enough memory to read it") from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename and error.strerror:
            raise problem(where, f"it could not be read ({error.strerror})") from error
        raise problem(where, _found(error), expected=expected, remedy=MENDING) from error


def _found(error: Exception) -> str:
    words = str(error)
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", words)
    if ragged:
        return f"line {ragged[2]} has {ragged[3]} values and the lines before it have {ragged[1]}"
    if type(error) is KeyError and error.args:
        return f"it has no variable {error.args[0]!r}"
    if isinstance(error, pd.errors.EmptyDataError):
        return "it holds no rows"
    if isinstance(error, (EOFError, zlib.error)):
        return "the packed file is damaged or cut off"
    if "pickle" in words.lower() or "Python objects" in words:
        return "it holds Python objects, and a pickle is never opened"
    return "it could not be read: it is damaged, cut off or of another kind"


def once(read: Callable[..., Result]) -> Callable[..., Result]:
    """The same function of a path (and more), whose latest result is kept until the file changes."""

    @lru_cache(maxsize=1)
    def kept(path: Path, changed: int, *rest: Any) -> Result:
        return read(path, *rest)

    def found(path: Path, *rest: Any) -> Result:
        with sentences(path, "a file"):
            changed = path.stat().st_mtime_ns
        return kept(path, changed, *rest)

    return found
