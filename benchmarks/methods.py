"""One training step of each method at R = 400 and batch 16: CPU time and peak memory beside NERVE's in the same run.

Each method runs in a process of its own with the paper's preset, so that its peak memory is its own. GATE has no
batches: its step is a full pass over a population, here of 16 participants.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks import peak_memory

PARCELLATION, BATCH, VOLUMES, REPEATS = "schaefer400-17", 16, 300, 2
SLOW = 20.0  # seconds: a first step that takes longer needs no warm-up and is not repeated
REFERENCES = ("raw", "pca", "ppca", "tangent", "shrunk", "covariates")


def people() -> Any:
    """16 participants with time series of a few shared factors: real sizes, no simulation to wait for."""
    import pandas as pd

    from nerve.data.cohort import Cohort
    from nerve.data.parcellation import load_parcellation

    rng = np.random.default_rng(0)
    parcellation = load_parcellation(PARCELLATION)
    loadings = rng.normal(size=(20, parcellation.n_regions)).astype(np.float32)
    shape = (VOLUMES, parcellation.n_regions)
    series = [
        rng.standard_normal((VOLUMES, 20), np.float32) @ loadings
        + 3 * rng.standard_normal(shape, np.float32)
        for _ in range(BATCH)
    ]
    fc = np.stack([np.corrcoef(one.T) for one in series]).astype(np.float32)
    table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(BATCH)]})
    return Cohort(fc, table, parcellation, series)


def measure(name: str) -> tuple[float, float, int]:
    """CPU seconds of a step, and GiB at the peak less those before the method was made; trained numbers."""
    import torch

    from nerve.core.randomness import Draws
    from nerve.core.training import LabelledDataset, make_optimizer
    from nerve.methods import method_class

    torch.set_num_threads(1)
    cohort = people()
    method = method_class(name).from_preset("paper", device="cpu")
    before = peak_memory()
    method.parcellation_, method.n_features_in_, method.binary_ = (
        cohort.parcellation,
        cohort.n_regions,
        False,
    )
    source = method.begin_training(
        cohort, np.arange(len(cohort))
    )  # as in fit, up to the first step
    module = method.module_
    if method.role == "supervised":
        source = LabelledDataset(source, np.linspace(-1, 1, BATCH))
    optimizer = make_optimizer(module, method.training_settings())
    batch = source.batch(np.arange(min(BATCH, len(source))))
    module.train()
    seconds = []
    for step in range(REPEATS + 1):
        began = time.process_time()
        module.zero_grad()
        module.training_loss(batch, Draws(0, step, min(BATCH, len(source)))).backward()
        optimizer.step()
        seconds.append(time.process_time() - began)
        if seconds[0] > SLOW:
            break
    parameters = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return min(seconds[1:] or seconds), peak_memory() - before, parameters


def run() -> list[dict]:
    """Rows with name, value (the method's), reference (NERVE's), ratio and target."""
    from nerve.methods import METHODS

    context = multiprocessing.get_context("spawn")
    figures = {}
    for name in METHODS:
        if name not in REFERENCES:
            with ProcessPoolExecutor(1, context) as fresh:
                figures[name] = fresh.submit(measure, name).result()
    rows = []
    for name, (seconds, memory, parameters) in figures.items():
        for what, value, reference in (
            ("CPU seconds per step", seconds, figures["nerve"][0]),
            ("peak GiB", memory, figures["nerve"][1]),
        ):
            label = f"{name}, {parameters:,} parameters, R = 400, batch {BATCH} ({what})"
            ratio = value / reference
            rows.append(
                {
                    "name": label,
                    "value": value,
                    "reference": reference,
                    "ratio": ratio,
                    "target": "stated",
                }
            )
    return rows
