"""Do the runs of an experiment, on this machine's cores or on a SLURM cluster.

A worker is given the experiment's folder and the id of a run. It finds the rest there, and writes
the manifest of the run when it ends. So everything may be killed at any moment and started again:

- a run with a final status (done, or not available) is not computed again (`run_task`);
- a run that was killed has no manifest yet, or one that says "failed": it is computed again in the
  same folder, where an encoder finds the checkpoint of its training (`encoders.fit_and_save`).
"""

from __future__ import annotations

import functools
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from joblib import delayed

from nerve._utils.cores import threads_per_process, usable_cores
from nerve._utils.errors import MissingInput, NerveError, NerveWarning, one_of
from nerve._utils.files import claim, write_json, write_text
from nerve._utils.privacy import Identifiers
from nerve._utils.workers import TerminatedWorkerError, worker_processes
from nerve.experiments.run_key import package_versions, run_key
from nerve.experiments.run_store import (
    DONE,
    FAILED,
    FINAL,
    RUNNING,
    UNAVAILABLE,
    WAITING,
    RunStore,
)
from nerve.experiments.tasks import Task

if TYPE_CHECKING:
    from nerve.experiments.experiment import Experiment

LAUNCHERS = ("local", "slurm")
StatusCallback = Callable[[Task, str], None]

_KILLED = "The worker process was ended from outside (is memory short?). Try fewer with --jobs."
# more processes than this are not faster, and each holds a torch of its own
_MOST_JOBS_PER_CORE = 4


def ignore_status(task: Task, status: str) -> None:
    """Show nothing: the `on_status` of a caller that shows no progress."""


def launch(
    experiment: Experiment,
    launcher: str = "local",
    jobs: int | None = None,
    on_status: StatusCallback = ignore_status,
) -> None:
    """Do every run that is not final: first those that need no other run, then those that do.

    Parameters
    ----------
    experiment : Experiment
        Whose runs are done.
    launcher : str
        One of `LAUNCHERS`.
    jobs : int, optional
        Runs at a time on this machine; one per core or graphics card by default.
    on_status : callable
        Called with a task and its status whenever a run begins or ends.
    """
    one_of("launcher", launcher, LAUNCHERS)
    store = experiment.store
    for needs_others in (False, True):
        wave = []
        for task in experiment.plan.unique_tasks:
            if bool(task.needs) == needs_others:
                wave.append(task)
        # final: done, or not available; a run that failed is tried again
        remaining = [task for task in wave if store.status(task.id) not in FINAL]
        while remaining:
            if launcher == "slurm":
                _run_on_slurm(experiment, remaining, on_status)
            else:
                _run_here(experiment, remaining, jobs or _default_jobs(), on_status)
            # Another process may be doing some of them. Those that wait after it has ended were
            # not finished by it, and are done here.
            while any(store.status(task.id) == RUNNING for task in wave):
                time.sleep(0.5)
            remaining = [task for task in wave if store.status(task.id) == WAITING]


def _default_jobs() -> int:
    """One run per graphics card, or one per core."""
    return len(_usable_cards()) or usable_cores()


