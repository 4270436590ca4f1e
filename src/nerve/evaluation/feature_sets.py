"""What a row predicts from. `FeatureSet.split` gives features of training and test participants.

Whatever a feature set learns on the way (components, an encoder, harmonisation, regression of
covariates) it learns from the training participants that `split` is given. What does not depend on
who is in training, such as a kernel, is computed once, by `prepare`. `user_features.py` makes
feature sets of what users call features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from nerve._utils.errors import problem
from nerve._utils.linalg import eigendecomposition, rotate_to_zero_sum
from nerve.data.cohort import Cohort
from nerve.evaluation.combat import ComBat
from nerve.evaluation.covariates import CovariateRegression, FeatureRegression
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.kernels import UNIT_ROWS, blockwise_gram
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol


@dataclass
class FeatureSet:  # numpydoc ignore=PR02
    """What one row predicts from, and what is known about it.

    Subclasses say where the features come from.

    Parameters
    ----------
    name : str
        What notes and warnings call it.
    missing : (n,) booleans, optional
        Participants without features: their targets are not used.
    notes : tuple of str
        What a user should be told about it.
    scope : str
        Which of the tested participants its encoder was trained on: a name of `rows.SCOPES`.
    trained_on : dict
        Cohorts that its encoder was trained on: name → number of participants.
    adapted : str
        The substitute that a cohort made necessary.
    probe : estimator, optional
        The user's own estimator, which predicts from the features instead of kernel ridge.

    Attributes
    ----------
    model : estimator
        What is fitted in each fold on the features that `split` gives. Set by `prepare`.
    steps : list
        ComBat and regression of covariates, where the protocol asks for them. Set by `prepare`.
    table : DataFrame
        The participants table, which the steps read. Set by `prepare`.
    """

    name: str = "features"
    missing: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    scope: str = "none"
    trained_on: dict[str, int] = field(default_factory=dict)
    adapted: str = ""
    probe: Any = None
    model: Any = None
    steps: Sequence[Any] = ()
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    # the row of covariates alone leaves them in the target
    removes_covariates: ClassVar[bool] = True
    # whether targets can be permuted a thousand times in reasonable time
    permutes: ClassVar[bool] = True

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Choose the model and compute what all folds share.

        This sees all participants, so nothing may be learned here: that is for `split`.

        Parameters
        ----------
        cohort : Cohort
            Whose participants are evaluated.
        participants : Participants
            What `prepare_participants` made of the cohort.
        protocol : Protocol
            With the kernel, and the adjustments of features.

        Returns
        -------
        FeatureSet
            This feature set.
        """
        self.model = ridge_of(protocol) if self.probe is None else self.probe
        self.steps = _adjustment_steps(protocol)
        self.table = participants.table
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the participants table that `split` reads."""
        names: dict[str, None] = {}
        for step in self.steps:
            names.update(dict.fromkeys(step.columns))
        return tuple(names)

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str] = ()
    ) -> tuple[Any, Any]:
        """Features of training and of test participants, learned from training participants only.

        Parameters
        ----------
        train, test : (k,) integers
            Positions of participants.
        targets : sequence of str
            Columns that are predicted: features must be made without reading them.

        Returns
        -------
        training_features, test_features : object
            What `model` takes.
        """
        training_features, test_features = self._split_unadjusted(train, test)
        for step in self.steps:
            fitted = step.without(targets).fit(training_features, self.table.iloc[train])
            training_features = fitted.transform(training_features, self.table.iloc[train])
            test_features = fitted.transform(test_features, self.table.iloc[test])
        return training_features, test_features

    def _split_unadjusted(self, train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
        raise NotImplementedError

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """Numbers per participant; 0 where this is not known before training."""
        return 0


@dataclass
class FixedFeatures(FeatureSet):
    """Numbers that do not depend on who is in training.

    Subclasses say in `read` where they come from.

    Attributes
    ----------
    values : (n, d) array, optional
        Numbers of all participants.
    kernel : (n, n) array, optional
        Instead of the numbers, the kernel of all participants, where that is smaller.
    """

    values: np.ndarray | None = None
    kernel: np.ndarray | None = None

    def read(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """Numbers of the participants at `rows`, (rows, d); a large cohort is read in parts."""
        raise NotImplementedError

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Compute the kernel where it is smaller than the numbers, otherwise read these."""
        super().prepare(cohort, participants, protocol)
        n = len(cohort)
        unit_rows = UNIT_ROWS.get(protocol.kernel)
        # harmonised features differ from fold to fold, and a user's own estimator reads numbers
        same_in_all_folds = not self.steps and self.probe is None
        many_numbers = self.width(cohort, protocol) >= n / 2
        if unit_rows is not None and same_in_all_folds and many_numbers:
            self.kernel = blockwise_gram(partial(self.read, cohort), n, unit_rows)  # (n, n)
            diagonal = np.diagonal(self.kernel)[:, None]  # (n, 1)
            check_finite(diagonal, participants.ids, ["connectivity"], self.name)
            self.model.set_params(kernel="precomputed")
        else:
            self.values = self.read(cohort, np.arange(n))  # (n, d)
            check_finite(self.values, participants.ids, None, "connectivity")
        return self

    def _split_unadjusted(
        self, train: np.ndarray, test: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.kernel is not None:
            return self.kernel[np.ix_(train, train)], self.kernel[np.ix_(test, train)]
        if self.values is None:
            raise problem(self.name, "it is not prepared", remedy="Call prepare first.")
        return self.values[train], self.values[test]

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """Columns of what is read."""
        return int(self.read(cohort, np.arange(1)).shape[1])


@dataclass
class RawFC(FixedFeatures):
    """The entries of FC above the diagonal."""

    def read(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """FC of the participants at `rows`, (rows, R (R − 1) / 2)."""
        return cohort.inputs("upper", rows)


@dataclass
class GivenNumbers(FixedFeatures):
    """The user's own numbers, or those of a trained encoder: `values`, (n, d)."""

    scope: str = "not stated"

    def read(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """Rows of the numbers."""
        return self.values[rows]  # type: ignore[index]


@dataclass
class PrincipalComponents(FeatureSet):
    """Principal components of FC, fitted on the training participants of each fold.

    Attributes
    ----------
    products : (n, n) array, optional
        Inner products of the FC of all participants, X Xᵀ, from which each fold computes its
        components.
    values : (n, d) array, optional
        Instead of the products, the FC of all participants, where it is adjusted in each fold.
    n_components : int
        Components that are kept.
    """

    scope: str = "train_folds"
    products: np.ndarray | None = None
    values: np.ndarray | None = None
    n_components: int = 256

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Compute inner products once for all folds, unless features are adjusted in each."""
        super().prepare(cohort, participants, protocol)
        self.n_components = protocol.n_components
        if self.steps:
            self.values = cohort.inputs("upper")  # (n, d)
            check_finite(self.values, participants.ids, None, "connectivity")
        else:
            read = partial(cohort.inputs, "upper")
            as_float = partial(np.asarray, dtype=float)
            self.products = blockwise_gram(read, len(cohort), as_float)  # (n, n)
            diagonal = np.diagonal(self.products)[:, None]  # (n, 1)
            check_finite(diagonal, participants.ids, ["connectivity"], self.name)
        return self

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores on the first components of the training participants."""
        if self.products is not None:
            return _component_scores(self.products, train, test, self.n_components)
        training_features, test_features = super().split(train, test, targets)
        both = np.concatenate([training_features, test_features])  # (train + test, d)
        positions = np.arange(len(both))
        return _component_scores(
            both @ both.T, positions[: len(train)], positions[len(train) :], self.n_components
        )

    def _split_unadjusted(
        self, train: np.ndarray, test: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.values is None:
            raise problem(self.name, "it is not prepared", remedy="Call prepare first.")
        return self.values[train], self.values[test]

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """The number of components that was asked for."""
        return protocol.n_components


@dataclass
class CovariatesAlone(FeatureSet):
    """What the covariates predict by themselves, none of them removed from the target."""

    covariates: pd.DataFrame = field(default_factory=pd.DataFrame)
    removes_covariates: ClassVar[bool] = False

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Choose a linear model of the covariates, instead of kernel ridge."""
        if participants.covariates.shape[1] == 0:
            raise problem(
                "covariates",
                "this feature set needs covariates",
                expected="covariates=['age', 'sex'], say",
            )
        self.model = CovariateRegression()
        self.covariates = participants.covariates
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """All covariates."""
        return tuple(map(str, self.covariates.columns))

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str] = ()
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Covariates of training and of test participants; a target is never among them."""
        table = self.covariates.drop(columns=list(targets), errors="ignore")
        return table.iloc[train], table.iloc[test]


@dataclass
class LearnedInFolds(FeatureSet):  # numpydoc ignore=PR02
    """Features of an encoder that is fitted, without labels, on the training fold.

    Parameters
    ----------
    fit : callable
        Training cohort → a fitted encoder, with `transform(cohort)`.
    """

    scope: str = "train_folds"
    fit: Any = None
    cohort: Any = None
    permutes: ClassVar[bool] = False

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Nothing is computed before a fold asks for it."""
        super().prepare(cohort, participants, protocol)
        self.cohort = cohort
        return self

    def _split_unadjusted(self, train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
        training_cohort = self.cohort.subset(train)
        encoder = self.fit(training_cohort)
        training_features = encoder.transform(training_cohort)
        test_features = encoder.transform(self.cohort.subset(test))
        self.adapted = getattr(encoder, "adapted_", "") or self.adapted
        # tokens (n, patches, d) become one long row per participant
        return training_features.reshape(len(train), -1), test_features.reshape(len(test), -1)


@dataclass
class TrainedInFolds(LearnedInFolds):  # numpydoc ignore=PR02
    """A method that is trained with the target on the training fold, and predicts itself.

    Parameters
    ----------
    estimator : estimator
        With `fit(cohort, y)` and `predict(cohort)`.
    """

    estimator: Any = None

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """The model is the estimator itself; features are not adjusted."""
        self.model = self.estimator
        self.cohort = cohort
        return self

    def _split_unadjusted(self, train: np.ndarray, test: np.ndarray) -> tuple[Cohort, Cohort]:
        return self.cohort.subset(train), self.cohort.subset(test)


class FitInFold(BaseEstimator):
    """A supervised method made anew in each fold; its feature set records what it substituted.

    Parameters
    ----------
    features : FeatureSet
        Its `adapted` is set to that of the method.
    make : callable
        No arguments → an estimator that is not fitted.
    """

    def __init__(self, features: FeatureSet, make: Callable[[], Any]) -> None:
        self.features = features
        self.make = make

    def __sklearn_clone__(self) -> FitInFold:
        return self

    def fit(self, X: Cohort, y: np.ndarray, groups: Any = None) -> FitInFold:
        """Fit a new method to the training participants of a fold.

        Parameters
        ----------
        X : Cohort
            The training participants.
        y : (n,) array
            Their target.
        groups : (n,) labels, optional
            Kept together when participants are held out for validation.

        Returns
        -------
        FitInFold
            This estimator.
        """
        self.fitted_ = self.make().fit(X, y, groups=groups)
        return self

    def predict(self, X: Cohort) -> np.ndarray:
        """Predictions of test participants."""
        predicted = self.fitted_.predict(X)
        self.features.adapted = self.fitted_.adapted_ or self.features.adapted
        return predicted


NAMED: dict[str, type[FeatureSet]] = {
    "raw": RawFC,
    "pca": PrincipalComponents,
    "covariates": CovariatesAlone,
}


def ridge_of(protocol: Protocol) -> KernelRidge:
    """The kernel ridge of a protocol, not fitted."""
    return KernelRidge(
        protocol.kernel, protocol.lambdas, protocol.n_inner_folds, seed=protocol.seed
    )


def _component_scores(
    products: np.ndarray, train: np.ndarray, test: np.ndarray, n_components: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scores on the first components of the training participants, from inner products X Xᵀ.

    With G the centred products of training participants, G = U S² Uᵀ: scores are G_x U / S, where
    G_x are the centred products of any participants with those in training. They are rotated
    (`rotate_to_zero_sum`), so that the correlation kernel takes no arbitrary direction away. Scores
    are (train, k + 1) and (test, k + 1).
    """
    average = products[np.ix_(train, train)].mean(axis=0, dtype=float)  # (train,)

    def centre(rows: np.ndarray) -> np.ndarray:
        part = np.asarray(products[np.ix_(rows, train)], float)
        return part - part.mean(axis=1, keepdims=True) - average + average.mean()

    n = len(train)
    k = min(n_components, n - 1)
    values, vectors = eigendecomposition(
        centre(train), driver="evr", subset_by_index=[n - k, n - 1]
    )
    largest = np.abs(products[train, train]).max()  # on the diagonal
    rounding_of_centring = 1e-15 * n * largest
    kept = values > max(values[-1] * 1e-10, rounding_of_centring)
    if not kept.any():
        # all participants are alike: one component, of zeros
        return np.zeros((len(train), 1)), np.zeros((len(test), 1))
    onto = rotate_to_zero_sum((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])  # (train, k + 1)
    return centre(train) @ onto, centre(test) @ onto


def check_finite(matrix: np.ndarray, ids: np.ndarray, columns: list | None, where: object) -> None:
    """Refuse features that are missing or infinite.

    Parameters
    ----------
    matrix : (n, d) array
        Features.
    ids : (n,) array
        Ids of the participants, for the error.
    columns : list of str, optional
        Names of the features; without them the error has their number.
    where : object
        What the error is about: a file, say.
    """
    is_bad = ~np.isfinite(matrix)
    if is_bad.any():
        row, column = np.argwhere(is_bad)[0]
        feature = f"column {columns[column]!r}" if columns else f"feature {column}"
        count = f"so for {is_bad.any(axis=1).sum()} of {len(is_bad)} participants"
        raise problem(
            where,
            f"{feature} of {ids[row]} is missing or infinite ({count})",
            expected="a number for every feature",
            remedy="Leave those participants out, or fill the values in.",
        )


def _adjustment_steps(protocol: Protocol) -> list[Any]:
    """ComBat and regression of covariates, where the protocol asks for them."""
    steps: list[Any] = []
    if protocol.combat:
        subset = protocol.combat_subset if protocol.combat_on else None
        steps.append(ComBat(str(protocol.site), protocol.preserve, subset))
    if protocol.regress_features and protocol.covariates:
        steps.append(FeatureRegression(protocol.covariates))
    return steps
