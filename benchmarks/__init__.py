"""Speed and memory, always as a ratio to a reference measured in the same run: machines are noisy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def row(
    name: str,
    value: float,
    reference: float = math.nan,
    ratio: float = math.nan,
    target: str | float = math.nan,
) -> dict[str, Any]:
    """One row of the table: a value, its reference, their ratio and what is to be reached.

    Whatever is NaN is an empty cell.
    """
    return {"name": name, "value": value, "reference": reference, "ratio": ratio, "target": target}


def timed(
    function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[Any, float]:
    """The result of a function and the seconds that it took."""
    began = clock()
    result = function()
    return result, clock() - began


def peak_memory() -> float:
    """The largest resident memory of this process so far, in GiB.

    `ru_maxrss` would begin with the memory of the process that started this one.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20
