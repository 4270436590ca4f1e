"""Run a function over many items in several processes, results in order, never more than a few in memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nerve.checks import NerveError
from nerve.cores import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
WORTH_A_PROCESS = 8  # items below which starting processes costs more than it gains

_WATCH = "watches the parent process"


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], n_items: int, jobs: int | None = None
) -> Iterator[Result]:
    """``function(item)`` for each item, in order. Processes are forked now, before the caller starts threads.

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
        return map(function, items)
    # forked workers inherit what is imported; where fork does not exist they start afresh
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    return _results([_Worker(context, function) for _ in range(jobs)], items)


def _results(workers: list[_Worker], items: Iterable[Any]) -> Iterator[Any]:
    """One item at a time is with each worker; whose turn it is gives its result for the next item."""
    busy: deque[_Worker] = deque()
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
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process and a pipe of its own, which ends with it: whoever waits for its result hears of its death at once.

    A shared queue does not: the rest of a message that was cut off by a kill would be waited for, for ever.
    """

    def __init__(self, context: Any, function: Callable[[Any], Any]) -> None:
        self.pipe, end = context.Pipe()
        self.process = context.Process(target=_work, args=(function, end), daemon=True)
        self.process.start()
        end.close()  # before the next process inherits it

    def begin(self, item: Any) -> None:
        """Hand over one item."""
        with _told_of_death():
            self.pipe.send(item)

    def result(self) -> Any:
        """What the function made of the item; what it raised is raised."""
        with _told_of_death():
            value, error = self.pipe.recv()
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """At once, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _told_of_death() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise NerveError(
            "A reading process was ended from outside (is memory short?). Try fewer with --jobs."
        ) from error


def leave_with_parent() -> None:
    """End this worker when the process that started it has ended, even by a kill; the pool would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None and not any(thread.name == _WATCH for thread in threading.enumerate()):
        threading.Thread(target=_leave_after, args=(parent,), name=_WATCH, daemon=True).start()


def _leave_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _work(function: Callable[[Any], Any], pipe: Any) -> None:
    leave_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # processes already use every core
    while True:
        item = pipe.recv()
        try:
            answer: tuple[Any, Exception | None] = function(item), None
        except Exception as error:
            answer = None, error
        pipe.send(answer)
