"""Make a `FeatureSet` of whatever a user calls features: numbers, a table, a file, an estimator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from nerve._utils.errors import did_you_mean, listed, problem
from nerve._utils.files import read_foreign_table
from nerve._utils.privacy import Note
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import open_npy
from nerve.evaluation.feature_sets import (
    NAMED,
    FeatureSet,
    GivenNumbers,
    LearnedInFolds,
    TrainedInFolds,
    check_finite,
)


def make_feature_set(
    features: Any, cohort: Cohort, name: str | None = None, scope: str = "not stated"
) -> FeatureSet:
    """Make a feature set of what a user calls features.

    Parameters
    ----------
    features : object
        A feature set, a name of `NAMED`, an estimator with `fit` and `predict` or `transform`, an
        array with one row per participant, a table with participant_id, or a file of one.
    cohort : Cohort
        Whose participants they are of.
    name : str, optional
        What it is called; by default what is natural for each.
    scope : str
        Which participants the encoder of given numbers was trained on: a name of `rows.SCOPES`.

    Returns
    -------
    FeatureSet
        Not prepared.
    """
    if isinstance(features, FeatureSet):
        return features
    if isinstance(features, str) and features in NAMED:
        return NAMED[features](name or features)
    if hasattr(features, "fit") and hasattr(features, "predict"):
        return TrainedInFolds(name or type(features).__name__, estimator=features)
    if hasattr(features, "fit") and hasattr(features, "transform"):

        def fit(training: Cohort) -> Any:
            return clone(features).fit(training)

        return LearnedInFolds(name or type(features).__name__, fit=fit)
    if isinstance(features, (str, os.PathLike)):
        return _from_file(Path(features), cohort, name, scope)
    if isinstance(features, pd.DataFrame):
        return _from_table(features, cohort, name or "features", "the features table", scope)
    matrix = np.asarray(features)
    if matrix.dtype.kind not in "fiub":
        raise problem(
            "features",
            f"an array of {matrix.dtype}",
            expected=f"numbers, a table, a file or one of {listed(NAMED)}",
        )
    if matrix.ndim < 2 or len(matrix) != len(cohort):
        raise problem(
            "features",
            f"an array of shape {matrix.shape}",
            expected=f"one row for each of the {len(cohort)} participants of {cohort.name!r}",
        )
    # tokens (n, patches, d) become one long row per participant
    matrix = matrix.reshape(len(matrix), -1)
    ids = cohort.participants["participant_id"].to_numpy(object)
    check_finite(matrix, ids, None, "features")
    return GivenNumbers(name or "features", scope=scope, values=_in_range(matrix))


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
    check_finite(values.to_numpy(float), ids.to_numpy(object), list(values.columns), where)
    participants = cohort.participants["participant_id"]
    missing = ~participants.isin(ids).to_numpy()
    unknown = ids[~ids.isin(participants)]
    if missing.all():
        raise problem(
            where,
            f"no participant_id matches (it has {listed(ids, most=3)}, {cohort.name!r} has "
            f"{listed(participants, most=3)})",
            remedy="Check how the ids are written.",
        )
    matrix = values.set_index(ids).reindex(participants).to_numpy(float, copy=True)  # (n, d)
    # any numbers will do: these participants have no targets in this feature set
    matrix[missing] = matrix[~missing][0]
    notes = []
    if missing.any():
        sentence = f"{missing.sum()} of {len(missing)} participants are left out (no features)"
        notes.append(Note.about(f"{name}: {sentence}", participants[missing]))
    if len(unknown):
        sentence = f"{len(unknown)} rows belong to no participant of the cohort and are not used"
        notes.append(Note.about(f"{name}: {sentence}", unknown))
    return GivenNumbers(
        name, missing=missing, notes=tuple(notes), scope=scope, values=_in_range(matrix)
    )


def _in_range(matrix: np.ndarray) -> np.ndarray:
    """The features, in other units if their squares could overflow: no kernel depends on units."""
    largest = float(np.abs(matrix).max(initial=0.0))
    if largest == 0.0 or 1e-75 < largest < 1e75:
        return matrix
    return matrix / largest
