"""How many cores this process may use, and how its threads behave beside other programs."""

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

# with any of these the user has decided how threads wait
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# with any of these the user has decided how many threads there are
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

# parameters of mallopt in <malloc.h>
_MMAP_THRESHOLD = -3
_TRIM_THRESHOLD = -1


def set_thread_variables() -> None:
    """Let waiting threads sleep, and limit their number to that of the cores.

    At the end of each parallel operation the threads of libgomp (torch) spin until the last one
    arrives. If another program occupies the core of the last one, all others waste their time
    slices, thousands of times per training step (`python -m benchmarks beside` measures it).
    OpenBLAS (numpy, scipy) spins in the same way between two calls.

    The libraries read these variables when they are loaded, so the command line calls this before
    it imports anything else. What the user has set is kept.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        # libgomp looks a hundred times before it sleeps: as long as from one operation to the next
        os.environ["GOMP_SPINCOUNT"] = "100"
    # OpenBLAS spins for 2⁴ cycles, the fewest that it accepts
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    is_limited = usable_cores() < _visible_cores()
    if is_limited and not any(name in os.environ for name in THREADS):
        os.environ["OMP_NUM_THREADS"] = str(usable_cores())


def usable_cores() -> int:
    """Count the cores that this process may use.

    Returns
    -------
    int
        The least of its CPU affinity, the quota of its cgroup and SLURM's cpus-per-task.
    """
    slurm = _whole_number(os.environ.get("SLURM_CPUS_PER_TASK", ""))
    quotas = [math.ceil(quota) for quota in _cgroup_quotas(Path("/"))]
    return int(max(1, min(_visible_cores(), slurm, *quotas)))


def threads_per_process(jobs: int) -> int:
    """Count the threads of each of several processes that share the cores.

    Parameters
    ----------
    jobs : int
        Number of processes.

    Returns
    -------
    int
        At most as many as the user has set.
    """
    share = max(1, usable_cores() // jobs)
    return int(min(share, _whole_number(os.environ.get("OMP_NUM_THREADS", ""))))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Run products and decompositions of numpy and scipy inside in the calling thread alone.

    Returns
    -------
    context manager
        To be used in a with statement.
    """
    return _blas_libraries().limit(limits=1)  # type: ignore[no-any-return]


@cache
def _blas_libraries() -> Any:
    """The BLAS libraries of this process; the search takes as long as a small decomposition."""
    import scipy.linalg  # noqa: F401  # it brings a library of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def reuse_freed_memory() -> None:
    """Let glibc reuse freed blocks of up to 256 MB instead of returning each to the system.

    A tensor above its threshold (32 MB at most by default) is otherwise mapped again at every step
    and cleared page by page, which takes a tenth of the time of a step. With other C libraries
    nothing happens.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**28)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def _visible_cores() -> int:
    """The number of cores in the CPU affinity of this process, which is what libraries count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _whole_number(text: str) -> float:
    """A whole number above zero, or infinity if the text is not one."""
    if text.isdigit() and int(text) > 0:
        return int(text)
    return math.inf


def _cgroup_quotas(root: Path) -> Iterator[float]:
    """The number of cores that each control group of this process allows (Linux)."""
    with suppress(OSError):  # there are no control groups here
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            is_version_2 = not controllers
            if not is_version_2 and "cpu" not in controllers.split(","):
                continue
            top = root / "sys/fs/cgroup"
            if not is_version_2:
                top = top / "cpu"
            group = top / path.lstrip("/")
            for folder in (group, *group.parents):  # inside a container only the top exists
                yield from _quota_of(folder)
                if folder == top:
                    break


def _quota_of(folder: Path) -> Iterator[float]:
    """The quota of one control group, if it has one."""
    with suppress(OSError, ValueError):  # no such file, or no number in it
        if (folder / "cpu.max").is_file():  # version 2
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)
