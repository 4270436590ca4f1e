"""Kernel ridge regression as CBIG defines it: functions first, a thin scikit-learn estimator after.

With K the kernel among training participants, K_r = K + λI and an unpenalised bias β,

    β = (1ᵀ K_r⁻¹ 1)⁻¹ 1ᵀ K_r⁻¹ y,     α = K_r⁻¹ (y − β1),     prediction = K_test α + β.

The bias takes up what training participants have in common. With P = I − 11ᵀ/n, which centres, the same α is
P (P K P + λI)⁻¹ P y, and β the mean of y less that of K α. One eigendecomposition of P K P serves every λ and every
target: in its basis the inverse is a division.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from nerve._utils.errors import NotFitted, one_of, problem, require
from nerve._utils.linalg import decomposed
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import UNIT_ROWS, linear_rows, median_gamma, squared_distances
from nerve.evaluation.krylov import Krylov, lanczos_is_cheaper
from nerve.evaluation.protocol import KERNELS, LAMBDAS

ROUNDING = 1e-10  # scores of two λ that differ by less are equal

TOGETHER = (
    2**20
)  # numbers of several λ that are worked on at once: small problems wait for Python, not for sums

# place of λ or places of several, label of the inner fold, (fold, T) predictions, for several λ along a first axis
HeldOut = Iterator[tuple[Any, Any, np.ndarray]]


class Spectrum(NamedTuple):
    """A centred training kernel in its eigenbasis.

    Two routes to the same predictions: P K P = U diag(values) Uᵀ and rotation = P U, or, for centred rows Z with
    K = Z Zᵀ and fewer features than participants, ZᵀZ = V diag(values) Vᵀ and rotation = V.
    """

    values: np.ndarray  # (k,) eigenvalues
    rotation: np.ndarray  # (n, k) P U, or (d, k) V: takes test rows into the basis
    largest: float  # eigenvalue before centring, or nearly so: what rounding is measured by
    rows: np.ndarray | None = None  # (n, d) Z

    @classmethod
    def of(cls, kernel: np.ndarray, common: float, rows: np.ndarray | None = None) -> Spectrum:
        """From a centred (n, n) kernel, or ZᵀZ and the centred rows Z; `common` is what centring took away, 1ᵀK1/n."""
        values, vectors = decomposed(kernel)
        rotation = vectors - vectors.mean(axis=0) if rows is None else vectors
        return cls(np.maximum(values, 0.0), rotation, values.max(initial=0.0) + common, rows)

    def coordinates(self, targets: np.ndarray) -> np.ndarray:
        """(n, T) targets → (k, T) in the basis."""
        return self.rotation.T @ (targets if self.rows is None else self.rows.T @ targets)

    def damping(self, lambdas: Any) -> np.ndarray:
        """λ, kept above rounding error: λ = 0 means the limit λ → 0, which exists for singular kernels too."""
        # nothing to tell participants apart by: any λ gives the mean
        return np.maximum(lambdas, 1e-10 * self.largest if self.largest > 1e-290 else 1.0)

    def solver(self, targets: np.ndarray) -> Callable[[Any], np.ndarray]:
        """From one λ for all of the centred (n, T) targets, or one for each, to coefficients (k, T) in the basis.

        (L, 1, 1) of λ give (L, k, T). Predictions are ``test @ rotation @ coefficients``, for test rows or a test
        kernel.
        """
        there = self.values > 1e-13 * self.largest  # elsewhere rows are rounding error
        coordinates = np.where(there[:, None], self.coordinates(targets), 0.0)
        return lambda lambdas: coordinates / (self.values[:, None] + self.damping(lambdas))


def predictive_cod(observed: np.ndarray, predicted: np.ndarray, training_mean: Any) -> np.ndarray:
    """Predictive coefficient of determination, 1 − SSE / SS around the mean of the *training* targets.

    0 for a target that does not differ from that mean: there is nothing to determine. Predictions may have axes before
    those of participants and targets.
    """
    errors = ((observed - predicted) ** 2).sum(axis=-2)
    spread = ((observed - training_mean) ** 2).sum(axis=0)
    return 1.0 - np.divide(
        errors, spread, out=np.ones_like(errors), where=np.broadcast_to(spread > 0, errors.shape)
    )


def held_out_of_kernel(
    spectrum: Spectrum, targets: np.ndarray, folds: np.ndarray, lambdas: Any
) -> HeldOut:
    """What each fold would be predicted by a model of the others, from the one decomposition of all.

    With A = P (P K P + λI)⁻¹ P, leaving a fold S out gives y_S − A_SS⁻¹ (A y)_S.
    """
    coordinates, damping = spectrum.coordinates(targets), spectrum.damping(lambdas)  # (k, T), (L,)
    for label in np.unique(folds):
        some = folds == label
        rotation = spectrum.rotation[some]  # (fold, k)
        for places in _together(len(damping), rotation.size + coordinates.size):
            inverse = 1.0 / (spectrum.values + damping[places, None])  # (l, k)
            applied = rotation @ (inverse[:, :, None] * coordinates)  # (l, fold, T): (A y)_S
            half = rotation * np.sqrt(inverse)[:, None]  # (l, fold, k)
            yield (
                places,
                label,
                targets[some] - np.linalg.solve(half @ half.swapaxes(1, 2), applied),
            )


def _together(n_lambdas: int, numbers: int) -> Iterator[slice]:
    """Places of as many λ as may be worked on at once, if each takes so many numbers."""
    step = 1 + TOGETHER // numbers
    return (slice(start, start + step) for start in range(0, n_lambdas, step))


def held_out_of_factor(
    spectrum: Spectrum, targets: np.ndarray, folds: np.ndarray, lambdas: Any
) -> HeldOut:
    """The same for rows Z, one fold after another: ZᵀZ of the others is the sum of theirs, centred."""
    rows: Any = spectrum.rows
    grams = {label: rows[folds == label].T @ rows[folds == label] for label in np.unique(folds)}
    for label in grams:
        some = folds == label
        mean, centre = rows[~some].mean(axis=0), targets[~some].mean(axis=0)
        gram = np.sum([one for other, one in grams.items() if other != label], axis=0)
        gram -= (~some).sum() * np.multiply.outer(mean, mean)
        part = Spectrum.of(gram, spectrum.largest, rows[~some] - mean)
        projected, solve = (rows[some] - mean) @ part.rotation, part.solver(targets[~some] - centre)
        for places in _together(len(lambdas), projected.size + targets.size):
            yield places, label, projected @ solve(lambdas[places, None, None]) + centre


class KernelRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge regression with λ chosen for each target by inner cross-validation.

    Many participants in a kernel are solved by Lanczos' method (`krylov.py`) where a decomposition would take long.

    Parameters
    ----------
    kernel : {"correlation", "linear", "cosine", "rbf", "precomputed", "rows"}
        For "precomputed", `fit` takes the (n, n) kernel and `predict` the (m, n) one; for "rows", rows Z with K = Z Zᵀ.
    lambdas : sequence of float
        The grid; with one value there is no inner loop.
    n_inner_folds : int
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
        seed: int = 42,
    ) -> None:
        self.kernel, self.lambdas, self.n_inner_folds, self.seed = (
            kernel,
            lambdas,
            n_inner_folds,
            seed,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
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
        require(
            "KernelRidge",
            (
                len(X) == len(targets),
                f"there are {len(X)} rows for {len(targets)} targets",
                "as many of each",
            ),
            (
                len(X) >= 2,
                f"there is {len(X)} participant to train on",
                "at least 2: use more, or fewer folds",
            ),
        )
        self.training_ = X if self.kernel in ("linear", "rbf") else X[:0]
        if self.kernel == "rbf":
            self.gamma_ = median_gamma(squared_distances(X, X))
        self.one_target_, self.n_features_in_ = y.ndim == 1, X.shape[1]
        rows, pairwise = self._rows(X), self.kernel in ("rbf", "precomputed")
        mean, centre = rows.mean(axis=0), targets.mean(axis=0)
        common = float(mean.sum() if pairwise else len(rows) * mean @ mean)
        rows, targets = rows - mean, targets - centre
        solve = partial(self._solved, common, targets, self._inner_folds(targets, groups, strata))
        if pairwise:
            rows -= rows.mean(axis=1, keepdims=True)  # in place: a kernel of thousands is large
        if not pairwise and rows.shape[1] >= len(rows):  # the (n, n) kernel is the smaller one
            self.weights_ = rows.T @ solve(rows @ rows.T, pairwise=True)
        else:
            self.weights_ = solve(rows, pairwise)
        self.bias_ = centre - mean @ self.weights_
        return self

    def _solved(
        self,
        common: float,
        targets: np.ndarray,
        folds: np.ndarray,
        data: np.ndarray,
        pairwise: bool,
    ) -> np.ndarray:
        """What rows, or rows of a test kernel, are multiplied by, (d, T) or (n, T); targets and data are centred."""
        if pairwise and lanczos_is_cheaper(len(data), targets.shape[1], self.n_inner_folds):
            krylov = Krylov(data, common, targets, folds)
            self.lambda_ = self._choose(krylov.held_out, targets, folds)
            return krylov.solution(self.lambda_)
        spectrum = (
            Spectrum.of(data, common) if pairwise else Spectrum.of(data.T @ data, common, data)
        )
        held_out = held_out_of_kernel if pairwise else held_out_of_factor
        self.lambda_ = self._choose(partial(held_out, spectrum, targets, folds), targets, folds)
        return spectrum.rotation @ spectrum.solver(targets)(self.lambda_)

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
            strata = np.column_stack(
                [strata_of(column, self.n_inner_folds) for column in targets.T]
            )
        return stratified_folds(
            strata, self.n_inner_folds, groups=groups, seed=self.seed, groups_may_exceed_folds=True
        )

    def _choose(
        self, held_out: Callable[[Any], HeldOut], targets: np.ndarray, folds: np.ndarray
    ) -> np.ndarray:
        grid = np.asarray(self.lambdas, float)
        if len(grid) == 1:
            return np.repeat(grid, targets.shape[1])
        means = {label: targets[folds != label].mean(axis=0) for label in np.unique(folds)}
        self.inner_scores_ = np.zeros(
            (len(grid), targets.shape[1])
        )  # averaged over the inner folds
        for i, label, predicted in held_out(grid):
            self.inner_scores_[i] += predictive_cod(
                targets[folds == label], predicted, means[label]
            ) / len(means)
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
        zero, one = linear_rows(
            np.repeat([[0.0], [1.0]], self.n_features_in_, axis=1), self.training_
        )  # z-scoring
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
        found = f"{(~np.isfinite(array)).sum():,} values are missing or infinite (NaN, inf)"
        raise problem(
            what, found, expected="numbers", remedy="Leave those participants out, or fill them in."
        )
    return array
