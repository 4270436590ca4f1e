"""The test suites by the clock, with a plain loop of Python before and after each as the machine's yardstick."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

LIMITS = {"test-quick": 60, "test": 300}  # seconds on two cores, after set-up
STEPS = 10_000_000


def run() -> list[dict[str, object]]:
    return [suite(name, limit) for name, limit in LIMITS.items()]


def suite(name: str, limit: int) -> dict[str, object]:
    before, began = loop(), time.perf_counter()
    done = subprocess.run(["make", name], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"make {name} failed:\n{done.stdout[-4000:]}{done.stderr[-1000:]}")
    yardstick = (before + loop()) / 2
    what = f"make {name} against {STEPS:,} additions in a loop of Python (s)"
    return {
        "name": what,
        "value": seconds,
        "reference": yardstick,
        "ratio": seconds / yardstick,
        "target": f"<= {limit} s",
    }


def loop() -> float:
    began, total = time.perf_counter(), 0
    for number in range(STEPS):
        total += number
    return time.perf_counter() - began
