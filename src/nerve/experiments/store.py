"""Where runs live: one folder a run, named by the fingerprint of what determines it.

    DIR/experiment.yaml          the resolved config
    DIR/cohorts/NAME/            simulated cohorts
    DIR/runs/ID/manifest.json    what, status, settings, seed, versions, data, timing; written last when it ends well
    DIR/runs/ID/…                history, weights, predictions
    DIR/locks/ID                 held (by the system, so that a kill frees it) while a process works on a run

Two processes on one store share the work: whoever holds the lock runs, the other goes on to the next.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nerve._utils.errors import problem
from nerve._utils.files import read_json, write_json
from nerve._utils.locks import holder, holding, is_held

_COMPILED = "__pycache__"  # folders that Python makes, which decide nothing
DONE, FAILED, RUNNING, WAITING, UNAVAILABLE = (
    "done",
    "failed",
    "running",
    "waiting",
    "not available",
)


class Store:
    """The runs of an experiment on disk."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def run_folder(self, run_id: str) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / run_id

    def manifest(self, run_id: str) -> dict[str, Any] | None:
        """What is written of a run that ended, well or not; None before that."""
        path = self.run_folder(run_id) / "manifest.json"
        return read_json(path) if path.is_file() else None

    def status(self, run_id: str) -> str:
        """done, failed, not available, running or waiting."""
        manifest = self.manifest(run_id)
        if manifest is not None and manifest["status"] in (DONE, UNAVAILABLE):
            return str(manifest["status"])
        if is_held(self._lock_file(run_id)):
            return RUNNING
        return WAITING if manifest is None else FAILED

    def write_manifest(self, run_id: str, content: dict[str, Any]) -> None:
        """Record how a run ended."""
        write_json(self.run_folder(run_id) / "manifest.json", content)

    def lock(self, run_id: str) -> AbstractContextManager[bool]:
        """Hold the run; gives False, at once, if another process holds it."""
        return holding(self._lock_file(run_id))

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Hold the lock of that name, however long others hold it first."""
        while True:
            with self.lock(name) as mine:
                if mine:
                    yield
                    return
            time.sleep(0.5)

    def holder(self, run_id: str) -> str:
        """The process that took the lock last."""
        return holder(self._lock_file(run_id))

    def _lock_file(self, run_id: str) -> Path:
        return self.folder / "locks" / run_id


def fingerprint(content: Any) -> str:
    """A short hash of plain JSON content, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def content_hash(path: str | os.PathLike[str]) -> str:
    """A hash of what a file holds, or of all files of a folder."""
    path = Path(path)
    digest = hashlib.blake2b(digest_size=16)
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    if not files:
        raise problem(
            path,
            "there is no such file or folder",
            expected="a trained model, or a table of features",
        )
    for file in files:
        digest.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return digest.hexdigest()


def check_content(path: str | os.PathLike[str], expected: str) -> None:
    """Refuse a file or folder whose `content_hash` is another than when the runs were planned."""
    if content_hash(path) != expected:
        found = "it was changed after the experiment was started"
        raise problem(path, found, remedy="Start the experiment again.")


@functools.cache
def code_version() -> str:
    """The version of the package and a hash of all its files.

    Computed once per process: what a process has imported does not change when files are edited.
    """
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
def versions() -> Mapping[str, str]:
    """Versions of what computes, which do not change while it does."""
    found = {"python": platform.python_version(), "platform": platform.system()}
    for name in ("nerve-fc", "torch", "numpy", "scipy", "pandas", "scikit-learn", "nilearn"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
