"""Files are written whole or not at all: to a temporary name beside them, flushed, then renamed.

The temporary file is a draft, ``.NAME.XXXXXXXX.tmp``. A draft that a killed process left is removed
when NAME is written again; the draft of a running process is locked and stays.

Files of the user are not replaced. A folder is written to only if it is new, empty or was made by
nerve (`claim`). `check_may_write` decides what is replaced: a file or folder whose hashes are those
in nerve's record (`.nerve` in its folder), or a file that the user has named with ``--overwrite``. A
file that is written again keeps its permissions, and a link stays a link.
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
from collections.abc import Callable, Iterator
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
from nerve._utils.locks import explaining_write_errors, holding, is_lock_file, only_one
from nerve._utils.privacy import printable_json

AnyPath = str | os.PathLike[str]
FileState = tuple[int, ...]  # see `file_state`

MARK = ".nerve"  # in folders that nerve has made; holds the hashes of files that it wrote
MISSING = ["n/a", ""]  # how missing values are written in tables of this package

# a draft of the mark, of a process that is writing it or was killed
_DRAFT_OF_MARK = re.compile(r"\.\.nerve\.[0-9a-f]{8}\.tmp")
_LOCK = ".lock"
_LONGEST_NAME = 80  # bytes of a file's name to which a draft's ending is added


# Files


@contextmanager
def atomic_file(path: AnyPath, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file that takes the name `path` only if the block ends without an error.

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
        errors = "backslashreplace"  # names of files may not be valid UTF-8
    with explaining_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_drafts_of_killed_processes(path)
        draft, descriptor = _create_draft(path)
        try:
            with os.fdopen(descriptor, mode, encoding=encoding, errors=errors) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                os.replace(draft, path)  # before closing it, which would release its lock
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
    with suppress(OSError):  # some file systems do not sync folders
        flush_to_disk(path.parent)


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
    """Write Markdown; names given by users cannot begin a tag, a link or a picture in it.

    Parameters
    ----------
    path : path
        The file.
    text : str
        Its content. It must not need links, because all of them are escaped.
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
        # Python before 3.13 does not quote carriage returns, which readers take for line ends
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


# What may be replaced


def check_may_write(
    path: AnyPath,
    *,
    overwrite: bool = False,
    is_ours: Callable[[Path], bool] | None = None,
) -> None:
    """Refuse to replace what is not ours; called before any work is done.

    A path may be written if it does not exist or is empty; if it is a file and the record of its
    folder has the hash that the file has now; or if it is a file and `overwrite` is true. A folder
    is replaced only if `overwrite` is true *and* the record has the hash of every file in it: the
    user has named the folder, not the files that are in it.

    Parameters
    ----------
    path : path
        The file or folder that is to be written.
    overwrite : bool
        Whether the user has named exactly this path to be replaced.
    is_ours : callable, optional
        Whether an existing file is one that the command could have written. Any other file is
        not replaced, even with `overwrite`: the user has probably mistyped its name.
    """
    path = Path(path)
    with explaining_write_errors(path):
        if not path.exists():
            return
        if path.is_dir():
            _check_may_replace_folder(path, overwrite)
            return
        require_regular_file(path)
        if path.stat().st_size == 0:
            return
        if _recorded_hashes(path.parent).get(path.name) == file_hash(path):
            return
        if not overwrite:
            raise problem(
                path,
                "it exists, and is not as nerve wrote it here, so it is not replaced",
                remedy="Choose another name, or say --overwrite where the command has that option.",
            )
        if is_ours is not None and not is_ours(path):
            raise problem(
                path,
                "it exists and was not written by this command, so it is not replaced",
                remedy="Choose another name.",
            )


def _check_may_replace_folder(path: Path, overwrite: bool) -> None:
    """Refuse to replace a folder with anything in it that nerve did not write, or that changed."""
    names = {str(file.relative_to(path)) for file in path.rglob("*")}
    if not names:
        return
    if not overwrite:
        raise NerveError(
            f"{path}: already exists and is not empty. "
            "Choose another folder or ask to overwrite it."
        )
    recorded = _recorded_hashes(path)
    if not recorded:
        raise problem(
            path,
            f"it holds no record of nerve ({MARK}), so it is not replaced: "
            "it may be something else of yours",
            remedy="Remove it yourself, or choose another folder.",
        )
    folders = {str(Path(name).parent) for name in recorded}
    foreign = sorted(names - recorded.keys() - folders - {MARK})
    if foreign:
        raise problem(
            path,
            f"it holds {listed(foreign, most=3)}, which nerve has not written, "
            "so it is not replaced",
            remedy="Move that elsewhere, or choose another folder.",
        )
    changed = []
    for name in sorted(names & recorded.keys()):
        if not (path / name).is_file() or file_hash(path / name) != recorded[name]:
            changed.append(name)
    if changed:
        raise problem(
            path,
            f"{listed(changed, most=3)} changed after nerve wrote it, so it is not replaced",
            remedy="Keep what was changed elsewhere and remove the folder, or choose another.",
        )
    if Path.cwd().is_relative_to(path.resolve()):
        raise problem(
            path,
            "you are working inside this folder, so it is not replaced",
            remedy="Change to another first.",
        )


def record_written(path: AnyPath) -> None:
    """Note in the record of a folder that nerve wrote a file in it, with its hash.

    Parameters
    ----------
    path : path
        The file, in a folder that was claimed.
    """
    path = Path(path)
    _write_record(path.parent, _recorded_hashes(path.parent) | {path.name: file_hash(path)})


def _write_record(folder: Path, hashes: dict[str, str]) -> None:
    about = "This folder was made by nerve. These are the hashes of files as nerve wrote them."
    write_json(folder / MARK, {"about": about, "files": hashes})


