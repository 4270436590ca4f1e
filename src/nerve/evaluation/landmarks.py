"""Kernels of very many participants through some of them (Nyström): memory grows with n · m, not with n².

With C the (n, m) kernel of everyone with m landmark participants and W that among the landmarks, K ≈ C W⁻¹ Cᵀ. For
W = U diag(s) Uᵀ the rows Z = C U diag(s)^-½ give K ≈ Z Zᵀ, and kernel ridge on Z is solved with m unknowns. Who may
be a landmark is drawn once; in each fold only its training participants are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nerve.components import decomposed
from nerve.evaluation.kernels import Rows, median_gamma, transformed_rows
from nerve.evaluation.sources import Source

_BLOCK = 128  # participants that are read and transformed, in float64, at a time
_CUT = 1e-6  # eigenvalues of W below this share of the largest are rounding of float32 products


def landmark_pool(n: int, n_landmarks: int, seed: int) -> np.ndarray:
    """Positions of the participants who may be landmarks, ascending."""
    return np.sort(np.random.default_rng([seed, 7]).permutation(n)[:n_landmarks])


def cross_products(
    read: Rows,
    n: int,
    pool: np.ndarray,
    transform: Callable[[np.ndarray], np.ndarray],
    progress: Callable[[float], None] | None = None,
) -> np.ndarray:
    """Z Z_poolᵀ, (n, m) float32, reading a block of participants at a time.

    Parameters
    ----------
    read : function
        Index array → (k, d) rows.
    transform : function
        Applied to a block of rows by itself, e.g. `correlation_rows`.
    """

    def blocks(people: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for some in np.array_split(people, -(-len(people) // _BLOCK)):
            yield some, transformed_rows(read, some, transform).astype(np.float32)

    landmarks = np.concatenate([rows for _, rows in blocks(pool)])  # (m, d)
    cross = np.empty((n, len(pool)), np.float32)
    for some, rows in blocks(np.arange(n)):
        cross[some] = rows @ landmarks.T
        if progress:
            progress((some[-1] + 1) / n)
    return cross


class Landmarks(Source):
    """Rows Z of a fold, from the kernel of everyone with the pool.

    Parameters
    ----------
    cross : (n, m) array
        The kernel; squared distances for the Gaussian kernel, whose width comes from the landmarks of the fold.
    """

    def __init__(self, cross: np.ndarray, pool: np.ndarray, gaussian: bool = False) -> None:
        self.cross, self.pool, self.gaussian = cross, pool, gaussian

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Z of training and test participants, (train, k) and (test, k)."""
        mine = np.isin(self.pool, train)  # (m,)
        cross = self.cross[:, mine]  # (n, m')
        if self.gaussian:
            cross = np.exp(-median_gamma(cross[self.pool[mine]]) * cross)
        values, vectors = decomposed(np.asarray(cross[self.pool[mine]], float))
        kept = values > values[-1] * _CUT
        root = vectors[:, kept] / np.sqrt(values[kept])  # (m', k): W^-½ without the directions that rounding made
        return cross[train] @ root, cross[test] @ root
