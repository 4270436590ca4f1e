"""Ingest of TSV matrices against pandas' own parser on the same files: the parser takes most of the time."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks import row
from nerve._utils.cores import usable_cores
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import ingest

N_PARTICIPANTS = 500
N_DISTINCT = 25
TARGET = 1.3


def write_source(folder: Path, n_participants: int = N_PARTICIPANTS) -> None:
    """Write matrices as XCP-D does: first column `Node`, header of labels.

    Writing is slow: only a few are different, the others are copies.
    """
    labels = list(load_parcellation("schaefer400-7").labels)
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(N_DISTINCT):
        matrix = np.corrcoef(rng.normal(size=(400, 200)))
        table = pd.DataFrame(matrix, index=pd.Index(labels, name="Node"), columns=labels)
        texts.append(table.to_csv(sep="\t", float_format="%.9f"))
    for number in range(n_participants):
        subject = f"sub-{number:04d}"
        func = folder / subject / "func"
        func.mkdir(parents=True)
        name = (
            f"{subject}_task-rest_space-MNI152NLin6Asym_seg-4S400Parcels_"
            "stat-pearsoncorrelation_relmat.tsv"
        )
        (func / name).write_text(texts[number % N_DISTINCT])


def parse(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", index_col="Node", na_values=["n/a"])


class Cost(NamedTuple):
    """Seconds that a function takes."""

    clock: float
    processor: float  # here and in the processes that were started


def cost_of(function: Callable[[], object]) -> Cost:
    """Call a function and measure its seconds."""
    clock_before = time.perf_counter()
    processor_before = processor_time()
    function()
    return Cost(time.perf_counter() - clock_before, processor_time() - processor_before)


def processor_time() -> float:
    """Processor seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run() -> list[dict[str, Any]]:
    """Clock and processor time: on a busy machine only the second tells what is ours."""
    numbers_of_jobs = sorted({1, usable_cores()})
    parser_costs: list[Cost] = []
    ingest_costs: dict[int, list[Cost]] = {jobs: [] for jobs in numbers_of_jobs}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        out = Path(folder) / "out"
        write_source(source)
        files = sorted(source.rglob("*.tsv"))

        def parse_all() -> None:
            for path in files:
                parse(path)

        def ingest_all(jobs: int) -> None:
            ingest(source, out, parcellation="schaefer400-17", jobs=jobs, overwrite=True)

        for _ in range(2):  # in turns, so that all meet the same load of the machine
            parser_costs.append(cost_of(parse_all))
            for jobs in numbers_of_jobs:
                ingest_costs[jobs].append(cost_of(partial(ingest_all, jobs)))
    parser_clock = min(cost.clock for cost in parser_costs)
    parser_processor = min(cost.processor for cost in parser_costs)
    rows = []
    for jobs, costs in ingest_costs.items():
        processes = "1 process" if jobs == 1 else f"{jobs} processes"
        name = f"ingest of {N_PARTICIPANTS} TSV matrices 400 x 400, {processes}"
        clock = min(cost.clock for cost in costs)
        processor = min(cost.processor for cost in costs)
        rows.append(_row(f"{name} (s)", clock, parser_clock / jobs))
        rows.append(_row(f"{name} (processor s)", processor, parser_processor))
    return rows


def _row(name: str, value: float, reference: float) -> dict[str, Any]:
    return row(name, value, reference, value / reference, f"<= {TARGET}")
