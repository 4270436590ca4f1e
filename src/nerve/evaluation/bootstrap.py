"""Resampling of participants (or families): the bootstrap as matrix products, and permutations that respect blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

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
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_units).reshape(
        n_resamples, n_units
    )
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


def correlation(left: Any, right: Any) -> float:
    """Pearson r of two vectors; 0 where one of them does not vary."""
    columns = [np.asarray(side, float)[:, None] for side in (left, right)]
    return float(weighted_correlations(np.ones((1, len(columns[0]))), *columns)[0, 0])


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
    up = np.add.reduceat(
        counts[:, order] * positive[order], starts, axis=1
    )  # (resamples, distinct values)
    down = np.add.reduceat(counts[:, order] * ~positive[order], starts, axis=1)
    below = np.cumsum(down, axis=1) - 0.5 * down
    pairs = up.sum(axis=1) * down.sum(axis=1)
    return np.divide(
        (up * below).sum(axis=1), pairs, out=np.full(len(counts), np.nan), where=pairs > 0
    )


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


def restricted_permutations(
    blocks: Any, n_permutations: int, seed: int, families: Any = None
) -> np.ndarray:
    """Random orders in which a value moves only inside its block, (permutations, n) indices.

    Parameters
    ----------
    blocks : (n,) labels or DataFrame
        Values move among participants with the same label (or the same row of labels).
    families : (n,) labels, optional
        Whole families change places with families of the same size in the same block, and members within a family.

    Examples
    --------
    >>> orders = restricted_permutations(["a", "a", "b", "b"], 3, seed=0)
    >>> np.sort(orders, axis=1).tolist()[0]
    [0, 1, 2, 3]
    >>> bool((orders[:, :2] < 2).all())
    True
    """
    table = pd.DataFrame(blocks)
    block = table.groupby(list(table.columns), sort=False, dropna=False).ngroup().to_numpy()
    n = len(block)
    family = group_codes(families, n)
    _, unit = np.unique(np.column_stack([block, family]), axis=0, return_inverse=True)
    unit = unit.reshape(-1)  # a family that spans two blocks counts as one in each
    size = np.bincount(unit)[unit]
    places = np.lexsort((unit, size, block))
    rng = np.random.default_rng(seed)
    orders = np.empty((n_permutations, n), int)
    for order in orders:
        luck = rng.random(unit.max() + 1)[unit]
        order[places] = np.lexsort((rng.random(n), unit, luck, size, block))
    return orders


def permutation_p(null: Any, observed: float) -> float:
    """One-sided p = (1 + #{null ≥ observed}) / (1 + n).

    `null` holds the statistic of permuted targets, or of models trained on permuted regions.

    Examples
    --------
    >>> permutation_p([0.1, 0.2, 0.3], 0.25)
    0.5
    """
    null = np.asarray(null, float)
    null = null[np.isfinite(null)]
    return float((1 + np.sum(null >= observed)) / (1 + len(null)))


def adjusted_p(p_values: Any) -> np.ndarray:
    """Benjamini and Hochberg's q, which bounds the false discovery rate; missing values stay missing.

    Examples
    --------
    >>> adjusted_p([0.01, 0.04, 0.03, np.nan]).round(3).tolist()
    [0.03, 0.04, 0.04, nan]
    """
    p_values = np.asarray(p_values, float)
    adjusted, known = np.full(p_values.shape, np.nan), np.isfinite(p_values)
    if known.any():
        adjusted[known] = false_discovery_control(p_values[known])
    return adjusted
