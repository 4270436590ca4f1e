"""Run a function over many items in several processes, results in order, never more than a few in memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from nerve.checks import NerveError
from nerve.cores import usable_cores
from nerve.workers import Worker, WorkerDied

Item = TypeVar("Item")
Result = TypeVar("Result")
WORTH_A_PROCESS = 8  # items below which starting processes costs more than it gains


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
    start = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    workers = [Worker(partial(_in_one_thread, function), start) for _ in range(jobs)]
    begun = 0
    try:
        for item in items:
            worker = workers[begun % jobs]
            begun += 1
            if begun <= jobs:
                worker.begin(item)
            else:
                result = worker.result()
                worker.begin(item)
                yield result
        for number in range(max(0, begun - jobs), begun):
            yield workers[number % jobs].result()
    except WorkerDied as death:
        raise NerveError(
            "A reading process was ended from outside (is memory short?). Try fewer with --jobs."
        ) from death
    finally:
        for worker in workers:
            worker.end()


def _in_one_thread(function: Callable[[Any], Any], item: Any) -> Any:
    """The processes already use every core."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return function(item)
