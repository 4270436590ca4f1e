"""Kernels between participants: how alike are two feature vectors?

Correlation, cosine and linear kernels are inner products of transformed rows, K = Z Zᵀ, which is what makes the
cheap route of `kernel_ridge.Spectrum.of_factor` possible when there are fewer features than participants.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nerve.checks import AboutPeople

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
    """Squared Euclidean distances between rows, (n, m), never negative."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2.0 * left @ right.T
    return np.maximum(squares, 0.0)


def median_gamma(training: np.ndarray) -> float:
    """The median heuristic: γ = 1 / (2 · median of the squared distances between training participants)."""
    distances = squared_distances(training, training)[np.triu_indices(len(training), 1)]
    return 1.0 / (2.0 * max(float(np.median(distances)), np.finfo(float).tiny))


def rbf_kernel(left: np.ndarray, right: np.ndarray, gamma: float) -> np.ndarray:
    """exp(−γ ‖x − x′‖²), (n, m)."""
    return np.exp(-gamma * squared_distances(left, right))


def blockwise_gram(
    read: Rows,
    n: int,
    transform: Callable[[np.ndarray], np.ndarray] = np.asarray,
    *,
    block: int | None = None,
    dtype: type = np.float64,
    progress: Callable[[float], None] | None = None,
) -> np.ndarray:
    """Z Zᵀ of transformed rows, reading two blocks of rows at a time: memory is the result and two blocks.

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
    dtype : type
        float64 by default; float32 halves the result for very large cohorts.
    progress : function, optional
        Called with the share of the work done, from 0 to 1.
    """
    width = read(np.arange(1)).shape[1]
    block = block or max(16, _BLOCK_BYTES // (8 * max(width, 1)))
    starts = range(0, n, block)
    gram: np.ndarray = np.empty((n, n), dtype)
    done, total = 0, len(starts) * (len(starts) + 1) // 2
    for i in starts:
        some = np.arange(i, min(i + block, n))
        upper: np.ndarray = transformed_rows(read, some, transform).astype(dtype, copy=False)  # (block, d)
        for j in range(i, n, block):
            others = np.arange(j, min(j + block, n))
            right = upper if j == i else transformed_rows(read, others, transform).astype(dtype, copy=False)
            product = upper @ right.T  # (block, block)
            gram[i : i + len(upper), j : j + len(right)] = product
            gram[j : j + len(right), i : i + len(upper)] = product.T
            done += 1
            if progress:
                progress(done / total)
    return gram


def transformed_rows(read: Rows, rows: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Rows read and transformed; what is said of one of them is said of the right participant."""
    try:
        return transform(read(rows))
    except AboutPeople as somebody:
        raise somebody.at(rows) from None


def correlation_kernel(features: np.ndarray) -> np.ndarray:
    """Pearson correlation between the feature vectors of every two participants, (n, n) float64."""
    return blockwise_gram(lambda rows: features[rows], len(features), correlation_rows)
