"""Cohorts that grow: ingested from chunks, embedded and evaluated, with the time and the peak memory of each step.

python -m torture load                                1,000, 4,000, 10,000 and 40,000 people (13 GB of disk)
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

LIMIT = 20.0  # GiB resident
SIZES = (1_000, 4_000, 10_000, 40_000)
BYTES = 400 * 400 * 2  # of a person in the store
MOST_RAW = 1_000  # participants whose raw FC is evaluated too
TIMEOUT = 3600


def run(folder: Path, *, short: bool, seed: int) -> list[Promise]:
    """The short form has 120 people, all steps in one process and a bound of 1.2 GiB."""
    if short:
        place = folder / "120"
        place.mkdir()
        return [row(120, {"all": one_step("ingest,train,embed,evaluate", place, 120, seed)}, 1.2)]
    return grow(folder, SIZES, seed, LIMIT, raw_up_to=MOST_RAW)


def grow(
    folder: Path, sizes: tuple[int, ...], seed: int, limit: float, raw_up_to: float
) -> list[Promise]:
    """A row for each size."""
    promises = []
    for n in sizes:
        if shutil.disk_usage(folder).free < 1.2 * n * BYTES:
            promises.append(
                Promise(
                    PROMISED.format(n, limit), f"not tried: {n * BYTES / 1e9:.0f} GB of disk", False
                )
            )
            continue
        place = folder / str(n)
        place.mkdir(parents=True)
        steps = (
            ["ingest"] + ([] if (folder / "model").is_dir() else ["train"]) + ["embed", "evaluate"]
        )
        steps += ["raw"] if n <= raw_up_to else []
        found: dict[str, Any] = {}
        for step in steps:
            found[step] = one_step(step, place, n, seed)
            print(f"  {n} {step}: {json.dumps(found[step])}", file=sys.stderr, flush=True)
        shutil.rmtree(place)  # made here, a few lines above
        promises.append(row(n, found, limit))
    return promises


def one_step(step: str, place: Path, n: int, seed: int) -> dict[str, Any]:
    """A step, or several with commas between, in a process of its own; what went wrong under "error"."""
    command = [sys.executable, "-m", "torture._load_steps", step, str(place), str(n), str(seed)]
    path = ":".join(entry for entry in sys.path if entry)
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "OMP_NUM_THREADS"} | {
        "PYTHONPATH": path
    }
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        return {"error": f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def row(n: int, found: dict[str, Any], limit: float) -> Promise:
    """Time and memory of every step at one size."""
    errors = [f"{step} {one['error']}" for step, one in found.items() if "error" in one]
    good = {step: one for step, one in found.items() if "error" not in one}
    said = [
        f"{NAMES[step]} {one['seconds']:.0f} s, {one['gibibytes']:.1f} GiB"
        for step, one in good.items()
    ]
    said += [f"r from {NAMES[step]} {one['r']:.2f}" for step, one in good.items() if "r" in one]
    peak = max((one["gibibytes"] for one in good.values()), default=float("inf"))
    predicts = all(one["r"] > 0.2 for one in good.values() if "r" in one)
    return Promise(
        PROMISED.format(n, limit),
        "; ".join(said + errors),
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
    with tempfile.TemporaryDirectory(prefix="nerve-load-", dir=options.folder) as scratch:
        most = 0 if options.no_raw else float("inf")
        for promise in grow(Path(scratch), tuple(options.sizes), options.seed, LIMIT, most):
            print(
                f"{'kept  ' if promise.kept else 'BROKEN'} {promise.promise}: {promise.measured}",
                flush=True,
            )
