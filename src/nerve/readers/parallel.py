"""Run a function over many items in several processes, results in order, never more than a few in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from nerve.checks import NerveError
from nerve.cores import one_blas_thread, usable_cores
from nerve.workers import Worker, WorkerDied

Item = TypeVar("Item")
Result = TypeVar("Result")
WORTH_A_PROCESS = 8  # items below which starting processes costs more than it gains


def in_order(function: Callable[[Item], Result], items: Sequence[Item], jobs: int | None = None) -> Iterator[Result]:
    """``function(item)`` for each item, in order. Processes are forked now, before the caller starts threads.

    Parameters
    ----------
    function : callable
        Of one item; picklable, like its results.
    items : sequence
        Few are done in this process.
    jobs : int, optional
        Processes; as many as there are cores by default, 1 for none but this.
    """
    jobs = min(jobs or usable_cores(), len(items))
    if jobs <= 1 or len(items) < WORTH_A_PROCESS:
        return map(function, items)
    # forked workers inherit what is imported
    return _results([Worker(partial(_in_one_thread, function), "fork") for _ in range(jobs)], items)


def _results(workers: list[Worker], items: Iterable[Any]) -> Iterator[Any]:
    """One item at a time is with each worker; whose turn it is gives its result for the next item."""
    busy: deque[Worker] = deque()
    items = iter(items)
    try:
        for worker, item in zip(workers, items, strict=False):
            worker.begin(item)
            busy.append(worker)
        for item in items:
            result = busy[0].result()
            busy[0].begin(item)
            busy.rotate(-1)
            yield result
        for worker in busy:
            yield worker.result()
    except WorkerDied as death:
        found = "A reading process was ended from outside (is memory short?)"
        raise NerveError(f"{found}. Try fewer with --jobs.") from death
    finally:
        for worker in workers:
            worker.end()


def _in_one_thread(function: Callable[[Any], Any], item: Any) -> Any:
    """The processes already use every core."""
    with one_blas_thread():
        return function(item)
