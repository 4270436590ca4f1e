"""Out-of-fold predictions with one patch hidden, that is, replaced by the training mean."""

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

_MATRICES_AT_ONCE = 128  # embedded together


class Embedding(NamedTuple):
    """Features of a cohort's participants, and their features with each patch hidden in turn."""

    embed: Callable[[np.ndarray], np.ndarray]
    """(k, R, R) → (k, …) features; further axes are flattened."""
    matrices: Callable[[np.ndarray], np.ndarray]
    """Rows of the cohort → their (k, R, R) matrices of the view."""
    patching: Patching
    """The patches to hide."""
    view: View = FCView()
    """What makes the matrices from FC. Patches are hidden in the matrices of the view: FC with a
    patch of another matrix may not be a correlation matrix."""

    def features(self, rows: np.ndarray) -> np.ndarray:
        """Embed participants as they are.

        Parameters
        ----------
        rows : (k,) integers
            Rows of the cohort.

        Returns
        -------
        (k, d) array
            Their features.
        """
        return self.embed(self.matrices(rows)).reshape(len(rows), -1)

    def features_with_hidden_patches(
        self, rows: np.ndarray, mean: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Embed participants once per patch, with that patch hidden.

        Parameters
        ----------
        rows : (k,) integers
            Rows of the cohort.
        mean : (R, R) array
            FC whose view takes the place of the hidden patch.

        Yields
        ------
        (k, d) array
            Features with one patch hidden, in the order of the patches.
        """
        packed = self.patching.pack(self.matrices(rows))  # (k, S)
        mean_view = self.view.apply(np.asarray(mean)[None])[0]  # (R, R)
        packed_mean = self.patching.pack(mean_view)  # (S,)
        patches_at_once = max(1, _MATRICES_AT_ONCE // len(rows))
        for patches in row_chunks(np.arange(self.patching.n_patches), patches_at_once):
            is_hidden = self.patching.patch_of == patches[:, None, None]  # (p, 1, S)
            occluded = np.where(is_hidden, packed_mean, packed)  # (p, k, S)
            flat = occluded.reshape(-1, packed.shape[-1])  # (p k, S)
            features = self.embed(self.patching.unpack(flat))
            yield from features.reshape(len(patches), len(rows), -1)


def embedding_of(encoder: Any, cohort: Cohort, patching: Patching) -> Embedding:
    """Make the embedding of a cohort, which gives features intact and with patches hidden.

    Parameters
    ----------
    encoder : "raw" or fitted encoder
        FC above the diagonal, or what `transform` gives.
    cohort : Cohort
        In the region order of the encoder.
    patching : Patching
        The patches to hide.

    Returns
    -------
    Embedding
        It computes features when asked for them.
    """
    if hasattr(encoder, "embed_matrices"):
        matrices = encoder.patch_dataset(cohort).matrices
        return Embedding(encoder.embed_matrices, matrices, patching, encoder.view_)
    embed = _upper_triangles if isinstance(encoder, str) else encoder.transform
    return Embedding(embed, partial(cohort.inputs, "fc"), patching)


class OccludedPredictions(NamedTuple):
    """Each participant predicted by the fold that has not seen them; NaN without a target."""

    folds: np.ndarray
    """(n,) test fold of each participant."""
    observed: np.ndarray
    """(n, T) targets, covariates removed with the coefficients of training participants."""
    intact: np.ndarray
    """(n, T) predictions from all patches."""
    occluded: np.ndarray
    """(P, n, T) predictions with each patch hidden."""


def occluded_predictions(
    embedding: Embedding,
    cohort: Cohort,
    participants: Participants,
    folds: np.ndarray,
    protocol: Protocol,
    label: str = "occlusion",
) -> OccludedPredictions:
    """Fit on intact training participants, predict test participants with each patch hidden.

    Folds, λ and coefficients stay those of the intact model, so that a change is due to what it no
    longer sees. Each participant is a test participant once: n · P embeddings in all, whatever the
    number of folds.

    Parameters
    ----------
    embedding : Embedding
        Makes the features of the cohort, and knows the patches.
    cohort : Cohort
        Its participants, in rows.
    participants : Participants
        Targets, covariates and groups of the same rows.
    folds : (n,) integers
        Test fold of each participant; negative for participants in none.
    protocol : Protocol
        Kernel and choice of λ.
    label : str
        What the progress calls the work.

    Returns
    -------
    OccludedPredictions
        Intact predictions, and those with each patch hidden.
    """
    n = len(cohort)
    n_patches = embedding.patching.n_patches
    target_names = [str(name) for name in participants.targets.columns]
    observed = np.full((n, len(target_names)), np.nan)
    intact = np.full((n, len(target_names)), np.nan)
    occluded = np.full((n_patches, n, len(target_names)), np.nan)
    has_target = np.isfinite(participants.targets.to_numpy(float))  # (n, T)
    n_predicted = int((has_target & (folds >= 0)[:, None]).sum())
    with progress_bar(label=label, total=n_predicted * n_patches, unit="predictions") as bar:
        features = np.concatenate([embedding.features(rows) for rows in row_chunks(np.arange(n))])
        means = training_means(cohort, folds)
        tasks = fold_tasks(
            GivenNumbers(values=features),
            participants.targets,
            folds,
            participants.covariates,
            participants.order,
            participants.class_columns,
        )
        for task in tasks:
            columns = np.array([target_names.index(name) for name in task.names])
            groups = participants.inner_groups
            training_features, test_features = task.features
            ridge = ridge_of(protocol).fit(
                training_features,
                task.values[task.train],
                groups=None if groups is None else groups[task.train],
                strata=task.strata,
            )
            observed[np.ix_(task.test, columns)] = task.values[task.test]
            intact[np.ix_(task.test, columns)] = ridge.predict(test_features)
            for rows in row_chunks(task.test):
                hidden_features = embedding.features_with_hidden_patches(rows, means[task.fold])
                for patch, features_without_patch in enumerate(hidden_features):
                    occluded[patch][np.ix_(rows, columns)] = ridge.predict(features_without_patch)
                    bar.update(len(rows) * len(columns))
    return OccludedPredictions(folds, observed, intact, occluded)


def training_means(cohort: Cohort, folds: np.ndarray) -> dict[int, np.ndarray]:
    """Mean FC of the training participants of each fold, in one pass over all participants.

    Parameters
    ----------
    cohort : Cohort
        The participants.
    folds : (n,) integers
        Test fold of each participant; negative for participants in none.

    Returns
    -------
    dict
        Fold → (R, R) mean over the participants of all other folds.
    """
    labels = [int(label) for label in np.unique(folds[folds >= 0])]
    sums = {}
    for label in labels:
        sums[label] = np.zeros((cohort.n_regions, cohort.n_regions))
        for rows in row_chunks(np.flatnonzero(folds == label)):
            sums[label] += cohort.inputs("fc", rows).sum(axis=0, dtype=float)
    total = sum(sums.values())
    n_used = int((folds >= 0).sum())
    means = {}
    for label in labels:
        n_training = n_used - int((folds == label).sum())
        means[label] = (total - sums[label]) / n_training
    return means


def row_chunks(rows: np.ndarray, size: int = 64) -> Iterator[np.ndarray]:
    """Yield rows a few at a time, in order.

    Parameters
    ----------
    rows : (n,) integers
        Any rows.
    size : int
        How many at a time.

    Yields
    ------
    (≤ size,) integers
        The next rows.
    """
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _upper_triangles(fc: np.ndarray) -> np.ndarray:
    """(k, R, R) → (k, R (R - 1) / 2)."""
    return fc[:, *np.triu_indices(fc.shape[-1], 1)]
