"""Nested kernel ridge against scikit-learn's grid search, and a permutation test against one evaluation."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from benchmarks import row, timed
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

# As in ABCD: the upper triangle at 400 regions.
N_PARTICIPANTS = 1_791
N_FEATURES = 79_800
N_TARGETS = 3
SKLEARN_FOLDS = 2  # of 10: each takes the same time, and grid search is slow


def run() -> list[dict]:
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(N_PARTICIPANTS, N_TARGETS))
    table = pd.DataFrame(targets, columns=[f"target{i}" for i in range(N_TARGETS)])
    strata = np.column_stack([strata_of(column, 10) for column in targets.T])
    folds = stratified_folds(strata, 10)
    kernel, kernel_seconds = timed(lambda: _kernel(targets))
    model = KernelRidge("precomputed")
    features = GivenNumbers(kernel=kernel)
    predictions, seconds = timed(lambda: out_of_fold_predictions(model, features, table, folds))
    _, two_folds_seconds = timed(lambda: _grid_search(kernel, targets, folds, strata))
    sklearn_seconds = two_folds_seconds * 10 / SKLEARN_FOLDS
    first_target = table[["target0"]]
    _, permutation_seconds = timed(
        lambda: null_correlations(model, features, first_target, folds, n_permutations=1000)
    )
    _, statistics_seconds = timed(lambda: score_table(_eight_methods(predictions)))
    return [
        row("kernel of 1,791 × 79,800 features (s)", kernel_seconds, target="stated"),
        row(
            "nested 10-fold, 3 targets, against grid search "
            f"({SKLEARN_FOLDS} folds × {10 // SKLEARN_FOLDS}) (s)",
            seconds,
            sklearn_seconds,
            sklearn_seconds / seconds,
            "≥ 5",
        ),
        row(
            "1,000-permutation test against one evaluation (s)",
            permutation_seconds,
            seconds,
            permutation_seconds / seconds,
            "≤ 3",
        ),
        row("1,000 resamples of 8 methods × 9 targets (s)", statistics_seconds, target="seconds"),
    ]


def _kernel(targets: np.ndarray) -> np.ndarray:
    """The kernel of random features that follow the first target.

    Features are drawn a block at a time (each participant's from a seed of their own), so that
    1 GB is never held.
    """

    def read(participants: np.ndarray) -> np.ndarray:
        noise = [
            np.random.default_rng([1, int(participant)]).standard_normal(N_FEATURES, np.float32)
            for participant in participants
        ]
        signal = np.random.default_rng(2).standard_normal(N_FEATURES, np.float32) * 0.02
        return np.stack(noise) + targets[participants, :1].astype(np.float32) * signal

    return blockwise_gram(read, N_PARTICIPANTS, correlation_rows, block=N_PARTICIPANTS // 2 + 1)


def _grid_search(
    kernel: np.ndarray, targets: np.ndarray, folds: np.ndarray, strata: np.ndarray
) -> None:
    """scikit-learn on the same kernel, folds and penalties; one search per target chooses its λ."""
    # With a penalty of 0, scikit-learn warns of a singular matrix in every fit.
    grid = {"alpha": [max(value, 1e-8) for value in LAMBDAS]}
    for fold in range(SKLEARN_FOLDS):
        train = np.flatnonzero(folds != fold)
        test = np.flatnonzero(folds == fold)
        inner = PredefinedSplit(stratified_folds(strata[train], 5))
        for target in targets.T:
            search = GridSearchCV(
                SklearnKernelRidge(kernel="precomputed"), grid, cv=inner, scoring="r2"
            )
            search.fit(kernel[np.ix_(train, train)], target[train])
            search.predict(kernel[np.ix_(test, train)])


def _eight_methods(predictions: pd.DataFrame) -> pd.DataFrame:
    """The predictions, repeated as those of eight methods and three times as many targets."""
    named = predictions.assign(
        participant=predictions["position"].astype(str), cohort="c", variant="", seed=0
    )
    parts = []
    for method in range(8):
        for suffix in "abc":
            parts.append(named.assign(method=f"m{method}", target=named["target"] + suffix))
    return pd.concat(parts, ignore_index=True)