def _recorded_hashes(folder: Path) -> dict[str, str]:
    """Name of each file that nerve wrote in a folder → the hash that it had; empty if unknown."""
    with suppress(NerveError):
        content = read_json(folder / MARK)
        if isinstance(content, dict) and isinstance(content.get("files"), dict):
            return {str(name): str(digest) for name, digest in content["files"].items()}
    return {}


def begins_with(*columns: str) -> Callable[[Path], bool]:
    """Make a test for `check_may_write`: whether a table begins with some columns.

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
    with explaining_write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        if mark.is_file():
            return path
        foreign = _foreign_names(path)
        # The mark is looked for again: another process may have claimed the folder meanwhile.
        if foreign and not mark.is_file():
            raise problem(
                path,
                f"it holds {listed(foreign, most=3)} and was not made by nerve",
                expected="a new or empty folder, or one of nerve's",
                remedy="Choose another: nothing of yours is replaced.",
            )
        _write_record(path, {})
    return path


@contextmanager
def atomic_folder(path: AnyPath, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a temporary folder that takes the name `path` only if the block ends without an error.

    If another process is filling the folder, an error names that process. What a killed process left
    is removed first.

    Parameters
    ----------
    path : path
        The folder to write. A non-empty one is refused unless `overwrite`.
    overwrite : bool
        Replace an existing folder at the very end, if `check_may_write` allows it and its files
        were not changed meanwhile.

    Yields
    ------
    Path
        The temporary folder.
    """
    path = _follow_link(path)
    with only_one(_lock_file(path), path), explaining_write_errors(path):
        _tidy_after_kill(path)
        # Checked after that, because a killed process may have set the folder aside.
        check_may_write(path, overwrite=overwrite)
        states_before = _folder_states(path)
        draft = _temporary_name(path, "tmp")
        draft.mkdir()  # must be new, because it is removed if the block fails
        try:
            permissions = (path if path.is_dir() else draft).stat().st_mode
            _try_chmod(draft, stat.S_IRWXU)
            yield draft
            _finish_files(draft, path)
            _try_chmod(draft, permissions)
            if _folder_states(path) != states_before:
                raise problem(
                    path,
                    "its files were changed while new ones were being made, so it is not replaced",
                    remedy="Look at what was changed, then start again.",
                )
            _swap(draft, path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    with suppress(OSError):  # some file systems do not sync folders
        flush_to_disk(path.parent)


def drop_left_lock(path: AnyPath) -> None:
    """Remove the lock file of a folder, if a killed process left it.

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


def _folder_states(path: Path) -> dict[str, FileState]:
    """The state of every file of a folder, to see later whether one has changed.

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
    """What changes with every version of a file, found without reading it.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tuple of int
        Device, inode, size, time of the last modification and time of the last status change,
        which users cannot set back.
    """
    status = os.stat(path)
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def flush_to_disk(path: Path) -> None:
    """Make the operating system write a file or folder from its cache to the disk.

    Parameters
    ----------
    path : Path
        The file or folder.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    """Read JSON; a missing or malformed file raises an error of one sentence.

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

    `tempfile` is not used: only the user can read its files. A draft has the permissions of the file
    that it replaces, or those of the user's umask.
    """
    while True:
        draft = _temporary_name(path, "tmp")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if path.is_file():
            _try_chmod(draft, path.stat().st_mode)
        with suppress(OSError):  # a file system without locks
            filelock.lock_descriptor(descriptor)
        if draft.exists():
            return draft, descriptor
        os.close(descriptor)  # another process removed it as a leftover before it was locked


def _remove_drafts_of_killed_processes(path: Path) -> None:
    for draft in _leftovers(path, "tmp"):
        with suppress(OSError), open(draft, "r+b") as stream:
            if filelock.lock_descriptor(stream.fileno(), blocking=False):
                draft.unlink()


def _tidy_after_kill(path: Path) -> None:
    """Put back what a killed process set aside, and remove its drafts; the caller holds the lock."""
    for previous in _leftovers(path, "old"):
        if not path.exists():
            os.replace(previous, path)
    for leftover in _leftovers(path, "(?:old|tmp)"):
        shutil.rmtree(leftover, ignore_errors=True)


def _finish_files(draft: Path, path: Path) -> None:
    """Flush the files of a draft, give them the permissions of the old files, and record them.

    Files are read once more for their hashes, so that the record is that of the disk.
    """
    hashes = {}
    for file in sorted(draft.rglob("*")):
        if not file.is_file():
            continue
        name = str(file.relative_to(draft))
        if (path / name).is_file():
            _try_chmod(file, (path / name).stat().st_mode)
        flush_to_disk(file)
        hashes[name] = file_hash(file)
    _write_record(draft, hashes)


def _swap(draft: Path, path: Path) -> None:
    """Give a finished draft its name.

    The folder that had this name is removed afterwards, so that a crash never loses it.
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


def _foreign_names(path: Path) -> list[str]:
    """The names in a folder that no process of nerve has put there."""
    foreign = []
    for name in sorted(os.listdir(path)):
        is_left_lock = name == _LOCK and is_lock_file(path / name)
        if not is_left_lock and not _DRAFT_OF_MARK.fullmatch(name):
            foreign.append(name)
    return foreign


def _try_chmod(path: Path, mode: int) -> None:
    with suppress(OSError):  # some file systems (FAT, network mounts) refuse it
        os.chmod(path, stat.S_IMODE(mode))


def _follow_link(path: AnyPath) -> Path:
    """The path that a link leads to, so that this is written and the link stays."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
