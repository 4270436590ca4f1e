"""What a row predicts from. `FeatureSet.split` gives features of training and test participants.

Whatever a feature set learns on the way (components, an encoder, harmonisation, regression of
covariates) it learns from the training participants that `split` is given. What does not depend on
who is in training, such as a kernel, is computed once, by `prepare`. `make_feature_sets` recognises
what users call features: an array, a table, a file, "raw", an estimator.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone

from nerve._utils.errors import did_you_mean, listed, problem
from nerve._utils.files import read_foreign_table
from nerve._utils.linalg import eigendecomposition, rotate_to_zero_sum
from nerve._utils.privacy import Note
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import open_npy
from nerve.evaluation.combat import ComBat
from nerve.evaluation.covariates import CovariateRegression, FeatureRegression
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.kernels import UNIT_ROWS, blockwise_gram
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol


@dataclass
class FeatureSet:  # numpydoc ignore=PR02
    """What one row predicts from, and what is known of it.

    Subclasses say where the numbers come from.

    Parameters
    ----------
    name : str
        What notes and warnings call it.
    missing : (n,) booleans, optional
        Participants without features: their targets are not used.
    notes : tuple of str
        What a user should be told of it.
    scope : str
        Whom it had seen of the participants that are tested: a name of `rows.SCOPES`.
    trained_on : dict
        Cohorts that its encoder was trained on: name → number of participants.
    adapted : str
        The substitute that a cohort made necessary.
    probe : estimator, optional
        What reads the features instead of kernel ridge.

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
        """Features of training and of test participants; all learning is from the former.

        Parameters
        ----------
        train, test : (k,) integers
            Positions of participants.
        targets : sequence of str
            Columns that are predicted, and must not be read.

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
class RawFC(FeatureSet):
    """The entries of FC above the diagonal, which do not depend on who is in training.

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
        return cohort.inputs("upper", rows)

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Compute the kernel where it is smaller than the numbers, otherwise read these."""
        super().prepare(cohort, participants, protocol)
        unit_rows = UNIT_ROWS.get(protocol.kernel)
        n = len(cohort)
        # harmonised features differ from fold to fold, and a probe of the user's reads numbers
        same_in_all_folds = not self.steps and self.probe is None
        many_numbers = self.width(cohort, protocol) >= n / 2
        if unit_rows is not None and same_in_all_folds and many_numbers:
            self.kernel = blockwise_gram(partial(self.read, cohort), n, unit_rows)
            diagonal = np.diagonal(self.kernel)[:, None]
            _check_finite(diagonal, participants.ids, ["connectivity"], self.name)
            self.model.set_params(kernel="precomputed")
        else:
            self.values = self._read_all(cohort, participants)
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

    def _read_all(self, cohort: Cohort, participants: Participants) -> np.ndarray:
        values = self.read(cohort, np.arange(len(cohort)))  # (n, d)
        _check_finite(values, participants.ids, None, "connectivity")
        return values


@dataclass
class PrincipalComponents(RawFC):
    """Principal components of FC, fitted on the training participants of each fold.

    Attributes
    ----------
    products : (n, n) array, optional
        Inner products of the FC of all participants, X Xᵀ; not used where features are adjusted in
        each fold.
    n_components : int
        Components that are kept.
    """

    scope: str = "train_folds"
    products: np.ndarray | None = None
    n_components: int = 256

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Compute inner products once for all folds, unless features are adjusted in each."""
        FeatureSet.prepare(self, cohort, participants, protocol)
        self.n_components = protocol.n_components
        if self.steps:
            self.values = self._read_all(cohort, participants)
        else:
            as_float = partial(np.asarray, dtype=float)
            self.products = blockwise_gram(partial(self.read, cohort), len(cohort), as_float)
            diagonal = np.diagonal(self.products)[:, None]
            _check_finite(diagonal, participants.ids, ["connectivity"], self.name)
        return self

    def split(
        self, train: np.ndarray, test: np.ndarray, targets: Sequence[str] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores on the first components of the training participants."""
        if self.products is not None:
            return _component_scores(self.products, train, test, self.n_components)
        both = np.concatenate(super().split(train, test, targets))  # (train + test, d)
        positions = np.arange(len(both))
        return _component_scores(
            both @ both.T, positions[: len(train)], positions[len(train) :], self.n_components
        )

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """The number of components that was asked for."""
        return protocol.n_components


@dataclass
class GivenNumbers(RawFC):
    """The user's own numbers, or those of a trained encoder: `values`, (n, d)."""

    scope: str = "not stated"

    def read(self, cohort: Cohort, rows: np.ndarray) -> np.ndarray:
        """Rows of the numbers."""
        return self.values[rows]  # type: ignore[index]


@dataclass
class CovariatesAlone(FeatureSet):
    """What the covariates predict by themselves, none of them removed from the target."""

    covariates: pd.DataFrame = field(default_factory=pd.DataFrame)
    removes_covariates: ClassVar[bool] = False

    def prepare(self, cohort: Cohort, participants: Participants, protocol: Protocol) -> Self:
        """Choose a linear model of the covariates."""
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
        """The covariates of both; a target is never among them."""
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
        encoder = self.fit(self.cohort.subset(train))
        training_features = encoder.transform(self.cohort.subset(train))
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
        Whose `adapted` is set.
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


def make_feature_sets(features: Any, cohort: Cohort, name: str | None = None) -> list[FeatureSet]:
    """All feature sets that were asked for.

    Parameters
    ----------
    features : object
        What `make_feature_set` takes; a mapping from names to such, or a list of names and files,
        gives several.
    cohort : Cohort
        Whose participants they are of.
    name : str, optional
        What a single one is called.

    Returns
    -------
    list of FeatureSet
        Not prepared.
    """
    if isinstance(features, Mapping):
        return [make_feature_set(value, cohort, str(key)) for key, value in features.items()]
    several = isinstance(features, (list, tuple)) and len(features) > 0
    if several and all(isinstance(value, (str, os.PathLike)) for value in features):
        return [make_feature_set(value, cohort) for value in features]
    return [make_feature_set(features, cohort, name)]


def make_feature_set(
    features: Any, cohort: Cohort, name: str | None = None, scope: str = "not stated"
) -> FeatureSet:
    """Recognise what a user calls features.

    Parameters
    ----------
    features : object
        A feature set, a name of `NAMED`, an estimator with `fit` and `predict` or `transform`, an
        array with one row per participant, a table with participant_id, or a file of one.
    cohort : Cohort
        Whose participants they are of.
    name : str, optional
        What it is called.
    scope : str
        Whom numbers had seen: a name of `rows.SCOPES`.

    Returns
    -------
    FeatureSet
        Not prepared.
    """
    if isinstance(features, FeatureSet):
        return features
    none_missing = np.zeros(len(cohort), bool)
    if isinstance(features, str) and features in NAMED:
        return NAMED[features](name or features, none_missing)
    if hasattr(features, "fit") and hasattr(features, "predict"):
        return TrainedInFolds(name or type(features).__name__, none_missing, estimator=features)
    if hasattr(features, "fit") and hasattr(features, "transform"):

        def fit(training: Cohort) -> Any:
            return clone(features).fit(training)

        return LearnedInFolds(name or type(features).__name__, none_missing, fit=fit)
    if isinstance(features, (str, os.PathLike)):
        return _from_file(Path(features), cohort, name, scope)
    if isinstance(features, pd.DataFrame):
        return _from_table(features, cohort, name or "features", "the features table", scope)
    matrix = np.asarray(features)
    if matrix.dtype.kind not in "fiub":
        expected = f"numbers, a table, a file or one of {listed(NAMED)}"
        raise problem("features", f"an array of {matrix.dtype}", expected=expected)
    if matrix.ndim < 2 or len(matrix) != len(cohort):
        expected = f"one row for each of the {len(cohort)} participants of {cohort.name!r}"
        raise problem("features", f"an array of shape {matrix.shape}", expected=expected)
    # tokens (n, patches, d) become one long row per participant
    matrix = matrix.reshape(len(matrix), -1)
    ids = cohort.participants["participant_id"].to_numpy(object)
    _check_finite(matrix, ids, None, "features")
    return GivenNumbers(name or "features", none_missing, scope=scope, values=_in_range(matrix))


def _component_scores(
    products: np.ndarray, train: np.ndarray, test: np.ndarray, n_components: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scores on the first components of the training participants, from inner products X Xᵀ.

    With G the centred products of training participants, G = U S² Uᵀ: scores are G_x U / S, for the
    centred products G_x of anyone with them. They are rotated (`rotate_to_zero_sum`), so that the
    correlation kernel takes no arbitrary direction away. Scores are (train, k + 1) and (test, k + 1).
    """
    average = products[np.ix_(train, train)].mean(axis=0, dtype=float)

    def centre(rows: np.ndarray) -> np.ndarray:
        part = np.asarray(products[np.ix_(rows, train)], float)
        return part - part.mean(axis=1, keepdims=True) - average + average.mean()

    n = len(train)
    k = min(n_components, n - 1)
    values, vectors = eigendecomposition(
        centre(train), driver="evr", subset_by_index=[n - k, n - 1]
    )
    rounding_of_centring = 1e-15 * n * np.abs(products[train, train]).max()
    kept = values > max(values[-1] * 1e-10, rounding_of_centring)
    if not kept.any():
        # all participants are alike: one component, of zeros
        return np.zeros((len(train), 1)), np.zeros((len(test), 1))
    onto = rotate_to_zero_sum((vectors[:, kept] / np.sqrt(values[kept]))[:, ::-1])  # (train, k + 1)
    return centre(train) @ onto, centre(test) @ onto


def _from_file(path: Path, cohort: Cohort, name: str | None, scope: str) -> FeatureSet:
    if not path.is_file():
        raise problem(
            path,
            "there is no such file, and it is no named feature set",
            expected=f"one of {listed(NAMED)}, or a table with participant_id",
            remedy=did_you_mean(str(path), NAMED).strip(),
        )
    if path.suffix == ".npy":
        array = open_npy(path, "Write it again, as one array of numbers.")
        return make_feature_set(np.asarray(array), cohort, name or path.stem, scope)
    table = read_foreign_table(path, dtype={"participant_id": str})
    return _from_table(table, cohort, name or path.stem, path, scope)


def _from_table(
    table: pd.DataFrame, cohort: Cohort, name: str, where: object, scope: str
) -> FeatureSet:
    if "participant_id" not in table.columns:
        raise problem(
            where,
            "there is no column 'participant_id'",
            remedy="Add one, so that rows can be matched.",
        )
    ids = table["participant_id"].astype(str)
    values = table.drop(columns="participant_id")
    repeated = ids[ids.duplicated()].unique()
    if len(repeated):
        raise problem(
            where, f"{listed(repeated, most=4)} occur twice", expected="one row per participant"
        )
    words = [column for column in values if not pd.api.types.is_numeric_dtype(values[column])]
    if words:
        raise problem(
            where,
            f"column {listed(words, most=3)} is not numeric",
            expected="numbers in every feature column",
        )
    if values.shape[1] == 0:
        raise problem(
            where, "there are no feature columns", expected="numbers beside participant_id"
        )
    _check_finite(values.to_numpy(float), ids.to_numpy(object), list(values.columns), where)
    participants = cohort.participants["participant_id"]
    missing = ~participants.isin(ids).to_numpy()
    unknown = ids[~ids.isin(participants)]
    if missing.all():
        both = f"it has {listed(ids, most=3)}, {cohort.name!r} has {listed(participants, most=3)}"
        raise problem(
            where, f"no participant_id matches ({both})", remedy="Check how the ids are written."
        )
    matrix = values.set_index(ids).reindex(participants).to_numpy(float, copy=True)
    # any numbers will do: these participants have no targets in this feature set
    matrix[missing] = matrix[~missing][0]
    notes = []
    if missing.any():
        sentence = f"{missing.sum()} of {len(missing)} participants are left out (no features)"
        notes.append(Note.about(f"{name}: {sentence}", participants[missing]))
    if len(unknown):
        sentence = f"{len(unknown)} rows belong to nobody in the cohort and are not used"
        notes.append(Note.about(f"{name}: {sentence}", unknown))
    return GivenNumbers(name, missing, tuple(notes), scope, values=_in_range(matrix))


def _in_range(matrix: np.ndarray) -> np.ndarray:
    """The features, in other units if their squares could overflow: no kernel depends on units."""
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest == 0.0 or 1e-75 < largest < 1e75:
        return matrix
    return matrix / largest


def _check_finite(matrix: np.ndarray, ids: np.ndarray, columns: list | None, where: object) -> None:
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        feature = f"column {columns[column]!r}" if columns else f"feature {column}"
        count = f"so for {bad.any(axis=1).sum()} of {len(bad)} participants"
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
        subset = protocol.subset if protocol.combat_on else None
        steps.append(ComBat(str(protocol.site), protocol.preserve, subset))
    if protocol.regress_features and protocol.covariates:
        steps.append(FeatureRegression(protocol.covariates))
    return steps
