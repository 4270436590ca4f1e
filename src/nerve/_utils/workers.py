"""Worker processes on this machine, by joblib: if one is killed, an error is raised at once."""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.backend import resource_tracker as loky_resource_tracker
from joblib.externals.loky.process_executor import TerminatedWorkerError

from nerve._utils.cores import set_thread_variables

__all__ = ["TerminatedWorkerError", "worker_processes"]


@contextmanager
def worker_processes(jobs: int, threads: int = 1, **options: Any) -> Iterator[Parallel]:
    """Start worker processes that end with the block; on an error or interrupt they are killed.

    Parameters
    ----------
    jobs : int
        Number of processes, at least two: with one, joblib works in this process.
    threads : int
        Threads that torch and the linear algebra libraries use in each of them.
    **options
        Passed to `joblib.Parallel`, such as ``return_as``.

    Yields
    ------
    joblib.Parallel
        Called with ``joblib.delayed`` calls. Raises `TerminatedWorkerError` when a worker was
        killed.
    """
    with (
        warnings.catch_warnings(),
        Parallel(
            n_jobs=jobs,
            backend="loky",
            inner_max_num_threads=threads,
            initializer=_prepare_worker,
            initargs=(os.getpid(),),
            max_nbytes=None,  # arguments are small and are not passed through files
            **options,
        ) as parallel,
    ):
        # loky replaces a worker whose memory has grown; nothing is lost
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        finished = False
        try:
            _start(parallel)
            yield parallel
            finished = True
        finally:
            get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=not finished)


def _start(parallel: Parallel) -> None:
    """Start the workers with Ctrl-C blocked, which a terminal sends to every process of a command.

    The process that started them decides what an interrupt means, and a worker that is still
    importing would print a traceback. A new process inherits which signals are blocked; a signal
    that comes for this process meanwhile is delivered afterwards.
    """
    # first: the helper processes of Python and of loky, whose start unblocks the signal
    multiprocessing.resource_tracker.ensure_running()
    loky_resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        list(parallel([delayed(os.getpid)()]))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare_worker(parent: int) -> None:
    """Let waiting threads sleep, and end with the parent process, even if that is killed."""
    set_thread_variables()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
