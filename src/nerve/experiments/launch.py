"""Runs on this machine's cores or on a SLURM cluster: the same tasks through both, each recorded however it ends.

Nothing is handed over but the experiment's folder and the id of a run; a worker finds the rest there, and says through
the manifest how it ended. So a launcher may die at any moment: whoever starts it again goes on.
"""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from nerve.checks import MissingInput, NerveError, NerveWarning, one_of
from nerve.cores import cores_among, usable_cores
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, WAITING, versions
from nerve.experiments.work import Task
from nerve.experiments.workspace import Workspace
from nerve.files import claim, write_json, write_text
from nerve.privacy import Identifiers
from nerve.workers import Worker

LAUNCHERS = ("local", "slurm")
MOST_A_CORE = 4  # processes: more are not faster, and each holds a torch of its own
Report = Callable[[Task, str], None]


def nothing(task: Task, status: str) -> None:
    """Tell of no run."""


def launch(workspace: Workspace, launcher: str = "local", jobs: int | None = None, tell: Report = nothing) -> None:
    """Do every run that is not done: first those that need no other, then those that need them."""
    one_of("launcher", launcher, LAUNCHERS)
    crew = Crew(workspace, tell)
    try:
        for later in (False, True):
            wave = [task for task in workspace.plan.unique if bool(task.needs) == later]
            todo = [task for task in wave if workspace.store.status(task.id) not in (DONE, UNAVAILABLE)]
            while todo:
                if launcher == "slurm":
                    _on_slurm(workspace, todo, tell)
                else:
                    crew.do(todo, jobs or default_jobs())
                while any(workspace.store.status(task.id) == RUNNING for task in wave):  # another process is at it
                    time.sleep(0.5)
                todo = [task for task in wave if workspace.store.status(task.id) == WAITING]  # it was killed: ours now
    finally:
        crew.end()


def default_jobs() -> int:
    """One run per graphics card, or one per core."""
    return len(_cards()) or usable_cores()


def _cards() -> list[str]:
    """The graphics cards that may be used, as the system names them."""
    import torch

    if not torch.cuda.is_available():
        return []
    chosen = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    return chosen or [str(card) for card in range(torch.cuda.device_count())]


def work(folder: str, run_id: str, threads: int = 0, card: str | None = None) -> str:
    """What a worker does: open the experiment, find the run, do it."""
    if card is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = card  # read when torch first uses a card
    import torch

    if threads:
        torch.set_num_threads(threads)
    workspace = Workspace.open(folder)
    task = next((task for task in workspace.plan.unique if task.id == run_id), None)
    if task is None:
        raise NerveError(f"{folder}: has no run {run_id}. Its config was changed: start the experiment again.")
    return run_task(workspace, task)


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
        folder, record = claim(store.run_folder(task.id)), _described(task)
        write_json(folder / "task.json", record)
        wall, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", NerveWarning)
            try:
                task.check_inputs(workspace)
                record["result"] = task.run(workspace, folder)
                task.check_inputs(workspace)  # they may have been changed while it ran
                record["status"] = DONE
            except NerveError as error:
                record["status"] = UNAVAILABLE if isinstance(error, MissingInput) else FAILED
                record["reason"] = str(error)
            except Exception as error:  # a fault of ours or of the machine: recorded, the others go on
                record["status"], record["reason"] = FAILED, f"{type(error).__name__}: {error}"
                write_text(folder / "error.txt", Identifiers([]).removed_from(traceback.format_exc()))
        record["seconds"] = round(time.perf_counter() - wall, 3)
        record["cpu_seconds"] = round(time.process_time() - cpu, 3)
        record["warnings"] = sorted({str(w.message) for w in shown if issubclass(w.category, NerveWarning)})
        store.write_manifest(task.id, record | {"versions": versions()})
        return str(record["status"])


def _described(task: Task) -> dict[str, Any]:
    """What a run is, for its folder."""
    names = ("id", "kind", "label", "cohort")
    return {name: getattr(task, name) for name in names} | {"line": task.row.line, "key": task.key()}


