"""One run, recorded whether it ends well or not."""

from __future__ import annotations

import time
import traceback
import warnings
from typing import Any

from nerve.checks import MissingInput, NerveError, NerveWarning
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, versions
from nerve.experiments.work import Task
from nerve.experiments.workspace import Workspace
from nerve.files import claim, write_json, write_text
from nerve.report.privacy import Scrubber


def run_task(workspace: Workspace, task: Task) -> str:
    """Do one run unless it is done or another process is at it; returns its status.

    A failure is recorded with its reason and raised no further. A stop (Ctrl-C, SIGTERM) is passed on: what was
    checkpointed is used when the run is started again.
    """
    store = workspace.store
    with store.lock(task.id) as mine:
        if not mine:
            return RUNNING
        ended = store.manifest(task.id)
        if ended is not None and ended["status"] in (DONE, UNAVAILABLE):
            return str(ended["status"])
        folder, record = claim(store.run_folder(task.id)), described(task)
        write_json(folder / "task.json", record)
        wall, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", NerveWarning)
            try:
                record["status"], record["result"] = DONE, task.run(workspace, folder)
            except NerveError as error:
                record["status"] = UNAVAILABLE if isinstance(error, MissingInput) else FAILED
                record["reason"] = str(error)
            except Exception as error:  # a fault of ours or of the machine: recorded, the others go on
                record["status"], record["reason"] = FAILED, f"{type(error).__name__}: {error}"
                write_text(folder / "error.txt", Scrubber([]).clean(traceback.format_exc()))
        record["seconds"] = round(time.perf_counter() - wall, 3)
        record["cpu_seconds"] = round(time.process_time() - cpu, 3)
        record["warnings"] = sorted({str(w.message) for w in shown if issubclass(w.category, NerveWarning)})
        store.write_manifest(task.id, record | {"versions": versions()})
        return str(record["status"])


def described(task: Task) -> dict[str, Any]:
    """What a run is, for its folder."""
    names = ("id", "kind", "label", "cohort")
    return {name: getattr(task, name) for name in names} | {"line": task.row.line, "key": task.key()}
