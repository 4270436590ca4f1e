"""Permutation tests: orders that respect blocks and families, and the p value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from nerve.evaluation.folds import group_codes


def restricted_permutations(blocks: Any, n_permutations: int, seed: int, families: Any = None) -> np.ndarray:
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
