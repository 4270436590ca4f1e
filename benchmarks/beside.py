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

N_PEOPLE, REGIONS, EPOCHS, OTHERS = 96, "schaefer200-17", 1, 2
SPINNING = {"GOMP_SPINCOUNT": "300000", "OPENBLAS_THREAD_TIMEOUT": "26"}  # where nothing is set
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


def decompose() -> dict[str, float]:
    """The same of an eigendecomposition, as kernel ridge takes many of."""
    import numpy as np
    import scipy.linalg

    kernel = np.corrcoef(np.random.default_rng(0).normal(size=(700, 1500)))
    began, used = time.perf_counter(), time.process_time()
    for _ in range(3):
        scipy.linalg.eigh(kernel, driver="evd")
    return {"clock": time.perf_counter() - began, "processor": time.process_time() - used}


def measured(work: str, **variables: str) -> dict[str, float]:
    """`train` or `decompose` in a process with these variables, and none of those that decide on threads."""
    from nerve.cores import THREADS, WAITING

    environment = {name: value for name, value in os.environ.items() if name not in (*THREADS, *WAITING)} | variables
    code = f"import nerve, json; from benchmarks.beside import {work}; print(json.dumps({work}()))"
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
    rows = []
    for work, what in (
        ("decompose", "eigendecompositions of 700 participants"),
        ("train", f"{EPOCHS} epoch, {N_PEOPLE} participants, {REGIONS}"),
    ):
        alone, spinning = measured(work, **SLEEPING), measured(work, **SPINNING)
        with others():
            beside, spinning_beside = measured(work, **SLEEPING), measured(work, **SPINNING)
        rows += [
            _row(f"{what}: beside {OTHERS} programs against alone (s)", beside, alone, "clock", "<= 4"),
            _row("the same with spinning threads (s)", spinning_beside, spinning, "clock", "stated"),
            _row(f"{what}: sleeping against spinning threads, alone (s)", alone, spinning, "clock", "<= 1"),
            _row("the same (processor s)", alone, spinning, "processor", "<= 1"),
        ]
    return rows


def _row(name: str, ours: dict[str, float], theirs: dict[str, float], unit: str, target: str) -> dict[str, object]:
    value, reference = ours[unit], theirs[unit]
    return {"name": name, "value": value, "reference": reference, "ratio": value / reference, "target": target}
