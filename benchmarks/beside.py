"""Training beside two other programs that use every core, against training alone.

Each measurement is a process of its own, in turns, so that all meet the same load of the machine.
The reference is what the libraries do by themselves: threads that spin while they wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

N_PEOPLE, REGIONS, EPOCHS, OTHERS = 96, "schaefer200-17", 3, 2
OTHER_PROGRAM = (
    "import numpy as np\nx = np.random.default_rng(0).normal(size=(1500, 1500))\nwhile True: x @ x"
)


def train() -> dict[str, float]:
    """Seconds by the clock and of the processor that a training takes; called in a new process."""
    from nerve.data.simulate import simulate_cohort
    from nerve.methods.nerve import NERVE

    cohort = simulate_cohort(N_PEOPLE, REGIONS, 60, keep_timeseries=False)
    model = NERVE.from_preset("default", epochs=EPOCHS, device="cpu")
    began, used = time.perf_counter(), time.process_time()
    model.fit(cohort)
    return {"clock": time.perf_counter() - began, "processor": time.process_time() - used}


def decompose() -> dict[str, float]:
    """The same of an eigendecomposition, as kernel ridge takes many of."""
    import numpy as np

    from nerve._utils.linalg import eigendecomposition

    kernel = np.corrcoef(np.random.default_rng(0).normal(size=(700, 1500)))
    eigendecomposition(kernel)
    began, used = time.perf_counter(), time.process_time()
    for _ in range(20):
        eigendecomposition(kernel)
    return {"clock": time.perf_counter() - began, "processor": time.process_time() - used}


def measured(work: str, threads_sleep: bool) -> dict[str, float]:
    """`train` or `decompose` in a new process, with threads that sleep or spin while they wait."""
    from nerve._utils.cores import THREADS, WAITING

    decided = (*THREADS, *WAITING, "OPENBLAS_THREAD_TIMEOUT")
    environment = {name: value for name, value in os.environ.items() if name not in decided}
    if threads_sleep:
        code = "from nerve._utils import cores; cores.set_thread_variables(); "
    else:
        code = "from nerve._utils import linalg; linalg.WORTH_THREADS = 0; "
    code += f"import json; from benchmarks.beside import {work}; print(json.dumps({work}()))"
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


@contextmanager
def others() -> Iterator[None]:
    """Two programs that multiply matrices on all cores."""
    from nerve._utils.cores import THREADS

    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    programs = [
        subprocess.Popen([sys.executable, "-c", OTHER_PROGRAM], env=environment)
        for _ in range(OTHERS)
    ]
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
        ("train", f"{EPOCHS} epochs, {N_PEOPLE} participants, {REGIONS}"),
    ):
        alone = _middle(work, threads_sleep=True)
        before = _middle(work, threads_sleep=False)
        with others():
            beside = _middle(work, threads_sleep=True)
        rows += [
            _row(
                f"{what}: beside {OTHERS} programs against alone (s)",
                beside,
                alone,
                "clock",
                "<= 4",
            ),
            _row(
                f"{what}: our threads against the libraries', alone (s)",
                alone,
                before,
                "clock",
                "stated",
            ),
            _row("the same (processor s)", alone, before, "processor", "<= 1"),
        ]
    return rows


def _middle(work: str, threads_sleep: bool) -> dict[str, float]:
    """Of three times that it is measured, the one in the middle by the clock."""
    measurements = [measured(work, threads_sleep) for _ in range(3)]
    return sorted(measurements, key=lambda seconds: seconds["clock"])[1]


def _row(
    name: str, ours: dict[str, float], theirs: dict[str, float], unit: str, target: str
) -> dict[str, object]:
    value, reference = ours[unit], theirs[unit]
    return {
        "name": name,
        "value": value,
        "reference": reference,
        "ratio": value / reference,
        "target": target,
    }
