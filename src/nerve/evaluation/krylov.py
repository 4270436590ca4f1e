"""Kernel ridge of thousands of participants without a decomposition of their kernel: Lanczos' method.

With P the centring of a training set, the coefficients solve (P K P + λI) α = P y, and the bias is what centring took
away. From q₁ = P y / ‖P y‖, each step multiplies by the kernel once and gives one more vector q of a basis Q in which
P K P is a small tridiagonal matrix T. Then α ≈ ‖P y‖ Q (T + λI)⁻¹ e₁ for every λ at once. Inner folds differ from
the whole only in who is left out, so that all of them and all targets share the products with the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

N_STEPS = 64
WORTH_IT = 1e12  # operations: below, decompositions take less than half a minute per outer fold and are exact
_ROUNDING = 1e-6  # of float32 products, relative to the kernel's norm: no λ is below it


def lanczos_is_cheaper(n: int, n_targets: int, n_folds: int) -> bool:
    """Whether a decomposition of an (n, n) kernel takes long, and longer than this; the same on every machine."""
    decomposition = 14.0 * n**3 + 50.0 * n**2 * n_targets
    return (
        decomposition > WORTH_IT
        and N_STEPS * 2.0 * n**2 * n_targets * (n_folds + 1) < decomposition
    )


class Krylov:
    """Every inner fold's and the whole training set's problem in a basis of a few vectors.

    Parameters
    ----------
    kernel : (n, n) array, centred
    common : float
        What centring took away, 1ᵀK1/n.
    targets : (n, T) array
    folds : (n,) labels of the inner folds
    """

    def __init__(
        self, kernel: np.ndarray, common: float, targets: np.ndarray, folds: np.ndarray
    ) -> None:
        self.labels = np.unique(folds)
        self.folds, self.n_targets = folds, targets.shape[1]
        kept = np.stack(
            [*(folds != label for label in self.labels), np.ones(len(folds), bool)], axis=1
        )  # (n, F + 1)
        self.mask = np.repeat(kept, self.n_targets, axis=1).astype(
            np.float32
        )  # (n, C), C = (F + 1) T problems
        self.share = self.mask / self.mask.sum(axis=0)  # a mean as a sum
        repeated = np.tile(targets, (1, kept.shape[1]))
        self.means = (self.share * repeated).sum(axis=0)  # (C,)
        self.least = (
            _ROUNDING * (np.linalg.norm(kernel) + common) or 1.0
        )  # a kernel of zeros: any λ gives the mean
        self.vectors, self.products, small = self._lanczos(kernel.astype(np.float32), repeated)
        self.values, self.basis = np.linalg.eigh(small)  # (C, k), (C, k, k)

    def _lanczos(self, kernel: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, ...]:
        """Q and K Q less its mean, both (steps, n, C), and the tridiagonal matrices (C, steps, steps)."""
        start = self.mask * (targets - self.means)
        self.sizes = np.linalg.norm(start, axis=0)  # (C,)
        vector, link = _unit(start, self.sizes), np.zeros(len(self.sizes))
        before = np.zeros_like(vector)
        vectors = np.empty((N_STEPS, *vector.shape), np.float32)
        products, small = np.empty_like(vectors), np.zeros((len(link), N_STEPS, N_STEPS))
        for step in range(N_STEPS):
            vectors[step] = vector
            product = kernel @ vector
            products[step] = product - np.einsum("nc,nc->c", self.share, product)
            ahead = self.mask * products[step]
            small[:, step, step] = along = np.einsum("nc,nc->c", vector, ahead, dtype=float)
            ahead -= (along * vector + link * before).astype(np.float32)
            link = np.linalg.norm(ahead, axis=0).astype(float)
            if step + 1 < N_STEPS:
                small[:, step, step + 1] = small[:, step + 1, step] = link
            before, vector = vector, _unit(ahead, link)
        return vectors, products, small

    def _coefficients(self, problems: Any, lambdas: Any) -> np.ndarray:
        """Of α in Q, (problems, steps), one λ for all problems or one for each."""
        values = self.values[problems]
        damping = np.maximum(np.broadcast_to(lambdas, len(values)), self.least)
        weights = (
            self.basis[problems][:, 0]
            * self.sizes[problems, None]
            / (np.maximum(values, 0) + damping[:, None])
        )
        return np.einsum("ckv,cv->ck", self.basis[problems], weights)

    def held_out(self, lambdas: Any) -> Iterator[tuple[int, Any, np.ndarray]]:
        """Place of λ, label of the fold, (fold, T) predictions by a model of the others."""
        for f, label in enumerate(self.labels):
            problems = np.arange(f * self.n_targets, (f + 1) * self.n_targets)
            products = self.products[:, self.folds == label][:, :, problems]  # (steps, fold, T)
            for i, value in enumerate(lambdas):
                found = np.einsum(
                    "knt,tk->nt", products, self._coefficients(problems, value), optimize=True
                )
                yield i, label, found + self.means[problems]

    def solution(self, lambdas: np.ndarray) -> np.ndarray:
        """α (n, T) of the whole training set, with one λ for each target."""
        problems = np.arange(len(self.labels) * self.n_targets, len(self.sizes))
        coefficients = self._coefficients(problems, lambdas)
        alpha = np.einsum("knt,tk->nt", self.vectors[:, :, problems], coefficients, optimize=True)
        return alpha - alpha.mean(
            axis=0
        )  # what float32 left of it would be multiplied by the kernel


def _unit(vectors: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Columns of unit length; one of length zero ends its basis and stays zero."""
    return np.divide(
        vectors,
        sizes,
        out=np.zeros(vectors.shape, np.float32),
        where=sizes > 1e-30,
        casting="unsafe",
    )
