"""Out-of-fold predictions with one patch hidden: the patch is replaced by the mean of the training participants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nerve.cohort import Cohort
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.kernels import correlation_rows, cosine_rows, linear_rows
from nerve.evaluation.people import People
from nerve.evaluation.predict import fold_tasks
from nerve.evaluation.sources import Rows
from nerve.interpret.embeddings import Embedding
from nerve.protocol import Protocol

Progress = Callable[[float], None]
CHUNK = 64  # participants read at a time


@dataclass(frozen=True)
class OccludedPredictions:
    """Predictions of everyone by the fold that has not seen them; NaN where a target is missing."""

    observed: np.ndarray  # (n, T), covariates removed with training coefficients
    intact: np.ndarray  # (n, T)
    occluded: np.ndarray  # (P, n, T)


def occluded_predictions(
    embedding: Embedding,
    cohort: Cohort,
    people: People,
    folds: np.ndarray,
    protocol: Protocol,
    progress: Progress | None = None,
) -> OccludedPredictions:
    """Fit on intact training participants, then predict test participants intact and with each patch hidden in turn.

    Folds, λ and coefficients stay those of the intact model, so that a change is due to what it no longer sees. Each
    participant is a test participant once: n · P embeddings in all, whatever the number of folds.

    Parameters
    ----------
    embedding : Embedding
        Makes the features of the cohort, and knows the patches.
    folds : (n,) integers
        Test fold of each participant; negative for participants in none.
    """
    features = np.concatenate([embedding.features(rows) for rows in chunks(np.arange(len(cohort)))])
    means = training_means(cohort, folds)
    n_targets = people.targets.shape[1]
    observed, intact = np.full((2, len(cohort), n_targets), np.nan)
    occluded = np.full((embedding.patching.n_patches, len(cohort), n_targets), np.nan)
    names = list(map(str, people.targets.columns))
    for task in fold_tasks(
        Rows(features), people.targets, folds, people.covariates, people.order, people.whole, progress
    ):
        columns = np.array([names.index(name) for name in task.names])
        ridge = KernelRidge(protocol.kernel, protocol.lambdas, protocol.n_inner_folds, seed=protocol.seed)
        groups = None if people.inner_groups is None else people.inner_groups[task.train]
        ridge.fit(task.features[0], task.values[task.train], groups=groups, strata=task.strata)
        predict = predictor(ridge)
        observed[np.ix_(task.test, columns)] = task.values[task.test]
        intact[np.ix_(task.test, columns)] = predict(task.features[1])
        for rows in chunks(task.test):
            for patch, hidden in enumerate(embedding.hidden(rows, means[task.fold])):
                occluded[patch][np.ix_(rows, columns)] = predict(hidden)
    return OccludedPredictions(observed, intact, occluded)


def training_means(cohort: Cohort, folds: np.ndarray) -> dict[int, np.ndarray]:
    """{fold: (R, R)} mean FC of everyone outside the fold, in one pass over the participants."""
    labels = [int(label) for label in np.unique(folds[folds >= 0])]
    sums = {label: np.zeros((cohort.n_regions, cohort.n_regions)) for label in labels}
    for label in labels:
        for rows in chunks(np.flatnonzero(folds == label)):
            sums[label] += cohort.inputs("fc", rows).sum(axis=0, dtype=float)
    total, used = sum(sums.values()), int((folds >= 0).sum())
    return {label: (total - sums[label]) / (used - int((folds == label).sum())) for label in labels}


def predictor(ridge: KernelRidge) -> Callable[[np.ndarray], np.ndarray]:
    """`ridge.predict` with the weights of features made once: ŷ = z w + β, w = Zᵀ α, where the kernel is Z Zᵀ."""
    if ridge.kernel not in ("correlation", "cosine", "linear"):
        return ridge.predict
    weights = ridge.spectrum_.rotation @ ridge.coefficients_
    if ridge.factor_ is not None:
        weights = ridge.factor_.T @ weights  # (d, T)

    def predict(features: np.ndarray) -> np.ndarray:
        if ridge.kernel == "linear":
            rows = linear_rows(features, ridge.training_)
        else:
            rows = correlation_rows(features) if ridge.kernel == "correlation" else cosine_rows(features)
        return rows @ weights + ridge.bias_  # (k, T)

    return predict


def chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time."""
    for start in range(0, len(rows), CHUNK):
        yield rows[start : start + CHUNK]
