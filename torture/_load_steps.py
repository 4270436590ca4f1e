"""One step of the load torture in a process of its own: what it says of time and memory belongs to that step alone.

python -m torture._load_steps STEP[,STEP …] FOLDER N SEED
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from nerve.data.cohort import Cohort
from nerve.data.cohort_files import writing_cohort

REGIONS, CHUNK = "schaefer400-17", 128
N_FACTORS, N_NOISE, PLANTED = 8, 16, 0.6


def resident() -> float:
    """The largest resident memory of this process so far, GiB (VmHWM)."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 2**20  # type: ignore[index]


def ingest(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Write n people to a float16 store, chunk after chunk: a mean, eight factors and noise of low rank."""
    rng = np.random.default_rng(seed)
    with writing_cohort(folder / "cohort", REGIONS, dtype="float16") as writer:
        r = writer.parcellation.n_regions
        basis = np.stack([_symmetric(rng, r) for _ in range(1 + N_FACTORS + N_NOISE)]).reshape(
            -1, r * r
        )
        scores = rng.standard_normal((n, N_FACTORS + N_NOISE), np.float32)
        weights = np.concatenate([np.full(N_FACTORS, 0.05), np.full(N_NOISE, 0.04)]).astype(
            np.float32
        )
        for start in range(0, n, CHUNK):
            some = scores[start : start + CHUNK] * weights
            fc = (
                (0.3 * basis[0] + some @ basis[1:]).reshape(-1, r, r).clip(-0.99, 0.99)
            )  # (people, R, R)
            fc[:, np.arange(r), np.arange(r)] = 1.0
            writer.append(fc)
        people = pd.DataFrame({"participant_id": [f"sub-{i:05d}" for i in range(n)]})
        people["score"] = PLANTED * scores[:, 0] + np.sqrt(1 - PLANTED**2) * rng.standard_normal(n)
        people["age"] = rng.uniform(45, 80, n).round(1)
        writer.finish(people, name="load")
    return {"gigabytes": (folder / "cohort" / "connectivity.npy").stat().st_size / 1e9}


def train(folder: Path, n: int, seed: int) -> dict[str, float]:
    """A small model (28 tokens of width 32) from a few steps on the first people of the store."""
    from nerve.methods.nerve import NERVE

    cohort = Cohort.load(folder / "cohort").subset(np.arange(min(n, 128)))
    small = {
        "view": "fc",
        "patching": "schaefer400-7",
        "dim": 32,
        "heads": 2,
        "depth": 1,
        "epochs": 2,
    }
    encoder = NERVE.from_preset("small", **small, device="cpu", seed=seed)
    encoder.fit(cohort).save(folder.parent / "model")
    return {}


def embed(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Embeddings of everyone, by the command's function."""
    from nerve.methods.runs import embed_file

    values = embed_file(
        folder.parent / "model",
        folder / "cohort",
        folder / "embedding.tsv",
        device="cpu",
        overwrite=True,
    )
    return {"width": values.shape[1]}


def evaluate(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Kernel ridge on the embeddings, as `nerve evaluate` does it."""
    return _evaluated(folder, str(folder / "embedding.tsv"))


def raw(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Exact kernel ridge on all 79,800 connections, three folds."""
    return _evaluated(folder, "raw", n_folds=3)


def _evaluated(folder: Path, features: str, **options: int) -> dict[str, float]:
    import nerve

    cohort = Cohort.load(folder / "cohort")
    results = nerve.evaluate(features, cohort, "score", "age", n_bootstrap=200, **options)
    return {"r": float(results.scores["r"].iloc[0])}


def _symmetric(rng: np.random.Generator, r: int) -> np.ndarray:
    factor = rng.standard_normal((r, 6), np.float32)
    matrix = factor @ factor.T / 6
    np.fill_diagonal(matrix, 0.0)
    return matrix


STEPS = {
    "ingest": ingest,
    "train": train,
    "embed": embed,
    "evaluate": evaluate,
    "raw": raw,
}

if __name__ == "__main__":
    steps, where, people, number = sys.argv[1:]
    began, found = time.perf_counter(), {}
    for step in steps.split(","):
        found |= STEPS[step](Path(where), int(people), int(number))
    print(json.dumps({**found, "seconds": time.perf_counter() - began, "gibibytes": resident()}))
