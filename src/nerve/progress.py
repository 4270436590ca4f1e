"""What reaches a terminal: names shown as text, and how far long work is.

Progress is on standard error: a live bar on a terminal, elsewhere a line every four seconds, so that nobody waits for
more than five. The first one is due four seconds after the last line of this process, whatever it was about: pieces of
work that follow each other are one wait.
"""

from __future__ import annotations

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
_shown = 0  # pieces of work that say how far they are


def sign_of_life() -> None:
    """Something was printed: the next line about progress is due four seconds later."""
    global _last_line
    _last_line = time.perf_counter()


def _due() -> float:
    """Seconds until the next line."""
    return SECONDS_BETWEEN_LINES - (time.perf_counter() - _last_line)


@contextmanager
def never_silent() -> Iterator[None]:
    """Say every few seconds that the work goes on while nothing else is said or shown: imports can take long."""
    work = Progress("working")

    def speak() -> None:
        while not work.ended.wait(max(_due(), 0.1 * SECONDS_BETWEEN_LINES)):
            if not _shown and _due() <= 0:
                work.say()

    threading.Thread(target=speak, name="says that the work goes on", daemon=True).start()
    try:
        yield
    finally:
        work.ended.set()


class Progress:
    """Says every few seconds how far the work is, even while a single step takes long.

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
    shown : bool
        Without it nothing is said.
    """

    def __init__(
        self, label: str, total: float | None = None, *, done: float = 0, unit: str = "", shown: bool = True
    ) -> None:
        self.label, self.total, self.unit, self.shown = label, total, unit, shown
        self.first = self.done = done
        self.status = ""
        self.began = time.perf_counter()
        self.ended = threading.Event()
        self.bar: Any = None

    def __enter__(self) -> Progress:
        global _shown
        _shown += self.shown
        if self.shown and sys.stderr.isatty():
            self._start_bar()
        elif self.shown:
            threading.Thread(target=self._speak, name="says how far the work is", daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        global _shown
        _shown -= self.shown
        self.ended.set()
        if self.bar:
            self.bar.stop()

    def update(self, done: float, status: str = "", label: str | None = None) -> None:
        """`done` of the total is done; another label begins another piece of work, of which it is a share."""
        if label not in (None, self.label):
            self.label, self.first, self.began = str(label), 0, time.perf_counter()
            self.total, self.unit = 1.0, ""
        self.done, self.status = done, status
        if self.bar:
            self.bar.update(self.task, description=self.label, total=self.total, completed=done, status=self._state())

    def line(self) -> str:
        """How far the work is, in words.

        Examples
        --------
        >>> work = Progress("reading", 300, unit="participants")
        >>> work.update(30)
        >>> work.line().split(", ")[0]
        'reading: 30 of 300 participants'
        """
        seconds = time.perf_counter() - self.began
        parts = [self._state(), f"{seconds:.0f} s"]
        if self.total and self.first < self.done < self.total:
            parts.append(f"about {seconds / (self.done - self.first) * (self.total - self.done):.0f} s left")
        return f"{self.label}: {', '.join(part for part in parts if part)}"

    def _state(self) -> str:
        if self.total is None:
            return self.status
        amount = f"{self.done:,} of {self.total:,} {self.unit}" if self.unit else f"{self.done / self.total:.0%}"
        return f"{amount}, {self.status}" if self.status else amount

    def say(self) -> None:
        """Print the line."""
        sys.stderr.write(f"{self.line()}\n")
        sys.stderr.flush()
        sign_of_life()

    def _speak(self) -> None:
        wait = max(_due(), min(LEAST_SECONDS, SECONDS_BETWEEN_LINES))
        while not self.ended.wait(wait):
            self.say()
            wait = SECONDS_BETWEEN_LINES

    def _start_bar(self) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = ("{task.description}", BarColumn(), TextColumn("{task.fields[status]}"), TimeElapsedColumn())
        left = ("left", TimeRemainingColumn()) if self.total else ()
        self.bar = Bar(*columns, *left, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(self.label, total=self.total, completed=self.done, status=self._state())
        self.bar.start()


def tracked(items: Iterable[Item], label: str, total: int, *, unit: str = "", shown: bool = True) -> Iterator[Item]:
    """The items, with progress while they are worked on."""
    with Progress(label, total, unit=unit, shown=shown) as progress:
        for i, item in enumerate(items):
            progress.update(i)
            yield item
