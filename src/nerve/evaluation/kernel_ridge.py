"""Kernel ridge regression as CBIG defines it, with λ chosen for each target.

With K the kernel among training participants, K_r = K + λI and an unpenalised bias β,

    β = (1ᵀ K_r⁻¹ 1)⁻¹ 1ᵀ K_r⁻¹ y,     α = K_r⁻¹ (y − β1),     prediction = K_test α + β.

With the centring matrix P = I − 11ᵀ/n, the same α is P (P K P + λI)⁻¹ P y, and β is the mean of y
minus the mean of K α. One eigendecomposition of P K P serves every λ and every target: in its basis
the inverse is a division.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from nerve._utils.errors import NotFitted, one_of, problem, require
from nerve._utils.linalg import eigendecomposition
from nerve.evaluation.folds import strata_of, stratified_folds
from nerve.evaluation.kernels import UNIT_ROWS, linear_rows, median_gamma, squared_distances
from nerve.evaluation.krylov import Krylov, lanczos_is_cheaper
from nerve.evaluation.protocol import KERNELS, LAMBDAS

# scores of two λ that differ by less are equal
_ROUNDING = 1e-10
# small problems are solved for several λ at once, up to so many numbers: loops over λ would be slow
_NUMBERS_AT_ONCE = 2**20

# predictions of inner folds, by models of the other folds, as tuples: index of one λ in the grid,
# label of the fold, predictions (fold, T); or slice of several λ, label, predictions (λ, fold, T)
HeldOut = Iterator[tuple[Any, Any, np.ndarray]]


class KernelRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Kernel ridge regression with λ chosen for each target by inner cross-validation.

    A kernel of thousands of participants, whose decomposition would take long, is solved by
    Lanczos' method (`krylov.py`).

    Parameters
    ----------
    kernel : {"correlation", "linear", "cosine", "rbf", "precomputed", "rows"}
        For "precomputed", `fit` takes the (n, n) kernel and `predict` the (m, n) one; for "rows",
        rows Z with K = Z Zᵀ.
    lambdas : sequence of float
        The grid; with one value there is no inner loop.
    n_inner_folds : int
        Inner folds, by which λ is chosen.
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
        self.kernel = kernel
        self.lambdas = lambdas
        self.n_inner_folds = n_inner_folds
        self.seed = seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, strata: Any = None) -> KernelRidge:
        """Choose λ for each target and solve.

        Parameters
        ----------
        X : (n, d) or (n, n) array
            Features, or a kernel.
        y : (n,) or (n, T) array
            Targets.
        groups : (n,) labels, optional
            Kept together in the inner folds.
        strata : (n, S) integers, optional
            What the inner folds are stratified on; by default quantile bins of `y`
            (evaluations give those of the target before covariates are removed).

        Returns
        -------
        KernelRidge
            This estimator.
        """
        one_of("kernel", self.kernel, (*KERNELS, "precomputed", "rows"))
        X = _finite(X, "features")
        y = _finite(y, "targets")
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
        self.one_target_ = y.ndim == 1
        self.n_features_in_ = X.shape[1]
        self.training_ = X if self.kernel in ("linear", "rbf") else X[:0]
        if self.kernel == "rbf":
            self.gamma_ = median_gamma(squared_distances(X, X))

        rows = self._rows(X)  # (n, d) rows Z with K = Z Zᵀ, or the (n, n) kernel
        is_kernel = self.kernel in ("rbf", "precomputed")
        mean = rows.mean(axis=0)
        target_mean = targets.mean(axis=0)
        # what centring removes, 1ᵀK1/n
        common = float(mean.sum() if is_kernel else len(rows) * mean @ mean)
        rows = rows - mean
        targets = targets - target_mean
        inner_folds = self._inner_folds(targets, groups, strata)

        if is_kernel:
            rows -= rows.mean(axis=1, keepdims=True)  # in place: a kernel of thousands is large
            self.weights_ = self._solve_kernel(rows, common, targets, inner_folds)  # (n, T)
        elif rows.shape[1] >= len(rows):
            # the (n, n) kernel is the smaller problem
            alpha = self._solve_kernel(rows @ rows.T, common, targets, inner_folds)  # (n, T)
            self.weights_ = rows.T @ alpha  # (d, T)
        else:
            self.weights_ = self._solve_rows(rows, common, targets, inner_folds)  # (d, T)
        self.bias_ = target_mean - mean @ self.weights_
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions, (m,) or (m, T) as `y` was."""
        if not hasattr(self, "weights_"):
            raise NotFitted("This KernelRidge is not fitted yet. Call fit(X, y) first.")
        predicted = self._rows(_finite(X, "features")) @ self.weights_ + self.bias_
        return predicted[:, 0] if self.one_target_ else predicted

    def linear_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights and biases of an inner-product kernel, which predict without training data.

        They apply to the features themselves for the kernel "linear", to `correlation_rows` or
        `cosine_rows` of them for the two others.

        Returns
        -------
        weights : (d, T) array
            Of features.
        biases : (T,) array
            Of targets.
        """
        one_of("kernel", self.kernel, ("correlation", "cosine", "linear"))
        if self.kernel != "linear":
            return self.weights_, self.bias_
        # z-scoring is linear: features of zeros and of ones show what it adds and multiplies by
        zeros_and_ones = np.repeat([[0.0], [1.0]], self.n_features_in_, axis=1)
        at_zero, at_one = linear_rows(zeros_and_ones, self.training_)
        weights = (at_one - at_zero)[:, None] * self.weights_
        return weights, self.bias_ + at_zero @ self.weights_

    def _rows(self, X: np.ndarray) -> np.ndarray:
        """Rows Z with K = Z Zᵀ, or rows of the kernel with training participants."""
        if self.kernel == "linear":
            return linear_rows(X, self.training_)
        if self.kernel == "rbf":
            return np.exp(-self.gamma_ * squared_distances(X, self.training_))
        if self.kernel in UNIT_ROWS:
            return UNIT_ROWS[self.kernel](X)
        return X

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

    def _solve_kernel(
        self, kernel: np.ndarray, common: float, targets: np.ndarray, inner_folds: np.ndarray
    ) -> np.ndarray:
        """Choose λ and solve for α, (n, T), with a centred (n, n) kernel."""
        grid = np.asarray(self.lambdas, float)
        if lanczos_is_cheaper(len(kernel), targets.shape[1], self.n_inner_folds):
            krylov = Krylov(kernel, common, targets, inner_folds)
            self.lambda_ = self._choose_lambda(krylov.held_out(grid), targets, inner_folds)
            return krylov.solution(self.lambda_)
        spectrum = Spectrum.of_kernel(kernel, common)
        held_out = held_out_of_kernel(spectrum, targets, inner_folds, grid)
        self.lambda_ = self._choose_lambda(held_out, targets, inner_folds)
        return spectrum.rotation @ spectrum.solve(spectrum.coordinates(targets), self.lambda_)

    def _solve_rows(
        self, rows: np.ndarray, common: float, targets: np.ndarray, inner_folds: np.ndarray
    ) -> np.ndarray:
        """Choose λ and solve for weights, (d, T), with centred (n, d) rows Z, K = Z Zᵀ."""
        grid = np.asarray(self.lambdas, float)
        spectrum = Spectrum.of_rows(rows, rows.T @ rows, common)
        held_out = _held_out_of_rows(spectrum, targets, inner_folds, grid)
        self.lambda_ = self._choose_lambda(held_out, targets, inner_folds)
        return spectrum.rotation @ spectrum.solve(spectrum.coordinates(targets), self.lambda_)

    def _choose_lambda(
        self, held_out: HeldOut, targets: np.ndarray, inner_folds: np.ndarray
    ) -> np.ndarray:
        """The λ of each target with the best score over the inner folds, (T,)."""
        grid = np.asarray(self.lambdas, float)
        if len(grid) == 1:
            return np.repeat(grid, targets.shape[1])
        training_means = {}
        for label in np.unique(inner_folds):
            training_means[label] = targets[inner_folds != label].mean(axis=0)
        self.inner_scores_ = np.zeros((len(grid), targets.shape[1]))
        for lambda_index, label, predicted in held_out:
            scores = predictive_cod(targets[inner_folds == label], predicted, training_means[label])
            self.inner_scores_[lambda_index] += scores / len(training_means)
        best = self.inner_scores_.max(axis=0)
        is_best = self.inner_scores_ >= best - _ROUNDING * np.maximum(1.0, np.abs(best))
        # the last of equally good λ, so that rounding does not decide
        last_best = len(grid) - 1 - is_best[::-1].argmax(axis=0)  # (T,)
        return grid[last_best]


def predictive_cod(observed: np.ndarray, predicted: np.ndarray, training_mean: Any) -> np.ndarray:
    """Predictive coefficient of determination: 1 − SSE / SS around the mean of *training* targets.

    It is 0 for a target whose test values all equal that mean, where SS is 0.

    Parameters
    ----------
    observed : (n, T) array
        Targets of test participants.
    predicted : (..., n, T) array
        Their predictions, by one model or by several.
    training_mean : float or (T,) array
        Mean of the targets of training participants.

    Returns
    -------
    (..., T) array
        The coefficients.
    """
    errors = ((observed - predicted) ** 2).sum(axis=-2)
    spread = ((observed - training_mean) ** 2).sum(axis=0)
    varies = np.broadcast_to(spread > 0, errors.shape)
    return 1.0 - np.divide(errors, spread, out=np.ones_like(errors), where=varies)


class Spectrum(NamedTuple):  # numpydoc ignore=PR02
    """A centred training kernel in its eigenbasis.

    Two routes lead to the same predictions: P K P = U diag(values) Uᵀ and rotation = P U, or, for
    centred rows Z with K = Z Zᵀ and fewer features than participants, ZᵀZ = V diag(values) Vᵀ and
    rotation = V.

    Parameters
    ----------
    values : (k,) array
        Eigenvalues.
    rotation : (n, k) or (d, k) array
        P U or V: takes rows of a test kernel, or test rows, into the basis.
    largest : float
        The largest eigenvalue before centring, approximately: the scale of rounding errors.
    rows : (n, d) array, optional
        Z.
    """

    values: np.ndarray
    rotation: np.ndarray
    largest: float
    rows: np.ndarray | None = None

    @classmethod
    def of_kernel(cls, kernel: np.ndarray, common: float) -> Spectrum:
        """From a centred (n, n) kernel; `common` is what centring removed, 1ᵀK1/n."""
        values, vectors = eigendecomposition(kernel)
        rotation = vectors - vectors.mean(axis=0)
        return cls(np.maximum(values, 0.0), rotation, values.max(initial=0.0) + common)

    @classmethod
    def of_rows(cls, rows: np.ndarray, gram: np.ndarray, common: float) -> Spectrum:
        """From centred (n, d) rows Z and ZᵀZ; `common` is what centring removed, 1ᵀK1/n."""
        values, vectors = eigendecomposition(gram)
        return cls(np.maximum(values, 0.0), vectors, values.max(initial=0.0) + common, rows)

    def coordinates(self, targets: np.ndarray) -> np.ndarray:
        """Centred targets (n, T) in the basis, (k, T)."""
        if self.rows is None:
            return self.rotation.T @ targets
        return self.rotation.T @ (self.rows.T @ targets)

    def damping(self, lambdas: Any) -> np.ndarray:
        """Keep λ above rounding error: 0 means the limit λ → 0, also for singular kernels."""
        # where all participants are alike, any λ gives the mean
        least = 1e-10 * self.largest if self.largest > 1e-290 else 1.0
        return np.maximum(lambdas, least)

    def solve(self, coordinates: np.ndarray, lambdas: Any) -> np.ndarray:
        """Coefficients in the basis; predictions are ``test @ rotation @ coefficients``.

        Parameters
        ----------
        coordinates : (k, T) array
            What the method `coordinates` gives.
        lambdas : float, (T,) or (L, 1, 1) array
            One λ for all targets, one for each, or several for all.

        Returns
        -------
        (k, T) or (L, k, T) array
            The coefficients.
        """
        # coordinates of smaller eigenvalues are rounding error
        is_present = self.values > 1e-13 * self.largest  # (k,)
        present = np.where(is_present[:, None], coordinates, 0.0)
        return present / (self.values[:, None] + self.damping(lambdas))


def held_out_of_kernel(
    spectrum: Spectrum, targets: np.ndarray, inner_folds: np.ndarray, lambdas: np.ndarray
) -> HeldOut:
    """Predict each inner fold by a model of the others, from the one decomposition of all.

    With A = P (P K P + λI)⁻¹ P, leaving a fold S out gives y_S − A_SS⁻¹ (A y)_S.

    Parameters
    ----------
    spectrum : Spectrum
        Of the kernel of all training participants.
    targets : (n, T) array
        Centred.
    inner_folds : (n,) labels
        The inner folds.
    lambdas : (L,) array
        The grid.

    Yields
    ------
    tuple
        Slice of the grid, label of the fold, predictions (λ, fold, T).
    """
    coordinates = spectrum.coordinates(targets)  # (k, T)
    damping = spectrum.damping(lambdas)  # (L,)
    for label in np.unique(inner_folds):
        in_fold = inner_folds == label
        rotation = spectrum.rotation[in_fold]  # (fold, k)
        for lambdas_at_once in _slices(len(damping), rotation.size + coordinates.size):
            inverse = 1.0 / (spectrum.values + damping[lambdas_at_once, None])  # (l, k)
            applied = rotation @ (inverse[:, :, None] * coordinates)  # (l, fold, T): (A y)_S
            half = rotation * np.sqrt(inverse)[:, None]  # (l, fold, k)
            block = half @ half.swapaxes(1, 2)  # (l, fold, fold): A_SS
            predicted = targets[in_fold] - np.linalg.solve(block, applied)  # (l, fold, T)
            yield lambdas_at_once, label, predicted


def _held_out_of_rows(
    spectrum: Spectrum, targets: np.ndarray, inner_folds: np.ndarray, lambdas: np.ndarray
) -> HeldOut:
    """Predict each inner fold by a model of the others, from rows Z.

    ZᵀZ of the other inner folds is the sum of the ZᵀZ of each, centred.

    Parameters
    ----------
    spectrum : Spectrum
        Of the rows of all training participants.
    targets : (n, T) array
        Centred.
    inner_folds : (n,) labels
        The inner folds.
    lambdas : (L,) array
        The grid.

    Yields
    ------
    tuple
        Slice of the grid, label of the fold, predictions (λ, fold, T).
    """
    rows: Any = spectrum.rows
    grams = {}
    for label in np.unique(inner_folds):
        rows_of_fold = rows[inner_folds == label]
        grams[label] = rows_of_fold.T @ rows_of_fold  # (d, d)
    for label in grams:
        in_fold = inner_folds == label
        others = ~in_fold
        mean = rows[others].mean(axis=0)
        target_mean = targets[others].mean(axis=0)
        gram = np.sum([grams[other] for other in grams if other != label], axis=0)
        gram -= others.sum() * np.multiply.outer(mean, mean)
        part = Spectrum.of_rows(rows[others] - mean, gram, spectrum.largest)
        projected = (rows[in_fold] - mean) @ part.rotation  # (fold, k)
        coordinates = part.coordinates(targets[others] - target_mean)  # (k, T)
        for lambdas_at_once in _slices(len(lambdas), projected.size + targets.size):
            some_lambdas = lambdas[lambdas_at_once, None, None]  # (l, 1, 1)
            coefficients = part.solve(coordinates, some_lambdas)  # (l, k, T)
            yield lambdas_at_once, label, projected @ coefficients + target_mean


def _slices(n_lambdas: int, n_numbers: int) -> list[slice]:
    """Slices of the grid, each of as many λ as are solved at once; one λ takes `n_numbers`."""
    step = 1 + _NUMBERS_AT_ONCE // n_numbers
    return [slice(start, start + step) for start in range(0, n_lambdas, step)]


def _finite(values: Any, what: str) -> np.ndarray:
    """The values as numbers; NaN and infinite ones are refused."""
    array = np.asarray(values, float)
    is_bad = ~np.isfinite(array)
    if is_bad.any():
        raise problem(
            what,
            f"{is_bad.sum():,} values are missing or infinite (NaN, inf)",
            expected="numbers",
            remedy="Leave those participants out, or fill them in.",
        )
    return array
