"""Progress of long work: tqdm's bars on a terminal and in notebooks, lines in a log."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tqdm.asyncio
import tqdm.auto
import tqdm.std

from nerve._utils.errors import printable

SECONDS_BEFORE_BAR = 1.0  # shorter work shows nothing
SECONDS_BETWEEN_LINES = 10.0  # in a log; work that takes less has no line there
_BAR_FORMAT = (
    "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{unit} [{elapsed}<{remaining}{postfix}]"
)
_LOG_FORMAT = "{desc}: {n_fmt} of {total_fmt}{unit}, {elapsed} elapsed, {remaining} left{postfix}"

# tqdm's own lock is shared between processes: a worker that is killed would leave it behind
_LOCK = threading.RLock()
_silent_blocks = 0


def progress_bar(
    items: Iterable[Any] | None = None,
    *,
    label: str,
    unit: str,
    total: int | None = None,
    initial: int = 0,
    delay: float | None = None,
) -> Any:
    """Make a tqdm bar over items, or one that is updated by hand.

    Short work shows nothing, and a bar disappears when its work ends. Where standard error is
    neither a terminal nor a notebook, whole lines are written instead, ten seconds apart. Worker
    processes show nothing: the process that started them shows how far the work is.

    Parameters
    ----------
    items : iterable, optional
        What is worked on. Without it, call ``update`` of the returned bar.
    label : str
        What is being done.
    unit : str
        What is counted, in the plural ("participants").
    total : int, optional
        Number of units; by default the length of `items`.
    initial : int
        How many units were done before.
    delay : float, optional
        Seconds before a bar is drawn; by default 1.

    Returns
    -------
    tqdm.tqdm
        An iterator over `items` and a context manager.

    Examples
    --------
    >>> list(progress_bar("abc", label="reading", unit="letters"))
    ['a', 'b', 'c']
    """
    options: dict[str, Any] = {
        "iterable": items,
        "desc": printable(label),
        "total": total,
        "unit": f" {unit}",
        "initial": initial,
        "leave": False,
        "miniters": 1,  # whether to draw is decided by time alone
    }
    if not is_shown():
        return _Bar(**options, disable=True)
    if draws_bars():
        delay = SECONDS_BEFORE_BAR if delay is None else delay
        return _Bar(**options, delay=delay, bar_format=_BAR_FORMAT, dynamic_ncols=True)
    return _LogLines(
        **options,
        delay=SECONDS_BETWEEN_LINES,
        mininterval=SECONDS_BETWEEN_LINES,
        bar_format=_LOG_FORMAT,
    )


@contextmanager
def silent(on: bool = True) -> Iterator[None]:
    """Show no progress of the work that begins inside.

    Parameters
    ----------
    on : bool
        False shows progress as usual.

    Examples
    --------
    >>> with silent():
    ...     letters = list(progress_bar("ab", label="reading", unit="letters"))
    """
    global _silent_blocks
    _silent_blocks += on
    try:
        yield
    finally:
        _silent_blocks -= on


def is_shown() -> bool:
    """Whether progress is shown: not inside `silent`, and not in worker processes."""
    is_worker = multiprocessing.parent_process() is not None
    return not _silent_blocks and not is_worker


def draws_bars() -> bool:
    """Whether a bar can be drawn: on a terminal, and in a notebook that has widgets."""
    has_widgets = tqdm.auto.tqdm is not tqdm.asyncio.tqdm_asyncio
    return has_widgets or sys.stderr.isatty()


@contextmanager
def above_bars() -> Iterator[None]:
    """Clear the bars of a terminal while something else is printed inside, and draw them again."""
    if draws_bars():
        with _Bar.external_write_mode(sys.stderr):
            yield
    else:
        yield


class _Bar(tqdm.auto.tqdm):
    """tqdm's bar for terminals and notebooks."""

    _lock = _LOCK
    monitor_interval = 0  # no thread: it only redraws bars that skip updates, and ours do not

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        """Draw the bar, but not before its delay has passed.

        `external_write_mode` would draw it earlier, and it would stay.
        """
        if not self.disable and self.delay > 0 and self._time() < self.start_t + self.delay:
            return False
        return super().refresh(*args, **kwargs)


class _LogLines(tqdm.std.tqdm):
    """Lines for a log file, where a bar cannot be drawn over."""

    _lock = _LOCK
    monitor_interval = 0

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write one line; an empty message, with which tqdm clears a bar, writes nothing."""
        if msg == "":
            return False
        self.fp.write(f"{self}\n")
        self.fp.flush()
        return True

    def clear(self, nolock: bool = False) -> None:
        """Do nothing: lines stay."""
