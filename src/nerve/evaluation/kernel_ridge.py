"""Kernel ridge regression as CBIG defines it: functions first, a thin scikit-learn estimator after.

With K the kernel among training participants, K_r = K + λI and an unpenalised bias β,

    β = (1ᵀ K_r⁻¹ 1)⁻¹ 1ᵀ K_r⁻¹ y,     α = K_r⁻¹ (y − β1),     prediction = K_test α + β.

One eigendecomposition of K serves every λ and every target: in its basis K_r⁻¹ is a division.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator, RegressorMixin

from nerve.checks import NerveError, one_of
from nerve.components import decomposed
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import UNIT_ROWS, linear_rows, median_gamma, squared_distances
from nerve.evaluation.krylov import Krylov, pays
from nerve.fitted import NotFitted
from nerve.protocol import KERNELS, LAMBDAS

ROUNDING = 1e-10  # scores of two λ that differ by less are equal

HeldOut = Iterator[tuple[int, Any, np.ndarray]]  # place of λ, label of the inner fold, (fold, T) predictions


@dataclass(frozen=True)
class Spectrum:
    """A training kernel in its eigenbasis.

    Two routes to the same predictions. `of_kernel`: K = U diag(values) Uᵀ, rotation = U. `of_factor`, for K = Z Zᵀ with
    fewer features than participants: ZᵀZ = V diag(values) Vᵀ, rotation = V; the part of K_r⁻¹ outside that basis is 1/λ
    and reaches predictions only through the bias.
    """

    values: np.ndarray  # (k,) eigenvalues
    rotation: np.ndarray  # (n, k) U, or (d, k) V: takes test rows into the basis
    rows: np.ndarray | None = None  # (n, d) Z

    @classmethod
    def of_kernel(cls, kernel: np.ndarray, rows: np.ndarray | None = None) -> Spectrum:
        """From an (n, n) kernel, or ZᵀZ and the rows Z."""
        values, vectors = decomposed(kernel)
        return cls(np.maximum(values, 0.0), vectors, rows)

    @classmethod
    def of_factor(cls, rows: np.ndarray) -> Spectrum:
        """From (n, d) rows Z with K = Z Zᵀ."""
        return cls.of_kernel(rows.T @ rows, rows)

    def coordinates(self, targets: np.ndarray) -> np.ndarray:
        """(n, T) targets → (k, T) in the basis."""
        return self.rotation.T @ (targets if self.rows is None else self.rows.T @ targets)

    def damping(self, lambdas: Any) -> np.ndarray:
        """λ, kept above rounding error: λ = 0 means the limit λ → 0, which exists for singular kernels too."""
        largest = self.values.max(initial=0.0)
        # nothing to tell participants apart by: any λ gives the mean
        return np.maximum(lambdas, 1e-10 * largest if largest > 1e-290 else 1.0)


def solver(
    spectrum: Spectrum, targets: np.ndarray, bias: bool = True
) -> Callable[[Any], tuple[np.ndarray, np.ndarray]]:
    """From one λ for all of the (n, T) targets, or one for each, to coefficients (k, T) in the basis and biases (T,).

    Predictions are ``test @ spectrum.rotation @ coefficients + biases``, for test rows or a test kernel.
    """
    coordinates, ones = spectrum.coordinates(targets), spectrum.coordinates(np.ones(len(targets)))
    there = (spectrum.values > 1e-13 * spectrum.values.max(initial=0.0))[:, None]  # elsewhere rows are rounding error

    def solve(lambdas: Any) -> tuple[np.ndarray, np.ndarray]:
        inverse = 1.0 / (spectrum.values[:, None] + spectrum.damping(np.atleast_1d(lambdas)))  # (k, 1) or (k, T)
        if not bias:
            return coordinates * (inverse * there), np.zeros(targets.shape[1])
        weighted = ones[:, None] * inverse  # (k, 1) or (k, T)
        if inverse.shape[1] == 1:
            above, below = weighted[:, 0] @ coordinates, weighted[:, 0] @ ones
        else:
            above, below = np.einsum("kt,kt->t", weighted, coordinates), ones @ weighted
        if spectrum.rows is not None:  # Woodbury: λ · 1ᵀK_r⁻¹v = 1ᵀv − (Zᵀ1)ᵀ(ZᵀZ + λ)⁻¹ Zᵀv, λ cancels in the ratio
            above, below = targets.sum(axis=0) - above, len(targets) - below
        biases = above / below
        coefficients = coordinates - np.multiply.outer(ones, biases)
        coefficients *= inverse * there
        return coefficients, biases

    return solve


def path(
    spectrum: Spectrum, test: np.ndarray, targets: np.ndarray, lambdas: Sequence[float], bias: bool = True
) -> Iterator[np.ndarray]:
    """Predictions (m, T) for one λ after another; the decomposition and projections are shared."""
    projected = test @ spectrum.rotation  # (m, k)
    for coefficients, biases in map(solver(spectrum, targets, bias), lambdas):
        predicted = projected @ coefficients  # (m, T)
        predicted += biases
        yield predicted


def predictive_cod(observed: np.ndarray, predicted: np.ndarray, training_mean: Any) -> np.ndarray:
    """Predictive coefficient of determination, 1 − SSE / SS around the mean of the *training* targets.

    0 for a target that does not differ from that mean: there is nothing to determine.
    """
    errors = np.einsum("nt,nt->t", observed - predicted, observed - predicted)
    spread = ((observed - training_mean) ** 2).sum(axis=0)
    return 1.0 - np.divide(errors, spread, out=np.ones_like(errors), where=spread > 0)


def held_out_of_kernel(spectrum: Spectrum, targets: np.ndarray, folds: np.ndarray, bias: bool, lambdas: Any) -> HeldOut:
    """What each fold would be predicted by a model of the others, from the one decomposition of all.

    With G = K_r⁻¹ and A = G − G1 1ᵀG / 1ᵀG1 (A = G without a bias), leaving a fold S out gives y_S − A_SS⁻¹ (A y)_S.
    """
    coordinates = spectrum.coordinates(targets)  # (k, T)
    members = [(label, spectrum.rotation[folds == label]) for label in np.unique(folds)]
    ones = spectrum.coordinates(np.ones(len(targets))) if bias else np.zeros(len(spectrum.values))  # (k,)
    for i, damping in enumerate(spectrum.damping(lambdas)):
        inverse = 1.0 / (spectrum.values + damping)  # (k,)
        weighted = ones * inverse / np.sqrt(ones**2 @ inverse or 1.0)
        border = spectrum.rotation @ weighted  # (n,): G1 / √(1ᵀG1), so that A = G − border borderᵀ
        applied = spectrum.rotation @ (inverse[:, None] * coordinates)  # (n, T): G y
        applied -= np.multiply.outer(border, weighted @ coordinates)  # A y
        for label, rotation in members:
            some = folds == label
            half = rotation * np.sqrt(inverse)  # (fold, k)
            block = half @ half.T - np.multiply.outer(border[some], border[some])
            factor = scipy.linalg.cho_factor(block, overwrite_a=True, check_finite=False)
            yield i, label, targets[some] - scipy.linalg.cho_solve(factor, applied[some], check_finite=False)


def held_out_of_factor(spectrum: Spectrum, targets: np.ndarray, folds: np.ndarray, bias: bool, lambdas: Any) -> HeldOut:
    """The same for rows Z, one fold after another: ZᵀZ of the others is the sum of theirs."""
    rows: Any = spectrum.rows
    grams = {label: rows[folds == label].T @ rows[folds == label] for label in np.unique(folds)}
    for label in grams:
        some = folds == label
        gram = np.sum([one for other, one in grams.items() if other != label], axis=0)
        part = Spectrum.of_kernel(gram, rows[~some])
        for i, predicted in enumerate(path(part, rows[some], targets[~some], lambdas, bias)):
            yield i, label, predicted


class KernelRidge(RegressorMixin, BaseEstimator):
    """Kernel ridge regression with λ chosen for each target by inner cross-validation.

    Many participants in a kernel are solved by Lanczos' method (`krylov.py`) where a decomposition would take long.

    Parameters
    ----------
    kernel : {"correlation", "linear", "cosine", "rbf", "precomputed", "rows"}
        For "precomputed", `fit` takes the (n, n) kernel and `predict` the (m, n) one; for "rows", rows Z with K = Z Zᵀ.
    lambdas : sequence of float
        The grid; with one value there is no inner loop.
    n_inner_folds : int
    bias : bool
        Whether to fit the unpenalised bias.
    seed : int
        Of the inner folds.

    Attributes
    ----------
    lambda_ : (T,) array
        The chosen λ of each target.
    inner_scores_ : (L, T) array
        Mean predictive COD of each λ.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> KernelRidge(kernel="linear").fit(X[:40], X[:40, 0]).predict(X[40:]).shape
    (20,)
    """

    def __init__(
        self,
        kernel: str = "correlation",
        lambdas: Sequence[float] = LAMBDAS,
        n_inner_folds: int = 5,
        bias: bool = True,
        seed: int = 42,
    ) -> None:
        self.kernel, self.lambdas, self.n_inner_folds = kernel, lambdas, n_inner_folds
        self.bias, self.seed = bias, seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, strata: Any = None) -> KernelRidge:
        """Choose λ for each target and solve.

        Parameters
        ----------
        X : (n, d) features or (n, n) kernel
        y : (n,) or (n, T) targets
        groups : (n,) labels, optional
            Kept whole in the inner folds.
        strata : (n, S) integers, optional
            What the inner folds are stratified on; quantile bins of `y` by default.
        """
        one_of("kernel", self.kernel, (*KERNELS, "precomputed", "rows"))
        X, y = _finite(X, "features"), _finite(y, "targets")
        targets = y[:, None] if y.ndim == 1 else y  # (n, T)
        if len(X) != len(targets):
            raise NerveError(
                f"There are {len(X)} rows of features but {len(targets)} targets, expected as many of each."
            )
        if len(X) < 2:
            raise NerveError(
                f"There is {len(X)} participant to train on, expected at least 2. Use more, or fewer folds."
            )
        self.training_ = X if self.kernel in ("linear", "rbf") else X[:0]
        if self.kernel == "rbf":
            self.gamma_ = median_gamma(squared_distances(X, X))
        self.one_target_, self.n_features_in_ = y.ndim == 1, X.shape[1]
        centre = targets.mean(axis=0) if self.bias else np.zeros(targets.shape[1])
        targets = targets - centre  # the bias takes it up again: digits are not lost on a large offset
        folds = self._inner_folds(targets, groups, strata)
        rows, pairwise = self._rows(X), self.kernel in ("rbf", "precomputed")
        if not pairwise and rows.shape[1] >= len(rows):  # the (n, n) kernel is the smaller one
            weights, bias = self._solved(rows @ rows.T, True, targets, folds)
            weights = rows.T @ weights
        else:
            weights, bias = self._solved(rows, pairwise, targets, folds)
        self.weights_, self.bias_ = weights, bias + centre
        return self

    def _solved(
        self, data: np.ndarray, pairwise: bool, targets: np.ndarray, folds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What rows, or rows of a test kernel, are multiplied by, (d, T) or (n, T), and biases (T,)."""
        if pairwise and pays(len(data), targets.shape[1], self.n_inner_folds):
            krylov = Krylov(data, targets, folds, self.bias)
            self.lambda_ = self._choose(krylov.held_out, targets, folds)
            return krylov.solution(self.lambda_)
        spectrum = Spectrum.of_kernel(data) if pairwise else Spectrum.of_factor(data)
        held_out = held_out_of_kernel if pairwise else held_out_of_factor
        self.lambda_ = self._choose(partial(held_out, spectrum, targets, folds, self.bias), targets, folds)
        coefficients, bias = solver(spectrum, targets, self.bias)(self.lambda_)
        return spectrum.rotation @ coefficients, bias

    def _rows(self, X: np.ndarray) -> np.ndarray:
        if self.kernel == "linear":
            return linear_rows(X, self.training_)
        if self.kernel == "rbf":
            return np.exp(-self.gamma_ * squared_distances(X, self.training_))
        return UNIT_ROWS[self.kernel](X) if self.kernel in UNIT_ROWS else X

    def _inner_folds(self, targets: np.ndarray, groups: Any, strata: Any) -> np.ndarray:
        if len(self.lambdas) == 1:
            return np.arange(len(targets)) % 2  # not used: there is nothing to choose
        if strata is None:
            strata = np.column_stack([strata_of(column, self.n_inner_folds) for column in targets.T])
        return stratified_folds(strata, self.n_inner_folds, groups=groups, seed=self.seed, whole_groups_may_exceed=True)

    def _choose(self, held_out: Callable[[Any], HeldOut], targets: np.ndarray, folds: np.ndarray) -> np.ndarray:
        grid = np.asarray(self.lambdas, float)
        if len(grid) == 1:
            return np.repeat(grid, targets.shape[1])
        means = {label: targets[folds != label].mean(axis=0) for label in np.unique(folds)}
        self.inner_scores_ = np.zeros((len(grid), targets.shape[1]))  # averaged over the inner folds
        for i, label, predicted in held_out(grid):
            self.inner_scores_[i] += predictive_cod(targets[folds == label], predicted, means[label]) / len(means)
        best = self.inner_scores_.max(axis=0)
        tied = self.inner_scores_ >= best - ROUNDING * np.maximum(1.0, np.abs(best))
        return grid[len(grid) - 1 - tied[::-1].argmax(axis=0)]  # the last: rounding must not decide

    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (d, T) and biases (T,) with which an inner-product kernel predicts, without training participants.

        They apply to the features themselves for the kernel "linear", to `correlation_rows` or `cosine_rows` of them
        for the two others.
        """
        one_of("kernel", self.kernel, ("correlation", "cosine", "linear"))
        if self.kernel != "linear":
            return self.weights_, self.bias_
        zero, one = linear_rows(np.repeat([[0.0], [1.0]], self.n_features_in_, axis=1), self.training_)  # z-scoring
        return (one - zero)[:, None] * self.weights_, self.bias_ + zero @ self.weights_

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, (m,) or (m, T) as `y` was."""
        if not hasattr(self, "weights_"):
            raise NotFitted("This KernelRidge is not fitted yet. Call fit(X, y) first.")
        predicted = self._rows(_finite(X, "features")) @ self.weights_ + self.bias_
        return predicted[:, 0] if self.one_target_ else predicted


def _finite(values: Any, what: str) -> np.ndarray:
    array = np.asarray(values, float)
    if not np.isfinite(array).all():
        raise NerveError(
            f"The {what} hold {int((~np.isfinite(array)).sum()):,} values that are missing or infinite, expected "
            "numbers: leave those participants or columns out, or fill them in, first."
        )
    return array
