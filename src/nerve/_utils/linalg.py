"""Linear algebra: eigendecompositions, principal components, shrinkage.

Principal components are computed from the Gram matrix of the participants, which is the small one
as long as there are fewer participants than columns.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from nerve._utils.cores import one_blas_thread, usable_cores

_LEAST_SHARE = 1e-7  # of the largest eigenvalue; below it float32 cannot tell one from zero
WORTH_THREADS = 1024  # rows from which a decomposition is quicker in several threads
_MATRICES_PER_TASK = 16


def eigendecomposition(matrix: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a symmetric matrix.

    A small matrix is decomposed in one thread. Several threads would wait for each other at each of
    the many steps, and lose far more than they gain while other programs use the same cores
    (`python -m benchmarks beside`).

    Parameters
    ----------
    matrix : (n, n) array
        Symmetric.
    **options
        Passed to `scipy.linalg.eigh`.

    Returns
    -------
    (n,) array
        Eigenvalues, ascending.
    (n, n) array
        Eigenvectors, one per column.
    """
    options = {"driver": "evd", "check_finite": False} | options
    is_small = len(matrix) < WORTH_THREADS
    with one_blas_thread() if is_small else nullcontext():
        return linalg.eigh(matrix, **options)  # type: ignore[no-any-return]


def symmetric_log(matrices: np.ndarray, whitening: np.ndarray | None = None) -> np.ndarray:
    """Logarithms of symmetric positive definite matrices S, or of W S W.

    Each core works on some of the matrices, because one decomposition of this size gains nothing
    from several threads.

    Parameters
    ----------
    matrices : (n, R, R) array
        Symmetric matrices S.
    whitening : (R, R) array, optional
        W, symmetric too.

    Returns
    -------
    (n, R, R) array
        All NaN for a matrix that is not positive definite.

    Examples
    --------
    >>> symmetric_log(np.diag([1.0, np.e])[None]).round(6).tolist()
    [[[0.0, 0.0], [0.0, 1.0]]]
    """
    logarithms = np.empty(matrices.shape)

    def fill(batch: slice) -> None:
        whitened = matrices[batch]
        if whitening is not None:
            whitened = whitening @ whitened @ whitening
        values, vectors = np.linalg.eigh(whitened)
        values = np.log(values, out=np.full_like(values, np.nan), where=values > 0)
        logarithms[batch] = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)

    starts = range(0, len(matrices), _MATRICES_PER_TASK)
    batches = [slice(start, start + _MATRICES_PER_TASK) for start in starts]
    if len(batches) == 1:
        fill(batches[0])
        return logarithms
    with one_blas_thread(), ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(fill, batches))
    return logarithms


