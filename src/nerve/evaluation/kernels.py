"""Kernels between participants: how similar two feature vectors are.

Correlation, cosine and linear kernels are inner products of transformed rows, K = Z Zᵀ: with fewer
features than participants `kernel_ridge.Spectrum` works on ZᵀZ.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np

from nerve._utils.errors import ParticipantError, placing
from nerve._utils.progress import progress_bar
from nerve.evaluation.covariates import deviations

# one block of rows in float64
_BLOCK_BYTES = 2**28

# index array → (k, d) rows, from memory or from disk
Read = Callable[[np.ndarray], np.ndarray]
# transforms each block of rows by itself, as `correlation_rows` does
Transform = Callable[[np.ndarray], np.ndarray]


def correlation_rows(features: np.ndarray) -> np.ndarray:
    """Rows centred and scaled to unit length, so that Z Zᵀ holds Pearson correlations.

    Parameters
    ----------
    features : (n, d) array
        Features, in which every row must vary.

    Returns
    -------
    (n, d) array
        The rows Z.

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
            "The features of {people} do not vary, expected numbers that differ: no correlation "
            "can be formed. Leave them out, or use another kernel (linear or rbf).",
        )
    rows /= length[:, None]
    return rows


UNIT_ROWS = {"correlation": correlation_rows, "cosine": cosine_rows}


def linear_rows(features: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Features z-scored with training statistics, divided by √d: Z Zᵀ has a diagonal near 1.

    Parameters
    ----------
    features : (n, d) array
        Features.
    training : (m, d) array
        Features of training participants, whose mean and deviation are used. Features that are
        constant among them become 0.

    Returns
    -------
    (n, d) array
        The rows Z.
    """
    mean = training.mean(axis=0)
    deviation = deviations(training)
    scale = np.where(deviation > 1e-12 * np.abs(mean), deviation, np.inf)
    return (np.asarray(features, float) - mean) / scale / np.sqrt(features.shape[1])


def squared_distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances between rows, (n, m); what is only rounding error is zero."""
    lengths = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    squares = lengths - 2.0 * left @ right.T
    return np.where(squares > 1e-12 * lengths, squares, 0.0)


def median_gamma(squares: np.ndarray) -> float:
    """The median heuristic: γ = 1 / (2 · median of the squared distances), from (n, n) of them."""
    distances = squares[np.triu_indices(len(squares), 1)]
    return 1.0 / (2.0 * max(float(np.median(distances)), np.finfo(float).tiny))


def blockwise_gram(read: Read, n: int, transform: Transform, block: int = 0) -> np.ndarray:
    """Z Zᵀ of n transformed rows, two blocks of rows at a time.

    Memory is the result in float64 and two blocks.

    Parameters
    ----------
    read : callable
        Positions of participants → their rows (k, d).
    n : int
        Number of participants.
    transform : callable
        Rows → rows of Z.
    block : int
        Participants per block; by default as many as fit 256 MiB.

    Returns
    -------
    (n, n) array
        The kernel.
    """
    if not block:
        width = max(read(np.arange(1)).shape[1], 1)
        block = max(16, _BLOCK_BYTES // (8 * width))
    blocks = [np.arange(start, min(start + block, n)) for start in range(0, n, block)]
    pairs = list(combinations_with_replacement(blocks, 2))
    gram: np.ndarray = np.empty((n, n))
    for rows, columns in progress_bar(pairs, label="kernel", unit="blocks"):
        with placing(columns):  # so that errors name the right participants
            right = transform(read(columns))  # (block, d)
        if rows is columns:  # the first pair of every block of rows
            left = right
        product = left @ right.T  # (block, block)
        gram[np.ix_(rows, columns)] = product
        gram[np.ix_(columns, rows)] = product.T
    return gram
