"""The one cross-validation loop: frozen features through kernel ridge, and models trained inside each fold.

Test participants enter in one place only, `predict`; covariate coefficients, components, harmonisation, λ and weights
come from training participants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from nerve._utils.errors import ParticipantError, placing
from nerve._utils.progress import progress_bar
from nerve.evaluation.covariates import CovariateRegression
from nerve.evaluation.folds import NO_FOLD, strata_of
from nerve.evaluation.resampling import restricted_permutations, weighted_correlations
from nerve.evaluation.sources import Source


class FoldTask(NamedTuple):
    """What one fold gives to a model. `values` are targets after covariates, fitted on `train`."""

    fold: int
    names: list[str]
    train: np.ndarray
    test: np.ndarray
    values: np.ndarray  # (n, T); rows outside train and test are not a number
    strata: Any  # (train, T) integers for the inner folds; None if the model is to make its own
    features: tuple[Any, Any]


def out_of_fold_predictions(
    model: Any,
    source: Source,
    targets: pd.DataFrame,
    folds: np.ndarray,
    *,
    groups: Any = None,
    **options: Any,
) -> pd.DataFrame:
    """Predict every participant by a model that has not seen them.

    Parameters
    ----------
    model : estimator
        Anything with `fit(X, y)` and `predict(X)`; a new copy is fitted in each fold. One that says (by scikit-learn's
        tag) that it takes several targets gets them at once. `groups` and `strata` are passed on if `fit` takes them.
    source : Source
        Gives the features of a fold: `Rows` (an array or a Cohort), `Kernel`, `PrincipalComponents`, `Adjusted`.
    targets : DataFrame
        (n, T) numbers. A missing value drops that participant for that target only.
    folds : (n,) integers
        Test fold of each participant; `folds.NO_FOLD` for participants who are left out, `folds.ONLY_TRAINED_ON` for
        those who are never tested.
    groups : (n,) labels, optional
        Kept whole when the model makes inner folds.
    covariates : DataFrame, optional
        (n, p). Regressed from each target (never a target from itself) with training coefficients.
    order : (n,) positions, optional
        In which participants are given to the model; by position by default.
    whole : mapping, optional
        Of targets that are one class against all others: the column of classes, which must not be looked at either.

    Returns
    -------
    DataFrame
        Columns position, target, fold, observed (after covariates), predicted, observed_raw, training_mean.
    """
    parts = []
    for task in fold_tasks(source, targets, folds, **options):
        predicted = fit_and_predict(model, task, task.values[task.train], groups)
        for i, name in enumerate(task.names):
            if (wrong := ~np.isfinite(predicted[:, i])).any():
                raise ParticipantError(
                    task.test[wrong],
                    f"The predictions of {name} in fold {task.fold} are missing or infinite for {{people}}, expected "
                    "numbers. Check the features of these participants and the settings of the model.",
                )
            part = {
                "position": task.test,
                "target": name,
                "fold": task.fold,
                "observed": task.values[task.test, i],
            }
            part |= {
                "predicted": predicted[:, i],
                "observed_raw": targets[name].to_numpy(float)[task.test],
            }
            parts.append(pd.DataFrame(part | {"training_mean": task.values[task.train, i].mean()}))
    table = pd.concat(parts, ignore_index=True)
    place = table["target"].map({name: i for i, name in enumerate(targets.columns)})
    return table.iloc[np.lexsort((table["position"], place))].reset_index(drop=True)


def null_correlations(
    model: Any,
    source: Source,
    targets: pd.DataFrame,
    folds: np.ndarray,
    *,
    n_permutations: int,
    seed: int = 42,
    groups: Any = None,
    blocks: Any = None,
    order: np.ndarray | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Concatenated r of each target after permuting what is left of it after covariates, {target: (permutations,)}.

    Values are exchanged within outer folds (which keeps the folds stratified and the null unbiased), within `blocks`
    (sites) and, with `groups`, by whole families of equal size. All permutations share a fold's decomposition. The
    `options` are covariates and whole, as those of `out_of_fold_predictions`.
    """
    n, folds = len(targets), np.asarray(folds)
    observed, predicted = (
        {name: np.full((n, n_permutations), np.nan) for name in map(str, targets)} for _ in range(2)
    )
    order = np.arange(n) if order is None else order
    families = None if groups is None else np.asarray(groups, object)[order]
    drawn_for, shuffle = b"", np.empty((0, n), int)
    for task in fold_tasks(source, targets, folds, order=order, **options):
        used = np.isin(np.arange(n), np.concatenate([task.train, task.test]))
        if (
            used.tobytes() != drawn_for
        ):  # drawn as if participants stood in this order, for one pattern at a time
            block = pd.DataFrame(
                {"fold": folds, "used": used, "block": 0 if blocks is None else blocks}
            ).iloc[order]
            drawn = restricted_permutations(
                block.reset_index(drop=True), n_permutations, seed, families=families
            )
            drawn_for, shuffle = used.tobytes(), np.empty_like(drawn)
            shuffle[:, order] = order[drawn]
        for i, name in enumerate(task.names):
            shuffled = task.values[:, i][shuffle].T  # (n, permutations)
            alone = task._replace(strata=task.strata[:, [i]])
            predicted[name][task.test] = fit_and_predict(model, alone, shuffled[task.train], groups)
            observed[name][task.test] = shuffled[task.test]
    known = {name: np.isfinite(values[:, 0]) for name, values in observed.items()}
    return {
        name: weighted_correlations(
            np.ones((1, mine.sum())), observed[name][mine], predicted[name][mine]
        )[0]
        for name, mine in known.items()
    }


