"""Ctrl-C and SIGTERM as requests to stop at a good moment."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class TrainingStopped(KeyboardInterrupt):
    """Training was asked to stop (Ctrl-C or SIGTERM); a checkpoint was written.

    Not an `Exception`: code that catches those must not swallow a Ctrl-C.

    Parameters
    ----------
    message : str
        Where the run stopped, and how to go on.
    signal_number : int
        The signal that asked for it.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


@contextmanager
def stop_requests(enabled: bool) -> Iterator[list[int]]:
    """Turn the first Ctrl-C or SIGTERM into a request; a second one ends the process at once.

    Parameters
    ----------
    enabled : bool
        False leaves signals as they are.

    Yields
    ------
    list of int
        The signals that were received.
    """
    received: list[int] = []
    previous: dict[int, Any] = {}

    def note_request(number: int, _frame: Any) -> None:
        received.append(number)
        signal.signal(number, previous[number])

    if enabled:
        # signals belong to the main thread; elsewhere the caller is in charge
        with suppress(ValueError):
            for number in (int(signal.SIGINT), int(signal.SIGTERM)):
                previous[number] = signal.signal(number, note_request)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
