"""Run every torture in a process of its own, so that none inherits the memory of another."""

import importlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import torch

from nerve._utils.cores import usable_cores
from torture.promise import Promise

# These use every core themselves. `load` may not finish and therefore comes last.
USE_ALL_CORES = ("hostile", "bad_input", "load")


class Finished(NamedTuple):
    """The result of one torture."""

    name: str
    promises: list[Promise]
    seconds: float


def run_all(names: Sequence[str], folder: Path, short: bool, seed: int) -> Iterator[Finished]:
    """Run tortures that need one core side by side, then the others one after another."""
    on_one_core = [name for name in names if name not in USE_ALL_CORES]
    on_all_cores = [name for name in USE_ALL_CORES if name in names]
    yield from _run_group(on_one_core, usable_cores(), folder, short, seed)
    yield from _run_group(on_all_cores, 1, folder, short, seed)


def _run_group(
    names: Sequence[str], n_processes: int, folder: Path, short: bool, seed: int
) -> Iterator[Finished]:
    """Run so many of these tortures at a time; yields each when it has finished."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, mp_context=context, max_tasks_per_child=1) as pool:
        jobs = [pool.submit(run_one, name, folder, short, seed) for name in names]
        for job in as_completed(jobs):
            yield job.result()


def run_one(name: str, folder: Path, short: bool, seed: int) -> Finished:
    """Run one torture in this process, in a temporary folder of its own."""
    # Tortures fork, and a forked process waits for ever for threads that its parent had.
    torch.set_num_threads(1)
    began = time.perf_counter()
    print(f"{name} …", file=sys.stderr, flush=True)
    torture = importlib.import_module(f"torture.{name}")
    with tempfile.TemporaryDirectory(prefix=f"nerve-{name}-", dir=folder) as own_folder:
        promises = torture.run(Path(own_folder), short=short, seed=seed)
    return Finished(name, promises, time.perf_counter() - began)
