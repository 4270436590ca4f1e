"""What users call features (an array, a table, "raw", "pca", "covariates", an estimator), each an object that says what
the cross-validation loop runs for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from nerve._utils.errors import did_you_mean, listed, problem
from nerve._utils.files import read_foreign_table
from nerve._utils.privacy import Note
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import open_npy
from nerve.evaluation import sources
from nerve.evaluation.combat import ComBat
from nerve.evaluation.covariates import CovariateRegression, FeatureRegression
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.kernels import UNIT_ROWS, blockwise_gram, cross_products, squared_distances
from nerve.evaluation.people import People
from nerve.evaluation.protocol import Protocol

Prepared = tuple[
    Any, sources.Source
]  # the model that is fitted in each fold, and where its features come from


@dataclass
class Features:
    """One row of a results table before it is computed; `prepare` gives what the cross-validation loop runs."""

    name: str
    missing: np.ndarray = field(
        default_factory=lambda: np.zeros(0, bool)
    )  # (n,) participants without features
    notes: tuple[str, ...] = ()
    scope: str = "none"
    trained_on: dict[str, int] = field(
        default_factory=dict
    )  # cohorts of its encoder: name → participants
    adapted: str = ""  # the substitute that a cohort made necessary
    probe: Any = None  # what reads the features instead of kernel ridge
    removes_covariates: ClassVar[bool] = (
        True  # from the target; the row of covariates alone does not
    )
    permutes: ClassVar[bool] = (
        True  # whether targets can be permuted a thousand times in reasonable time
    )

    def prepare(self, cohort: Cohort, people: People, protocol: Protocol) -> Prepared:
        """The model that is fitted in each fold, and the source of its features."""
        raise NotImplementedError

    def reader(self, protocol: Protocol) -> Any:
        """The model that reads the features: kernel ridge, or the user's own."""
        return ridge_of(protocol) if self.probe is None else self.probe

    def is_approximate(self, n: int, protocol: Protocol) -> bool:
        """Whether the kernel goes through landmarks."""
        return False

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """Numbers per participant; 0 where they are not known before training."""
        return 0


@dataclass
class Learned(Features):
    """An estimator with `fit(cohort)` and `transform(cohort)`, fitted on the training participants of each fold."""

    estimator: Any = None
    scope: str = "train_folds"
    permutes: ClassVar[bool] = False

    def source(self, cohort: Cohort) -> sources.Source:
        """Where the features of a fold come from."""
        return sources.FittedInFolds(self.estimator, cohort)

    def prepare(self, cohort: Cohort, people: People, protocol: Protocol) -> Prepared:
        """Kernel ridge on what the estimator gives."""
        return self.reader(protocol), adjusted(self.source(cohort), people, protocol)


@dataclass
class Predictor(Learned):
    """An estimator with `fit(cohort, y)` and `predict(cohort)`, trained inside each fold."""

    def prepare(self, cohort: Cohort, people: People, protocol: Protocol) -> Prepared:
        """The estimator itself, on the participants of each fold."""
        return self.estimator, sources.Rows(cohort)


@dataclass
class CovariatesAlone(Features):
    """What the covariates predict by themselves, none of them removed from the target."""

    removes_covariates: ClassVar[bool] = False

    def prepare(self, cohort: Cohort, people: People, protocol: Protocol) -> Prepared:
        """A linear model of the covariates."""
        if people.covariates.shape[1] == 0:
            raise problem(
                "covariates",
                "this feature set needs covariates",
                expected="covariates=['age', 'sex'], say",
            )
        return CovariateRegression(), sources.CovariateTable(people.covariates)


@dataclass
class Entries(Features):
    """Numbers that do not depend on who is in training: by default the entries of FC above the diagonal."""

    def read(self, cohort: Cohort) -> Callable[[np.ndarray], np.ndarray]:
        """A function from rows to (rows, d) numbers; a large cohort is never read as a whole."""
        return lambda rows: cohort.inputs("upper", rows)

    def prepare(self, cohort: Cohort, people: People, protocol: Protocol) -> Prepared:
        """Kernel ridge; a kernel that depends on nobody else is computed once for all folds."""
        ridge, read, n = self.reader(protocol), self.read(cohort), len(cohort)
        transform = UNIT_ROWS.get(protocol.kernel)
        if self.is_approximate(n, protocol):
            pool, ridge = (
                sources.landmark_pool(n, protocol.n_landmarks, protocol.seed),
                ridge.set_params(kernel="rows"),
            )
            if transform is None:
                values = np.asarray(self.all(cohort, people), float)
                return ridge, sources.Landmarks(
                    squared_distances(values, values[pool]), pool, gaussian=True
                )
            cross = cross_products(read, n, pool, transform)
            _check_finite(cross[:, :1], people.ids, ["connectivity"], self.name)
            return ridge, sources.Landmarks(cross, pool)
        alone = self.probe is None and not _steps(protocol)
        if transform is not None and alone and self.width(cohort, protocol) >= n / 2:
            kernel = blockwise_gram(read, n, transform)
            _check_finite(np.diagonal(kernel)[:, None], people.ids, ["connectivity"], self.name)
            return ridge.set_params(kernel="precomputed"), sources.Kernel(kernel)
        return ridge, adjusted(sources.Rows(self.all(cohort, people)), people, protocol)

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """Columns of what is read."""
        return int(self.read(cohort)(np.arange(1)).shape[1])

    def is_approximate(self, n: int, protocol: Protocol) -> bool:
        """An exact computation would need (n, n) numbers for too many participants; few features never do."""
        return (
            n > protocol.exact_up_to
            and not _steps(protocol)
            and self.probe is None
            and protocol.kernel != "linear"
        )

    def all(self, cohort: Cohort, people: People) -> np.ndarray:
        """The numbers of everyone, (n, d)."""
        values = self.read(cohort)(np.arange(len(cohort)))
        _check_finite(values, people.ids, None, "connectivity")
        return values


