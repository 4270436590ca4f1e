"""Every torture in a process of its own: what one leaves behind in memory is not there for the next."""

import importlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from nerve._utils.cores import usable_cores
from torture.promise import Promise

WIDE = (
    "hostile",
    "bad_input",
    "load",
)  # use every core themselves; load, which may not finish, comes last
Done = tuple[str, list[Promise], float]  # name, what was found, seconds


def each_by_itself(names: Sequence[str], folder: Path, short: bool, seed: int) -> Iterator[Done]:
    """Those that need one core side by side, then the others one after another."""
    narrow = [name for name in names if name not in WIDE]
    wide = [name for name in WIDE if name in names]
    for some, at_once in ((narrow, usable_cores()), (wide, 1)):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(at_once, mp_context=context, max_tasks_per_child=1) as pool:
            for job in as_completed(
                [pool.submit(tortured, name, folder, short, seed) for name in some]
            ):
                yield job.result()


def tortured(name: str, folder: Path, short: bool, seed: int) -> Done:
    """What one torture found, and the seconds that it took."""
    torch.set_num_threads(
        1
    )  # tortures fork, and a forked process waits for ever for threads that its parent had
    began = time.perf_counter()
    print(f"{name} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=f"nerve-{name}-", dir=folder) as place:
        promises = importlib.import_module(f"torture.{name}").run(
            Path(place), short=short, seed=seed
        )
    return name, promises, time.perf_counter() - began
