"""Bootstrap over participants (or families) as matrix products, and permutations within blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from nerve.evaluation.folds import group_codes


def resample_counts(n: int, n_resamples: int, seed: int, families: Any = None) -> np.ndarray:
    """How often each participant is drawn in each resample.

    Drawn as ``rng.integers(0, n, (resamples, n))``, the draw of `scipy.stats.bootstrap`.

    Parameters
    ----------
    n : int
        Participants.
    n_resamples : int
        Resamples.
    seed : int
        Of the draws.
    families : (n,) labels, optional
        Drawn whole: every member of a drawn family counts.

    Returns
    -------
    (resamples, n) array
        The counts.

    Examples
    --------
    >>> resample_counts(4, 3, seed=0).sum(axis=1).tolist()
    [4.0, 4.0, 4.0]
    """
    codes = group_codes(families, n)
    n_units = codes.max() + 1
    drawn = np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units))
    drawn += np.arange(n_resamples)[:, None] * n_units
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_units)
    counts = counts.reshape(n_resamples, n_units)
    return counts[:, codes].astype(float)


def weighted_correlations(counts: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson r of every pair of columns in every resample.

    Sums of products are matrix products with the counts. Columns are standardised first, so that
    nothing cancels. A column that does not vary in a resample gives 0.

    Parameters
    ----------
    counts : (resamples, n) array
        What `resample_counts` gives.
    left, right : (n, m) array
        Columns that are correlated, the first with the first and so on.

    Returns
    -------
    (resamples, m) array
        The correlations.
    """
    x = _standardised(left)
    y = _standardised(right)
    total = counts.sum(axis=1, keepdims=True)
    mean_x = counts @ x / total  # (resamples, m)
    mean_y = counts @ y / total
    covariance = counts @ (x * y) / total - mean_x * mean_y
    spread = (counts @ x**2 / total - mean_x**2) * (counts @ y**2 / total - mean_y**2)
    scale = np.sqrt(np.maximum(spread, 0.0))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 1e-12)


def correlation(left: Any, right: Any) -> float:
    """Pearson r of two vectors; 0 where one of them does not vary."""
    x = np.asarray(left, float)[:, None]
    y = np.asarray(right, float)[:, None]
    once = np.ones((1, len(x)))
    return float(weighted_correlations(once, x, y)[0, 0])


def weighted_auc(counts: np.ndarray, positive: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Area under the ROC curve in every resample; ties count half.

    Parameters
    ----------
    counts : (resamples, n) array
        What `resample_counts` gives.
    positive : (n,) booleans
        Members of the second class.
    predicted : (n,) array
        Predictions.

    Returns
    -------
    (resamples,) array
        The areas; NaN where a resample has one class only.
    """
    order = np.argsort(predicted, kind="stable")
    _, tie = np.unique(predicted[order], return_inverse=True)
    starts = np.flatnonzero(np.r_[True, np.diff(tie) > 0])
    # how many of each class have each distinct prediction, (resamples, distinct values)
    positives = np.add.reduceat(counts[:, order] * positive[order], starts, axis=1)
    negatives = np.add.reduceat(counts[:, order] * ~positive[order], starts, axis=1)
    negatives_below = np.cumsum(negatives, axis=1) - 0.5 * negatives
    pairs_in_order = (positives * negatives_below).sum(axis=1)
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    no_area = np.full(len(counts), np.nan)
    return np.divide(pairs_in_order, pairs, out=no_area, where=pairs > 0)


def interval(statistic: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of a bootstrap distribution; NaN where it has no values."""
    if not np.isfinite(statistic).any():
        return float("nan"), float("nan")
    low, high = np.nanquantile(statistic, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def two_sided_p(differences: np.ndarray) -> float:
    """Two-sided bootstrap p that a difference is 0: twice the smaller share, with one added."""
    differences = differences[np.isfinite(differences)]
    if not len(differences):
        return float("nan")
    smaller = min((differences <= 0).sum(), (differences >= 0).sum())
    return float(min(1.0, 2.0 * (1 + smaller) / (1 + len(differences))))


def restricted_permutations(
    blocks: Any, n_permutations: int, seed: int, families: Any = None
) -> np.ndarray:
    """Random orders in which a value moves only inside its block.

    Parameters
    ----------
    blocks : (n,) labels or DataFrame
        Values move among participants with the same label (or the same row of labels).
    n_permutations : int
        Number of orders.
    seed : int
        Of the orders.
    families : (n,) labels, optional
        Whole families change places with families of the same size in the same block, and members
        within a family.

    Returns
    -------
    (permutations, n) integers
        Positions.

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
    # a family that spans two blocks counts as one in each
    _, unit = np.unique(np.column_stack([block, family]), axis=0, return_inverse=True)
    unit = unit.reshape(-1)
    size = np.bincount(unit)[unit]
    # both sort by block and size of the unit: a value moves to a place in a unit of the same size
    places = np.lexsort((unit, size, block))
    rng = np.random.default_rng(seed)
    orders = np.empty((n_permutations, n), int)
    for i in range(n_permutations):
        rank_of_unit = rng.random(unit.max() + 1)[unit]
        rank_of_member = rng.random(n)
        orders[i, places] = np.lexsort((rank_of_member, unit, rank_of_unit, size, block))
    return orders


def permutation_p(null: Any, observed: float) -> float:
    """One-sided p = (1 + #{null ≥ observed}) / (1 + n).

    Parameters
    ----------
    null : (n,) array
        The statistic of permuted targets, or of models trained on permuted regions.
    observed : float
        The statistic of the targets, or model, themselves.

    Returns
    -------
    float
        The p value.

    Examples
    --------
    >>> permutation_p([0.1, 0.2, 0.3], 0.25)
    0.5
    """
    null = np.asarray(null, float)
    null = null[np.isfinite(null)]
    return float((1 + np.sum(null >= observed)) / (1 + len(null)))


def adjusted_p(p_values: Any) -> np.ndarray:
    """Benjamini and Hochberg's q, which bounds the false discovery rate.

    Parameters
    ----------
    p_values : (n,) array
        The p values; NaN where one is missing.

    Returns
    -------
    (n,) array
        The q values; NaN where p is.

    Examples
    --------
    >>> adjusted_p([0.01, 0.04, 0.03, np.nan]).round(3).tolist()
    [0.03, 0.04, 0.04, nan]
    """
    p_values = np.asarray(p_values, float)
    adjusted = np.full(p_values.shape, np.nan)
    is_present = np.isfinite(p_values)
    if is_present.any():
        adjusted[is_present] = false_discovery_control(p_values[is_present])
    return adjusted


def _standardised(columns: np.ndarray) -> np.ndarray:
    centred = columns - columns.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 0, scale, 1.0)
