"""Haufe's transformation: weights of a model say what cancels noise, patterns say where the predicted signal is seen.

For a linear model ŷ = wᵀx the pattern is Σ_x w / var(ŷ) = cov(x, ŷ) / var(ŷ) (Haufe et al., 2014). The covariance can
be formed for any model and in any space: here between FC and the out-of-fold predictions of kernel ridge on whatever
features, so that it maps an embedding back to network pairs. We divide by the standard deviation of ŷ, which gives the
change of FC that goes with one standard deviation of the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nerve.cohort import Cohort
from nerve.interpret.occlusion import chunks
from nerve.patching import Patching


@dataclass(frozen=True)
class Patterns:
    """Patterns by patch."""

    mean: np.ndarray  # (P, T) mean over the entries of the patch, with its sign
    rms: np.ndarray  # (P, T) root mean square over them: effects of both signs do not cancel


def haufe_patterns(cohort: Cohort, predicted: np.ndarray, folds: np.ndarray, patching: Patching) -> Patterns:
    """Covariance of every FC entry with out-of-fold predictions, summarised by patch.

    Parameters
    ----------
    predicted : (n, T) array
        NaN for participants who are left out.
    folds : (n,) integers
        Predictions of different folds come from different models: they are centred fold by fold.

    Notes
    -----
    The diagonal of FC is not counted.
    """
    score = standardised_in_folds(predicted, folds)  # (n, T)
    counted = np.maximum(np.isfinite(predicted).sum(axis=0), 1)  # (T,)
    total = np.zeros((patching.n_entries, score.shape[1]))
    for rows in chunks(np.flatnonzero(score.any(axis=1))):
        total += patching.pack(cohort.inputs("fc", rows)).T.astype(float) @ score[rows]
    entries = total / counted  # (S, T)
    entries[patching.rows == patching.cols] = 0.0
    return Patterns(_by_patch(entries, patching), np.sqrt(_by_patch(entries**2, patching)))


def standardised_in_folds(predicted: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Predictions centred within folds, divided by their overall deviation; 0 where missing. (n, T)."""
    centred = np.array(predicted, float)
    for label in np.unique(folds):
        some = centred[folds == label]
        kept = np.isfinite(some)
        centred[folds == label] = some - np.where(kept, some, 0.0).sum(axis=0) / np.maximum(kept.sum(axis=0), 1)
    kept = np.isfinite(centred)
    centred = np.where(kept, centred, 0.0)
    deviation = np.sqrt((centred**2).sum(axis=0) / np.maximum(kept.sum(axis=0), 1))
    return centred / np.where(deviation > 0, deviation, 1.0)


def patch_means(cohort: Cohort, patching: Patching) -> np.ndarray:
    """(n, P) mean FC of every patch, without the diagonal."""
    parts = []
    for rows in chunks(np.arange(len(cohort))):
        packed = patching.pack(cohort.inputs("fc", rows)).astype(float)
        packed[:, patching.rows == patching.cols] = 0.0
        parts.append(_by_patch(packed.T, patching).T)
    return np.concatenate(parts)


def _by_patch(entries: np.ndarray, patching: Patching) -> np.ndarray:
    """(S, T) → (P, T): mean over the entries of a patch that are not on the diagonal of FC."""
    off = np.bincount(patching.patch_of, weights=patching.rows != patching.cols, minlength=patching.n_patches)
    return np.add.reduceat(entries, patching.offsets[:-1], axis=0) / np.maximum(off, 1)[:, None]
