"""The one cross-validation loop, for frozen features and for models trained inside each fold.

Covariate coefficients, components, harmonisation, λ and weights are learned from training
participants. They are applied to the covariates and features of test participants (`fold_tasks`),
whose targets are only compared with the predictions.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from nerve._utils.errors import NerveWarning, ParticipantError, listed, naming_participants, placing
from nerve._utils.progress import progress_bar
from nerve.evaluation.bootstrap import restricted_permutations, weighted_correlations
from nerve.evaluation.covariates import CovariateRegression
from nerve.evaluation.feature_sets import FeatureSet
from nerve.evaluation.folds import NO_FOLD, strata_of
from nerve.evaluation.participants import Participants
from nerve.evaluation.protocol import Protocol

_PREDICTED = ["cohort", "target", "participant", "fold", "observed", "predicted", "observed_raw"]

# inner folds that strata are made for, whatever the number that the protocol asks for
_N_FOLDS_OF_STRATA = 5


class FoldTask(NamedTuple):  # numpydoc ignore=PR02
    """What one fold gives to a model.

    Parameters
    ----------
    fold : int
        Number of the fold.
    names : list of str
        The T targets.
    train, test : (k,) integers
        Positions of participants.
    values : (n, T) array
        Targets after covariates, whose coefficients are those of `train`. NaN outside `train` and
        `test`.
    strata : (train, T) integers or None
        For the inner folds; None if the model is to make its own.
    features : tuple
        Features of `train` and of `test`.
    """

    fold: int
    names: list[str]
    train: np.ndarray
    test: np.ndarray
    values: np.ndarray
    strata: Any
    features: tuple[Any, Any]


def predict_targets(
    features: FeatureSet, participants: Participants, protocol: Protocol
) -> pd.DataFrame:
    """Predict every target out of fold from one feature set, over all repeats.

    Where a column has three or more classes, each is a target, and `class_column` names the column.
    Where another cohort is trained on, `training_mean` is the mean of its values after covariates.

    Parameters
    ----------
    features : FeatureSet
        Prepared.
    participants : Participants
        With targets, covariates and folds.
    protocol : Protocol
        With the number of repeats.

    Returns
    -------
    DataFrame
        Columns `_PREDICTED`, and class_column, training_mean and repeat where there are any.
    """
    targets = participants.without_targets_of(features.missing).targets
    parts = []
    with naming_participants(participants.ids):
        for repeat, folds in enumerate(participants.folds):
            part = out_of_fold_predictions(
                features.model,
                features,
                targets,
                folds,
                inner_groups=participants.inner_groups,
                covariates=participants.covariates if features.removes_covariates else None,
                order=participants.order,
                class_columns=participants.class_columns,
            )
            parts.append(part.assign(repeat=repeat))
    table = pd.concat(parts, ignore_index=True)
    _warn_of_constant_predictions(table, features.name)
    table["cohort"] = participants.cohort
    table["participant"] = participants.ids[table["position"].to_numpy(int)]
    table["class_column"] = [
        participants.class_columns.get(target, "") for target in table["target"]
    ]
    columns = list(_PREDICTED)
    if participants.class_columns:
        columns.append("class_column")
    if participants.trained_on:
        columns.append("training_mean")
    if protocol.n_repeats > 1:
        columns.append("repeat")
    return table[columns]


def predict_permuted_targets(
    features: FeatureSet, participants: Participants, protocol: Protocol
) -> pd.DataFrame:
    """Correlations of permuted targets with their predictions, on the folds of the first repeat.

    Parameters
    ----------
    features : FeatureSet
        Prepared.
    participants : Participants
        With targets, covariates and folds.
    protocol : Protocol
        With the number of permutations and their seed.

    Returns
    -------
    DataFrame
        Columns target and r, one row per permutation.
    """
    with naming_participants(participants.ids):
        null = null_correlations(
            features.model,
            features,
            participants.without_targets_of(features.missing).targets,
            participants.folds[0],
            n_permutations=protocol.n_permutations,
            seed=protocol.seed,
            groups=participants.groups,
            inner_groups=participants.inner_groups,
            blocks=participants.sites,
            order=participants.order,
            covariates=participants.covariates if features.removes_covariates else None,
            class_columns=participants.class_columns,
        )
    parts = [pd.DataFrame({"target": name, "r": values}) for name, values in null.items()]
    return pd.concat(parts, ignore_index=True)


def out_of_fold_predictions(
    model: Any,
    features: FeatureSet,
    targets: pd.DataFrame,
    folds: np.ndarray,
    *,
    inner_groups: Any = None,
    covariates: pd.DataFrame | None = None,
    order: np.ndarray | None = None,
    class_columns: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Predict every participant by a model that was not trained on them.

    Parameters
    ----------
    model : estimator
        Anything with `fit(X, y)` and `predict(X)`; a new copy is fitted in each fold. A model that
        takes several targets, by scikit-learn's tag, gets them at once. `groups` and `strata` are
        passed on if `fit` takes them.
    features : FeatureSet
        Gives the features of the training and test participants of each fold.
    targets : DataFrame
        (n, T) numbers. A missing value drops that participant for that target only.
    folds : (n,) integers
        Test fold of each participant; `folds.NO_FOLD` for participants who are left out,
        `folds.ONLY_TRAINED_ON` for participants who are never tested.
    inner_groups : (n,) labels, optional
        Kept together when the model makes inner folds.
    covariates : DataFrame, optional
        (n, p). Regressed from each target (never a target from itself) with training coefficients.
    order : (n,) positions, optional
        The order in which participants are given to the model; by position by default.
    class_columns : mapping, optional
        Target that is one class against all others → the column of the classes. Features must be
        made without reading that column.

    Returns
    -------
    DataFrame
        Columns position, target, fold, observed (after covariates), predicted, observed_raw,
        training_mean.
    """
    parts = []
    for task in fold_tasks(features, targets, folds, covariates, order, class_columns):
        predicted = fit_and_predict(model, task, task.values[task.train], inner_groups)  # (test, T)
        for i, name in enumerate(task.names):
            not_finite = ~np.isfinite(predicted[:, i])
            if not_finite.any():
                raise ParticipantError(
                    task.test[not_finite],
                    f"The predictions of {name} in fold {task.fold} are missing or infinite for "
                    "{people}, expected numbers. Check the features of these participants and the "
                    "settings of the model.",
                )
            part = pd.DataFrame(
                {
                    "position": task.test,
                    "target": name,
                    "fold": task.fold,
                    "observed": task.values[task.test, i],
                    "predicted": predicted[:, i],
                    "observed_raw": targets[name].to_numpy(float)[task.test],
                    "training_mean": task.values[task.train, i].mean(),
                }
            )
            parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    place = table["target"].map({name: i for i, name in enumerate(targets.columns)})
    by_target = np.lexsort((table["position"], place))
    return table.iloc[by_target].reset_index(drop=True)


