"""Reading is bound by the parser, not by us: ingest of TSV matrices against pandas' own parser on the same files."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from nerve._utils.cores import usable_cores
from nerve.data.parcellation import load_parcellation
from nerve.data.readers import ingest

N_PEOPLE, N_DISTINCT, TARGET = 500, 25, 1.3


def write_source(folder: Path, n_people: int = N_PEOPLE) -> None:
    """Matrices as XCP-D writes them: first column `Node`, header of labels; a few, copied, since writing is slow."""
    labels = list(load_parcellation("schaefer400-7").labels)
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(N_DISTINCT):
        matrix = np.corrcoef(rng.normal(size=(400, 200)))
        table = pd.DataFrame(matrix, index=pd.Index(labels, name="Node"), columns=labels)
        texts.append(table.to_csv(sep="\t", float_format="%.9f"))
    for person in range(n_people):
        func = folder / f"sub-{person:04d}" / "func"
        func.mkdir(parents=True)
        name = f"sub-{person:04d}_task-rest_space-MNI152NLin6Asym_seg-4S400Parcels_stat-pearsoncorrelation_relmat.tsv"
        (func / name).write_text(texts[person % N_DISTINCT])


def parse(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="\t", index_col="Node", na_values=["n/a"])


def cost(function, *arguments, **options) -> np.ndarray:
    """Seconds by the clock, and of processor time here and in the processes that were started."""
    began, used = time.perf_counter(), processor_time()
    function(*arguments, **options)
    return np.array([time.perf_counter() - began, processor_time() - used])


def processor_time() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run() -> list[dict[str, object]]:
    """Clock and processor time: on a busy machine only the second tells what is ours."""
    counts = sorted({1, usable_cores()})
    parser: list[np.ndarray] = []
    ours: dict[int, list[np.ndarray]] = {jobs: [] for jobs in counts}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_source(source)
        files = sorted(source.rglob("*.tsv"))
        for _ in range(2):  # in turns, so that all meet the same load of the machine
            parser.append(cost(lambda: [parse(path) for path in files]))
            for jobs in counts:
                out = Path(folder) / "out"
                ours[jobs].append(
                    cost(
                        ingest,
                        source,
                        out,
                        parcellation="schaefer400-17",
                        jobs=jobs,
                        overwrite=True,
                    )
                )
    rows: list[dict[str, object]] = []
    for jobs in counts:
        for i, unit in enumerate(("s", "processor s")):
            value = min(costs[i] for costs in ours[jobs])
            reference = min(costs[i] for costs in parser) / (jobs if unit == "s" else 1)
            processes = "1 process" if jobs == 1 else f"{jobs} processes"
            name = f"ingest of {N_PEOPLE} TSV matrices 400 x 400, {processes} ({unit})"
            row = {"name": name, "value": value, "reference": reference, "ratio": value / reference}
            rows.append(row | {"target": f"<= {TARGET}"})
    return rows
