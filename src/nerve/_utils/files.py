"""Files are written whole or not at all: to a temporary name beside them, flushed, then renamed.

A draft is called ``.NAME.XXXXXXXX.tmp``. One that a killed process left is removed when NAME is
written again; that of a living process is locked by it, and stays.

What is not ours stays too. A folder is written to if it is new, empty or was made by nerve
(`claim`); a folder is replaced if it holds nothing but files of ours (`atomic_folder`); a file is
replaced if the command that asks wrote it (`check_replaceable_file`). What is written again keeps
its permissions, and a link stays a link.
"""

from __future__ import annotations

import csv
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

import filelock
import numpy as np
import pandas as pd
import yaml

from nerve._utils.archives import open_table, require_regular_file
from nerve._utils.errors import NerveError, listed, printable, problem
from nerve._utils.formulas import any_text, guarded_table, unguarded_table
from nerve._utils.locks import clear_errors, holding, only_one
from nerve._utils.privacy import printable_json

AnyPath = str | os.PathLike[str]
FileState = tuple[int, ...]  # see `file_state`

MARK = ".nerve"  # in folders that nerve has made
MISSING = ["n/a", ""]  # how missing values are written in tables of this package

_LEFT_BY_A_KILL = re.compile(r"\.lock|\..*\.lock|\..*\.[a-z0-9_]{8}\.(?:tmp|old)|locks")
_LONGEST_NAME = 80  # bytes of a file's name to which a draft's ending is added


# Files


@contextmanager
def atomic_file(path: AnyPath, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file that takes the name `path` only if the block ends well.

    Parameters
    ----------
    path : path
        The file to write. Its folder is made if there is none.
    mode : str
        As for `open`. Text is written as UTF-8.

    Yields
    ------
    file object
        Where to write.
    """
    path = _follow_link(path)
    encoding = None
    errors = None
    if "b" not in mode:
        encoding = "utf-8"
        errors = "backslashreplace"  # names of files may be no UTF-8
    with clear_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_drafts_of_killed_processes(path)
        draft, descriptor = _create_draft(path)
        try:
            with os.fdopen(descriptor, mode, encoding=encoding, errors=errors) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(draft, path)  # before it is closed, which gives up its lock
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
    _sync_folder(path.parent)


def write_text(path: AnyPath, text: str) -> None:
    """Write text as UTF-8, whole or not at all; control characters are written as escapes.

    Parameters
    ----------
    path : path
        The file.
    text : str
        Its content.
    """
    with atomic_file(path, "w") as stream:
        stream.write(printable(text))


def write_markdown(path: AnyPath, text: str) -> None:
    """Write Markdown in which names that users gave begin no tag, link or picture.

    Parameters
    ----------
    path : path
        The file.
    text : str
        Its content, which has no links of its own.
    """
    without_tags = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    without_links = re.sub(r"(?<!\\)\[", r"\\[", without_tags)
    write_text(path, without_links)


def write_json(path: AnyPath, content: Any) -> None:
    """Write indented JSON, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    content : object
        Plain values, lists and dicts.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False)
    write_text(path, printable_json(text) + "\n")


def write_tsv(path: AnyPath, table: pd.DataFrame) -> None:
    """Write a tab-separated table, whole or not at all.

    Missing values are `n/a`, the index is left out, and no cell is a formula to a spreadsheet.

    Parameters
    ----------
    path : path
        The file.
    table : DataFrame
        What is written.
    """
    quoting: Literal[0, 2] = csv.QUOTE_MINIMAL
    if any_text(table, lambda text: "\r" in text):
        # Python before 3.13 does not quote a carriage return, at which readers begin another row
        quoting = csv.QUOTE_NONNUMERIC
    with atomic_file(path, "w") as stream:
        guarded_table(table).to_csv(
            stream, sep="\t", index=False, na_rep="n/a", lineterminator="\n", quoting=quoting
        )


