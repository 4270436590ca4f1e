"""Reading is bound by the parser, not by us: ingest of TSV matrices against pandas' own parser on the same files."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from nerve.parcellation import load_parcellation
from nerve.readers import ingest
from nerve.readers.parallel import usable_cores

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


def seconds(function, *arguments, **options) -> float:
    began = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - began


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_source(source)
        files = sorted(source.rglob("*.tsv"))
        for jobs in sorted({1, usable_cores()}):
            parser, ours = [], []
            for repeat in range(3):  # in turns, so that both meet the same load of the machine
                parser.append(seconds(lambda: [parse(path) for path in files]) / jobs)
                out = Path(folder) / f"out-{jobs}-{repeat}"
                ours.append(seconds(ingest, source, out, parcellation="schaefer400-17", jobs=jobs))
            value, reference = min(ours), min(parser)
            rows.append(
                {
                    "name": f"ingest of {N_PEOPLE} TSV matrices 400 x 400, {jobs} processes (s)",
                    "value": value,
                    "reference": reference,
                    "ratio": value / reference,
                    "target": f"<= {TARGET}",
                }
            )
    return rows