def principal_components(
    values: np.ndarray, width: int, *, center: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, unit components and variances of the rows of a table.

    With X centred and X Xᵀ = V diag(λ) Vᵀ, component k is Xᵀ v_k / √λ_k and its variance λ_k / n.
    Signs are fixed so that the largest loading of a component is positive.

    Parameters
    ----------
    values : (n, p) array
        The table.
    width : int
        Number of components, at most; there are fewer where the rank of the table is lower.
    center : bool
        Subtract the mean first; otherwise the mean is zero, and variances are mean squares.

    Returns
    -------
    (p,) array
        Mean.
    (p, k) array
        Components.
    (n,) array
        All variances, largest first.
    """
    n, p = values.shape
    mean = np.zeros_like(values[0])
    if center:
        mean = values.mean(axis=0, dtype=float).astype(values.dtype)
    centred = values - mean  # (n, p)
    largest_entry = float(np.abs(centred).max(initial=0.0))
    rounding = 4 * np.finfo(values.dtype).eps * float(np.abs(mean).max(initial=0.0))
    if largest_entry <= rounding:  # all rows are equal
        return mean, np.zeros((p, 0), values.dtype), np.zeros(n)
    centred /= largest_entry  # so that squares stay in the range of float32
    eigenvalues, vectors = eigendecomposition((centred @ centred.T).astype(float))
    eigenvalues = np.maximum(eigenvalues[::-1], 0)  # largest first
    vectors = vectors[:, ::-1]
    k = int((eigenvalues[:width] > _LEAST_SHARE * eigenvalues[0]).sum())
    unit_vectors = (vectors[:, :k] / np.sqrt(eigenvalues[:k])).astype(values.dtype)
    components = centred.T @ unit_vectors  # (p, k)
    largest_loadings = components[np.abs(components).argmax(axis=0), np.arange(k)]
    variances = eigenvalues * largest_entry**2 / n
    return mean, components * np.sign(largest_loadings), variances


def rotate_to_zero_sum(components: np.ndarray, width: int | None = None) -> np.ndarray:
    """Rotate components so that scores on them sum to zero and keep their distances.

    The correlation kernel subtracts the mean of a participant's numbers. For components, whose
    signs are arbitrary, that would remove an arbitrary direction; after this rotation (Helmert's
    matrix) it removes nothing.

    Parameters
    ----------
    components : (p, k) array
        Orthonormal columns.
    width : int, optional
        Directions to return, more than k: distances are then spread over as many numbers.

    Returns
    -------
    (p, k + 1) or (p, width) array
        The directions.

    Examples
    --------
    >>> rotate_to_zero_sum(np.eye(3)[:, :2]).sum(axis=1).round(12).tolist()
    [0.0, 0.0, 0.0]
    """
    k = components.shape[1]
    return components @ linalg.helmert(width or k + 1)[:k].astype(components.dtype)


class Shrinkage(NamedTuple):
    """Directions in which participants differ by more than noise, with the share that is signal.

    The first row of variances and weights is for the participants from whom the directions were
    learned, the second row for all others.
    """

    directions: np.ndarray  # (p, k)
    variances: np.ndarray  # (2, k)
    weights: np.ndarray  # (2, k)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """(n, p) unit vectors → (n, k) scores, shrunk to the posterior mean of their signal."""
        scores = vectors @ self.directions
        weights = self.weights[self.are_new(scores).astype(int)]  # (n, k)
        return scores * weights

    def are_new(self, scores: np.ndarray) -> np.ndarray:
        """Whether each participant is new: participants of the fit have much larger scores."""
        seen, new = self.variances
        threshold = np.sqrt((new / seen).mean())  # the geometric middle of 1 and the mean ratio
        return (scores**2 / seen).mean(axis=1) < threshold


def shrinkage_of(vectors: np.ndarray, width: int) -> Shrinkage:
    """Learn directions and weights from unit vectors whose noise is the same in every direction.

    v_k are the variances of the n - 1 principal directions, most of which are noise; their median
    is the floor. Of the score of a participant who is among the n, the share
    w_k = max(0, 1 - floor / v_k) is signal.

    Directions learned from few participants contain the noise of these participants, which others
    do not share. The scores of others have a variance of w_k² v_k from signal and of floor · n / p
    from noise (the spiked model for p ≫ n), and therefore weights of their own. Both weights bring
    the signal to the same scale.

    Parameters
    ----------
    vectors : (n, p) array
        Rows of unit length.
    width : int
        Directions to keep, at most.

    Returns
    -------
    Shrinkage
        Those directions whose variance is above the floor.
    """
    n, p = vectors.shape
    _, directions, variances = principal_components(vectors, width, center=False)
    floor = float(np.median(variances[: max(1, min(n - 1, p))]))
    is_above = variances[: directions.shape[1]] > floor
    v = variances[: directions.shape[1]][is_above]
    w = 1 - floor / v
    if n < p:
        signal = w**2 * v
        noise = floor * n / p
    else:  # with so many participants, directions contain little noise of any of them
        signal = w * v
        noise = floor
    return Shrinkage(
        directions[:, is_above],
        variances=np.stack([v, signal + noise]).astype(vectors.dtype),
        weights=np.stack([w, signal / (signal + noise)]).astype(vectors.dtype),
    )


def unit_rows(vectors: np.ndarray, rounding: float = 0.0) -> np.ndarray:
    """Scale rows to unit length.

    Parameters
    ----------
    vectors : (n, p) array
        The rows.
    rounding : float
        Rows that are no longer than this become zero.

    Returns
    -------
    (n, p) array
        Rows of length one or zero.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > rounding)