def fold_tasks(
    source: Source,
    targets: pd.DataFrame,
    folds: np.ndarray,
    covariates: pd.DataFrame | None = None,
    order: np.ndarray | None = None,
    whole: Mapping[str, str] | None = None,
) -> Iterator[FoldTask]:
    """One task for each fold and each set of targets that can share features and training participants."""
    raw, folds = targets.to_numpy(float), np.asarray(folds)
    asked = [
        (whole or {}).get(str(name), str(name)) for name in targets.columns
    ]  # columns of the participants table
    shared = sharing(raw, asked, source.columns)
    labels = np.unique(folds[folds >= 0])
    order = np.arange(len(raw)) if order is None else order
    tasks = [(fold, columns) for columns in shared for fold in labels]
    for fold, columns in progress_bar(tasks, label="cross-validation", unit="folds"):
        names = [str(targets.columns[i]) for i in columns]
        usable = np.isfinite(raw[:, columns[0]]) & (folds != NO_FOLD)
        train, test = (
            order[(usable & (folds != fold))[order]],
            order[(usable & (folds == fold))[order]],
        )
        if len(test):
            values = np.full((len(raw), len(columns)), np.nan)
            for i, column in enumerate(columns):
                values[:, i], _ = without_covariates(
                    raw[:, column], asked[column], train, test, covariates
                )
            strata = np.column_stack([strata_of(raw[train, column], 5) for column in columns])
            features = source.split(
                train, test, list(dict.fromkeys(asked[column] for column in columns))
            )
            yield FoldTask(int(fold), names, train, test, values, strata, features)


def fit_and_predict(
    model: Any, task: FoldTask, values: np.ndarray, groups: Any = None
) -> np.ndarray:
    """Fit a fresh copy of the model to `values` (train, T) and predict the test participants, (test, T)."""
    options = {}
    if task.strata is not None and has_fit_parameter(model, "strata"):
        options["strata"] = task.strata
    if groups is not None and has_fit_parameter(model, "groups"):
        options["groups"] = np.asarray(groups, object)[task.train]
    takes_several = hasattr(model, "__sklearn_tags__") and get_tags(model).target_tags.multi_output
    parts = []
    for column in [values] if takes_several else values.T:
        with placing(task.train):
            fitted = clone(model, safe=False).fit(task.features[0], column, **options)
        with placing(task.test):
            predicted = np.asarray(fitted.predict(task.features[1]), float)
        parts.append(predicted.reshape(len(task.test), -1))
    return np.column_stack(parts)


def sharing(raw: np.ndarray, names: list[str], read: Collection[str] = ()) -> list[list[int]]:
    """Columns with the same participants observed, apart from those that the features must not look at (`read`)."""
    shared: dict[tuple[bytes, str], list[int]] = {}
    for i, name in enumerate(names):
        key = (np.isfinite(raw[:, i]).tobytes(), name if name in read else "")
        shared.setdefault(key, []).append(i)
    return list(shared.values())


def without_covariates(
    raw: np.ndarray, name: str, train: np.ndarray, test: np.ndarray, covariates: pd.DataFrame | None
) -> tuple[np.ndarray, CovariateRegression | None]:
    """What is left of a target, (n,), missing outside train and test, and the regression, fitted on train."""
    values = np.full(len(raw), np.nan)
    both = np.concatenate([train, test])
    table = None if covariates is None else covariates.drop(columns=name, errors="ignore")
    if table is None or table.shape[1] == 0:
        values[both] = raw[both]
        return values, None
    regression = CovariateRegression().fit(table.iloc[train], raw[train, None])
    left = regression.residuals(table.iloc[both], raw[both, None])[:, 0]
    left[np.abs(left) < 1e-10 * raw[train].std()] = 0.0  # rounding error is nothing to predict
    values[both] = left
    return values, regression
