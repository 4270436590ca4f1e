"""Hashes and versions of what determines a run: settings, files and the source of the package."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nerve._utils.errors import problem

_COMPILED = "__pycache__"  # folders that Python makes, which decide nothing


def fingerprint(content: Any) -> str:
    """A short hash of plain JSON content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def content_hash(path: str | os.PathLike[str]) -> str:
    """A hash of the content of a file, or of all files of a folder."""
    path = Path(path)
    if path.is_file():
        files = [path]
    else:
        files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise problem(
            path,
            "there is no such file or folder",
            expected="a trained model, or a table of features",
        )
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(str(file.relative_to(path)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def check_content(path: str | os.PathLike[str], expected: str) -> None:
    """Refuse a file or folder that was changed since the runs were planned.

    Parameters
    ----------
    path : path
        The file or folder.
    expected : str
        Its `content_hash` at that time.
    """
    if content_hash(path) != expected:
        raise problem(
            path,
            "it was changed after the experiment was started",
            remedy="Start the experiment again.",
        )


@functools.cache
def code_version() -> str:
    """The version of the package and a hash of all its files."""
    # computed once per process: what it has imported does not change when files are edited
    import nerve

    return f"{nerve.__version__}+{source_hash(Path(nerve.__file__).parent)}"


def source_hash(package: Path) -> str:
    """A hash of every file of a package: code, tables, templates and settings.

    Parameters
    ----------
    package : Path
        The folder of the package.

    Returns
    -------
    str
        Another one if any file is changed, added, renamed or removed.
    """
    contents = {}
    for path in sorted(package.rglob("*")):
        if path.is_file() and _COMPILED not in path.parts:
            name = path.relative_to(package).as_posix()
            contents[name] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return fingerprint(contents)


@functools.cache
def package_versions() -> Mapping[str, str]:
    """Versions of Python and of the packages that compute."""
    numbers = {"python": platform.python_version(), "platform": platform.system()}
    for name in ("nerve-fc", "torch", "numpy", "scipy", "pandas", "scikit-learn", "nilearn"):
        with suppress(PackageNotFoundError):
            numbers[name] = version(name)
    return numbers
