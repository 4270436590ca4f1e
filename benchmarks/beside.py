"""Training beside two other programs that use every core, against training alone; and what sleeping threads cost.

Each measurement is a process of its own, in turns, so that all meet the same load of the machine. Threads that spin
while they wait (libgomp's way unless told otherwise) are the reference for those that sleep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

N_PEOPLE, REGIONS, EPOCHS, ROUNDS, OTHERS = 96, "schaefer200-17", 3, 2, 2
SPINNING = {"GOMP_SPINCOUNT": "300000"}  # libgomp's default where nothing is set
SLEEPING: dict[str, str] = {}  # `import nerve` decides
OTHER_PROGRAM = "import numpy as np\nx = np.random.default_rng(0).normal(size=(1500, 1500))\nwhile True: x @ x"


def train() -> dict[str, float]:
    """Seconds by the clock and of the processor that a training takes; called in a new process."""
    from nerve.methods.nerve import NERVE
    from nerve.simulate import simulate_cohort

    cohort = simulate_cohort(N_PEOPLE, REGIONS, 60, keep_timeseries=False)
    model = NERVE.from_preset("default", epochs=EPOCHS, device="cpu")
    began, used = time.perf_counter(), time.process_time()
    model.fit(cohort)
    return {"clock": time.perf_counter() - began, "processor": time.process_time() - used}


def measured(**variables: str) -> dict[str, float]:
    """`train` in a process with these environment variables, and none of those that decide on threads."""
    from nerve.cores import THREADS, WAITING

    environment = {name: value for name, value in os.environ.items() if name not in (*THREADS, *WAITING)} | variables
    code = "import json; from benchmarks.beside import train; print(json.dumps(train()))"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@contextmanager
def others() -> Iterator[None]:
    """Two programs that multiply matrices on all cores."""
    from nerve.cores import THREADS

    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    programs = [subprocess.Popen([sys.executable, "-c", OTHER_PROGRAM], env=environment) for _ in range(OTHERS)]
    try:
        time.sleep(1.0)
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def run() -> list[dict[str, object]]:
    alone, beside, spinning = [], [], []
    for _ in range(ROUNDS):
        alone.append(measured(**SLEEPING))
        spinning.append(measured(**SPINNING))
        with others():
            beside.append(measured(**SLEEPING))
    with others():
        beside_spinning = measured(**SPINNING)

    def least(runs: list[dict[str, float]], unit: str) -> float:
        return min(one[unit] for one in runs)

    what = f"{EPOCHS} epochs, {N_PEOPLE} participants, {REGIONS}"
    clock, processor = least(alone, "clock"), least(alone, "processor")
    pairs = [
        (f"beside {OTHERS} programs against alone, {what} (s)", least(beside, "clock"), clock, "<= 4"),
        ("the same with spinning threads (s)", beside_spinning["clock"], least(spinning, "clock"), "stated"),
        ("alone, sleeping against spinning threads (s)", clock, least(spinning, "clock"), "<= 1"),
        ("the same (processor s)", processor, least(spinning, "processor"), "<= 1"),
    ]
    return [
        {"name": name, "value": value, "reference": reference, "ratio": value / reference, "target": target}
        for name, value, reference, target in pairs
    ]