def null_correlations(
    model: Any,
    features: FeatureSet,
    targets: pd.DataFrame,
    folds: np.ndarray,
    *,
    n_permutations: int,
    seed: int = 42,
    groups: Any = None,
    inner_groups: Any = None,
    blocks: Any = None,
    order: np.ndarray | None = None,
    covariates: pd.DataFrame | None = None,
    class_columns: Mapping[str, str] | None = None,
) -> dict[str, np.ndarray]:
    """Out-of-fold r of each target after permuting what is left of it after covariates.

    Values are exchanged within outer folds (which keeps the folds stratified and the null
    unbiased), within `blocks` (sites) and, with `groups`, by whole families of equal size. Within a
    fold, all permutations are fitted at once, so that they share one decomposition of the kernel.

    Parameters
    ----------
    model, features, targets, folds
        As in `out_of_fold_predictions`.
    n_permutations : int
        Permutations of each target.
    seed : int
        Of the permutations.
    groups : (n,) labels, optional
        Families, which change places together.
    inner_groups : (n,) labels, optional
        What is kept together in inner folds: families, or sites where sites are left out.
    blocks : (n,) labels, optional
        Values are exchanged within them.
    order, covariates, class_columns
        As in `out_of_fold_predictions`.

    Returns
    -------
    dict
        Target → (permutations,) correlations.
    """
    n = len(targets)
    folds = np.asarray(folds)
    names = [str(name) for name in targets]
    observed = {name: np.full((n, n_permutations), np.nan) for name in names}
    predicted = {name: np.full((n, n_permutations), np.nan) for name in names}
    order = np.arange(n) if order is None else order
    families = None if groups is None else np.asarray(groups, object)[order]
    used_in_draw: np.ndarray | None = None
    shuffle = np.empty((0, n), int)
    for task in fold_tasks(features, targets, folds, covariates, order, class_columns):
        used = np.isin(np.arange(n), np.concatenate([task.train, task.test]))
        # one draw serves all folds of targets that the same participants have
        if used_in_draw is None or not np.array_equal(used, used_in_draw):
            used_in_draw = used
            labels = pd.DataFrame(
                {"fold": folds, "used": used, "block": 0 if blocks is None else blocks}
            )
            # drawn for the participants in `order`, so that the order of the table does not matter
            ordered_labels = labels.iloc[order].reset_index(drop=True)
            drawn = restricted_permutations(ordered_labels, n_permutations, seed, families=families)
            shuffle = np.empty_like(drawn)  # (permutations, n)
            shuffle[:, order] = order[drawn]
        for i, name in enumerate(task.names):
            shuffled = task.values[:, i][shuffle].T  # (n, permutations)
            one_target = task._replace(strata=task.strata[:, [i]])
            predicted[name][task.test] = fit_and_predict(
                model, one_target, shuffled[task.train], inner_groups
            )
            observed[name][task.test] = shuffled[task.test]
    correlations = {}
    for name in names:
        is_tested = np.isfinite(observed[name][:, 0])
        once = np.ones((1, is_tested.sum()))
        correlations[name] = weighted_correlations(
            once, observed[name][is_tested], predicted[name][is_tested]
        )[0]
    return correlations


