"""Training beside two other programs that use every core, against training alone.

Each measurement is a process of its own. The reference for our threads is what the libraries do by
themselves: threads that spin while they wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import row

N_PARTICIPANTS = 96
REGIONS = "schaefer200-17"
EPOCHS = 3
N_OTHERS = 2  # other programs
OTHER_PROGRAM = """
import numpy as np
x = np.random.default_rng(0).normal(size=(1500, 1500))
while True:
    x @ x
"""


def train() -> dict[str, float]:
    """Clock and processor seconds of a training; called in a new process."""
    from nerve.data.simulate import simulate_cohort
    from nerve.methods.nerve import NERVE

    cohort = simulate_cohort(N_PARTICIPANTS, REGIONS, 60, keep_timeseries=False)
    model = NERVE.from_preset("default", epochs=EPOCHS, device="cpu")
    return _seconds_of(lambda: model.fit(cohort))


def decompose() -> dict[str, float]:
    """Clock and processor seconds of 20 eigendecompositions, of which kernel ridge needs many."""
    import numpy as np

    from nerve._utils.linalg import eigendecomposition

    kernel = np.corrcoef(np.random.default_rng(0).normal(size=(700, 1500)))
    eigendecomposition(kernel)

    def decompose_20_times() -> None:
        for _ in range(20):
            eigendecomposition(kernel)

    return _seconds_of(decompose_20_times)


def _seconds_of(function: Callable[[], object]) -> dict[str, float]:
    clock_before = time.perf_counter()
    processor_before = time.process_time()
    function()
    return {
        "clock": time.perf_counter() - clock_before,
        "processor": time.process_time() - processor_before,
    }


def measure(work: str, threads_sleep: bool) -> dict[str, float]:
    """Run `train` or `decompose` in a new process, with threads that sleep or spin while they wait."""
    from nerve._utils.cores import THREADS, WAITING

    decided_here = (*THREADS, *WAITING, "OPENBLAS_THREAD_TIMEOUT")
    environment = {name: value for name, value in os.environ.items() if name not in decided_here}
    if threads_sleep:
        code = "from nerve._utils import cores; cores.set_thread_variables(); "
    else:
        code = "from nerve._utils import linalg; linalg.WORTH_THREADS = 0; "
    code += f"import json; from benchmarks.beside import {work}; print(json.dumps({work}()))"
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(process.stdout.splitlines()[-1])


def median_measurement(work: str, threads_sleep: bool) -> dict[str, float]:
    """Measure three times; returns the measurement in the middle by the clock."""
    measurements = [measure(work, threads_sleep) for _ in range(3)]
    return sorted(measurements, key=lambda seconds: seconds["clock"])[1]


@contextmanager
def other_programs() -> Iterator[None]:
    """Run programs that multiply matrices on all cores, for the time of the block."""
    from nerve._utils.cores import THREADS

    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    programs = [
        subprocess.Popen([sys.executable, "-c", OTHER_PROGRAM], env=environment)
        for _ in range(N_OTHERS)
    ]
    try:
        time.sleep(1.0)
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


WORK = {
    "decompose": "eigendecompositions of 700 participants",
    "train": f"{EPOCHS} epochs, {N_PARTICIPANTS} participants, {REGIONS}",
}


def run() -> list[dict[str, Any]]:
    rows = []
    for work, title in WORK.items():
        alone = median_measurement(work, threads_sleep=True)
        with_spinning_threads = median_measurement(work, threads_sleep=False)
        with other_programs():
            beside_others = median_measurement(work, threads_sleep=True)
        rows += [
            _row(
                f"{title}: beside {N_OTHERS} programs against alone (s)",
                beside_others["clock"],
                alone["clock"],
                "<= 4",
            ),
            _row(
                f"{title}: our threads against the libraries', alone (s)",
                alone["clock"],
                with_spinning_threads["clock"],
                "stated",
            ),
            _row(
                f"{title}: our threads against the libraries', alone (processor s)",
                alone["processor"],
                with_spinning_threads["processor"],
                "<= 1",
            ),
        ]
    return rows


def _row(name: str, value: float, reference: float, target: str) -> dict[str, Any]:
    return row(name, value, reference, value / reference, target)
