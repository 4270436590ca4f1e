"""Kernel ridge of thousands of participants: what each way costs and what it loses against the exact one."""

from __future__ import annotations

import time
from unittest import mock

import numpy as np
import pandas as pd

from benchmarks import peak_memory
from nerve.evaluation import KernelRidge, kernel_ridge, out_of_fold_predictions
from nerve.evaluation.feature_sets import FeatureSet, GivenNumbers
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import blockwise_gram, correlation_rows

N_COMPARED, FOLDS_COMPARED = 4_000, 3
SIZES = [
    (1_573, 19_900, 40),
    (10_000, 79_800, 600),
]  # participants, edges, seconds that it may take
N_TARGETS = 4


def run() -> list[dict[str, object]]:
    rows = compared()
    for n, width, limit in SIZES:
        rows.append(whole(n, width, limit))
    peak = "peak of this process, features in memory (GiB)"
    return [*rows, {"name": peak, "value": peak_memory(), "target": "<= 8"}]


def compared() -> list[dict[str, object]]:
    """CPU seconds, and the largest loss of r over the targets, against decompositions in the same run."""
    from nerve.data.simulate import simulate_cohort

    cohort = simulate_cohort(N_COMPARED, "schaefer100-17", 60, keep_timeseries=False, seed=1)
    values = cohort.inputs("upper")
    targets = cohort.participants[["age", "mean_fd", "p_factor", "internalizing"]]
    folds = _folds(targets, FOLDS_COMPARED)
    kernel = blockwise_gram(lambda people: values[people], N_COMPARED, correlation_rows)
    features = GivenNumbers(kernel=kernel)
    exact, seconds = _scores(False, features, targets, folds)
    r, used = _scores(True, features, targets, folds)
    what = f"Lanczos' method against decompositions, {N_COMPARED:,} participants, {FOLDS_COMPARED} folds"
    return [
        {
            "name": f"{what} (CPU s)",
            "value": used,
            "reference": seconds,
            "ratio": used / seconds,
        },
        {
            "name": f"{what} (largest loss of r)",
            "value": float((exact - r).max()),
            "target": "< .005",
        },
    ]


def _scores(krylov: bool, features: FeatureSet, targets: pd.DataFrame, folds: np.ndarray) -> tuple:
    began = time.process_time()
    with mock.patch.object(kernel_ridge, "lanczos_is_cheaper", return_value=krylov):
        table = out_of_fold_predictions(KernelRidge("precomputed"), features, targets, folds)
    used = time.process_time() - began
    parts = table.groupby("target", sort=False)
    return np.array(
        [np.corrcoef(part["observed"], part["predicted"])[0, 1] for _, part in parts]
    ), used


def whole(n: int, width: int, limit: float) -> dict[str, object]:
    """Kernel and 10-fold prediction, by the clock; the reference is the machine's own matrix product of that size."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n, width), np.float32)
    features += rng.standard_normal((n, 20), np.float32) @ rng.standard_normal(
        (20, width), np.float32
    )
    targets = pd.DataFrame(
        features[:, :N_TARGETS] + 3 * rng.normal(size=(n, N_TARGETS)), columns=list("abcd")
    )
    folds = _folds(targets, 10)
    began = time.perf_counter()
    square = rng.normal(size=(1024, 1024))
    square @ square
    product = (time.perf_counter() - began) * n * n * width / 1024**3 / 2
    began = time.perf_counter()
    kernel = blockwise_gram(lambda people: features[people], n, correlation_rows)
    out_of_fold_predictions(KernelRidge("precomputed"), GivenNumbers(kernel=kernel), targets, folds)
    seconds = time.perf_counter() - began
    name = f"{n:,} participants × {width:,} edges, 10 folds, {N_TARGETS} targets, against the product alone (s)"
    return {
        "name": name, "value": seconds, "reference": product, "ratio": seconds / product, "target": f"<= {limit} s",
    }  # fmt: skip


def _folds(targets: pd.DataFrame, n_folds: int) -> np.ndarray:
    return stratified_folds(
        np.column_stack([strata_of(targets[name], n_folds) for name in targets]), n_folds
    )
