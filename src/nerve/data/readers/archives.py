"""Text files of numbers inside `.zip` archives, read one at a time and never unpacked on disk."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from nerve._utils.archives import refuse_bomb
from nerve._utils.errors import NerveError
from nerve.data.readers.opening import (
    TEXT,
    explained_errors,
    files_below,
    keep_latest,
    require_file,
)
from nerve.data.readers.text import Numbers, read_lines, read_numbers


def text_members(path: Path) -> list[str]:
    """The text files in an archive, sorted; hidden ones are passed over.

    Parameters
    ----------
    path : Path
        The `.zip` file.

    Returns
    -------
    list of str
    """
    with explained_errors(require_file(path), "a zip archive"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    members = []
    for name in names:
        parts = PurePosixPath(name).parts
        is_hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
        if name.endswith(TEXT) and not is_hidden:
            members.append(name)
    return sorted(members)


def zips_below(source: Path) -> list[Path]:
    """The `.zip` files below a source.

    Parameters
    ----------
    source : Path

    Returns
    -------
    list of Path
    """
    return files_below(source, ".zip")


def read_member_numbers(
    path: Path,
    member: str,
    header: str = "auto",
    index: str = "auto",
    codes: Collection[str] = (),
) -> Numbers:
    """The numbers of a text file in an archive; the other parameters are those of `read_numbers`.

    Parameters
    ----------
    path : Path
    member : str
    header, index : {"auto", "yes", "no"}
    codes : collection of str

    Returns
    -------
    Numbers
    """
    with tempfile.TemporaryDirectory() as folder:
        unpacked = _unpack(path, member, Path(folder))
        try:
            return read_numbers(unpacked, header, index, codes)
        except NerveError as error:
            sentence = str(error).replace(str(unpacked), str(path / member))
            raise NerveError(sentence) from error


def read_member_lines(path: Path, member: str) -> list[str]:
    """The lines of a text file in an archive.

    Parameters
    ----------
    path : Path
    member : str

    Returns
    -------
    list of str
    """
    with tempfile.TemporaryDirectory() as folder:
        return read_lines(_unpack(path, member, Path(folder)))


def _unpack(path: Path, member: str, folder: Path) -> Path:
    """Write one file of an archive into a folder, whatever folders stand in its name."""
    with explained_errors(path, "a whole zip archive"), zipfile.ZipFile(path) as archive:
        about = archive.getinfo(member)
        refuse_bomb(path / member, about.compress_size, about.file_size)
        unpacked = folder / PurePosixPath(member).name
        unpacked.write_bytes(archive.read(member))
    return unpacked


members_of = keep_latest(text_members)
