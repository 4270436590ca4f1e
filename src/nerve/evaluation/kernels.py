"""Kernels between participants: how alike are two feature vectors?

Correlation, cosine and linear kernels are inner products of transformed rows, K = Z Zᵀ, which is what makes the
cheap route of `kernel_ridge.Spectrum.of_factor` possible when there are fewer features than participants.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nerve.checks import AboutPeople, placing

_BLOCK_BYTES = 2**28  # one block of rows in float64

Rows = Callable[[np.ndarray], np.ndarray]


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
    return cosine_rows(features - features.mean(axis=1, keepdims=True))


def cosine_rows(features: np.ndarray) -> np.ndarray:
    """Rows scaled to unit length, so that Z Zᵀ holds cosines; a row of zeros is refused."""
    features = np.asarray(features, float)
    length = np.linalg.norm(features, axis=1, keepdims=True)
    if (length == 0).any():
        raise AboutPeople(
            np.flatnonzero(length[:, 0] == 0),
            "The features of {people} do not vary, expected numbers that differ: no correlation can be formed. "
            "Leave them out, or use another kernel (linear or rbf).",
        )
    return features / length


UNIT_ROWS = {"correlation": correlation_rows, "cosine": cosine_rows}


def linear_rows(features: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Features z-scored with the mean and deviation of `training`, divided by √d so that Z Zᵀ has a diagonal near 1.

    Features that are constant in `training` carry nothing and become 0.
    """
    peak = np.abs(training).max(axis=0, initial=0.0)
    peak = np.where(peak > 0, peak, 1.0)  # first, so that squares neither overflow nor vanish
    mean, deviation = training.mean(axis=0), peak * (training / peak).std(axis=0)
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


def blockwise_gram(
    read: Rows,
    n: int,
    transform: Callable[[np.ndarray], np.ndarray],
    *,
    block: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> np.ndarray:
    """Z Zᵀ of transformed rows in float64, reading two blocks of rows at a time: memory is the result and two blocks.

    Parameters
    ----------
    read : function
        Index array → (k, d) rows, from memory or from disk.
    n : int
        Number of participants.
    transform : function
        Applied to a block of rows by itself, e.g. `correlation_rows`.
    block : int, optional
        Participants in a block; by default as many as fit 256 MiB in float64.
    progress : function, optional
        Called with the share of the work done, from 0 to 1.
    """
    block = block or max(16, _BLOCK_BYTES // (8 * max(read(np.arange(1)).shape[1], 1)))
    parts = [np.arange(start, min(start + block, n)) for start in range(0, n, block)]
    gram: np.ndarray = np.empty((n, n))
    done, total = 0, len(parts) * (len(parts) + 1) // 2
    for i, some in enumerate(parts):
        upper = transformed_rows(read, some, transform)  # (block, d)
        for j in range(i, len(parts)):
            right = upper if j == i else transformed_rows(read, parts[j], transform)
            product = upper @ right.T  # (block, block)
            gram[np.ix_(some, parts[j])], gram[np.ix_(parts[j], some)] = product, product.T
            done += 1
            if progress:
                progress(done / total)
    return gram


def transformed_rows(read: Rows, rows: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Rows read and transformed; what is said of one of them is said of the right participant."""
    with placing(rows):
        return transform(read(rows))