def fold_tasks(
    features: FeatureSet,
    targets: pd.DataFrame,
    folds: np.ndarray,
    covariates: pd.DataFrame | None = None,
    order: np.ndarray | None = None,
    class_columns: Mapping[str, str] | None = None,
) -> Iterator[FoldTask]:
    """Yield one task for each fold and each set of targets that share features and participants.

    Parameters
    ----------
    features, targets, folds, covariates, order, class_columns
        As in `out_of_fold_predictions`.

    Yields
    ------
    FoldTask
        With features that were learned from its training participants.
    """
    raw = targets.to_numpy(float)  # (n, T)
    folds = np.asarray(folds)
    order = np.arange(len(raw)) if order is None else order
    # of each target, the column of the participants table that it comes from
    source_columns = [(class_columns or {}).get(str(name), str(name)) for name in targets]
    fold_numbers = np.unique(folds[folds >= 0])
    target_groups = group_targets(raw, source_columns, features.columns)
    groups_and_folds = list(itertools.product(target_groups, fold_numbers))
    for columns, fold in progress_bar(groups_and_folds, label="cross-validation", unit="folds"):
        usable = np.isfinite(raw[:, columns[0]]) & (folds != NO_FOLD)
        in_test = usable & (folds == fold)
        in_training = usable & (folds != fold)
        train = order[in_training[order]]
        test = order[in_test[order]]
        if len(test) == 0:
            continue
        values = np.full((len(raw), len(columns)), np.nan)
        for i, column in enumerate(columns):
            values[:, i], _ = remove_covariates(
                raw[:, column], source_columns[column], train, test, covariates
            )
        strata = np.column_stack(
            [strata_of(raw[train, column], _N_FOLDS_OF_STRATA) for column in columns]
        )
        predicted_columns = list(dict.fromkeys(source_columns[column] for column in columns))
        yield FoldTask(
            fold=int(fold),
            names=[str(targets.columns[column]) for column in columns],
            train=train,
            test=test,
            values=values,
            strata=strata,
            features=features.split(train, test, predicted_columns),
        )