@dataclass
class Components(Entries):
    """Principal components of FC, fitted on the training participants of each fold."""

    scope: str = "train_folds"

    def prepare(self, cohort: Cohort, people: People, protocol: Protocol) -> Prepared:
        """Kernel ridge on scores, from inner products computed once for all folds."""
        ridge, read, n, k = (
            self.reader(protocol),
            self.read(cohort),
            len(cohort),
            protocol.n_components,
        )
        if _steps(protocol):
            return ridge, adjusted(
                sources.Rows(self.all(cohort, people)), people, protocol, n_components=k
            )
        if self.is_approximate(n, protocol):
            pool = sources.landmark_pool(n, protocol.n_landmarks, protocol.seed)
            return ridge, sources.PrincipalComponents(
                cross_products(read, n, pool, _float), k, pool
            )
        gram = blockwise_gram(read, n, _float)
        _check_finite(np.diagonal(gram)[:, None], people.ids, ["connectivity"], self.name)
        return ridge, sources.PrincipalComponents(gram, k)

    def width(self, cohort: Cohort, protocol: Protocol) -> int:
        """As many as were asked for."""
        return protocol.n_components

    def is_approximate(self, n: int, protocol: Protocol) -> bool:
        """As for entries, whatever reads the components."""
        return n > protocol.exact_up_to and not _steps(protocol)


@dataclass
class Given(Entries):
    """The user's own numbers, or those of a trained encoder: (n, d)."""

    matrix: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    scope: str = "not stated"

    def read(self, cohort: Cohort) -> Callable[[np.ndarray], np.ndarray]:
        """Rows of the matrix."""
        return self.matrix.__getitem__

    def is_approximate(self, n: int, protocol: Protocol) -> bool:
        """As for entries, if there are more features than landmarks would be."""
        wide = protocol.kernel == "rbf" or self.matrix.shape[1] > protocol.n_landmarks
        return wide and super().is_approximate(n, protocol)


_float = partial(np.asarray, dtype=float)
NAMED: dict[str, type[Features]] = {
    "raw": Entries,
    "pca": Components,
    "covariates": CovariatesAlone,
}


def ridge_of(protocol: Protocol) -> KernelRidge:
    """The probe of a protocol."""
    return KernelRidge(
        protocol.kernel, protocol.lambdas, protocol.n_inner_folds, seed=protocol.seed
    )


def adjusted(
    source: sources.Source, people: People, protocol: Protocol, **options: Any
) -> sources.Source:
    """The source with ComBat and regression of covariates on top, where the protocol asks for them."""
    steps = _steps(protocol)
    return sources.Adjusted(source, people.table, steps, **options) if steps else source


def feature_sets(features: Any, cohort: Cohort, name: str | None = None) -> list[Features]:
    """All the sets that were asked for; a mapping or a list of several gives several."""
    if isinstance(features, Mapping):
        return [one_feature_set(value, cohort, str(key)) for key, value in features.items()]
    several = isinstance(features, (list, tuple)) and len(features) > 0
    if several and all(isinstance(value, (str, os.PathLike)) for value in features):
        return [one_feature_set(value, cohort) for value in features]
    return [one_feature_set(features, cohort, name)]


