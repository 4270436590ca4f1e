"""A process that does one thing after another, with a pipe of its own that ends with it.

Whoever waits for its result hears of its death at once, and no other process is touched. A queue that processes share
does not say so: the rest of a message that was cut off by a kill would be waited for, for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PATIENCE = 10  # seconds for a process to end by itself


class WorkerDied(Exception):
    """A process was ended from outside before it gave its result."""


class Worker:
    """A process that calls `function`, picklable like its arguments and results, of what it is given.

    Parameters
    ----------
    function : callable
    start : {"fork", "spawn"}
        Forked it has everything that is imported here; spawned it shares nothing, which threads need.
    """

    def __init__(self, function: Callable[..., Any], start: str) -> None:
        context: Any = multiprocessing.get_context(start)
        self.pipe, end = context.Pipe()
        self.process = context.Process(target=_work, args=(function, end), daemon=start == "fork")
        self.process.start()
        end.close()  # before the next process inherits it

    def begin(self, *arguments: Any) -> None:
        """Hand over the arguments of one call."""
        with _death_noticed():
            self.pipe.send(arguments)

    def result(self) -> Any:
        """What the function returned; what it raised is raised."""
        with _death_noticed():
            value, error = self.pipe.recv()
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """End it, whatever it does; a training run has the time to write its checkpoint."""
        self.process.terminate()
        self.process.join(_PATIENCE)
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _death_noticed() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise WorkerDied from error


def _leave_with_parent() -> None:
    """End this process when the one that started it has ended, even by a kill."""
    parent: Any = multiprocessing.parent_process()
    parent.join()
    os._exit(1)


def _work(function: Callable[..., Any], pipe: Any) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        arguments = pipe.recv()
        try:
            answer: tuple[Any, Exception | None] = function(*arguments), None
        except Exception as error:
            answer = None, error
        pipe.send(answer)
