"""Where the runs of an experiment are kept: one folder per run, named by the id of the run.

    DIR/experiment.yaml          the resolved config
    DIR/cohorts/NAME/            simulated cohorts
    DIR/runs/ID/manifest.json    how the run ended: status, key, versions, timing; written last
    DIR/runs/ID/…                checkpoints, history, weights, predictions
    DIR/locks/ID                 held while a process works on the run; the operating system frees
                                 it when the process is killed

Several processes may work on one experiment: a run whose lock one holds is left to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from nerve._utils.files import read_json, write_json
from nerve._utils.locks import holder, holding, is_held

# the status of a run
DONE = "done"
FAILED = "failed"
RUNNING = "running"
WAITING = "waiting"
UNAVAILABLE = "not available"  # a cohort lacks what the method reads
FINAL = (DONE, UNAVAILABLE)  # a run that ended so is not computed again


class RunStore:
    """The runs of an experiment on disk.

    Parameters
    ----------
    folder : path
        The folder of the experiment.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def run_folder(self, run_id: str) -> Path:
        """The folder of a run."""
        return self.folder / "runs" / run_id

    def manifest(self, run_id: str) -> dict[str, Any] | None:
        """The record of a run that has ended, whether it was done or failed; None before that."""
        path = self.run_folder(run_id) / "manifest.json"
        return read_json(path) if path.is_file() else None

    def status(self, run_id: str) -> str:
        """The status of a run: done, not available, running, failed or waiting."""
        manifest = self.manifest(run_id)
        if manifest is not None and manifest["status"] in FINAL:
            return str(manifest["status"])
        if is_held(self._lock_file(run_id)):
            return RUNNING
        return WAITING if manifest is None else FAILED

    def write_manifest(self, run_id: str, content: dict[str, Any]) -> None:
        """Record how a run ended."""
        write_json(self.run_folder(run_id) / "manifest.json", content)

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock of a run; gives False, at once, if another process holds it."""
        return holding(self._lock_file(name))

    @contextmanager
    def wait_for_lock(self, name: str) -> Iterator[None]:
        """Hold the lock of that name, however long others hold it first."""
        while True:
            with self.lock(name) as is_ours:
                if is_ours:
                    yield
                    return
            time.sleep(0.5)

    def holder(self, run_id: str) -> str:
        """The process that took the lock of a run last."""
        return holder(self._lock_file(run_id))

    def _lock_file(self, name: str) -> Path:
        return self.folder / "locks" / name
