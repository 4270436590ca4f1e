"""Principal components from the participants' own Gram matrix: right for fewer participants than columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from nerve._utils.cores import one_blas_thread, usable_cores

LEAST_SHARE = 1e-7  # of the largest eigenvalue: what float32 can tell from nothing
_MATRICES_PER_TASK = 16
WORTH_THREADS = 1024  # rows from which a decomposition is quicker in several threads


def decomposed(matrix: np.ndarray, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix; of a small one in one thread.

    Beside other programs, threads that wait for each other at each of its many steps lose far more than they gain:
    `python -m benchmarks beside`. What can be given in `how` is what `scipy.linalg.eigh` takes.
    """
    with one_blas_thread() if len(matrix) < WORTH_THREADS else nullcontext():
        return linalg.eigh(matrix, check_finite=False, **({"driver": "evd"} | how))  # type: ignore[no-any-return]


def symmetric_log(matrices: np.ndarray, whitening: np.ndarray | None = None) -> np.ndarray:
    """The logarithm of symmetric positive definite matrices S, or of W S W.

    Each core works on some of the matrices: products and decompositions as small as these gain
    nothing from threads of their own.

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

    With X centred and X Xᵀ = V diag(λ) Vᵀ, component k is Xᵀ v_k / √λ_k and its variance λ_k / n. Signs are fixed so
    that a component's largest loading is positive.

    Parameters
    ----------
    values : (n, p) array
    width : int
        Components to find, at most; there are no more than the rows allow.
    center : bool
        Take the mean away first; otherwise the mean is zero, and variances are mean squares.

    Returns
    -------
    (p,), (p, k) and (n,) arrays
        The variances are all of them, largest first.
    """
    mean = (
        values.mean(axis=0, dtype=float).astype(values.dtype)
        if center
        else np.zeros_like(values[0])
    )
    centred = values - mean  # (n, p)
    unit = float(np.abs(centred).max(initial=0.0))
    if unit <= 4 * np.finfo(values.dtype).eps * float(
        np.abs(mean).max(initial=0.0)
    ):  # rounding: all rows are alike
        return mean, np.zeros((values.shape[1], 0), values.dtype), np.zeros(len(values))
    centred /= unit  # components have no units, and float32 little room for squares
    eigenvalues, vectors = decomposed((centred @ centred.T).astype(float))
    eigenvalues, vectors = np.maximum(eigenvalues[::-1], 0), vectors[:, ::-1]  # largest first
    kept = int((eigenvalues[:width] > LEAST_SHARE * eigenvalues[0]).sum())
    components = centred.T @ (vectors[:, :kept] / np.sqrt(eigenvalues[:kept])).astype(
        values.dtype
    )  # (p, k)
    largest = components[np.abs(components).argmax(axis=0), np.arange(kept)]
    return mean, components * np.sign(largest), eigenvalues * unit**2 / len(values)


def turned(components: np.ndarray, width: int | None = None) -> np.ndarray:
    """(p, k) components → (p, k + 1) directions whose scores have the same distances and sum to zero.

    The correlation kernel takes the mean of a participant's numbers away. Of components, whose signs are arbitrary,
    that would be an arbitrary direction; after this turn (Helmert's matrix) it is nothing.

    Parameters
    ----------
    components : (p, k) array
    width : int, optional
        Directions to return, more than k: distances are then spread over as many numbers.

    Examples
    --------
    >>> turned(np.eye(3)[:, :2]).sum(axis=1).round(12).tolist()
    [0.0, 0.0, 0.0]
    """
    k = components.shape[1]
    return components @ linalg.helmert(width or k + 1)[:k].astype(components.dtype)


class Shrinkage(NamedTuple):
    """Directions in which participants differ by more than noise, and how much of a score on each is signal.

    Variances and weights have two rows: of participants from whom the directions come, and of everyone else.
    """

    directions: np.ndarray  # (p, k)
    variances: np.ndarray  # (2, k)
    weights: np.ndarray  # (2, k)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """(n, p) unit vectors → (n, k) posterior means of what is signal in them."""
        scores = vectors @ self.directions
        return scores * self.weights[self.are_new(scores).astype(int)]

    def are_new(self, scores: np.ndarray) -> np.ndarray:
        """Who was not there when the directions were found, (n,) bool: their scores are several times smaller."""
        seen, new = self.variances
        return (scores**2 / seen).mean(axis=1) < np.sqrt(
            (new / seen).mean()
        )  # halfway between the two, in ratios


def shrinkage_of(vectors: np.ndarray, width: int) -> Shrinkage:
    """Directions and weights of (n, p) unit vectors whose noise is the same in every direction of theirs.

    With v_k the variances of the n - 1 principal directions, most of them noise, and floor their median, a score of a
    participant who is among the n is signal by the share w_k = max(0, 1 - floor / v_k).

    Directions found among few participants hold the noise of these very participants, which nobody else has: of others,
    the score has a variance of w_k² v_k of signal and floor · n / p of noise (the spiked model for p ≫ n), and so a
    weight of its own. Both weights bring the signal to the same scale.
    """
    n, p = vectors.shape
    _, directions, variances = principal_components(vectors, width, center=False)
    floor = float(np.median(variances[: max(1, min(n - 1, p))]))
    above = variances[: directions.shape[1]] > floor
    v = variances[: directions.shape[1]][above]
    w = 1 - floor / v
    signal, noise = (
        (w**2 * v, floor * n / p) if n < p else (w * v, floor)
    )  # with so many, directions are nobody's own
    pairs = (
        np.stack(pair).astype(vectors.dtype)
        for pair in ((v, signal + noise), (w, signal / (signal + noise)))
    )
    return Shrinkage(directions[:, above], *pairs)


def unit_rows(vectors: np.ndarray, rounding: float = 0.0) -> np.ndarray:
    """Rows at unit length; those no longer than `rounding` become zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > rounding)
