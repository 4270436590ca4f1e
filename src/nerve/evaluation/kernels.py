"""Kernels between participants: how alike are two feature vectors?

Correlation, cosine and linear kernels are inner products of transformed rows, K = Z Zᵀ: with fewer features than
participants `kernel_ridge.Spectrum` works on ZᵀZ.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np

from nerve._utils.errors import ParticipantError, placing
from nerve._utils.progress import progress_bar
from nerve.evaluation.covariates import deviations

_BLOCK_BYTES = 2**28  # one block of rows in float64

Read = Callable[[np.ndarray], np.ndarray]  # index array → (k, d) rows, from memory or from disk
Transform = Callable[
    [np.ndarray], np.ndarray
]  # of a block of rows by itself, e.g. `correlation_rows`


def correlation_rows(features: np.ndarray) -> np.ndarray:
    """Rows centred and scaled to unit length, so that Z Zᵀ holds Pearson correlations.

    Parameters
    ----------
    features : (n, d) array

    Examples
    --------
    >>> x = np.array([[1.0, 2.0, 4.0], [4.0, 1.0, 0.0]])
    >>> rows = correlation_rows(x)
    >>> bool(np.isclose((rows @ rows.T)[0, 1], np.corrcoef(x)[0, 1]))
    True
    """
    features = np.asarray(features, float)
    return _at_unit_length(features - features.mean(axis=1, keepdims=True))


def cosine_rows(features: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length, so that Z Zᵀ holds cosines; a row of zeros is refused."""
    return _at_unit_length(np.array(features, float))


def _at_unit_length(rows: np.ndarray) -> np.ndarray:
    """Scale rows in place."""
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))  # as numpy's norm, without its copies
    if (length == 0).any():
        raise ParticipantError(
            np.flatnonzero(length == 0),
            "The features of {people} do not vary, expected numbers that differ: no correlation can be formed. "
            "Leave them out, or use another kernel (linear or rbf).",
        )
    rows /= length[:, None]
    return rows


UNIT_ROWS = {"correlation": correlation_rows, "cosine": cosine_rows}


def linear_rows(features: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Features z-scored with the mean and deviation of `training`, divided by √d so that Z Zᵀ has a diagonal near 1.

    Features that are constant in `training` carry nothing and become 0.
    """
    mean, deviation = training.mean(axis=0), deviations(training)
    scale = np.where(deviation > 1e-12 * np.abs(mean), deviation, np.inf)
    return (np.asarray(features, float) - mean) / scale / np.sqrt(features.shape[1])


def squared_distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances between rows, (n, m), never negative; what is only rounding is zero."""
    lengths = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    squares = lengths - 2.0 * left @ right.T
    return np.where(squares > 1e-12 * lengths, squares, 0.0)


def median_gamma(squares: np.ndarray) -> float:
    """The median heuristic: γ = 1 / (2 · median of the squared distances between training participants, (n, n))."""
    distances = squares[np.triu_indices(len(squares), 1)]
    return 1.0 / (2.0 * max(float(np.median(distances)), np.finfo(float).tiny))


def blockwise_gram(read: Read, n: int, transform: Transform, block: int = 0) -> np.ndarray:
    """Z Zᵀ of n transformed rows in float64, two blocks of rows at a time: memory is the result and two blocks.

    A block is as many participants as fit 256 MiB, or `block` of them.
    """
    block = block or max(16, _BLOCK_BYTES // (8 * max(read(np.arange(1)).shape[1], 1)))
    parts = [np.arange(start, min(start + block, n)) for start in range(0, n, block)]
    pairs = list(combinations_with_replacement(parts, 2))
    gram: np.ndarray = np.empty((n, n))
    for some, others in progress_bar(pairs, label="kernel", unit="blocks"):
        right = _transformed(read, others, transform)  # (block, d)
        if some is others:  # a block meets itself first
            left = right
        product = left @ right.T  # (block, block)
        gram[np.ix_(some, others)], gram[np.ix_(others, some)] = product, product.T
    return gram


def _transformed(read: Read, rows: np.ndarray, transform: Transform) -> np.ndarray:
    """Rows read and transformed; what is said of one of them is said of the right participant."""
    with placing(rows):
        return transform(read(rows))
