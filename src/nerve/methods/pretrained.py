"""Find a trained model: a folder, one archive, or the name of one that comes with the package.

An archive is a zip of model.safetensors, config.json, README.md and history.tsv, and nothing else.
They are at the top level, as on model hubs, and the card begins with the lines that hubs read.
The table of contents of an archive is checked before anything is unpacked.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import nerve
from nerve._utils.archives import refuse_bomb, require_regular_file
from nerve._utils.errors import NerveError, did_you_mean, listed, problem
from nerve._utils.files import atomic_file, check_may_write
from nerve.methods.base import CARD, WEIGHTS
from nerve.methods.configuration import CONFIG, read_configuration
from nerve.methods.run_folder import HISTORY, half_precision

PACKAGED = Path(__file__).parents[1] / "pretrained"
_NEEDED = (WEIGHTS, CONFIG, CARD)
FILES = (*_NEEDED, HISTORY)
_TIME_OF_FILES = (1980, 1, 1, 0, 0, 0)  # the same model gives the same bytes
# the beginning of a card, which hubs read
_HUB_LINES = "---\nlibrary_name: nerve\ntags:\n- functional-connectivity\n- fmri\n---\n\n"


def packaged_models() -> dict[str, Path]:
    """List the models that come with the package: name → archive."""
    return {path.stem: path for path in sorted(PACKAGED.glob("*.zip"))}


def find_model(model: str | os.PathLike[str]) -> Path:
    """Find a model that is given as a path or by name; a path that exists comes first.

    Parameters
    ----------
    model : path or str
        A folder, an archive, or a name of `nerve models list`.

    Returns
    -------
    Path
        The folder or archive.
    """
    path = Path(model)
    if path.exists():
        return path
    packaged = packaged_models()
    if str(model) in packaged:
        return packaged[str(model)]
    raise problem(
        model,
        "there is no such model",
        expected="a folder of a trained model, an archive of one (.zip), or a name of "
        "`nerve models list`",
        remedy=did_you_mean(str(model), packaged).strip(),
    )


def located(model: str | os.PathLike[str]) -> AbstractContextManager[Path]:
    """Open the folder of a model given as a folder, an archive or a name."""
    path = find_model(model)
    return nullcontext(path) if path.is_dir() else unpacked(path)


def model_card(model: str | os.PathLike[str]) -> str:
    """Read the card of a model, without the lines for hubs.

    Parameters
    ----------
    model : path or str
        A folder, an archive, or a name of `nerve models list`.

    Returns
    -------
    str
    """
    text = ""
    with located(model) as folder:
        if (folder / CARD).is_file():
            text = (folder / CARD).read_text(encoding="utf-8", errors="replace")
    if not text:
        raise problem(model, f"it holds no {CARD}", expected="the folder of a trained model")
    if text.startswith("---\n"):
        text = text.split("---\n", 2)[-1].lstrip()
    return text


def with_hub_lines(card: bytes) -> bytes:
    """Put the lines that hubs read before a card, unless it has them."""
    return card if card.startswith(b"---") else _HUB_LINES.encode() + card


def pack(
    run: str | os.PathLike[str],
    archive: str | os.PathLike[str],
    *,
    half: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write the model of a run folder as one .zip, without checkpoints, figures and other files.

    Parameters
    ----------
    run : path
        The folder of a trained model.
    archive : path
        The .zip to write.
    half : bool
        Numbers in half precision: a half or a quarter of the size. Features differ in the third
        decimal.
    overwrite : bool
        Replace an existing archive of a model; another file is never replaced.

    Returns
    -------
    Path
        The archive.
    """
    folder = Path(run)
    path = Path(archive)
    read_configuration(folder)  # or it is refused
    if path.suffix.lower() != ".zip":
        raise problem(path, f"its ending is {path.suffix!r}", expected=".zip")
    lacking = [name for name in _NEEDED if not (folder / name).is_file()]
    if lacking:
        raise problem(folder, f"it holds no {listed(lacking)}", remedy="Copy the whole folder.")
    check_may_write(path, overwrite=overwrite, is_ours=_is_archive)
    with atomic_file(path) as stream, zipfile.ZipFile(stream, "w") as packed:
        for name in FILES:
            if not (folder / name).is_file():
                continue
            content = (folder / name).read_bytes()
            compression = zipfile.ZIP_DEFLATED
            if name == WEIGHTS:
                compression = zipfile.ZIP_STORED  # weights do not get smaller
                if half:
                    content = half_precision(folder / name)
            if name == CARD:
                content = with_hub_lines(content)
            packed.writestr(zipfile.ZipInfo(name, _TIME_OF_FILES), content, compression)
    return path


@contextmanager
def unpacked(archive: str | os.PathLike[str]) -> Iterator[Path]:
    """Unpack an archive into a temporary folder; errors raised inside name the archive."""
    path = Path(archive)
    with tempfile.TemporaryDirectory(prefix="nerve-") as name:
        folder = Path(name)
        try:
            require_regular_file(path)
            with zipfile.ZipFile(path) as packed:
                for member in _checked_members(packed, path):
                    (folder / member.filename).write_bytes(packed.read(member))
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
            OSError,
        ) as error:
            expected = f"a .zip that `nerve pack` of nerve {nerve.__version__} or later wrote"
            raise problem(
                path, f"it is no readable archive of a model ({error})", expected=expected
            ) from error
        try:
            yield folder
        except NerveError as error:
            raise type(error)(str(error).replace(str(folder), str(path))) from error


def _checked_members(packed: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """The members of an archive; other files than those of a model, or too large, are refused."""
    members = packed.infolist()
    names = [member.filename for member in members]
    other = [name for name in names if name not in FILES]
    if other or len(set(names)) < len(names) or not set(_NEEDED) <= set(names):
        raise problem(
            path,
            f"it holds {listed(names, most=5) or 'nothing'}",
            expected=f"{listed(FILES)}, once each",
        )
    for member in members:
        refuse_bomb(f"{path}: {member.filename}", member.compress_size, member.file_size)
    if sum(member.compress_size for member in members) > path.stat().st_size:
        raise problem(
            path, "its files are said to be larger than the archive", remedy="Copy it again."
        )
    return members


def _is_archive(path: Path) -> bool:
    with suppress(NerveError, zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as packed:
        return bool(_checked_members(packed, path))
    return False