def write_npy(path: AnyPath, array: np.ndarray) -> None:
    """Write an array without pickles, whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    array : array
        What is written.
    """
    with atomic_file(path) as stream:
        np.save(stream, array, allow_pickle=False)


def check_replaceable_file(path: AnyPath, is_ours: Callable[[Path], bool]) -> None:
    """Refuse to replace a file that the asking command has not written, before any work is done.

    Parameters
    ----------
    path : path
        The file that is to be written.
    is_ours : callable
        Whether an existing file was written by the command.
    """
    path = Path(path)
    with clear_errors(path):
        if not path.exists():
            return
        is_empty = path.is_file() and path.stat().st_size == 0
        if is_empty or (path.is_file() and is_ours(path)):
            return
        raise problem(
            path,
            "it exists and was not written by this command, so it is not replaced",
            remedy="Choose another name.",
        )


def begins_with(*columns: str) -> Callable[[Path], bool]:
    """Make a test for `check_replaceable_file`: whether a table begins with some columns.

    Parameters
    ----------
    *columns : str
        Names of the first columns; others may follow.

    Returns
    -------
    callable
        From the path of a table to True or False.
    """
    expected = [name.encode() for name in columns]

    def is_ours(path: Path) -> bool:
        with open(path, "rb") as stream:
            first_line = stream.readline(10_000)
        return first_line.split(b"\t")[: len(expected)] == expected

    return is_ours


# Folders


def claim(folder: AnyPath) -> Path:
    """Make a folder one that nerve writes to.

    Parameters
    ----------
    folder : path
        New, empty, or claimed before. A folder that holds files of others is refused.

    Returns
    -------
    Path
        The folder.
    """
    path = Path(folder)
    mark = path / MARK
    with clear_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if mark.is_file():
            return path
        foreign = _foreign_names(path)
        # looked for again: another process may have claimed the folder and begun to write
        if foreign and not mark.is_file():
            raise problem(
                path,
                f"it holds {listed(foreign, most=3)} and was not made by nerve",
                expected="a new or empty folder, or one of nerve's",
                remedy="Choose another: nothing of yours is replaced.",
            )
        text = "This folder was made by nerve: files with the names that nerve gives are its own.\n"
        write_text(mark, text)
    return path


@contextmanager
def atomic_folder(
    path: AnyPath, marker: str, *, own: Collection[str] = (), overwrite: bool = False
) -> Iterator[Path]:
    """Fill a temporary folder that takes the name `path` only if the block ends well.

    A folder that another process is filling is refused by naming that process. What a killed one
    left is tidied up first.

    Parameters
    ----------
    path : path
        The folder to write. A non-empty one is refused unless `overwrite`.
    marker : str
        A file that shows that an existing folder is one of ours.
    own : collection of str
        Names of the other files that ours may hold.
    overwrite : bool
        Replace an existing folder at the very end, if it holds `marker`, nothing but files named in
        `own` beside it, and its files were not changed meanwhile.

    Yields
    ------
    Path
        The temporary folder.
    """
    path = _follow_link(path)
    _check_replaceable_folder(path, marker, own, overwrite)
    with only_one(_lock_file(path), path), clear_errors(path):
        _tidy_after_kill(path)
        # again: another process may have made it meanwhile, or a killed one had set it aside
        _check_replaceable_folder(path, marker, own, overwrite)
        states_before = folder_states(path)
        draft = _temporary_name(path, "tmp")
        draft.mkdir()  # an error if it exists: it is removed if the block fails
        try:
            permissions = (path if path.is_dir() else draft).stat().st_mode
            draft.chmod(stat.S_IRWXU)
            yield draft
            _finish_files(draft, path)
            draft.chmod(stat.S_IMODE(permissions))
            if folder_states(path) != states_before:
                raise problem(
                    path,
                    "its files were changed while new ones were being made, so it is not replaced",
                    remedy="Look at what was changed, then start again.",
                )
            _swap(draft, path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    _sync_folder(path.parent)


def drop_left_lock(path: AnyPath) -> None:
    """Remove the lock of a folder that was left by a process killed after its last step.

    Parameters
    ----------
    path : path
        The folder.
    """
    lock = _lock_file(_follow_link(path))
    with suppress(NerveError):
        if lock.exists():
            with holding(lock):
                pass


def folder_states(path: Path) -> dict[str, FileState]:
    """Note the state of every file of a folder.

    Parameters
    ----------
    path : Path
        The folder, which need not exist.

    Returns
    -------
    dict of str to tuple
        Name of each file → its `file_state`.
    """
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file_state(file) for file in files}