def fit_and_predict(
    model: Any, task: FoldTask, values: np.ndarray, inner_groups: Any = None
) -> np.ndarray:
    """Fit a fresh copy of the model and predict the test participants.

    Parameters
    ----------
    model : estimator
        As in `out_of_fold_predictions`.
    task : FoldTask
        Features and strata of the fold.
    values : (train, T) array
        What is fitted: targets, or permutations of one.
    inner_groups : (n,) labels, optional
        Kept together when the model makes inner folds.

    Returns
    -------
    (test, T) array
        The predictions.
    """
    options = {}
    if task.strata is not None and has_fit_parameter(model, "strata"):
        options["strata"] = task.strata
    if inner_groups is not None and has_fit_parameter(model, "groups"):
        options["groups"] = np.asarray(inner_groups, object)[task.train]
    training_features, test_features = task.features
    takes_several = hasattr(model, "__sklearn_tags__") and get_tags(model).target_tags.multi_output
    parts = []
    for target_values in [values] if takes_several else values.T:
        with placing(task.train):
            fitted = clone(model, safe=False).fit(training_features, target_values, **options)
        with placing(task.test):
            predicted = np.asarray(fitted.predict(test_features), float)
        parts.append(predicted.reshape(len(task.test), -1))
    return np.column_stack(parts)


def group_targets(
    raw: np.ndarray, names: list[str], columns_read: Collection[str] = ()
) -> list[list[int]]:
    """Group targets that share training participants and features.

    Parameters
    ----------
    raw : (n, T) array
        Targets; two can share if the same participants have them.
    names : list of str
        The column of the participants table that each comes from.
    columns_read : collection of str
        Columns that features are made with. A target from such a column is predicted from features
        made without it, which it shares only with other targets from the same column.

    Returns
    -------
    list of list of int
        Positions of the targets of each group.
    """
    shared: dict[tuple[bytes, str], list[int]] = {}
    for i, name in enumerate(names):
        column_left_out = name if name in columns_read else ""
        key = (np.isfinite(raw[:, i]).tobytes(), column_left_out)
        shared.setdefault(key, []).append(i)
    return list(shared.values())


def remove_covariates(
    raw: np.ndarray, name: str, train: np.ndarray, test: np.ndarray, covariates: pd.DataFrame | None
) -> tuple[np.ndarray, CovariateRegression | None]:
    """Remove covariates from a target, with coefficients of the training participants.

    Parameters
    ----------
    raw : (n,) array
        The target.
    name : str
        Its column: a target is never its own covariate.
    train, test : (k,) integers
        Positions of participants.
    covariates : DataFrame, optional
        (n, p). Without them the target stays as it is.

    Returns
    -------
    values : (n,) array
        What is left; NaN outside `train` and `test`.
    regression : CovariateRegression or None
        What was fitted on `train`.
    """
    values = np.full(len(raw), np.nan)
    both = np.concatenate([train, test])
    table = None if covariates is None else covariates.drop(columns=name, errors="ignore")
    if table is None or table.shape[1] == 0:
        values[both] = raw[both]
        return values, None
    regression = CovariateRegression().fit(table.iloc[train], raw[train, None])
    residuals = regression.residuals(table.iloc[both], raw[both, None])[:, 0]
    # residuals that are only rounding error become zero, so that they are not predicted
    residuals[np.abs(residuals) < 1e-10 * raw[train].std()] = 0.0
    values[both] = residuals
    return values, regression


def _warn_of_constant_predictions(table: pd.DataFrame, name: str) -> None:
    """Warn of targets whose predictions are constant within folds: r then compares folds only."""
    by_fold = table.groupby(["target", "repeat", "fold"], sort=False)["predicted"]
    folds = by_fold.agg(["size", "min", "max"])
    folds = folds[folds["size"] > 1]
    spread = (folds["max"] - folds["min"]).groupby("target", sort=False).max()
    # predictions from float32 features that do differ have a larger spread
    least = 1e-6 * table.groupby("target")["observed"].std()
    constant = [str(target) for target in spread.index if spread[target] <= least[target]]
    if constant:
        warnings.warn(
            f"{name}: predictions of {listed(constant)} are constant within folds: the features "
            "carry no information on it, and its r only compares means of folds.",
            NerveWarning,
            stacklevel=3,
        )
