"""Kernel ridge of thousands of participants: time, and the loss of r against the exact solution."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from benchmarks import peak_memory, row, timed
from nerve.evaluation import KernelRidge, kernel_ridge, out_of_fold_predictions
from nerve.evaluation.feature_sets import FeatureSet, GivenNumbers
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import blockwise_gram, correlation_rows

N_COMPARED = 4_000
FOLDS_COMPARED = 3
# Participants, edges, and the seconds that the prediction may take.
SIZES = [(1_573, 19_900, 40), (10_000, 79_800, 600)]
N_TARGETS = 4


def run() -> list[dict[str, Any]]:
    rows = lanczos_against_exact()
    for n_participants, n_edges, limit in SIZES:
        rows.append(kernel_and_prediction(n_participants, n_edges, limit))
    rows.append(row("peak of this process, features in memory (GiB)", peak_memory(), target="<= 8"))
    return rows


def lanczos_against_exact() -> list[dict[str, Any]]:
    """CPU seconds, and the largest loss of r over the targets, against decompositions in the same run."""
    from nerve.data.simulate import simulate_cohort

    cohort = simulate_cohort(N_COMPARED, "schaefer100-17", 60, keep_timeseries=False, seed=1)
    values = cohort.inputs("upper")
    targets = cohort.participants[["age", "mean_fd", "p_factor", "internalizing"]]
    folds = _folds(targets, FOLDS_COMPARED)
    kernel = blockwise_gram(lambda participants: values[participants], N_COMPARED, correlation_rows)
    features = GivenNumbers(kernel=kernel)
    exact_r, exact_seconds = _correlations(features, targets, folds, use_lanczos=False)
    lanczos_r, lanczos_seconds = _correlations(features, targets, folds, use_lanczos=True)
    name = (
        f"Lanczos' method against decompositions, {N_COMPARED:,} participants, "
        f"{FOLDS_COMPARED} folds"
    )
    largest_loss = float((exact_r - lanczos_r).max())
    return [
        row(f"{name} (CPU s)", lanczos_seconds, exact_seconds, lanczos_seconds / exact_seconds),
        row(f"{name} (largest loss of r)", largest_loss, target="< .005"),
    ]


def _correlations(
    features: FeatureSet, targets: pd.DataFrame, folds: np.ndarray, use_lanczos: bool
) -> tuple[np.ndarray, float]:
    """r of every target, and the CPU seconds of the predictions."""
    model = KernelRidge("precomputed")
    with mock.patch.object(kernel_ridge, "lanczos_is_cheaper", return_value=use_lanczos):
        table, seconds = timed(
            lambda: out_of_fold_predictions(model, features, targets, folds), time.process_time
        )
    correlations = [
        np.corrcoef(part["observed"], part["predicted"])[0, 1]
        for _, part in table.groupby("target", sort=False)
    ]
    return np.array(correlations), seconds


def kernel_and_prediction(n_participants: int, n_edges: int, limit: float) -> dict[str, Any]:
    """Clock time of the kernel and the 10-fold prediction.

    The reference is the machine's own matrix product of that size.
    """
    rng = np.random.default_rng(0)
    features = rng.standard_normal((n_participants, n_edges), np.float32)
    factors = rng.standard_normal((n_participants, 20), np.float32)
    features += factors @ rng.standard_normal((20, n_edges), np.float32)
    noise = rng.normal(size=(n_participants, N_TARGETS))
    targets = pd.DataFrame(features[:, :N_TARGETS] + 3 * noise, columns=list("abcd"))
    folds = _folds(targets, 10)

    def multiply_squares() -> None:
        square = rng.normal(size=(1024, 1024))
        square @ square

    _, square_seconds = timed(multiply_squares)
    # A kernel is symmetric: half of the product is enough.
    product_seconds = square_seconds * n_participants * n_participants * n_edges / 1024**3 / 2

    def predict() -> None:
        kernel = blockwise_gram(
            lambda participants: features[participants], n_participants, correlation_rows
        )
        model = KernelRidge("precomputed")
        out_of_fold_predictions(model, GivenNumbers(kernel=kernel), targets, folds)

    _, seconds = timed(predict)
    return row(
        f"{n_participants:,} participants × {n_edges:,} edges, 10 folds, {N_TARGETS} targets, "
        "against the product alone (s)",
        seconds,
        product_seconds,
        seconds / product_seconds,
        f"<= {limit} s",
    )


def _folds(targets: pd.DataFrame, n_folds: int) -> np.ndarray:
    strata = np.column_stack([strata_of(targets[name], n_folds) for name in targets])
    return stratified_folds(strata, n_folds)
