"""Run a function over many items in several processes, results in order, never more than a few in memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from nerve.checks import NerveError
from nerve.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
WORTH_A_PROCESS = 8  # items below which starting processes costs more than it gains

_WATCH = "watches the parent process"
_function: Callable[[Any], Any] | None = None


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], n_items: int, jobs: int | None = None
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order.

    Parameters
    ----------
    function : callable
        Of one item; picklable, like its results.
    items : iterable
    n_items : int
        How many there are: few are done in this process.
    jobs : int, optional
        Processes; as many as there are cores by default, 1 for none but this.
    """
    jobs = min(jobs or usable_cores(), n_items)
    if jobs <= 1 or n_items < WORTH_A_PROCESS:
        yield from map(function, items)
        return
    # forked workers inherit what is imported; where fork does not exist they start afresh
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(function,))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(_call, item))
            if len(waiting) > 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise NerveError(
            "A reading process was ended from outside (is memory short?). Try fewer with --jobs."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def leave_with_parent() -> None:
    """End this worker when the process that started it has ended, even by a kill; the pool would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None and not any(thread.name == _WATCH for thread in threading.enumerate()):
        threading.Thread(target=_leave_after, args=(parent,), name=_WATCH, daemon=True).start()


def _leave_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    leave_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what an interrupt means
    # the pool ends its workers by SIGTERM when one of them has died; an inherited handler would keep them alive
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # processes already use every core


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)
