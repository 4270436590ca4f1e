"""Many small models: trained together (weights stacked) against one after another, same data, one thread."""

import time
from typing import Any

import torch

from nerve.methods.nerve import NERVE
from nerve.methods.together import fit_together
from nerve.simulate import simulate_cohort

CASES = [  # parcellation, width, layers, batch, models
    ("schaefer100-7", 16, 1, 16, 8),
    ("schaefer100-17", 64, 2, 64, 4),
    ("schaefer200-17", 128, 4, 64, 4),
]


def run() -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    rows = []
    for parcellation, dim, depth, batch, count in CASES:
        cohort = simulate_cohort(batch * 2, parcellation, 60, keep_timeseries=False)
        settings = {"dim": dim, "depth": depth, "batch_size": batch, "epochs": 4, "keep": "last", "device": "cpu"}
        settings |= {"validation_fraction": 0.0}

        def make(count: int = count, settings: dict[str, Any] = settings) -> list[NERVE]:
            return [NERVE.from_preset("small", patching=f"permuted{k}", **settings) for k in range(count)]

        began = time.process_time()
        for method in make():
            method.fit(cohort)
        alone = time.process_time() - began
        began = time.process_time()
        fit_together(make(), cohort)
        together = time.process_time() - began
        name = f"{count} permuted models together, {parcellation}, width {dim}, batch {batch} (s of CPU)"
        rows.append({"name": name, "value": together, "reference": alone, "ratio": alone / together, "target": ""})
    return rows
