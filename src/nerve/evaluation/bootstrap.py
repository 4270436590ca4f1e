"""Bootstrap over participants (or families) as matrix products: a resample is a row of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from nerve.evaluation.folds import group_codes


def resample_counts(n: int, n_resamples: int, seed: int, families: Any = None) -> np.ndarray:
    """How often each participant is drawn in each resample, (resamples, n).

    Drawn as ``rng.integers(0, n, (resamples, n))``, the draw of `scipy.stats.bootstrap`. With `families`, whole
    families are drawn and everyone in a drawn family counts.

    Examples
    --------
    >>> resample_counts(4, 3, seed=0).sum(axis=1).tolist()
    [4.0, 4.0, 4.0]
    """
    codes = group_codes(families, n)
    n_units = codes.max() + 1
    drawn = np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units))
    drawn += np.arange(n_resamples)[:, None] * n_units
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_units).reshape(n_resamples, n_units)
    return counts[:, codes].astype(float)


def weighted_correlations(counts: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson r of every pair of columns in every resample, (resamples, m) from two (n, m) arrays.

    Sums of products are matrix products with the counts. Columns are standardised first, so that nothing cancels.
    A column that does not vary in a resample gives 0.
    """
    x, y = _standardised(left), _standardised(right)
    total = counts.sum(axis=1, keepdims=True)
    mean_x, mean_y = counts @ x / total, counts @ y / total  # (resamples, m)
    covariance = counts @ (x * y) / total - mean_x * mean_y
    spread = (counts @ x**2 / total - mean_x**2) * (counts @ y**2 / total - mean_y**2)
    scale = np.sqrt(np.maximum(spread, 0.0))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 1e-12)


def weighted_auc(counts: np.ndarray, positive: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Area under the ROC curve in every resample, (resamples,); ties count half.

    Parameters
    ----------
    positive : (n,) booleans
    predicted : (n,) numbers
    """
    order = np.argsort(predicted, kind="stable")
    _, tie = np.unique(predicted[order], return_inverse=True)
    starts = np.flatnonzero(np.r_[True, np.diff(tie) > 0])
    up = np.add.reduceat(counts[:, order] * positive[order], starts, axis=1)  # (resamples, distinct values)
    down = np.add.reduceat(counts[:, order] * ~positive[order], starts, axis=1)
    below = np.cumsum(down, axis=1) - 0.5 * down
    pairs = up.sum(axis=1) * down.sum(axis=1)
    return np.divide((up * below).sum(axis=1), pairs, out=np.full(len(counts), np.nan), where=pairs > 0)


def interval(statistic: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of a bootstrap distribution."""
    low, high = np.nanquantile(statistic, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def two_sided_p(differences: np.ndarray) -> float:
    """Two-sided bootstrap p that a difference is 0: twice the smaller share on either side, plus one."""
    differences = differences[np.isfinite(differences)]
    smaller = min((differences <= 0).sum(), (differences >= 0).sum())
    return float(min(1.0, 2.0 * (1 + smaller) / (1 + len(differences))))


def _standardised(columns: np.ndarray) -> np.ndarray:
    centred = columns - columns.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 0, scale, 1.0)
