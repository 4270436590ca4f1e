"""Nested kernel ridge against scikit-learn's grid search, and what a permutation test costs beside one evaluation."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from nerve.evaluation import (
    LAMBDAS,
    KernelRidge,
    null_correlations,
    out_of_fold_predictions,
    score_table,
)
from nerve.evaluation.feature_sets import GivenNumbers
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import blockwise_gram, correlation_rows

N_PEOPLE, N_FEATURES, N_TARGETS = 1_791, 79_800, 3  # ABCD-like: the upper triangle at 400 regions
SKLEARN_FOLDS = 2  # of 10: each takes the same time, and grid search is slow


def run() -> list[dict]:
    """Rows with name, value, reference, ratio and target."""
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(N_PEOPLE, N_TARGETS))
    table = pd.DataFrame(targets, columns=[f"target{i}" for i in range(N_TARGETS)])
    strata = np.column_stack([strata_of(column, 10) for column in targets.T])
    folds = stratified_folds(strata, 10)
    kernel, kernel_seconds = _timed(lambda: _kernel(targets))
    model, features = KernelRidge("precomputed"), GivenNumbers(kernel=kernel)
    predictions, ours = _timed(lambda: out_of_fold_predictions(model, features, table, folds))
    _, theirs = _timed(lambda: _grid_search(kernel, targets, folds, strata))
    theirs *= 10 / SKLEARN_FOLDS
    one = table[["target0"]]
    _, permuted = _timed(
        lambda: null_correlations(model, features, one, folds, n_permutations=1000)
    )
    _, statistics = _timed(lambda: score_table(_eight_methods(predictions)))
    return [
        _row("kernel of 1,791 × 79,800 features (s)", kernel_seconds, None, None, "stated"),
        _row(
            f"nested 10-fold, 3 targets, against grid search ({SKLEARN_FOLDS} folds × {10 // SKLEARN_FOLDS}) (s)",
            ours,
            theirs,
            theirs / ours,
            "≥ 5",
        ),
        _row(
            "1,000-permutation test against one evaluation (s)",
            permuted,
            ours,
            permuted / ours,
            "≤ 3",
        ),
        _row("1,000 resamples of 8 methods × 9 targets (s)", statistics, None, None, "seconds"),
    ]


def _kernel(targets: np.ndarray) -> np.ndarray:
    """Features are drawn a block at a time (each participant's from a seed of their own), so 1 GB is never held."""

    def read(people: np.ndarray) -> np.ndarray:
        rows = [
            np.random.default_rng([1, int(person)]).standard_normal(N_FEATURES, np.float32)
            for person in people
        ]
        signal = np.random.default_rng(2).standard_normal(N_FEATURES, np.float32) * 0.02
        return np.stack(rows) + targets[people, :1].astype(np.float32) * signal

    return blockwise_gram(read, N_PEOPLE, correlation_rows, block=N_PEOPLE // 2 + 1)


def _grid_search(
    kernel: np.ndarray, targets: np.ndarray, folds: np.ndarray, strata: np.ndarray
) -> None:
    """scikit-learn on the same precomputed kernel, folds and penalties, one search a target as λ is chosen for each."""
    grid = {
        "alpha": [max(value, 1e-8) for value in LAMBDAS]
    }  # at 0 it warns of a singular matrix for every fit
    for fold in range(SKLEARN_FOLDS):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        inner = PredefinedSplit(stratified_folds(strata[train], 5))
        for target in targets.T:
            search = GridSearchCV(
                SklearnKernelRidge(kernel="precomputed"), grid, cv=inner, scoring="r2"
            )
            search.fit(kernel[np.ix_(train, train)], target[train]).predict(
                kernel[np.ix_(test, train)]
            )


def _eight_methods(predictions: pd.DataFrame) -> pd.DataFrame:
    named = predictions.assign(
        participant=predictions["position"].astype(str), cohort="c", variant="", seed=0
    )
    parts = [
        named.assign(method=f"m{m}", target=named["target"] + suffix)
        for m in range(8)
        for suffix in "abc"
    ]
    return pd.concat(parts, ignore_index=True)


def _timed(function):  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def _row(
    name: str, value: float, reference: float | None, ratio: float | None, target: str
) -> dict:
    return {"name": name, "value": value, "reference": reference, "ratio": ratio, "target": target}
