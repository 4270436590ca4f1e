"""How many cores this process may really use, and how its threads behave beside other programs.

`import nerve` calls `share_the_machine` first of all, so that torch and the linear algebra libraries, which read their
environment variables once, when they are loaded, find them set.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path
from typing import Any

# names of <malloc.h>
_MMAP_THRESHOLD = -3
_TRIM_THRESHOLD = -1
WAITING = (
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
)  # any of them: the user has decided how threads wait
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)  # any of them: and how many there are


def usable_cores() -> int:
    """Cores that this process may use: the least of its CPU affinity, its cgroup's quota and SLURM's cpus-per-task."""
    return int(max(1, min(_seen_by_libraries(), _granted())))


def share_the_machine() -> None:
    """Let waiting threads sleep, and start no more of them than there are cores; what the user has set is kept.

    At the end of each parallel region libgomp's threads (torch) spin until the last one arrives. Where another program
    holds that one's core, all of them burn their time slice, thousands of times per training step. OpenBLAS (numpy,
    scipy) spins likewise between two calls.
    """
    if not any(name in os.environ for name in WAITING):
        # too late for a torch that is imported already, and harmless; libgomp looks a hundred times before it sleeps,
        # for as long as it takes to get from one operation to the next
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "100"}
    os.environ.setdefault(
        "OPENBLAS_THREAD_TIMEOUT", "4"
    )  # spin for 2⁴ cycles, the fewest it accepts, then sleep
    if usable_cores() < _seen_by_libraries() and not any(name in os.environ for name in THREADS):
        os.environ["OMP_NUM_THREADS"] = str(usable_cores())
        torch = sys.modules.get(
            "torch"
        )  # imported before; a number below the default is the user's own
        if torch is not None and torch.get_num_threads() >= _seen_by_libraries():
            torch.set_num_threads(usable_cores())


def one_blas_thread() -> AbstractContextManager[Any]:
    """While it is open, products and decompositions of numpy and scipy run in the thread that asks for them."""
    return _blas().limit(limits=1)  # type: ignore[no-any-return]


@cache
def _blas() -> Any:
    """Found once: looking for the libraries takes as long as a small decomposition."""
    import scipy.linalg  # noqa: F401  # it brings a library of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def threads_per_process(jobs: int) -> int:
    """Threads of each of several processes that share the cores, and at most as many as the user has set."""
    return int(min(max(1, usable_cores() // jobs), _whole(os.environ.get("OMP_NUM_THREADS", ""))))


def _seen_by_libraries() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _granted() -> float:
    """Cores by SLURM's and the container's word, infinite where neither says anything."""
    return min(
        [_whole(os.environ.get("SLURM_CPUS_PER_TASK", "")), *map(math.ceil, _quotas(Path("/")))]
    )


def _whole(said: str) -> float:
    return int(said) if said.isdigit() and int(said) else math.inf


def _quotas(root: Path) -> Iterator[float]:
    """Cores' worth of time that each control group around this process allows (Linux; version 2, then version 1)."""
    with suppress(OSError):  # there is no such thing here
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):  # inside a container only the top is there
                yield from _quota_of(folder)
                if folder == top:
                    break


def _quota_of(folder: Path) -> Iterator[float]:
    with suppress(OSError, ValueError):  # there is none, or no number in it
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = (
                (folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)


def reuse_freed_memory() -> None:
    """Let glibc reuse freed blocks of up to 256 MB instead of returning each to the system.

    A tensor beyond its threshold (32 MB at most by default) is otherwise mapped anew at every step
    and cleared page by page: a tenth of the time of a step. Nothing happens where the C library is
    another one.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**28)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
