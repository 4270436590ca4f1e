"""What users call features (an array, "raw", "pca", "covariates", a table, a model) made into a model and a source."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, did_you_mean, listed, problem
from nerve.cohort import Cohort
from nerve.evaluation.combat import ComBat
from nerve.evaluation.covariates import CovariatesOnly, FeatureRegression
from nerve.evaluation.kernel_ridge import KernelRidge
from nerve.evaluation.kernels import Rows as ReadRows
from nerve.evaluation.kernels import blockwise_gram, correlation_rows, cosine_rows
from nerve.evaluation.landmarks import LandmarkComponents, Landmarks, RbfLandmarks, cross_products, landmark_pool
from nerve.evaluation.people import People
from nerve.evaluation.settings import Settings
from nerve.evaluation.sources import Adjusted, CovariateTable, Kernel, PrincipalComponents, Rows, Source
from nerve.files import read_foreign_table
from nerve.store import open_npy

NAMED = ("raw", "pca", "covariates")
Progress = Callable[[float], None] | None


@dataclass
class FeatureSet:
    """One row of a results table before it is computed."""

    name: str
    kind: str  # "matrix", "raw", "pca", "covariates" or "model"
    matrix: Any = None  # (n, d) for "matrix", the estimator for "model"
    missing: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (n,) people without features
    notes: tuple[str, ...] = ()
    pretrain_scope: str = "not stated"

    def fingerprint(self, cohort: Cohort) -> str:
        """A hash of what the features are."""
        digest = hashlib.blake2b(self.kind.encode(), digest_size=16)
        if self.kind == "matrix":
            digest.update(repr(self.matrix.shape).encode() + np.ascontiguousarray(self.matrix).tobytes())
        else:
            digest.update(
                cohort.fingerprint.encode() + (_described(self.matrix).encode() if self.kind == "model" else b"")
            )
        return digest.hexdigest()


def _described(model: Any) -> str:
    parameters = model.get_params() if hasattr(model, "get_params") else vars(model)
    return repr((type(model).__qualname__, sorted(parameters.items())))


def feature_sets(features: Any, cohort: Cohort, name: str | None = None, scope: str = "not stated") -> list[FeatureSet]:
    """All the sets that were asked for; a mapping or a list of several gives several."""
    if isinstance(features, Mapping):
        return [one_feature_set(value, cohort, str(key), scope) for key, value in features.items()]
    if (
        isinstance(features, (list, tuple))
        and features
        and all(isinstance(value, (str, os.PathLike)) for value in features)
    ):
        return [one_feature_set(value, cohort, None, scope) for value in features]
    return [one_feature_set(features, cohort, name, scope)]


def one_feature_set(features: Any, cohort: Cohort, name: str | None = None, scope: str = "not stated") -> FeatureSet:
    """Recognise what was given; see `nerve.evaluate`."""
    nobody = np.zeros(len(cohort), bool)
    if isinstance(features, str) and features in NAMED:
        return FeatureSet(name or features, features, missing=nobody, pretrain_scope="none")
    if hasattr(features, "fit") and hasattr(features, "predict"):
        return FeatureSet(name or type(features).__name__, "model", features, nobody, pretrain_scope="train_folds")
    if isinstance(features, (str, os.PathLike)):
        return _from_file(Path(features), cohort, name, scope)
    if isinstance(features, pd.DataFrame):
        return _from_table(features, cohort, name or "features", "the features table", scope)
    matrix = np.asarray(features)
    if matrix.dtype.kind not in "fiub":
        raise NerveError(
            f"The features hold {matrix.dtype}, expected numbers, a table, a file or one of {listed(NAMED)}."
        )
    if matrix.ndim < 2 or len(matrix) != len(cohort):
        raise problem(
            "features",
            f"an array of shape {matrix.shape}",
            expected=f"one row for each of the {len(cohort)} participants of {cohort.name!r}",
        )
    matrix = matrix.reshape(len(matrix), -1)  # tokens (n, patches, d) become one long row a person
    _check_finite(matrix, cohort.participants["participant_id"].to_numpy(object), None, "features")
    return FeatureSet(name or "features", "matrix", _in_range(matrix), nobody, pretrain_scope=scope)


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
        return one_feature_set(np.asarray(array), cohort, name or path.stem, scope)
    table = read_foreign_table(path, dtype={"participant_id": str})
    return _from_table(table, cohort, name or path.stem, path, scope)


def _from_table(table: pd.DataFrame, cohort: Cohort, name: str, where: object, scope: str) -> FeatureSet:
    if "participant_id" not in table.columns:
        raise problem(where, "there is no column 'participant_id'", remedy="Add one, so that rows can be matched.")
    ids = table["participant_id"].astype(str)
    if ids.duplicated().any():
        raise problem(
            where, f"{listed(ids[ids.duplicated()].unique(), most=4)} occur twice", expected="one row a person"
        )
    values = table.drop(columns="participant_id")
    words = [str(column) for column in values if not pd.api.types.is_numeric_dtype(values[column])]
    if words:
        raise problem(
            where, f"column {listed(words, most=3)} is not numeric", expected="numbers in every feature column"
        )
    if values.shape[1] == 0:
        raise problem(where, "there are no feature columns", expected="numbers beside participant_id")
    _check_finite(values.to_numpy(float), ids.to_numpy(object), list(values.columns), where)
    people = cohort.participants["participant_id"]
    missing = ~people.isin(ids).to_numpy()
    if missing.all():
        raise problem(
            where,
            f"no participant_id matches (it has {listed(ids, most=3)}, {cohort.name!r} has {listed(people, most=3)})",
            remedy="Check how the ids are written.",
        )
    matrix = values.set_index(ids).reindex(people).to_numpy(float, copy=True)
    matrix[missing] = matrix[~missing][0]  # never read: these people have no targets in this set
    return FeatureSet(name, "matrix", _in_range(matrix), missing, _unmatched(name, people, ids, missing), scope)


def _in_range(matrix: np.ndarray) -> np.ndarray:
    """The features, in other units if their squares could not be computed: no kernel here depends on the units."""
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest == 0.0 or 1e-75 < largest < 1e75:
        return matrix
    return matrix / largest


def _unmatched(name: str, people: pd.Series, ids: pd.Series, missing: np.ndarray) -> tuple[str, ...]:
    notes = []
    if missing.any():
        notes.append(
            f"{name}: {missing.sum()} people have no features and are left out of it: {listed(people[missing])}."
        )
    unknown = ids[~ids.isin(people)]
    if len(unknown):
        notes.append(f"{name}: {len(unknown)} rows belong to nobody in the cohort and are not used: {listed(unknown)}.")
    return tuple(notes)


def _check_finite(matrix: np.ndarray, ids: np.ndarray, columns: list | None, where: object) -> None:
    bad = ~np.isfinite(matrix)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        named = f"column {columns[column]!r}" if columns else f"feature {column}"
        raise problem(
            where,
            f"{named} of {ids[row]} is missing or infinite ({bad.any(axis=1).sum()} people have such values)",
            expected="a number for every feature",
            remedy="Leave those people out, or fill the values in.",
        )


def model_and_source(
    features: FeatureSet, cohort: Cohort, people: People, settings: Settings, progress: Progress = None
) -> tuple[Any, Source]:
    """What the cross-validation loop runs for a feature set."""
    if features.kind == "model":
        return features.matrix, Rows(cohort)
    if features.kind == "covariates":
        if people.covariates.shape[1] == 0:
            raise NerveError(
                "The feature set 'covariates' needs covariates, expected covariates=['age', 'sex'] or the like."
            )
        return CovariatesOnly(), CovariateTable(people.covariates)
    ridge = KernelRidge(settings.kernel, settings.lambdas, settings.n_inner_folds, seed=settings.seed)
    n_components = settings.n_components if features.kind == "pca" else None
    steps = _steps(settings)
    if steps:
        return ridge, Adjusted(_in_memory(features, cohort), people.table, steps, n_components)
    read = (
        (lambda rows: features.matrix[rows])
        if features.kind == "matrix"
        else (lambda rows: cohort.inputs("upper", rows))
    )
    if goes_through_landmarks(features, len(cohort), settings):
        return _through_landmarks(features, cohort, settings, ridge, read, progress)
    if n_components:
        gram = blockwise_gram(read, len(cohort), _float, progress=progress)
        _check_finite(np.diagonal(gram)[:, None], people.ids, ["connectivity"], features.name)
        return ridge, PrincipalComponents(gram, n_components)
    width = read(np.arange(1)).shape[1]
    if settings.kernel in ("correlation", "cosine") and width >= len(cohort) / 2:
        rows = correlation_rows if settings.kernel == "correlation" else cosine_rows
        kernel = blockwise_gram(read, len(cohort), rows, progress=progress)
        _check_finite(np.diagonal(kernel)[:, None], people.ids, ["connectivity"], features.name)
        return ridge.set_params(kernel="precomputed"), Kernel(kernel)
    return ridge, Rows(_in_memory(features, cohort))


def goes_through_landmarks(features: FeatureSet, n: int, settings: Settings) -> bool:
    """Whether an exact computation would need (n, n) numbers for too many people; few features never do."""
    if n <= settings.exact_up_to or _steps(settings) or features.kind in ("model", "covariates"):
        return False
    if features.kind == "pca" or settings.kernel == "rbf":
        return True
    wide = features.kind == "raw" or features.matrix.shape[1] > settings.n_landmarks
    return wide and settings.kernel in ("correlation", "cosine")


def _through_landmarks(
    features: FeatureSet, cohort: Cohort, settings: Settings, ridge: KernelRidge, read: ReadRows, progress: Progress
) -> tuple[Any, Source]:
    """Kernel ridge or components for more people than a kernel of all of them has room for."""
    pool = landmark_pool(len(cohort), settings.n_landmarks, settings.seed)
    if features.kind == "pca":
        cross = cross_products(read, len(cohort), pool, _float, progress)
        return ridge, LandmarkComponents(cross, pool, settings.n_components)
    ridge = ridge.set_params(kernel="rows")
    if settings.kernel == "rbf":
        return ridge, RbfLandmarks(_in_memory(features, cohort), pool)
    rows = correlation_rows if settings.kernel == "correlation" else cosine_rows
    cross = cross_products(read, len(cohort), pool, rows, progress)
    _check_finite(cross[:, :1], cohort.participants["participant_id"].to_numpy(object), ["connectivity"], features.name)
    return ridge, Landmarks(cross, pool)


def _in_memory(features: FeatureSet, cohort: Cohort) -> np.ndarray:
    if features.kind == "matrix":
        return features.matrix
    upper = cohort.inputs("upper")
    _check_finite(upper, cohort.participants["participant_id"].to_numpy(object), None, "connectivity")
    return upper


def _float(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows, float)


def _steps(settings: Settings) -> list[Any]:
    steps: list[Any] = []
    if settings.combat:
        steps.append(ComBat(str(settings.site), settings.preserve))
    if settings.regress_features and settings.covariates:
        steps.append(FeatureRegression(settings.covariates))
    return steps
