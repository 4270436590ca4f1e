"""Kernels of very many participants through some of them (Nyström): memory grows with n · m, not with n².

With C the (n, m) kernel of everyone with m landmark participants and W that among the landmarks, K ≈ C W⁻¹ Cᵀ. For
W = U diag(s) Uᵀ the rows Z = C U diag(s)^-½ give K ≈ Z Zᵀ, and kernel ridge on Z is solved with m unknowns. Who may
be a landmark is drawn once; in each fold only its training participants are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.linalg

from nerve.evaluation.kernels import Rows, median_gamma, rbf_kernel, transformed_rows

EXACT_UP_TO = 16_384  # participants: above it (n, n) kernels, their copies and decompositions exceed 20 GiB
N_LANDMARKS = 2_048
_BLOCK_BYTES = 2**28  # one block of rows in float32
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
    landmarks = _in_float32(read, pool, transform)  # (m, d)
    block = max(16, _BLOCK_BYTES // (4 * landmarks.shape[1]))
    cross = np.empty((n, len(pool)), np.float32)
    for start in range(0, n, block):
        rows = np.arange(start, min(start + block, n))
        cross[rows] = _in_float32(read, rows, transform) @ landmarks.T
        if progress:
            progress((rows[-1] + 1) / n)
    return cross


def _in_float32(read: Rows, rows: np.ndarray, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Transformed rows, some at a time: the transforms work in float64."""
    parts = np.array_split(rows, max(1, len(rows) // 128))
    return np.concatenate([transformed_rows(read, some, transform).astype(np.float32) for some in parts])


class Landmarks:
    """Rows Z of a fold, from the kernel of everyone with the pool."""

    columns: tuple[str, ...] = ()

    def __init__(self, cross: np.ndarray, pool: np.ndarray) -> None:
        self.cross, self.pool = cross, pool

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Z of training and test participants, (train, k) and (test, k)."""
        mine = np.isin(self.pool, train)  # (m,)
        root = _inverse_root(self.cross[np.ix_(self.pool[mine], mine)])  # (m', k)
        return self.cross[np.ix_(train, mine)] @ root, self.cross[np.ix_(test, mine)] @ root


class RbfLandmarks:
    """The same for the Gaussian kernel, whose width comes from the landmarks of the fold."""

    columns: tuple[str, ...] = ()

    def __init__(self, features: np.ndarray, pool: np.ndarray) -> None:
        self.features, self.pool = features, pool

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Z of training and test participants, (train, k) and (test, k)."""
        landmarks = np.asarray(self.features[self.pool[np.isin(self.pool, train)]], float)
        gamma = median_gamma(landmarks)
        root = _inverse_root(rbf_kernel(landmarks, landmarks, gamma))
        return tuple(self._rows(people, landmarks, gamma, root) for people in (train, test))  # type: ignore[return-value]

    def _rows(self, people: np.ndarray, landmarks: np.ndarray, gamma: float, root: np.ndarray) -> np.ndarray:
        parts = np.array_split(people, max(1, len(people) // 1024))
        rows = [rbf_kernel(np.asarray(self.features[some], float), landmarks, gamma) @ root for some in parts]
        return np.concatenate(rows)


class LandmarkComponents:
    """Scores on principal components that come from the landmarks of the fold, from X X_poolᵀ."""

    columns: tuple[str, ...] = ()

    def __init__(self, cross: np.ndarray, pool: np.ndarray, n_components: int) -> None:
        self.cross, self.pool, self.n_components = cross, pool, n_components

    def split(self, train: np.ndarray, test: np.ndarray, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Scores (train, k) and (test, k): with G = U S² Uᵀ the centred products of landmarks, G_x U / S."""
        mine = np.isin(self.pool, train)
        inner = np.asarray(self.cross[np.ix_(self.pool[mine], mine)], float)  # (m', m')
        column = inner.mean(axis=0)
        k = min(self.n_components, len(inner) - 1)
        centred = inner - column - column[:, None] + column.mean()
        values, vectors = scipy.linalg.eigh(centred, subset_by_index=[len(inner) - k, len(inner) - 1])
        kept = values > values[-1] * _CUT
        onto = vectors[:, kept][:, ::-1] / np.sqrt(values[kept][::-1])

        onto = onto @ scipy.linalg.helmert(onto.shape[1] + 1)  # as in `PrincipalComponents`: each row sums to zero

        def scores(people: np.ndarray) -> np.ndarray:
            cross = np.asarray(self.cross[np.ix_(people, mine)], float)
            return (cross - cross.mean(axis=1, keepdims=True) - column + column.mean()) @ onto

        return scores(train), scores(test)


def _inverse_root(kernel: np.ndarray) -> np.ndarray:
    """U diag(s)^-½ of a kernel among landmarks, without the directions that rounding made."""
    values, vectors = scipy.linalg.eigh(np.asarray(kernel, float), driver="evd")
    kept = values > values[-1] * _CUT
    return vectors[:, kept] / np.sqrt(values[kept])
