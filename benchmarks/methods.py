"""A training step of each method at R = 400 and batch 16: CPU time and peak memory beside NERVE's.

Each method runs in a process of its own with the paper's preset, so that its peak memory is its own.
GATE has no batches: its step is a full pass over a population, here of 16 participants.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peak_memory, row

PARCELLATION = "schaefer400-17"
BATCH = 16
N_VOLUMES = 300
REPEATS = 2
SLOW = 20.0  # seconds: a first step that takes longer needs no warm-up and is not repeated
NOT_TRAINED = ("raw", "pca", "ppca", "tangent", "shrunk", "covariates")


def make_cohort() -> Any:
    """16 participants with time series of a few shared factors: real sizes, quickly made."""
    import pandas as pd

    from nerve.data.cohort import Cohort
    from nerve.data.parcellation import load_parcellation

    rng = np.random.default_rng(0)
    parcellation = load_parcellation(PARCELLATION)
    loadings = rng.normal(size=(20, parcellation.n_regions)).astype(np.float32)
    all_series = []
    for _ in range(BATCH):
        signal = rng.standard_normal((N_VOLUMES, 20), np.float32) @ loadings
        noise = rng.standard_normal((N_VOLUMES, parcellation.n_regions), np.float32)
        all_series.append(signal + 3 * noise)
    fc = np.stack([np.corrcoef(series.T) for series in all_series]).astype(np.float32)
    table = pd.DataFrame({"participant_id": [f"p{i}" for i in range(BATCH)]})
    return Cohort(fc, table, parcellation, all_series)


class Costs(NamedTuple):
    """What a training step of one method takes."""

    seconds: float  # processor time
    gibibytes: float  # at the peak, less what the process had before training
    n_parameters: int  # that are trained


def measure(name: str) -> Costs:
    """Train a method for a few steps."""
    import torch

    from nerve.core.randomness import Draws
    from nerve.core.training import LabelledDataset, make_optimizer
    from nerve.methods import method_class

    torch.set_num_threads(1)
    cohort = make_cohort()
    method = method_class(name).from_preset("paper", device="cpu")
    # As in `fit`, up to the first step.
    targets = method.learn_target(np.linspace(-1, 1, BATCH))
    cohort = method.begin_fit(cohort)
    memory_before = peak_memory()
    dataset = method.begin_training(cohort, np.arange(len(cohort)))
    module = method.module_
    if targets is not None:
        dataset = LabelledDataset(dataset, targets)
    optimizer = make_optimizer(module, method.training_settings())
    batch_size = min(BATCH, len(dataset))
    batch = dataset.batch(np.arange(batch_size))
    module.train()
    seconds = []
    for step in range(REPEATS + 1):
        began = time.process_time()
        module.zero_grad()
        module.training_loss(batch, Draws(0, step, batch_size)).backward()
        optimizer.step()
        seconds.append(time.process_time() - began)
        if seconds[0] > SLOW:
            break
    n_parameters = sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
    without_warm_up = seconds[1:] or seconds
    return Costs(min(without_warm_up), peak_memory() - memory_before, n_parameters)


def run() -> list[dict[str, Any]]:
    """Two rows per method: value (the method's), reference (NERVE's) and their ratio."""
    from nerve.methods import METHODS

    context = multiprocessing.get_context("spawn")
    costs_by_method = {}
    for name in METHODS:
        if name not in NOT_TRAINED:
            with ProcessPoolExecutor(1, context) as new_process:
                costs_by_method[name] = new_process.submit(measure, name).result()
    nerve_costs = costs_by_method["nerve"]
    rows = []
    for name, costs in costs_by_method.items():
        label = f"{name}, {costs.n_parameters:,} parameters, R = 400, batch {BATCH}"
        ratio = costs.seconds / nerve_costs.seconds
        rows.append(
            row(
                f"{label} (CPU seconds per step)",
                costs.seconds,
                nerve_costs.seconds,
                ratio,
                "stated",
            )
        )
        ratio = costs.gibibytes / nerve_costs.gibibytes
        rows.append(
            row(f"{label} (peak GiB)", costs.gibibytes, nerve_costs.gibibytes, ratio, "stated")
        )
    return rows