class Crew:
    """Processes that do runs, kept from wave to wave; each has a number, and its graphics card where there are some."""

    def __init__(self, workspace: Workspace, tell: Report) -> None:
        self.workspace, self.tell = workspace, tell
        self.workers: dict[int, Worker] = {}
        self.cards = _cards()

    def do(self, tasks: Sequence[Task], jobs: int) -> None:
        """Processes that share the cores; with one job, this process itself.

        A run whose process is killed, or fails before it comes to the run, is tried again once in another. The others
        are not touched.
        """
        jobs = max(1, min(jobs, len(tasks), MOST_A_CORE * usable_cores()))
        if jobs == 1:
            for task in tasks:
                self.tell(task, RUNNING)
                self.tell(task, run_task(self.workspace, task))
            return
        left, deaths = list(tasks), Counter[str]()
        busy: dict[Any, tuple[int, Task]] = {}  # by pipe: the worker's number, and the run that it is at
        with cores_among(jobs) as threads:
            while left or busy:
                for number in sorted(set(range(jobs)) - {number for number, _ in busy.values()})[: len(left)]:
                    task = left.pop(0)
                    busy[self._begin(number, task, threads)] = number, task
                    self.tell(task, RUNNING)
                for pipe in wait(list(busy)):
                    number, task = busy.pop(pipe)
                    try:
                        self.workers[number].result()
                    except Exception as error:  # killed, or it never came to the run
                        self.workers.pop(number).end()
                        deaths[task.id] += 1
                        if deaths[task.id] < 2 and self.workspace.store.status(task.id) == WAITING:
                            left.append(task)
                            continue
                        _record_death(self.workspace, task, error)
                    self.tell(task, self.workspace.store.status(task.id))

    def _begin(self, number: int, task: Task, threads: int) -> Any:
        """Give a run to a worker, in a new process if it has none that lives; returns the pipe of its answer."""
        if number not in self.workers or not self.workers[number].process.is_alive():
            self.workers[number] = Worker(work, "spawn")
        card = self.cards[number % len(self.cards)] if self.cards else None
        self.workers[number].begin(str(self.workspace.folder), task.id, threads, card)
        return self.workers[number].pipe

    def end(self) -> None:
        """End all."""
        for worker in self.workers.values():
            worker.end()


def _record_death(workspace: Workspace, task: Task, error: BaseException) -> None:
    """A worker that was killed (out of memory, say) could not write its own manifest."""
    if workspace.store.status(task.id) == WAITING:
        reason = f"The worker process ended: {type(error).__name__}: {error}".strip()
        workspace.store.write_manifest(task.id, _described(task) | {"status": FAILED, "reason": reason})


class SlurmJob:
    """A run as a SLURM job; when its time is up it is queued again and goes on from its last checkpoint."""

    def __call__(self, *given: Any) -> str:
        """Do the run."""
        return work(*given)

    def checkpoint(self, *given: Any) -> Any:
        """Called by submitit when the time limit is near or the job is preempted."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *given)


def _on_slurm(workspace: Workspace, tasks: Sequence[Task], tell: Report) -> None:
    executor = slurm_executor(workspace)
    folder, threads = str(workspace.folder.resolve()), workspace.config.slurm.cpus
    with executor.batch():
        jobs = {task.id: executor.submit(SlurmJob(), folder, task.id, threads) for task in tasks}
    for task in tasks:
        tell(task, WAITING)
    for task in tasks:
        try:
            jobs[task.id].result()
        except Exception as error:
            _record_death(workspace, task, error)
        tell(task, workspace.store.status(task.id))


def slurm_executor(workspace: Workspace) -> Any:
    """submitit's executor with what the config asks of the cluster."""
    try:
        import submitit
    except ImportError as error:
        raise NerveError("The SLURM launcher needs submitit: pip install submitit.") from error
    settings, logs = workspace.config.slurm, workspace.folder / "slurm"
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster="slurm", slurm_max_num_timeout=settings.requeue)
    except RuntimeError as error:
        raise NerveError(
            f"SLURM cannot be reached ({error}). Is sbatch on this machine? Use --launcher local."
        ) from error
    wanted = {
        "timeout_min": settings.minutes,
        "cpus_per_task": settings.cpus,
        "slurm_array_parallelism": settings.array_limit,
        "slurm_partition": settings.partition,
        "mem_gb": settings.memory_gb,
        "gpus_per_node": settings.gpus or None,
        **{f"slurm_{name}": value for name, value in settings.extra.items()},
    }
    executor.update_parameters(name="nerve", **{name: value for name, value in wanted.items() if value is not None})
    return executor
