"""Runs on this machine's cores or on a SLURM cluster: the same tasks through both, each recorded however it ends.

Nothing is handed over but the experiment's folder and the id of a run; a worker finds the rest there, and says through
the manifest how it ended. So a launcher may die at any moment: whoever starts it again goes on.
"""

from __future__ import annotations

import functools
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from joblib import delayed

from nerve._utils.cores import threads_per_process, usable_cores
from nerve._utils.errors import MissingInput, NerveError, NerveWarning, one_of
from nerve._utils.files import claim, write_json, write_text
from nerve._utils.privacy import Identifiers
from nerve._utils.workers import TerminatedWorkerError, worker_processes
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE, WAITING, Store, versions
from nerve.experiments.work import Task
from nerve.experiments.workspace import Workspace

LAUNCHERS = ("local", "slurm")
KILLED = "The worker process was ended from outside (is memory short?). Try fewer with --jobs."
MOST_A_CORE = 4  # processes: more are not faster, and each holds a torch of its own
Report = Callable[[Task, str], None]


def nothing(task: Task, status: str) -> None:
    """Tell of no run."""


def launch(
    workspace: Workspace, launcher: str = "local", jobs: int | None = None, tell: Report = nothing
) -> None:
    """Do every run that is not done: first those that need no other, then those that need them."""
    one_of("launcher", launcher, LAUNCHERS)
    for later in (False, True):
        wave = [task for task in workspace.plan.unique if bool(task.needs) == later]
        todo = [task for task in wave if workspace.store.status(task.id) not in (DONE, UNAVAILABLE)]
        while todo:
            if launcher == "slurm":
                _on_slurm(workspace, todo, tell)
            else:
                _on_this_machine(workspace, todo, jobs or default_jobs(), tell)
            while any(
                workspace.store.status(task.id) == RUNNING for task in wave
            ):  # another process is at it
                time.sleep(0.5)
            todo = [
                task for task in wave if workspace.store.status(task.id) == WAITING
            ]  # it was killed: ours now


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


def work(folder: str, run_id: str, threads: int = 0, cards: tuple[str, ...] = ()) -> str:
    """What a worker does: open the experiment, find the run, do it.

    Parameters
    ----------
    folder, run_id : str
        The experiment, and which of its runs.
    threads : int
        Threads of torch; 0 leaves their number as it is.
    cards : tuple of str
        Graphics cards that the workers of this experiment share, one each.

    Returns
    -------
    str
        The status of the run.
    """
    if cards:
        _claim_card(folder, cards)
    import torch

    if threads:
        torch.set_num_threads(threads)
    workspace = Workspace.open(folder)
    task = next((task for task in workspace.plan.unique if task.id == run_id), None)
    if task is None:
        raise NerveError(
            f"{folder}: has no run {run_id}. Its config was changed: start the experiment again."
        )
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
            except (
                Exception
            ) as error:  # a fault of ours or of the machine: recorded, the others go on
                record["status"], record["reason"] = FAILED, f"{type(error).__name__}: {error}"
                write_text(
                    folder / "error.txt", Identifiers([]).removed_from(traceback.format_exc())
                )
        record["seconds"] = round(time.perf_counter() - wall, 3)
        record["cpu_seconds"] = round(time.process_time() - cpu, 3)
        record["warnings"] = sorted(
            {str(w.message) for w in shown if issubclass(w.category, NerveWarning)}
        )
        store.write_manifest(task.id, record | {"versions": versions()})
        return str(record["status"])


def _described(task: Task) -> dict[str, Any]:
    """What a run is, for its folder."""
    names = ("id", "kind", "label", "cohort")
    return {name: getattr(task, name) for name in names} | {
        "line": task.row.line,
        "key": task.key(),
    }


@functools.cache
def _claim_card(folder: str, cards: tuple[str, ...]) -> ExitStack:
    """Compute on a graphics card that no other worker of the experiment holds, until this process ends.

    Where there are more workers than cards, they share them.
    """
    store, claims = Store(folder), ExitStack()
    card = cards[os.getpid() % len(cards)]
    for candidate in cards:
        if claims.enter_context(store.lock(f"card-{candidate}")):
            card = candidate
            break
    os.environ["CUDA_VISIBLE_DEVICES"] = card  # torch reads it when it first uses a card
    return claims


def _on_this_machine(workspace: Workspace, tasks: Sequence[Task], jobs: int, tell: Report) -> None:
    """Processes that share the cores; with one job, this process itself.

    When a worker is killed, joblib ends the others too. Whatever was under way is done again, each run by itself: the
    run that fails is then the one whose worker is killed. Runs that had not begun are left waiting.
    """
    jobs = max(1, min(jobs, len(tasks), MOST_A_CORE * usable_cores()))
    if jobs == 1:
        for task in tasks:
            tell(task, RUNNING)
            tell(task, run_task(workspace, task))
        return
    try:
        _in_workers(workspace, tasks, jobs, tell)
    except TerminatedWorkerError:
        # workers take the runs in order, so that those under way are the first that have not ended
        unfinished = [task for task in tasks if workspace.store.status(task.id) == WAITING]
        for task in unfinished[:jobs]:
            try:
                _in_workers(workspace, [task], jobs, tell)
            except TerminatedWorkerError:
                _record_death(workspace, task, KILLED)
                tell(task, workspace.store.status(task.id))


def _in_workers(workspace: Workspace, tasks: Sequence[Task], jobs: int, tell: Report) -> None:
    """Do runs in `jobs` processes; raises `TerminatedWorkerError` when one of these is killed."""
    threads = threads_per_process(jobs)
    folder, cards = str(workspace.folder), tuple(_cards())

    def calls() -> Iterator[Any]:
        for task in tasks:
            tell(task, RUNNING)  # joblib asks for the next call when a worker is free
            yield delayed(_work_in_process)(folder, task.id, threads, cards)

    with worker_processes(
        jobs, threads, return_as="generator_unordered", batch_size=1, pre_dispatch=jobs
    ) as parallel:
        for run_id, fault in parallel(calls()):
            task = next(task for task in tasks if task.id == run_id)
            if fault:
                _record_death(workspace, task, f"The worker process ended: {fault}")
            tell(task, workspace.store.status(task.id))


def _work_in_process(
    folder: str, run_id: str, threads: int, cards: tuple[str, ...]
) -> tuple[str, str]:
    """The run that has ended, and what went wrong before its end could be recorded."""
    try:
        work(folder, run_id, threads, cards)
    except Exception as error:
        return run_id, f"{type(error).__name__}: {error}"
    return run_id, ""


def _record_death(workspace: Workspace, task: Task, reason: str) -> None:
    """A worker that was killed (out of memory, say) could not write its own manifest."""
    if workspace.store.status(task.id) == WAITING:
        workspace.store.write_manifest(
            task.id, _described(task) | {"status": FAILED, "reason": reason}
        )


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
            _record_death(
                workspace,
                task,
                f"The worker process ended: {type(error).__name__}: {error}".strip(),
            )
        tell(task, workspace.store.status(task.id))


def slurm_executor(workspace: Workspace) -> Any:
    """submitit's executor with what the config asks of the cluster."""
    try:
        import submitit
    except ImportError as error:
        raise NerveError("The SLURM launcher needs submitit: pip install submitit.") from error
    settings, logs = workspace.config.slurm, workspace.folder / "slurm"
    try:
        executor = submitit.AutoExecutor(
            folder=logs, cluster="slurm", slurm_max_num_timeout=settings.requeue
        )
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
    executor.update_parameters(
        name="nerve", **{name: value for name, value in wanted.items() if value is not None}
    )
    return executor