def run_by_id(folder: str, run_id: str, threads: int = 0, cards: tuple[str, ...] = ()) -> str:
    """Do one run of an experiment, in a worker process.

    Parameters
    ----------
    folder : str
        Of the experiment.
    run_id : str
        Which of its runs.
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
        _hold_card(folder, cards)
    import torch

    # experiments import this module
    from nerve.experiments.experiment import Experiment

    if threads:
        torch.set_num_threads(threads)
    experiment = Experiment.open(folder)
    for task in experiment.plan.unique_tasks:
        if task.id == run_id:
            return run_task(experiment, task)
    raise NerveError(
        f"{folder}: has no run {run_id}. Its config was changed: start the experiment again."
    )


def run_task(experiment: Experiment, task: Task) -> str:
    """Do one run, unless its status is final or another process is doing it.

    A failure is recorded with its reason, and not raised. A stop (Ctrl-C, SIGTERM) is raised, and
    no manifest is written: in the next attempt, encoders resume from the checkpoints in the folder.

    Parameters
    ----------
    experiment : Experiment
        Which the run is of.
    task : Task
        What to do.

    Returns
    -------
    str
        The status of the run.
    """
    store = experiment.store
    with store.lock(task.id) as is_ours:
        if not is_ours:
            return RUNNING
        earlier = store.manifest(task.id)
        if earlier is not None and earlier["status"] in FINAL:
            return str(earlier["status"])
        folder = claim(store.run_folder(task.id))  # checkpoints of an earlier attempt stay
        manifest = _task_record(task)
        write_json(folder / "task.json", manifest)
        wall_start = time.perf_counter()
        cpu_start = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NerveWarning)
            try:
                task.check_inputs(experiment)
                manifest["result"] = task.run(experiment, folder)
                task.check_inputs(experiment)  # they may have been changed while it ran
                manifest["status"] = DONE
            except NerveError as error:
                manifest["status"] = UNAVAILABLE if isinstance(error, MissingInput) else FAILED
                manifest["reason"] = str(error)
            # an error of ours or of the machine is recorded, and the other runs go on
            except Exception as error:
                manifest["status"] = FAILED
                manifest["reason"] = f"{type(error).__name__}: {error}"
                text = Identifiers([]).removed_from(traceback.format_exc())
                write_text(folder / "error.txt", text)
        manifest["seconds"] = round(time.perf_counter() - wall_start, 3)
        manifest["cpu_seconds"] = round(time.process_time() - cpu_start, 3)
        ours = [warning for warning in caught if issubclass(warning.category, NerveWarning)]
        manifest["warnings"] = sorted({str(warning.message) for warning in ours})
        manifest["versions"] = package_versions()
        store.write_manifest(task.id, manifest)
        return str(manifest["status"])


def _task_record(task: Task) -> dict[str, Any]:
    """What a run is, as written into its folder."""
    return {
        "id": task.id,
        "kind": task.kind,
        "label": task.label,
        "cohort": task.cohort,
        "line": task.row.line,
        "key": run_key(task),
    }


def _record_death(experiment: Experiment, task: Task, reason: str) -> None:
    """Write the manifest of a run whose worker was killed before it wrote one."""
    if experiment.store.status(task.id) == WAITING:
        manifest = _task_record(task) | {"status": FAILED, "reason": reason}
        experiment.store.write_manifest(task.id, manifest)


# ---- on this machine


def _run_here(
    experiment: Experiment, tasks: Sequence[Task], jobs: int, on_status: StatusCallback
) -> None:
    """Do runs in processes that share the cores; with one job, in this process.

    When a worker is killed, joblib ends the others too. The runs that were under way are done
    again, one at a time, and one whose worker is killed again has failed. Runs that had not begun
    are left waiting.
    """
    jobs = max(1, min(jobs, len(tasks), _MOST_JOBS_PER_CORE * usable_cores()))
    if jobs == 1:
        for task in tasks:
            on_status(task, RUNNING)
            on_status(task, run_task(experiment, task))
        return
    try:
        _run_in_workers(experiment, tasks, jobs, on_status)
    except TerminatedWorkerError:
        # workers take the runs in order: those under way are the first that have not ended
        unfinished = [task for task in tasks if experiment.store.status(task.id) == WAITING]
        for task in unfinished[:jobs]:
            try:
                _run_in_workers(experiment, [task], jobs, on_status)
            except TerminatedWorkerError:
                _record_death(experiment, task, _KILLED)
                on_status(task, experiment.store.status(task.id))


def _run_in_workers(
    experiment: Experiment, tasks: Sequence[Task], jobs: int, on_status: StatusCallback
) -> None:
    """Do runs in `jobs` processes; raises `TerminatedWorkerError` when one of these is killed."""
    threads = threads_per_process(jobs)
    folder = str(experiment.folder)
    cards = tuple(_usable_cards())
    task_of = {task.id: task for task in tasks}

    def calls() -> Iterator[Any]:
        for task in tasks:
            on_status(task, RUNNING)  # joblib asks for the next call when a worker is free
            yield delayed(_run_in_worker)(folder, task.id, threads, cards)

    with worker_processes(
        jobs, threads, return_as="generator_unordered", batch_size=1, pre_dispatch=jobs
    ) as parallel:
        for run_id, fault in parallel(calls()):
            if fault:
                _record_death(experiment, task_of[run_id], f"The worker process ended: {fault}")
            on_status(task_of[run_id], experiment.store.status(run_id))


def _run_in_worker(
    folder: str, run_id: str, threads: int, cards: tuple[str, ...]
) -> tuple[str, str]:
    """Do a run; gives its id, and the error if it ended before it was recorded (else "")."""
    try:
        run_by_id(folder, run_id, threads, cards)
    except Exception as error:
        return run_id, f"{type(error).__name__}: {error}"
    return run_id, ""


def _usable_cards() -> list[str]:
    """The graphics cards that may be used, as the system names them."""
    import torch

    if not torch.cuda.is_available():
        return []
    chosen = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    return chosen or [str(card) for card in range(torch.cuda.device_count())]


@functools.cache
def _hold_card(folder: str, cards: tuple[str, ...]) -> ExitStack:
    """Compute on a graphics card that no other worker of the experiment holds, until the end.

    Where there are more workers than cards, they share them. The cache keeps the lock until this
    process ends.
    """
    store = RunStore(folder)
    locks = ExitStack()
    card = cards[os.getpid() % len(cards)]
    for candidate in cards:
        if locks.enter_context(store.lock(f"card-{candidate}")):
            card = candidate
            break
    os.environ["CUDA_VISIBLE_DEVICES"] = card  # torch reads it when it first uses a card
    return locks


# ---- on a cluster


class SlurmJob:
    """A run as a SLURM job.

    When its time is up it is queued again. Encoders, also those of folds, then resume from their
    last checkpoint; supervised methods begin again.
    """

    def __call__(self, folder: str, run_id: str, threads: int) -> str:
        """Do the run."""
        return run_by_id(folder, run_id, threads)

    def checkpoint(self, folder: str, run_id: str, threads: int) -> Any:
        """Queue the run again: submitit calls this before the job is ended for lack of time."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, folder, run_id, threads)