def file_state(path: Path) -> FileState:
    """Note what tells versions of a file apart without reading it.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tuple of int
        Device, number, size and times. The last one, the time of the last change of any sort,
        cannot be set back by users.
    """
    status = os.stat(path)
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


# Reading


def file_hash(path: AnyPath) -> str:
    """Hash the bytes of a file.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    str
        SHA-256 in hexadecimal digits.
    """
    with _reading(path, "readable") as file, open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: AnyPath) -> Any:
    """Read JSON, with one sentence if it is missing or malformed.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    object
        Its content.
    """
    with _reading(path, "valid JSON") as file:
        return json.loads(file.read_text(encoding="utf-8-sig"))


def read_yaml(path: AnyPath) -> dict[str, Any]:
    """Read a YAML file of settings.

    Parameters
    ----------
    path : path
        The file. It may hold plain values only: tags are refused.

    Returns
    -------
    dict of str to object
        The settings; none for an empty file.
    """
    with _reading(path, "valid YAML") as file:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise NerveError(f"{path}: holds no settings, expected lines like `name: value`.")
    return {str(name): value for name, value in content.items()}


def read_tsv(path: AnyPath, **options: Any) -> pd.DataFrame:
    """Read a table that nerve has written: only `n/a` and empty cells are missing.

    A region may well be called NA, and a target null. For tables of others see
    `read_foreign_table`.

    Parameters
    ----------
    path : path
        The file, separated by commas if its name ends in .csv, otherwise by tabs.
    **options
        Passed to `pandas.read_csv`.

    Returns
    -------
    DataFrame
        The table.
    """
    remedy = " Save it as tab-separated UTF-8 text."
    with _reading(path, "a readable table", remedy) as file, open_table(file) as stream:
        defaults: dict[str, Any] = {
            "sep": "," if file.suffix.lower() == ".csv" else "\t",
            "na_values": MISSING,
            "keep_default_na": False,
        }
        table = pd.read_csv(stream, encoding="utf-8-sig", **(defaults | options))
        return unguarded_table(table)


def read_foreign_table(path: AnyPath, **options: Any) -> pd.DataFrame:
    """Read a table that others have written.

    What R, SPSS and databases write for missing values counts as missing too.

    Parameters
    ----------
    path : path
        The file.
    **options
        As for `read_tsv`.

    Returns
    -------
    DataFrame
        The table.
    """
    return read_tsv(path, **({"keep_default_na": True} | options))


@contextmanager
def _reading(path: AnyPath, expected: str, remedy: str = "") -> Iterator[Path]:
    """Turn any error while a file is read into one sentence that names it."""
    path = Path(path)
    try:
        require_regular_file(path)
        yield path
    except (NerveError, MemoryError):
        raise
    except OSError as error:
        raise NerveError(f"{path}: could not be read ({error.strerror or error}).") from error
    except Exception as error:  # parsers raise errors of a dozen classes
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, json.JSONDecodeError):
            reason = f"line {error.lineno}, column {error.colno}"
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            reason = f"line {mark.line + 1}, column {mark.column + 1}"
        raise NerveError(f"{path}: is not {expected} ({reason}).{remedy}") from error


# Drafts


