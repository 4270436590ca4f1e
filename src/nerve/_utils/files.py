"""Files are written whole or not at all: to a temporary name beside them, flushed, then renamed.

A draft is called ``.NAME.XXXXXXXX.tmp``. One that a killed process left is removed when NAME is written again; that of
a living process is locked by it, and stays.

What is not ours stays too. A folder is written to if it is new, empty or was made by nerve (`claim`); a folder is
replaced if it holds nothing but files of ours (`atomic_folder`); a file is replaced if the command that asks wrote it
(`check_replaceable_file`). What is written again keeps its permissions, and a link stays a link.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pandas as pd

from nerve._utils.archives import open_table, require_ending
from nerve._utils.errors import NerveError, listed, problem
from nerve._utils.formulas import any_text, guarded_table, unguarded_table
from nerve._utils.locks import clear_errors, holding, is_still, only_one
from nerve._utils.privacy import printable, printable_json

MARK = ".nerve"  # in folders that nerve has made
_TEMPORARY = re.compile(
    r"\.lock|\..*\.lock|\..*\.[a-z0-9_]{8}\.(?:tmp|old)|locks"
)  # what a killed process leaves
FileState = tuple[int, ...]  # see `file_state`
MISSING = ["n/a", ""]  # how missing values are written in tables of this package


@contextmanager
def atomic_file(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file that takes the name `path` only if the block ends well."""
    path = _real(path)
    encoding, errors = (
        (None, None) if "b" in mode else ("utf-8", "backslashreplace")
    )  # names may be no UTF-8
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = _draft(path)
        try:
            with os.fdopen(descriptor, mode, encoding=encoding, errors=errors) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(name, path)  # before it is closed, which gives the lock away
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    _sync_folder(path.parent)


def claim(folder: str | os.PathLike[str]) -> Path:
    """Make `folder` one that nerve writes to: new, empty, or claimed before; another's is refused by its files."""
    path = Path(folder)
    with clear_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        theirs = [] if (path / MARK).is_file() else _of_others(path)
        if (
            theirs and not (path / MARK).is_file()
        ):  # again: another process may have claimed it and begun
            found = f"it holds {listed(theirs, most=3)} and was not made by nerve"
            remedy = "Choose another: nothing of yours is replaced."
            raise problem(
                path, found, expected="a new or empty folder, or one of nerve's", remedy=remedy
            )
        if not (path / MARK).is_file():
            text = "This folder was made by nerve: files with the names that nerve gives are its own.\n"
            write_text(path / MARK, text)
    return path


def check_replaceable_file(path: str | os.PathLike[str], is_ours: Callable[[Path], bool]) -> None:
    """Refuse to replace a file that the asking command has not written, before any work is done."""
    path = Path(path)
    with clear_errors(path):
        if path.exists() and not (path.is_file() and (path.stat().st_size == 0 or is_ours(path))):
            found = "it exists and was not written by this command, so it is not replaced"
            raise problem(path, found, remedy="Choose another name.")


def begins_with(*words: str) -> Callable[[Path], bool]:
    """Whether the first line of a table is these columns; others may follow."""

    def is_ours(path: Path) -> bool:
        with open(path, "rb") as stream:
            return stream.readline(10_000).split(b"\t")[: len(words)] == [
                word.encode() for word in words
            ]

    return is_ours