def _run_on_slurm(experiment: Experiment, tasks: Sequence[Task], on_status: StatusCallback) -> None:
    """Submit runs as an array of jobs, and wait for all of them."""
    executor = _slurm_executor(experiment)
    folder = str(experiment.folder.resolve())
    threads = experiment.config.slurm.cpus
    with executor.batch():
        jobs = [executor.submit(SlurmJob(), folder, task.id, threads) for task in tasks]
    for task in tasks:
        on_status(task, WAITING)
    for task, job in zip(tasks, jobs, strict=True):
        try:
            job.result()
        except Exception as error:
            reason = f"The worker process ended: {type(error).__name__}: {error}".strip()
            _record_death(experiment, task, reason)
        on_status(task, experiment.store.status(task.id))


def _slurm_executor(experiment: Experiment) -> Any:
    """The executor of submitit, with what the config asks of the cluster."""
    try:
        import submitit
    except ImportError as error:
        raise NerveError("The SLURM launcher needs submitit: pip install submitit.") from error
    slurm = experiment.config.slurm
    try:
        executor = submitit.AutoExecutor(
            folder=experiment.folder / "slurm",
            cluster="slurm",
            slurm_max_num_timeout=slurm.requeue,
        )
    except RuntimeError as error:
        raise NerveError(
            f"SLURM cannot be reached ({error}). Is sbatch on this machine? Use --launcher local."
        ) from error
    parameters = {
        "timeout_min": slurm.minutes,
        "cpus_per_task": slurm.cpus,
        "slurm_array_parallelism": slurm.array_limit,
        "slurm_partition": slurm.partition,
        "mem_gb": slurm.memory_gb,
        "gpus_per_node": slurm.gpus or None,
    }
    for name, value in slurm.extra.items():
        parameters[f"slurm_{name}"] = value
    chosen = {name: value for name, value in parameters.items() if value is not None}
    executor.update_parameters(name="nerve", **chosen)
    return executor
