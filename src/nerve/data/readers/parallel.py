"""Call a function for many items in several processes: results in order, few in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from joblib import delayed

from nerve._utils.cores import usable_cores
from nerve._utils.errors import NerveError
from nerve._utils.workers import TerminatedWorkerError, worker_processes

Item = TypeVar("Item")
Result = TypeVar("Result")
_WORTH_PROCESSES = 32  # items below which starting processes costs more than it gains
ITEMS_PER_PROCESS = 16  # that are computed before the first of them is handed on


def processes_for(n_items: int, jobs: int | None = None) -> int:
    """How many processes `in_order` uses: ``jobs``, or one per core; for few items one."""
    if n_items < _WORTH_PROCESSES:
        return 1
    return min(jobs or usable_cores(), n_items)


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int | None = None
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order.

    Parameters
    ----------
    function : callable
        Of one item; picklable, like its results. It is sent with the items, so it should hold
        little.
    items : sequence
        Few are done in this process.
    jobs : int, optional
        Processes; as many as there are cores by default, 1 for none but this.

    Yields
    ------
    object
        What the function returned. What it raised is raised.
    """
    n_processes = processes_for(len(items), jobs)
    if n_processes == 1:
        yield from map(function, items)
        return
    # joblib hands out calls as fast as workers return, however slowly results are taken: a piece of
    # the items at a time keeps the results that wait in memory few
    n_at_once = n_processes * ITEMS_PER_PROCESS
    try:
        with worker_processes(n_processes) as parallel:
            for start in range(0, len(items), n_at_once):
                yield from parallel(
                    delayed(function)(item) for item in items[start : start + n_at_once]
                )
    except TerminatedWorkerError as error:
        raise NerveError(
            "A reading process was ended from outside (is memory short?). Try fewer with --jobs."
        ) from error
