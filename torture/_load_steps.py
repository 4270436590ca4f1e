"""One step of the load torture, in a process of its own so that its memory is that of the step.

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

REGIONS = "schaefer400-17"
CHUNK = 128  # participants written at once
N_FACTORS = 8
N_NOISE = 16  # rank of the noise
PLANTED = 0.6  # true correlation of the score with the first factor


def peak_memory() -> float:
    """The largest resident memory of this process so far, in GiB (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 2**20  # type: ignore[index]


def ingest(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Write n participants to a float16 store in chunks: a mean, factors and noise of low rank."""
    rng = np.random.default_rng(seed)
    with writing_cohort(folder / "cohort", REGIONS, dtype="float16") as writer:
        n_regions = writer.parcellation.n_regions
        matrices = [_symmetric(rng, n_regions) for _ in range(1 + N_FACTORS + N_NOISE)]
        basis = np.stack(matrices).reshape(-1, n_regions * n_regions)
        scores = rng.standard_normal((n, N_FACTORS + N_NOISE), np.float32)
        weights = np.concatenate([np.full(N_FACTORS, 0.05), np.full(N_NOISE, 0.04)])
        weights = weights.astype(np.float32)
        for start in range(0, n, CHUNK):
            weighted_scores = scores[start : start + CHUNK] * weights
            fc = 0.3 * basis[0] + weighted_scores @ basis[1:]
            fc = fc.reshape(-1, n_regions, n_regions).clip(-0.99, 0.99)  # (participants, R, R)
            fc[:, np.arange(n_regions), np.arange(n_regions)] = 1.0
            writer.append(fc)
        participants = pd.DataFrame({"participant_id": [f"sub-{i:05d}" for i in range(n)]})
        noise = rng.standard_normal(n)
        participants["score"] = PLANTED * scores[:, 0] + np.sqrt(1 - PLANTED**2) * noise
        participants["age"] = rng.uniform(45, 80, n).round(1)
        writer.finish(participants, name="load")
    return {"gigabytes": (folder / "cohort" / "connectivity.npy").stat().st_size / 1e9}


def train(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Train a small model (28 tokens of width 32) for a few steps on the first participants."""
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
    """Embed all participants, with the function that the command calls."""
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
    """Predict from the embeddings by kernel ridge, as `nerve evaluate` does."""
    return _evaluate_features(folder, str(folder / "embedding.tsv"))


def raw(folder: Path, n: int, seed: int) -> dict[str, float]:
    """Predict from all 79,800 connections by exact kernel ridge, in three folds."""
    return _evaluate_features(folder, "raw", n_folds=3)


def _evaluate_features(folder: Path, features: str, **options: int) -> dict[str, float]:
    import nerve

    cohort = Cohort.load(folder / "cohort")
    results = nerve.evaluate(features, cohort, "score", "age", n_bootstrap=200, **options)
    return {"r": float(results.scores["r"].iloc[0])}


def _symmetric(rng: np.random.Generator, n_regions: int) -> np.ndarray:
    """A random symmetric matrix of rank 6 with a diagonal of zeros."""
    factor = rng.standard_normal((n_regions, 6), np.float32)
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
    steps, folder_name, n_participants, seed_text = sys.argv[1:]
    began = time.perf_counter()
    result: dict[str, float] = {}
    for step in steps.split(","):
        result |= STEPS[step](Path(folder_name), int(n_participants), int(seed_text))
    seconds = time.perf_counter() - began
    print(json.dumps({**result, "seconds": seconds, "gibibytes": peak_memory()}))