def one_feature_set(
    features: Any, cohort: Cohort, name: str | None = None, scope: str = "not stated"
) -> Features:
    """Recognise what was given; see `nerve.evaluate`."""
    nobody = np.zeros(len(cohort), bool)
    if isinstance(features, Features):
        return features
    if isinstance(features, str) and features in NAMED:
        return NAMED[features](name or features, nobody)
    for verb, kind in (("predict", Predictor), ("transform", Learned)):
        if hasattr(features, "fit") and hasattr(features, verb):
            return kind(name or type(features).__name__, nobody, estimator=features)
    if isinstance(features, (str, os.PathLike)):
        return _from_file(Path(features), cohort, name, scope)
    if isinstance(features, pd.DataFrame):
        return _from_table(features, cohort, name or "features", "the features table", scope)
    matrix = np.asarray(features)
    if matrix.dtype.kind not in "fiub":
        wanted = f"numbers, a table, a file or one of {listed(NAMED)}"
        raise problem("features", f"an array of {matrix.dtype}", expected=wanted)
    if matrix.ndim < 2 or len(matrix) != len(cohort):
        wanted = f"one row for each of the {len(cohort)} participants of {cohort.name!r}"
        raise problem("features", f"an array of shape {matrix.shape}", expected=wanted)
    matrix = matrix.reshape(
        len(matrix), -1
    )  # tokens (n, patches, d) become one long row per participant
    _check_finite(matrix, cohort.participants["participant_id"].to_numpy(object), None, "features")
    return Given(name or "features", nobody, scope=scope, matrix=_in_range(matrix))


def _from_file(path: Path, cohort: Cohort, name: str | None, scope: str) -> Features:
    if not path.is_file():
        found, near = (
            "there is no such file, and it is no named feature set",
            did_you_mean(str(path), NAMED).strip(),
        )
        raise problem(
            path,
            found,
            expected=f"one of {listed(NAMED)}, or a table with participant_id",
            remedy=near,
        )
    if path.suffix == ".npy":
        array = open_npy(path, "Write it again, as one array of numbers.")
        return one_feature_set(np.asarray(array), cohort, name or path.stem, scope)
    table = read_foreign_table(path, dtype={"participant_id": str})
    return _from_table(table, cohort, name or path.stem, path, scope)


def _from_table(
    table: pd.DataFrame, cohort: Cohort, name: str, where: object, scope: str
) -> Features:
    if "participant_id" not in table.columns:
        raise problem(
            where,
            "there is no column 'participant_id'",
            remedy="Add one, so that rows can be matched.",
        )
    ids, values = table["participant_id"].astype(str), table.drop(columns="participant_id")
    if len(twice := ids[ids.duplicated()].unique()):
        raise problem(
            where, f"{listed(twice, most=4)} occur twice", expected="one row per participant"
        )
    if words := [column for column in values if not pd.api.types.is_numeric_dtype(values[column])]:
        found = f"column {listed(words, most=3)} is not numeric"
        raise problem(where, found, expected="numbers in every feature column")
    if values.shape[1] == 0:
        raise problem(
            where, "there are no feature columns", expected="numbers beside participant_id"
        )
    _check_finite(values.to_numpy(float), ids.to_numpy(object), list(values.columns), where)
    people = cohort.participants["participant_id"]
    missing, unknown = ~people.isin(ids).to_numpy(), ids[~ids.isin(people)]
    if missing.all():
        both = f"it has {listed(ids, most=3)}, {cohort.name!r} has {listed(people, most=3)}"
        raise problem(
            where, f"no participant_id matches ({both})", remedy="Check how the ids are written."
        )
    matrix = values.set_index(ids).reindex(people).to_numpy(float, copy=True)
    matrix[missing] = matrix[~missing][
        0
    ]  # never read: these participants have no targets in this set
    said = {
        f"{missing.sum()} of {len(missing)} participants are left out (no features)": people[
            missing
        ],
        f"{len(unknown)} rows belong to nobody in the cohort and are not used": unknown,
    }
    notes = tuple(Note.about(f"{name}: {what}", who) for what, who in said.items() if len(who))
    return Given(name, missing, notes, scope, matrix=_in_range(matrix))


def _in_range(matrix: np.ndarray) -> np.ndarray:
    """The features, in other units if their squares could not be computed: no kernel here depends on the units."""
    largest = float(np.abs(matrix).max(initial=0.0))
    return matrix if largest == 0.0 or 1e-75 < largest < 1e75 else matrix / largest


def _check_finite(matrix: np.ndarray, ids: np.ndarray, columns: list | None, where: object) -> None:
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        named = f"column {columns[column]!r}" if columns else f"feature {column}"
        so_many = f"so for {bad.any(axis=1).sum()} of {len(bad)} participants"
        found = f"{named} of {ids[row]} is missing or infinite ({so_many}), expected a number for every feature"
        raise problem(where, found, remedy="Leave those participants out, or fill the values in.")


def _steps(protocol: Protocol) -> list[Any]:
    steps: list[Any] = []
    if protocol.combat:
        steps.append(
            ComBat(
                str(protocol.site),
                protocol.preserve,
                protocol.subset if protocol.combat_on else None,
            )
        )
    if protocol.regress_features and protocol.covariates:
        steps.append(FeatureRegression(protocol.covariates))
    return steps
