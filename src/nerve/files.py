"""Files are written whole or not at all: to a temporary name beside them, flushed, then renamed.

A draft is called ``.NAME.XXXXXXXX.tmp``. One that a killed process left is removed when NAME is written again; that of
a living process is locked by it, and stays.

What is not ours stays too. A folder is written to if it is new, empty or was made by nerve (`claim`); a folder is
replaced if nothing of somebody else's is in it (`atomic_folder`); a file is replaced if the command that asks wrote it
(`check_replaceable_file`). What is written again keeps its permissions, and a link stays a link.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import lzma
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.formulas import any_text, guarded_table, unguarded_table
from nerve.locks import holding, is_still, only_one
from nerve.unpacking import open_table, require_ending

MARK = ".nerve"  # in folders that nerve has made
_TEMPORARY = re.compile(r"\.lock|\..*\.lock|\..*\.[a-z0-9_]{8}\.(?:tmp|old)|locks")  # what a killed process leaves
MISSING = ["n/a", ""]  # how missing values are written in tables of this package


def clear_errors(action: str, path: Path, error: OSError | ValueError) -> NerveError:
    """An operating-system error in one sentence (a ValueError: a name that no file can have)."""
    return NerveError(
        f"{path}: could not {action} ({getattr(error, 'strerror', None) or error}). "
        "Check that the folder exists, can be written to and has space left."
    )


@contextmanager
def atomic_file(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file that takes the name `path` only if the block ends well."""
    path = _real(path)
    name = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_drafts(path)
        descriptor, name = _draft(path)
        encoding, errors = (None, None) if "b" in mode else ("utf-8", "backslashreplace")  # names may be no UTF-8
        with os.fdopen(descriptor, mode, encoding=encoding, errors=errors) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(name, _mode(path, 0o666))
            os.replace(name, path)  # before it is closed, which gives the lock away
    except OSError as error:
        _remove(name)
        raise clear_errors("write", path, error) from error
    except BaseException:
        _remove(name)
        raise
    _sync_folder(path.parent)


