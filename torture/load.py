"""Time and peak memory of ingest, embedding and evaluation, for cohorts of growing size.

python -m torture load                                1,000, 4,000, 10,000 and 40,000 participants (13 GB)
python -m torture.load 1000 20000 --folder SCRATCH    any sizes
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from torture._processes import ENVIRONMENT
from torture.promise import Promise

LIMIT = 20.0  # GiB of resident memory
SIZES = (1_000, 4_000, 10_000, 40_000)
BYTES = 400 * 400 * 2  # per participant in the store
MOST_RAW = 1_000  # participants whose raw FC is evaluated too
TIMEOUT = 3600


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """Measure all sizes; the short form has 120 participants, one process and 1.2 GiB."""
    if short:
        place = folder / "120"
        place.mkdir()
        all_steps = measure_step("ingest,train,embed,evaluate", place, 120, seed)
        return [promise_of(120, {"all": all_steps}, 1.2)]
    return measure_sizes(folder, SIZES, seed, LIMIT, raw_up_to=MOST_RAW)


def measure_sizes(
    folder: Path, sizes: tuple[int, ...], seed: int, limit: float, raw_up_to: float
) -> list[Promise]:
    """Measure every step at each size; one promise per size."""
    promises = []
    for n in sizes:
        if shutil.disk_usage(folder).free < 1.2 * n * BYTES:
            measured = f"not tried: {n * BYTES / 1e9:.0f} GB of disk are needed"
            promises.append(Promise(PROMISED.format(n, limit), measured, False))
            continue
        place = folder / str(n)
        place.mkdir(parents=True)
        steps = ["ingest"]
        if not (folder / "model").is_dir():
            steps.append("train")
        steps += ["embed", "evaluate"]
        if n <= raw_up_to:
            steps.append("raw")
        results: dict[str, Any] = {}
        for step in steps:
            results[step] = measure_step(step, place, n, seed)
            print(f"  {n} {step}: {json.dumps(results[step])}", file=sys.stderr, flush=True)
        shutil.rmtree(place)  # made here, a few lines above
        promises.append(promise_of(n, results, limit))
    return promises


def measure_step(step: str, place: Path, n: int, seed: int) -> dict[str, Any]:
    """Run a step, or several separated by commas, in a process of its own.

    Returns what the step measured, or what went wrong under "error".
    """
    command = [sys.executable, "-m", "torture._load_steps", step, str(place), str(n), str(seed)]
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = ":".join(entry for entry in sys.path if entry)
    process = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, check=False
    )
    if process.returncode:
        return {"error": f"ended with {process.returncode}: {process.stderr.strip()[-300:]}"}
    return dict(json.loads(process.stdout.strip().splitlines()[-1]))


def promise_of(n: int, results: dict[str, Any], limit: float) -> Promise:
    """Time and memory of every step at one size, as a row of the table."""
    errors = [f"{step} {result['error']}" for step, result in results.items() if "error" in result]
    finished = {step: result for step, result in results.items() if "error" not in result}
    correlations = {step: result["r"] for step, result in finished.items() if "r" in result}
    costs = [
        f"{NAMES[step]} {result['seconds']:.0f} s, {result['gibibytes']:.1f} GiB"
        for step, result in finished.items()
    ]
    scores = [f"r from {NAMES[step]} {r:.2f}" for step, r in correlations.items()]
    peak = max((result["gibibytes"] for result in finished.values()), default=float("inf"))
    predicts = all(r > 0.2 for r in correlations.values())
    return Promise(
        PROMISED.format(n, limit),
        "; ".join(costs + scores + errors),
        not errors and peak <= limit and predicts,
    )


PROMISED = (
    "{:,} participants × 400 regions (float16) are ingested, embedded and evaluated within {:g} GiB"
)
NAMES = {
    "all": "all steps",
    "ingest": "ingest",
    "train": "training a small model",
    "embed": "embed",
    "evaluate": "kernel ridge on embeddings",
    "raw": "kernel ridge on raw FC (exact, 3 folds)",
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="torture.load", description=__doc__)
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument(
        "--folder", default=None, help="where a new temporary folder is made; removed at the end"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-raw", action="store_true", help="leave out raw FC")
    options = parser.parse_args()
    raw_up_to = 0 if options.no_raw else float("inf")
    with tempfile.TemporaryDirectory(prefix="nerve-load-", dir=options.folder) as scratch:
        sizes = tuple(options.sizes)
        for promise in measure_sizes(Path(scratch), sizes, options.seed, LIMIT, raw_up_to):
            verdict = "kept  " if promise.kept else "BROKEN"
            print(f"{verdict} {promise.promise}: {promise.measured}", flush=True)