@contextmanager
def atomic_folder(
    path: str | os.PathLike[str], marker: str, *, own: Collection[str] = (), overwrite: bool = False
) -> Iterator[Path]:
    """Fill a temporary folder that takes the name `path` only if the block ends well.

    An existing non-empty `path` is refused unless `overwrite`; it is replaced at the very end, and only if it holds a
    file named `marker`, which shows that it is one of ours, and nothing but it and files named in `own`. One whose
    files were changed while the block ran is not replaced. A folder that another process is filling is refused by
    naming that process; what a killed one left is tidied up first.
    """
    path = _real(path)
    _check_replaceable(path, marker, own, overwrite)
    with only_one(_lock_file(path), path), clear_errors(path):
        _tidy(path)
        _check_replaceable(
            path, marker, own, overwrite
        )  # again: another process may have made it, or set it aside
        before = folder_states(path)
        draft = _temporary(path, "tmp")
        draft.mkdir()  # never one that was there: it is removed if the block fails
        try:
            mode = (path if path.is_dir() else draft).stat().st_mode
            draft.chmod(stat.S_IRWXU)
            yield draft
            _settle(draft, path)
            draft.chmod(stat.S_IMODE(mode))
            if folder_states(path) != before:
                found = (
                    "its files were changed while new ones were being made, so it is not replaced"
                )
                raise problem(path, found, remedy="Look at what was changed, then start again.")
            _swap(draft, path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    _sync_folder(path.parent)


def drop_left_lock(path: str | os.PathLike[str]) -> None:
    """Remove the lock of a folder if a process that was killed after its last step has left it."""
    lock = _lock_file(_real(path))
    with suppress(NerveError):
        if lock.exists():
            with holding(lock):
                pass


def _check_replaceable(path: Path, marker: str, own: Collection[str], overwrite: bool) -> None:
    """Refuse what must not be replaced, before any work is done."""
    with clear_errors(path):
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return
        if not overwrite:
            raise NerveError(
                f"{path}: already exists and is not empty. Choose another folder or ask to overwrite it."
            )
        if not (path / marker).is_file():
            raise NerveError(
                f"{path}: holds no {marker}, so it is not replaced: it may be something else of yours."
            )
        if theirs := _of_others(path, {marker, *own}):
            found = f"it holds {listed(theirs, most=3)}, which nerve has not written, so it is not replaced"
            raise problem(path, found, remedy="Move that elsewhere, or choose another folder.")
        if Path.cwd().is_relative_to(path.resolve()):
            found = "you are working inside this folder, so it is not replaced"
            raise problem(path, found, remedy="Change to another first.")


def _of_others(path: Path, own: Collection[str] = ()) -> list[str]:
    """The names in a folder that are neither files in `own` nor what a killed process leaves."""
    ours = {name for name in own if not (path / name).is_dir()}
    names = [name for name in os.listdir(path) if name not in ours]
    return sorted(name for name in names if not _TEMPORARY.fullmatch(name))


def folder_states(path: Path) -> dict[str, FileState]:
    """The state of every file of a folder; none of one that does not exist."""
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file_state(file) for file in files}


def file_state(path: Path) -> FileState:
    """What tells versions of a file apart without reading it: device, number, size and times.

    The last one, the time of the last change of any sort, cannot be set back by users.
    """
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _settle(draft: Path, path: Path) -> None:
    """Flush the files of a draft, and give each the permissions of the one that it replaces."""
    for file in draft.rglob("*"):
        if file.is_file():
            if (old := path / file.relative_to(draft)).is_file():
                shutil.copymode(old, file)
            _sync(file)


def _swap(draft: Path, path: Path) -> None:
    """Give a finished draft its name; what had the name is removed after, so that it is never lost to a crash."""
    old = _temporary(path, "old")
    if path.is_dir():
        os.replace(path, old)
    os.replace(draft, path)
    shutil.rmtree(old, ignore_errors=True)


def _tidy(path: Path) -> None:
    """Undo what a killed process left of a folder: put back what it set aside, remove its drafts. Needs the lock."""
    for old in _leftovers(path, "old"):
        if not path.exists():
            os.replace(old, path)
    for left in _leftovers(path, "(?:old|tmp)"):
        shutil.rmtree(left, ignore_errors=True)


