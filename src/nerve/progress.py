"""What reaches a terminal: names shown as text, and how far long work is.

Work says how far it is wherever it runs, in a command, a script or a notebook, on standard error: a live bar on a
terminal, elsewhere a line every four seconds, so that nobody waits for more than five. The first one is due four
seconds after the last line of this process, whatever it was about: pieces of work that follow each other are one wait.
Work within other work is told of beside it. `silent` turns all of it off.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import rich.console
from rich.text import Text

from nerve.checks import printable

SECONDS_BETWEEN_LINES = 4.0
LEAST_SECONDS = 1.0  # shorter work is never talked of
MOST_TOLD = 3  # pieces of work within each other
Item = TypeVar("Item")


class Console(rich.console.Console):
    """Rich's console, for which text is text: no markup, and no control characters of others'."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"markup": False, "highlight": False} | options))

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string comes through here, those in the cells of a table too."""
        return super().render_str(printable(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, which shows that the work goes on."""
        super().print(*objects, **options)
        sign_of_life()


_last_line = time.perf_counter() - time.process_time()  # at first when the process began, but for its waiting
_under_way: list[Progress] = []  # the outermost first
_silent = 0


def sign_of_life() -> None:
    """Something was printed: the next line about progress is due four seconds later."""
    global _last_line
    _last_line = time.perf_counter()


def _due() -> float:
    """Seconds until the next line."""
    return SECONDS_BETWEEN_LINES - (time.perf_counter() - _last_line)


@contextmanager
def silent(on: bool = True) -> Iterator[None]:
    """Nothing is said of the work that begins within, unless `on` is false.

    Examples
    --------
    >>> with silent():
    ...     items = list(tracked("ab", "counting", 2))
    """
    global _silent
    _silent += on
    try:
        yield
    finally:
        _silent -= on


def _heard() -> bool:
    """Whether anyone listens: those who started this process as a worker say themselves how far they are."""
    return not _silent and multiprocessing.parent_process() is None


@contextmanager
def never_silent() -> Iterator[None]:
    """Say every few seconds that the work goes on while nothing else is said or shown: imports can take long."""
    work = Progress("working")

    def speak() -> None:
        while not work.ended.wait(max(_due(), 0.1 * SECONDS_BETWEEN_LINES)):
            if not _under_way and _due() <= 0:
                _write(work.line())

    threading.Thread(target=speak, name="says that the work goes on", daemon=True).start()
    try:
        yield
    finally:
        work.ended.set()


class Progress:
    """Says every few seconds how far the work is, even while a single step takes long. A context manager.

    Parameters
    ----------
    label : str
        What is being done.
    total : float, optional
        Amount of work; unknown by default.
    done : float
        What of it was done before.
    unit : str
        Of the work ("steps"); a share of it in percent by default.
    """

    def __init__(self, label: str, total: float | None = None, *, done: float = 0, unit: str = "") -> None:
        self.label, self.total, self.unit = label, total, unit
        self.first = self.done = done
        self.status = ""
        self.began = time.perf_counter()
        self.ended = threading.Event()
        self.live: Any = None  # on a terminal

    def __enter__(self) -> Progress:
        if not _heard():
            return self
        _under_way.append(self)
        if len(_under_way) == 1 and sys.stderr.isatty():
            self._begin_picture()
        elif len(_under_way) == 1:
            threading.Thread(target=self._speak, name="says how far the work is", daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self in _under_way:
            del _under_way[_under_way.index(self) :]  # with whatever within it was left without an end
        self.ended.set()
        if self.live:
            self.live.stop()

    def update(self, done: float, status: str = "") -> None:
        """`done` of the total is done."""
        self.done, self.status = done, status

    def line(self) -> str:
        """How far the work is, in words.

        Examples
        --------
        >>> work = Progress("reading", 300, unit="participants")
        >>> work.update(30)
        >>> work.line().split(", ")[0]
        'reading: 30 of 300 participants'
        """
        return f"{self.label}: {self._state()}"

    def _state(self) -> str:
        seconds = time.perf_counter() - self.began
        parts = [self.status, f"{seconds:.0f} s"]
        if self.total is not None:
            share = f"{self.done / self.total:.0%}" if self.total else ""
            parts.insert(0, f"{self.done:,} of {self.total:,} {self.unit}" if self.unit else share)
        if self.total and self.first < self.done < self.total:
            parts.append(f"about {seconds / (self.done - self.first) * (self.total - self.done):.0f} s left")
        return ", ".join(part for part in parts if part)

    def _told(self) -> list[Progress]:
        """This work, the outermost, and what is under way within it and was not over at once."""
        since = time.perf_counter() - _least()
        return [self, *(work for work in _under_way[1:] if work.began <= since)][:MOST_TOLD]

    def _speak(self) -> None:
        wait = max(_due(), _least())
        while not self.ended.wait(wait):
            _write("; ".join(work.line() for work in self._told()))
            wait = SECONDS_BETWEEN_LINES

    def _begin_picture(self) -> None:
        from rich.live import Live

        self.live = Live(get_renderable=self._picture, console=Console(stderr=True), transient=True)
        self.live.start()

    def _picture(self) -> Any:
        """A bar for each piece of work, between what it is and how far."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        grid = Table.grid(padding=(0, 1))
        for work in self._told():
            bar = ProgressBar(work.total, work.done, width=24, pulse=work.total is None)
            grid.add_row(work.label, bar, work._state())
        return grid


def _least() -> float:
    return min(LEAST_SECONDS, SECONDS_BETWEEN_LINES)


def _write(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()
    sign_of_life()


def tracked(items: Iterable[Item], label: str, total: int, *, unit: str = "") -> Iterator[Item]:
    """The items, with progress while they are worked on."""
    with Progress(label, total, unit=unit) as progress:
        for i, item in enumerate(items):
            progress.update(i)
            yield item