def claim(folder: str | os.PathLike[str]) -> Path:
    """Make `folder` one that nerve writes to: new, empty, or claimed before; another's is refused by its files."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if (path / MARK).is_file():
            return path
        theirs = sorted(name for name in os.listdir(path) if not _TEMPORARY.fullmatch(name))
    except (OSError, ValueError) as error:
        raise clear_errors("write", path, error) from error
    if theirs and not (path / MARK).is_file():  # again: another process may have claimed it and begun
        raise problem(
            path,
            f"it holds {listed(theirs, most=3)} and was not made by nerve",
            expected="a new or empty folder, or one of nerve's",
            remedy="Choose another: nothing of yours is replaced.",
        )
    write_text(path / MARK, "This folder was made by nerve: files with the names that nerve gives are its own.\n")
    return path


def check_replaceable_file(path: str | os.PathLike[str], is_ours: Callable[[Path], bool]) -> None:
    """Refuse to replace a file that the asking command has not written, before any work is done."""
    path = Path(path)
    try:
        ours = not path.exists() or (path.is_file() and (path.stat().st_size == 0 or is_ours(path)))
    except (OSError, ValueError) as error:
        raise clear_errors("write", path, error) from error
    if not ours:
        raise problem(
            path, "it exists and was not written by this command, so it is not replaced", remedy="Choose another name."
        )


def begins_with(*words: str) -> Callable[[Path], bool]:
    """Whether the first line of a table is these columns; others may follow."""

    def is_ours(path: Path) -> bool:
        with open(path, "rb") as stream:
            return stream.readline(10_000).split(b"\t")[: len(words)] == [word.encode() for word in words]

    return is_ours


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], marker: str, *, own: Collection[str] = (), overwrite: bool = False
) -> Iterator[Path]:
    """Fill a temporary folder that takes the name `path` only if the block ends well.

    An existing non-empty `path` is refused unless `overwrite`; it is replaced at the very end, and only if it holds a
    file named `marker`, which shows that it is one of ours, and nothing but it and files named in `own`. A folder that
    another process is filling is refused by naming that process; what a killed one left is tidied up first.
    """
    path, own = _real(path), {marker, *own}
    _check_replaceable(path, marker, own, overwrite)
    with only_one(_lock_file(path), path):
        _tidy(path)
        _check_replaceable(path, marker, own, overwrite)  # again: another process may have made it, or set it aside
        with _draft_folder(path) as draft:
            yield draft
    _sync_folder(path.parent)


def drop_left_lock(path: str | os.PathLike[str]) -> None:
    """Remove the lock of a folder if a process that was killed after its last step has left it."""
    lock = _lock_file(_real(path))
    with suppress(NerveError):
        if lock.exists():
            with holding(lock):
                pass


@contextmanager
def _draft_folder(path: Path) -> Iterator[Path]:
    """A new temporary folder that takes its name if the block ends well, and is removed if not."""
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{_stem(path)}.", suffix=".tmp", dir=path.parent))
    except (OSError, ValueError) as error:
        raise clear_errors("write", path, error) from error
    try:
        yield draft
        for file in draft.rglob("*"):
            if file.is_file():
                _keep_mode(file, path / file.relative_to(draft))
                _sync(file)
        os.chmod(draft, _mode(path, 0o777))
        _swap(draft, path)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise clear_errors("write", path, error) from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _check_replaceable(path: Path, marker: str, own: Collection[str], overwrite: bool) -> None:
    """Refuse what must not be replaced, before any work is done."""
    try:
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return
        theirs = sorted(set(os.listdir(path)) - set(own)) if path.is_dir() else []
    except OSError as error:
        raise clear_errors("write", path, error) from error
    if not overwrite:
        raise NerveError(f"{path}: already exists and is not empty. Choose another folder or ask to overwrite it.")
    if not (path / marker).is_file():
        raise NerveError(f"{path}: holds no {marker}, so it is not replaced: it may be something else of yours.")
    theirs = [name for name in theirs if not _TEMPORARY.fullmatch(name)]
    if theirs:
        raise problem(
            path,
            f"it holds {listed(theirs, most=3)}, which nerve has not written, so it is not replaced",
            remedy="Move that elsewhere, or choose another folder.",
        )
    if Path.cwd().is_relative_to(path.resolve()):
        raise NerveError(f"{path}: you are working inside this folder, so it is not replaced. Change to another first.")


def _swap(draft: Path, path: Path) -> None:
    """Give a finished draft its name; what had the name is removed after, so that it is never lost to a crash."""
    if not path.is_dir():
        os.replace(draft, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{_stem(path)}.", suffix=".old", dir=path.parent))
    os.replace(path, old)  # onto an empty folder
    try:
        os.replace(draft, path)
    except OSError:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _tidy(path: Path) -> None:
    """Undo what a killed process left of a folder: put back what it set aside, remove its drafts. Needs the lock."""
    try:
        for old in _leftovers(path, "old"):
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.replace(old, path)
        for draft in _leftovers(path, "tmp"):
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise clear_errors("write", path, error) from error


def _draft(path: Path) -> tuple[int, str]:
    """A new temporary file for `path`, open and locked."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{_stem(path)}.", suffix=".tmp", dir=path.parent)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_still(name, descriptor):
            return descriptor, name
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _remove_drafts(path: Path) -> None:
    """Remove the drafts of `path` that no living process has locked."""
    for draft in _leftovers(path, "tmp"):
        with suppress(OSError), open(draft, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def _leftovers(path: Path, ending: str) -> list[Path]:
    """Temporary names of `path` that exist."""
    pattern = re.compile(rf"\.{re.escape(_stem(path))}\.[a-z0-9_]{{8}}\.{ending}")  # as tempfile names them
    return [path.parent / name for name in os.listdir(path.parent) if pattern.fullmatch(name)]


def _lock_file(path: Path) -> Path:
    return path.parent / f".{_stem(path)}.lock"


def _stem(path: Path) -> str:
    """The name of a file, short enough to add to it."""
    name = os.fsencode(path.name)
    return path.name if len(name) <= 80 else f"{path.name[:30]}-{hashlib.blake2b(name, digest_size=6).hexdigest()}"


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    with atomic_file(path, "w") as stream:
        stream.write(text)


def write_markdown(path: str | os.PathLike[str], text: str) -> None:
    """Write Markdown in which no tag, link or picture begins: names of others' stand in it."""
    write_text(path, re.sub(r"(?<!\\)\[", r"\\[", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write indented JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_tsv(path: str | os.PathLike[str], table: pd.DataFrame) -> None:
    """Write a table with tabs, `n/a` for missing values and no index, whole or not at all; no cell is a formula."""
    # Python before 3.13 does not quote a carriage return, at which readers would begin another row
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if any_text(table, lambda text: "\r" in text) else csv.QUOTE_MINIMAL
    with atomic_file(path, "w") as stream:
        guarded_table(table).to_csv(stream, sep="\t", index=False, na_rep="n/a", lineterminator="\n", quoting=quoting)


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array without pickles, whole or not at all."""
    with atomic_file(path) as stream:
        np.save(stream, array, allow_pickle=False)


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON, with one sentence if it is missing or malformed."""
    path = Path(path)
    try:
        return json.loads(_text(path))
    except NerveError:
        raise
    except OSError as error:
        raise NerveError(f"{path}: could not be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise NerveError(f"{path}: is not valid JSON{place}.") from error


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a YAML file of settings (plain values only, tags are refused); an empty one has none."""
    import yaml

    path = Path(path)
    try:
        content = yaml.safe_load(_text(path))
    except NerveError:
        raise
    except OSError as error:
        raise NerveError(f"{path}: could not be read ({error.strerror or error}).") from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:  # as its parser has it
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise NerveError(f"{path}: is not valid YAML{place}.") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise NerveError(f"{path}: holds no settings, expected lines like `name: value`.")
    return {str(name): value for name, value in content.items()}


def read_tsv(path: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """Read a tab- (or comma-, by its name) separated table of ours: only `n/a` and empty cells are missing.

    A region may well be called NA, and a target null. For tables of others see `read_foreign_table`.
    """
    path = Path(path)
    separator = "," if path.suffix.lower() == ".csv" else "\t"
    defaults: dict[str, Any] = {"sep": separator, "na_values": MISSING, "keep_default_na": False}
    try:
        with open_table(path) as stream:
            return unguarded_table(pd.read_csv(stream, encoding="utf-8-sig", **(defaults | options)))
    except NerveError:
        raise
    except OSError as error:
        raise NerveError(f"{path}: could not be read ({error.strerror or error}).") from error
    except (ValueError, EOFError, OverflowError, LookupError, zlib.error, lzma.LZMAError) as error:  # as pandas has it
        raise NerveError(f"{path}: is not a readable table. Save it as tab-separated UTF-8 text.") from error


def read_foreign_table(path: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """Read somebody else's table: what R, SPSS and databases write for missing values counts as missing too."""
    return read_tsv(path, **({"keep_default_na": True} | options))


def _text(path: Path) -> str:
    require_ending(path)
    return path.read_text(encoding="utf-8-sig")


def _mode(path: Path, usual: int) -> int:
    """Permissions of what is written as `path`: those that it has, or the usual ones of a new file."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return usual & ~mask


def _keep_mode(new: Path, old: Path) -> None:
    """Give a new file the permissions of the one that it replaces; untouched if they are its own already."""
    if old.is_file() and _mode(old, 0) != _mode(new, 0):
        os.chmod(new, _mode(old, 0))


def _real(path: str | os.PathLike[str]) -> Path:
    """Where a link leads, so that it is written there and the link stays."""
    try:
        return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    except ValueError:  # a name that no file can have: refused where it is opened
        return Path(path)


def _remove(name: str) -> None:
    if name:
        with suppress(OSError):
            os.unlink(name)


def _sync(file: Path) -> None:
    with open(file, "rb") as stream:
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems do not sync folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
