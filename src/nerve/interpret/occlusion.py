"""Out-of-fold predictions with one patch hidden: the patch is replaced by the mean of the training participants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nerve._utils.progress import progress_bar
from nerve.core.patching import Patching
from nerve.core.views import FCView, View
from nerve.data.cohort import Cohort
from nerve.evaluation.cross_validation import fold_tasks
from nerve.evaluation.feature_sets import GivenNumbers, ridge_of
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol

TOGETHER = 128  # matrices that are embedded at once


class Embedding(NamedTuple):
    """Features of a cohort's participants, and their features with each patch hidden in turn."""

    embed: Callable[[np.ndarray], np.ndarray]
    """(k, R, R) → (k, …) features; further axes are flattened."""
    matrices: Callable[[np.ndarray], np.ndarray]
    """Rows of the cohort → their (k, R, R)."""
    patching: Patching
    """The patches to hide."""
    view: View = FCView()
    """What makes the matrices of FC. Patches are hidden in them: FC with another participant's patch may not be one."""

    def features(self, rows: np.ndarray) -> np.ndarray:
        """(k, d) of k participants."""
        return self.embed(self.matrices(rows)).reshape(len(rows), -1)

    def hidden(self, rows: np.ndarray, mean: np.ndarray) -> Iterator[np.ndarray]:
        """(k, d) once for each patch, with that patch taken from the view of `mean` (R, R)."""
        packed = self.patching.pack(self.matrices(rows))  # (k, S)
        average = self.patching.pack(self.view.apply(np.asarray(mean)[None])[0])  # (S,)
        for patches in chunks(np.arange(self.patching.n_patches), max(1, TOGETHER // len(rows))):
            hidden = np.where(
                self.patching.patch_of == patches[:, None, None], average, packed
            )  # (p, k, S)
            found = self.embed(self.patching.unpack(hidden.reshape(-1, packed.shape[-1])))
            yield from found.reshape(len(patches), len(rows), -1)


def embedding_of(encoder: Any, cohort: Cohort, patching: Patching) -> Embedding:
    """Of "raw" (FC above the diagonal), or of a fitted encoder; the cohort is in its region order."""
    if hasattr(encoder, "embed_matrices"):
        return Embedding(
            encoder.embed_matrices, encoder.patch_dataset(cohort).matrices, patching, encoder.view_
        )
    embed = _upper if isinstance(encoder, str) else encoder.transform
    return Embedding(embed, partial(cohort.inputs, "fc"), patching)


def _upper(fc: np.ndarray) -> np.ndarray:
    return fc[:, *np.triu_indices(fc.shape[-1], 1)]


class OccludedPredictions(NamedTuple):
    """Predictions of everyone by the fold that has not seen them; NaN where a target is missing."""

    folds: np.ndarray  # (n,)
    observed: np.ndarray  # (n, T), covariates removed with training coefficients
    intact: np.ndarray  # (n, T)
    occluded: np.ndarray  # (P, n, T)


def occluded_predictions(
    embedding: Embedding,
    cohort: Cohort,
    people: Participants,
    folds: np.ndarray,
    protocol: Protocol,
    label: str = "occlusion",
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
    label : str
        What the progress calls the work.
    """
    predicted = int((np.isfinite(people.targets.to_numpy(float)) & (folds >= 0)[:, None]).sum())
    n_predictions = predicted * embedding.patching.n_patches
    with progress_bar(label=label, total=n_predictions, unit="predictions") as bar:
        return _occluded(embedding, cohort, people, folds, protocol, bar)


def _occluded(
    embedding: Embedding,
    cohort: Cohort,
    people: Participants,
    folds: np.ndarray,
    protocol: Protocol,
    bar: Any,
) -> OccludedPredictions:
    features = np.concatenate([embedding.features(rows) for rows in chunks(np.arange(len(cohort)))])
    means = training_means(cohort, folds)
    names = list(map(str, people.targets.columns))
    observed, intact = np.full((2, len(cohort), len(names)), np.nan)
    occluded = np.full((embedding.patching.n_patches, len(cohort), len(names)), np.nan)
    for task in fold_tasks(
        GivenNumbers(values=features),
        people.targets,
        folds,
        people.covariates,
        people.order,
        people.class_columns,
    ):
        columns = np.array([names.index(name) for name in task.names])
        groups = None if people.inner_groups is None else people.inner_groups[task.train]
        ridge = ridge_of(protocol).fit(
            task.features[0], task.values[task.train], groups=groups, strata=task.strata
        )
        observed[np.ix_(task.test, columns)] = task.values[task.test]
        intact[np.ix_(task.test, columns)] = ridge.predict(task.features[1])
        for rows in chunks(task.test):
            for patch, hidden in enumerate(embedding.hidden(rows, means[task.fold])):
                occluded[patch][np.ix_(rows, columns)] = ridge.predict(hidden)
                bar.update(len(rows) * len(columns))
    return OccludedPredictions(folds, observed, intact, occluded)


def training_means(cohort: Cohort, folds: np.ndarray) -> dict[int, np.ndarray]:
    """{fold: (R, R)} mean FC of everyone outside the fold, in one pass over the participants."""
    labels = [int(label) for label in np.unique(folds[folds >= 0])]
    sums = {label: np.zeros((cohort.n_regions, cohort.n_regions)) for label in labels}
    for label in labels:
        for rows in chunks(np.flatnonzero(folds == label)):
            sums[label] += cohort.inputs("fc", rows).sum(axis=0, dtype=float)
    total, used = sum(sums.values()), int((folds >= 0).sum())
    return {label: (total - sums[label]) / (used - int((folds == label).sum())) for label in labels}


def chunks(rows: np.ndarray, size: int = 64) -> Iterator[np.ndarray]:
    """Some rows at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