def _draft(path: Path) -> tuple[int, Path]:
    """A new temporary file for `path`, open and locked; those that no living process has locked are removed."""
    for left in _leftovers(path, "tmp"):
        with suppress(OSError), open(left, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
    while True:
        name = _temporary(path, "tmp")
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if path.is_file():
            shutil.copymode(path, name)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_still(name, descriptor):
            return descriptor, name
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _temporary(path: Path, ending: str) -> Path:
    return path.parent / f".{_stem(path)}.{secrets.token_hex(4)}.{ending}"


def _leftovers(path: Path, ending: str) -> list[Path]:
    """Temporary names of `path` that exist."""
    pattern = re.compile(rf"\.{re.escape(_stem(path))}\.[a-z0-9_]{{8}}\.{ending}")
    return [path.parent / name for name in os.listdir(path.parent) if pattern.fullmatch(name)]


def _lock_file(path: Path) -> Path:
    return path.parent / f".{_stem(path)}.lock"


def _stem(path: Path) -> str:
    """The name of a file, short enough to add to it."""
    name = os.fsencode(path.name)
    return (
        path.name
        if len(name) <= 80
        else f"{path.name[:30]}-{hashlib.blake2b(name, digest_size=6).hexdigest()}"
    )


def _real(path: str | os.PathLike[str]) -> Path:
    """Where a link leads, so that it is written there and the link stays."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems do not sync folders
        _sync(folder)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text as UTF-8, whole or not at all; control characters in it are spelt out."""
    with atomic_file(path, "w") as stream:
        stream.write(printable(text))


def write_markdown(path: str | os.PathLike[str], text: str) -> None:
    """Write Markdown in which no tag, link or picture begins: names of others' stand in it."""
    write_text(path, re.sub(r"(?<!\\)\[", r"\\[", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write indented JSON, whole or not at all."""
    write_text(path, printable_json(json.dumps(content, indent=2, ensure_ascii=False)) + "\n")


def write_tsv(path: str | os.PathLike[str], table: pd.DataFrame) -> None:
    """Write a table with tabs, `n/a` for missing values and no index, whole or not at all; no cell is a formula."""
    # Python before 3.13 does not quote a carriage return, at which readers would begin another row
    quoting: Literal[0, 2] = (
        csv.QUOTE_NONNUMERIC if any_text(table, lambda text: "\r" in text) else csv.QUOTE_MINIMAL
    )
    with atomic_file(path, "w") as stream:
        guarded_table(table).to_csv(
            stream, sep="\t", index=False, na_rep="n/a", lineterminator="\n", quoting=quoting
        )


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write an array without pickles, whole or not at all."""
    with atomic_file(path) as stream:
        np.save(stream, array, allow_pickle=False)


@contextmanager
def _reading(name: str | os.PathLike[str], what: str, remedy: str = "") -> Iterator[Path]:
    """The path of a file; any error while it is read becomes one sentence."""
    path = Path(name)
    try:
        require_ending(path)
        yield path
    except (NerveError, MemoryError):
        raise
    except OSError as error:
        raise NerveError(f"{path}: could not be read ({error.strerror or error}).") from error
    except Exception as error:  # parsers stumble in a dozen ways
        why = str(error).strip().partition("\n")[0]
        if isinstance(error, json.JSONDecodeError):
            why = f"line {error.lineno}, column {error.colno}"
        if mark := getattr(error, "problem_mark", None):  # of YAML
            why = f"line {mark.line + 1}, column {mark.column + 1}"
        raise NerveError(f"{path}: is not {what} ({why}).{remedy}") from error


def file_hash(path: str | os.PathLike[str]) -> str:
    """A hash of the bytes of a file, with one sentence if it cannot be read."""
    with _reading(path, "readable") as file, open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read JSON, with one sentence if it is missing or malformed."""
    with _reading(path, "valid JSON") as file:
        return json.loads(file.read_text(encoding="utf-8-sig"))


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a YAML file of settings (plain values only, tags are refused); an empty one has none."""
    import yaml

    with _reading(path, "valid YAML") as file:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    if not isinstance(content, dict | None):
        raise NerveError(f"{path}: holds no settings, expected lines like `name: value`.")
    return {str(name): value for name, value in (content or {}).items()}


def read_tsv(path: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """Read a tab- (or comma-, by its name) separated table of ours: only `n/a` and empty cells are missing.

    A region may well be called NA, and a target null. For tables of others see `read_foreign_table`.
    """
    with (
        _reading(path, "a readable table", " Save it as tab-separated UTF-8 text.") as file,
        open_table(file) as stream,
    ):
        separator = "," if file.suffix.lower() == ".csv" else "\t"
        defaults: dict[str, Any] = {
            "sep": separator,
            "na_values": MISSING,
            "keep_default_na": False,
        }
        return unguarded_table(pd.read_csv(stream, encoding="utf-8-sig", **(defaults | options)))


def read_foreign_table(path: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """Read a table of others: what R, SPSS and databases write for missing values counts as missing too."""
    return read_tsv(path, **({"keep_default_na": True} | options))
