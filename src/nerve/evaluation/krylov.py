"""Kernel ridge of thousands of participants by Lanczos' method, without a decomposition.

With the centring matrix P of a training set, the coefficients solve (P K P + λI) α = P y. Starting
from q₁ = P y / ‖P y‖, each step multiplies by the kernel once and adds one vector to a basis Q in
which P K P is a small tridiagonal matrix T. Then α ≈ ‖P y‖ Q (T + λI)⁻¹ e₁ for every λ at once.
Inner folds differ from the training set only in the participants left out, so that all folds and
all targets share the products with the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_N_STEPS = 64
# operations: with fewer, decompositions take less than half a minute per outer fold and are exact
_MOST_OPERATIONS = 1e12
# of float32 products, relative to the kernel's norm: no λ is below it
_ROUNDING = 1e-6


def lanczos_is_cheaper(n: int, n_targets: int, n_folds: int) -> bool:
    """Whether a decomposition of the kernel takes long, and longer than Lanczos' method.

    Operations are counted and no time is measured, so that the choice is the same on every machine.

    Parameters
    ----------
    n : int
        Training participants.
    n_targets : int
        Targets that share the kernel.
    n_folds : int
        Inner folds.

    Returns
    -------
    bool
        True for Lanczos' method.
    """
    decomposition = 14.0 * n**3 + 50.0 * n**2 * n_targets
    lanczos = _N_STEPS * 2.0 * n**2 * n_targets * (n_folds + 1)
    return decomposition > _MOST_OPERATIONS and lanczos < decomposition


class Krylov:
    """The problems of every inner fold and of the training set, each in a basis of a few vectors.

    With F folds and T targets there are C = (F + 1) T problems: those of the first fold left out,
    then of the second, and so on, and last those of all training participants.

    Parameters
    ----------
    kernel : (n, n) array
        Centred.
    common : float
        What centring removed, 1ᵀK1/n.
    targets : (n, T) array
        Of training participants.
    folds : (n,) labels
        The inner folds.
    """

    def __init__(
        self, kernel: np.ndarray, common: float, targets: np.ndarray, folds: np.ndarray
    ) -> None:
        self.folds = folds
        self.labels = np.unique(folds)
        self.n_targets = targets.shape[1]
        kept = [folds != label for label in self.labels]
        kept.append(np.ones(len(folds), bool))
        in_training = np.stack(kept, axis=1)  # (n, F + 1)
        self.mask = np.repeat(in_training, self.n_targets, axis=1).astype(np.float32)  # (n, C)
        self.share = self.mask / self.mask.sum(axis=0)  # weights that make a sum a mean
        repeated = np.tile(targets, (1, in_training.shape[1]))  # (n, C)
        self.means = (self.share * repeated).sum(axis=0)  # (C,)
        # 1 for a kernel of zeros, where any λ gives the mean
        self.least = _ROUNDING * (np.linalg.norm(kernel) + common) or 1.0
        self.vectors, self.products, tridiagonal = self._lanczos(
            kernel.astype(np.float32), repeated
        )
        self.values, self.basis = np.linalg.eigh(tridiagonal)  # (C, k), (C, k, k)

    def _lanczos(self, kernel: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, ...]:
        """Q and centred K Q, (steps, n, C), and the tridiagonal matrices, (C, steps, steps)."""
        centred = self.mask * (targets - self.means)
        self.sizes = np.linalg.norm(centred, axis=0)  # (C,)
        vector = _unit(centred, self.sizes)
        previous = np.zeros_like(vector)
        off_diagonal = np.zeros(len(self.sizes))
        vectors = np.empty((_N_STEPS, *vector.shape), np.float32)
        products = np.empty_like(vectors)
        tridiagonal = np.zeros((len(self.sizes), _N_STEPS, _N_STEPS))
        for step in range(_N_STEPS):
            vectors[step] = vector
            product = kernel @ vector
            products[step] = product - np.einsum("nc,nc->c", self.share, product)
            following = self.mask * products[step]
            diagonal = np.einsum("nc,nc->c", vector, following, dtype=float)
            tridiagonal[:, step, step] = diagonal
            following -= (diagonal * vector + off_diagonal * previous).astype(np.float32)
            off_diagonal = np.linalg.norm(following, axis=0).astype(float)
            if step + 1 < _N_STEPS:
                tridiagonal[:, step, step + 1] = off_diagonal
                tridiagonal[:, step + 1, step] = off_diagonal
            previous = vector
            vector = _unit(following, off_diagonal)
        return vectors, products, tridiagonal

    def _coefficients(self, problems: Any, lambdas: Any) -> np.ndarray:
        """Coefficients of α in Q, (problems, steps), for one λ or one per problem."""
        values = self.values[problems]
        damping = np.maximum(np.broadcast_to(lambdas, len(values)), self.least)
        first = self.basis[problems][:, 0] * self.sizes[problems, None]
        weights = first / (np.maximum(values, 0) + damping[:, None])
        return np.einsum("ckv,cv->ck", self.basis[problems], weights)

    def held_out(self, lambdas: Any) -> Iterator[tuple[int, Any, np.ndarray]]:
        """Predict each inner fold by a model of the others.

        Parameters
        ----------
        lambdas : (L,) array
            The grid.

        Yields
        ------
        tuple
            Place of λ, label of the fold, predictions (fold, T).
        """
        for f, label in enumerate(self.labels):
            problems = np.arange(f * self.n_targets, (f + 1) * self.n_targets)
            products = self.products[:, self.folds == label][:, :, problems]  # (steps, fold, T)
            for i, value in enumerate(lambdas):
                coefficients = self._coefficients(problems, value)  # (T, steps)
                predicted = np.einsum("knt,tk->nt", products, coefficients, optimize=True)
                yield i, label, predicted + self.means[problems]

    def solution(self, lambdas: np.ndarray) -> np.ndarray:
        """Coefficients α (n, T) of the training set, with one λ for each target."""
        problems = np.arange(len(self.labels) * self.n_targets, len(self.sizes))
        coefficients = self._coefficients(problems, lambdas)
        alpha = np.einsum("knt,tk->nt", self.vectors[:, :, problems], coefficients, optimize=True)
        # its mean is rounding error of float32, which the kernel would multiply
        return alpha - alpha.mean(axis=0)


def _unit(vectors: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Columns of unit length; one of length zero ends its basis and stays zero."""
    return np.divide(
        vectors,
        sizes,
        out=np.zeros(vectors.shape, np.float32),
        where=sizes > 1e-30,
        casting="unsafe",
    )
