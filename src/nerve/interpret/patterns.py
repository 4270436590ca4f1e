"""Haufe's transformation: weights of a model say what cancels noise, patterns say where the predicted signal is seen.

For a linear model ŷ = wᵀx the pattern is Σ_x w / var(ŷ) = cov(x, ŷ) / var(ŷ) (Haufe et al., 2014). The covariance can
be formed for any model and in any space: here between FC and the out-of-fold predictions of kernel ridge on whatever
features, so that it maps an embedding back to network pairs. We divide by the standard deviation of ŷ, which gives the
change of FC that goes with one standard deviation of the prediction.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nerve.cohort import Cohort
from nerve.interpret.occlusion import chunks
from nerve.patching import Patching


def pattern_sizes(cohort: Cohort, predicted: np.ndarray, folds: np.ndarray, patching: Patching) -> np.ndarray:
    """(P, T) root mean square, over the entries of a patch, of the covariance of FC with out-of-fold predictions.

    Effects of both signs do not cancel in it. The diagonal of FC is not counted.

    Parameters
    ----------
    predicted : (n, T) array
        NaN for participants who are left out.
    folds : (n,) integers
        Predictions of different folds come from different models: they are centred fold by fold.
    """
    score = standardised_in_folds(predicted, folds)  # (n, T)
    total = np.zeros((patching.n_entries, score.shape[1]))
    for rows in chunks(np.flatnonzero(score.any(axis=1))):
        total += patching.pack(cohort.inputs("fc", rows)).T.astype(float) @ score[rows]
    counted = np.maximum(np.isfinite(predicted).sum(axis=0), 1)  # (T,)
    return np.sqrt(patching.means((total / counted).T ** 2, empty=0.0).T)


def standardised_in_folds(predicted: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Predictions centred within folds, divided by their overall deviation; 0 where missing. (n, T)."""
    table = pd.DataFrame(predicted)
    centred = table - table.groupby(folds).transform("mean")
    deviation = np.sqrt((centred**2).mean())
    return (centred / deviation.where(deviation > 0, 1.0)).fillna(0.0).to_numpy()


def patch_means(cohort: Cohort, patching: Patching) -> np.ndarray:
    """(n, P) mean FC of every patch, without the diagonal."""
    parts = (patching.pack(cohort.inputs("fc", rows)).astype(float) for rows in chunks(np.arange(len(cohort))))
    return np.concatenate([patching.means(packed, empty=0.0) for packed in parts])