def _create_draft(path: Path) -> tuple[Path, int]:
    """Make a temporary file for `path`, open and locked by this process.

    Not by `tempfile`, whose files nobody else may read: ours are as open as the user's mask says,
    or as the file that they replace.
    """
    while True:
        draft = _temporary_name(path, "tmp")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if path.is_file():
            shutil.copymode(path, draft)
        with suppress(OSError):  # a file system without locks
            filelock.lock_descriptor(descriptor)
        if draft.exists():
            return draft, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _remove_drafts_of_killed_processes(path: Path) -> None:
    for draft in _leftovers(path, "tmp"):
        with suppress(OSError), open(draft, "r+b") as stream:
            if filelock.lock_descriptor(stream.fileno(), blocking=False):
                draft.unlink()


def _tidy_after_kill(path: Path) -> None:
    """Put back what a killed process set aside, and remove its drafts. Needs the folder's lock."""
    for previous in _leftovers(path, "old"):
        if not path.exists():
            os.replace(previous, path)
    for leftover in _leftovers(path, "(?:old|tmp)"):
        shutil.rmtree(leftover, ignore_errors=True)


def _finish_files(draft: Path, path: Path) -> None:
    """Flush the files of a draft, and give each the permissions of the one that it replaces."""
    for file in draft.rglob("*"):
        if not file.is_file():
            continue
        previous = path / file.relative_to(draft)
        if previous.is_file():
            shutil.copymode(previous, file)
        _sync(file)


def _swap(draft: Path, path: Path) -> None:
    """Give a finished draft its name.

    What had the name is removed afterwards, so that a crash never loses it.
    """
    previous = _temporary_name(path, "old")
    if path.is_dir():
        os.replace(path, previous)
    os.replace(draft, path)
    shutil.rmtree(previous, ignore_errors=True)


def _temporary_name(path: Path, ending: str) -> Path:
    return path.parent / f".{_short_name(path)}.{secrets.token_hex(4)}.{ending}"


def _leftovers(path: Path, ending: str) -> list[Path]:
    """Temporary names of `path` that exist."""
    pattern = re.compile(rf"\.{re.escape(_short_name(path))}\.[a-z0-9_]{{8}}\.{ending}")
    return [path.parent / name for name in os.listdir(path.parent) if pattern.fullmatch(name)]


def _lock_file(path: Path) -> Path:
    return path.parent / f".{_short_name(path)}.lock"


def _short_name(path: Path) -> str:
    """The name of a file, short enough to add to it."""
    name = os.fsencode(path.name)
    if len(name) <= _LONGEST_NAME:
        return path.name
    return f"{path.name[:30]}-{hashlib.blake2b(name, digest_size=6).hexdigest()}"


# What may be replaced


def _check_replaceable_folder(
    path: Path, marker: str, own: Collection[str], overwrite: bool
) -> None:
    """Refuse what must not be replaced, before any work is done."""
    with clear_errors(path):
        if not path.exists():
            return
        if path.is_dir() and not any(path.iterdir()):
            return
        if not overwrite:
            raise NerveError(
                f"{path}: already exists and is not empty. "
                "Choose another folder or ask to overwrite it."
            )
        if not (path / marker).is_file():
            raise NerveError(
                f"{path}: holds no {marker}, so it is not replaced: "
                "it may be something else of yours."
            )
        foreign = _foreign_names(path, {marker, *own})
        if foreign:
            raise problem(
                path,
                f"it holds {listed(foreign, most=3)}, which nerve has not written, "
                "so it is not replaced",
                remedy="Move that elsewhere, or choose another folder.",
            )
        if Path.cwd().is_relative_to(path.resolve()):
            raise problem(
                path,
                "you are working inside this folder, so it is not replaced",
                remedy="Change to another first.",
            )


def _foreign_names(path: Path, own: Collection[str] = ()) -> list[str]:
    """The names in a folder that are neither files in `own` nor what a killed process leaves."""
    foreign = []
    for name in sorted(os.listdir(path)):
        is_own = name in own and not (path / name).is_dir()
        if not is_own and not _LEFT_BY_A_KILL.fullmatch(name):
            foreign.append(name)
    return foreign


def _follow_link(path: AnyPath) -> Path:
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
