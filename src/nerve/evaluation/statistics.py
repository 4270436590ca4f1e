"""Scores of every row of results, from a table of predictions; nothing is trained here.

The columns of the table are described in `predictions_table.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveWarning, listed
from nerve.evaluation import bootstrap
from nerve.evaluation.folds import group_codes
from nerve.evaluation.intervals import cross_validation_interval
from nerve.evaluation.predictions_table import (
    IDENTITY,
    families_of,
    is_binary,
    predictions_by_target,
    sorted_participants,
    trained_on_another_cohort,
)
from nerve.evaluation.whole_table import WholeTable

# scores that every target has
_ALWAYS = ["r", "r2", "mae", "r_fold_mean"]
# scores that need resamples
_BOUNDS = ["r_half_width", "r_low", "r_high", "r_low_cv", "r_high_cv"]
_AUC = ["auc", "auc_low", "auc_high", "auc_low_cv", "auc_high_cv"]
# all of them, in the order of the table
_SCORES = ["r", *_BOUNDS, "r_fold_mean", "r2", "mae", *_AUC, "balanced_accuracy"]


def score_table(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """Every score of every row and target, with bootstrap 95 % intervals; the table prints whole.

    Parameters
    ----------
    predictions : DataFrame
        The table of predictions.
    n_bootstrap : int
        Resamples of participants (or families); 0 leaves the intervals out.
    seed : int
        Of the resamples.
    groups : mapping or Series, optional
        Participant → family; families are then resampled whole.

    Returns
    -------
    DataFrame
        cohort, target, row (or method, variant, seed), n, n_folds; r (observed and predicted
        concatenated over folds) with r_half_width, r_low, r_high (the paper's interval), and the
        corrected r_low_cv, r_high_cv (see `cross_validation_interval`); r_fold_mean; r2 (predictive
        COD); mae; and for two-class targets auc, with the same two intervals, and
        balanced_accuracy (cut at the mean of the other folds).
        Repeats are averaged. A column of several classes has a row per class, and one for the
        column: means over its classes, and the balanced accuracy of choosing the class whose
        prediction is highest above the mean of the other folds.
    """
    records = []
    for cohort, target, part in predictions_by_target(predictions):
        participants = sorted_participants(part)
        counts = None
        if n_bootstrap:
            counts = resample_participants(participants, n_bootstrap, seed, groups)
        identity = [name for name in IDENTITY if name in part]
        for key, of_row in part.groupby(identity, sort=False, dropna=False):
            place = {"cohort": cohort, "target": target} | dict(zip(identity, key, strict=True))
            records.append(place | _scores(of_row, participants, counts, groups))
    table = WholeTable(records)
    _warn_of_gaps(table, [*_ALWAYS, *_BOUNDS] if n_bootstrap else _ALWAYS)
    return table


def motion_table(predictions: pd.DataFrame, motion: Any) -> pd.DataFrame:
    """Correlation of head motion with each target and with the predictions of each row.

    Parameters
    ----------
    predictions : DataFrame
        The table of predictions.
    motion : mapping or Series
        Participant → mean framewise displacement.

    Returns
    -------
    DataFrame
        cohort, target, row, r_target_motion, r_prediction_motion.
    """
    values = predictions["participant"].map(dict(motion)).to_numpy(float)
    table = predictions.assign(motion=values).dropna(subset=["motion"])
    target_values = "observed_raw" if "observed_raw" in table else "observed"

    def correlations(of_row: pd.DataFrame) -> dict[str, Any]:
        return {
            "r_target_motion": bootstrap.correlation(of_row[target_values], of_row["motion"]),
            "r_prediction_motion": bootstrap.correlation(of_row["predicted"], of_row["motion"]),
        }

    return score_each_row(table, correlations)


def score_each_row(
    predictions: pd.DataFrame, scores: Callable[[pd.DataFrame], dict[str, Any]]
) -> pd.DataFrame:
    """Compute scores from the predictions of each row of results and target.

    Parameters
    ----------
    predictions : DataFrame
        The table of predictions.
    scores : callable
        Predictions of one row and target → name of a score → its value.

    Returns
    -------
    DataFrame
        cohort, target, row (or method, variant, seed), and the scores.
    """
    identity = ["cohort", "target", *(name for name in IDENTITY if name in predictions)]
    records = []
    for key, of_row in predictions.groupby(identity, sort=False, dropna=False):
        records.append(dict(zip(identity, key, strict=True)) | scores(of_row))
    return pd.DataFrame(records)


def metric_of(predictions: pd.DataFrame) -> str:
    """The score by which a target is compared: auc of two classes, otherwise r."""
    return "auc" if is_binary(predictions["observed_raw"]) else "r"


def line_score(metric: str, predictions: pd.DataFrame, participants: np.ndarray) -> float:
    """The score of one line and target over these participants, each counted once."""
    once = np.ones((1, len(participants)))
    return float(resampled_scores(metric, predictions, participants, once)[0])


def resampled_scores(
    metric: str, predictions: pd.DataFrame, participants: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """The score of one line and target in every resample of participants.

    It is the mean over the rows (seeds) of the line, over repeats, and over classes where the
    target is a column of several.

    Parameters
    ----------
    metric : str
        What `metric_of` gives.
    predictions : DataFrame
        The predictions of the line for the target.
    participants : (n,) array
        Ids.
    counts : (resamples, n) array
        How often each participant is in each resample.

    Returns
    -------
    (resamples,) array
        The scores.
    """
    if predictions["target"].nunique() > 1:
        of_classes = []
        for _, of_class in predictions.groupby("target"):
            of_classes.append(resampled_scores(metric, of_class, participants, counts))
        return np.mean(of_classes, axis=0)
    observed = _one_column_per_run(predictions, participants, "observed")
    predicted = _one_column_per_run(predictions, participants, "predicted")
    if metric == "r":
        return bootstrap.weighted_correlations(counts, observed, predicted).mean(axis=1)
    positive = _one_column_per_run(predictions, participants, "observed_raw")[:, 0] == 1
    of_runs = [bootstrap.weighted_auc(counts, positive, column) for column in predicted.T]
    return np.mean(of_runs, axis=0)


def resample_participants(
    participants: np.ndarray, n_bootstrap: int, seed: int, groups: Any
) -> np.ndarray:
    """How often each participant is in each resample, (resamples, n)."""
    families = families_of(participants, groups)
    return bootstrap.resample_counts(len(participants), n_bootstrap, seed, families)


def count_units(participants: np.ndarray, groups: Any) -> int:
    """The number of families, where a participant without one counts as one."""
    codes = group_codes(families_of(participants, groups), len(participants))
    return int(codes.max()) + 1


def _scores(
    predictions: pd.DataFrame, participants: np.ndarray, counts: np.ndarray | None, groups: Any
) -> dict[str, Any]:
    """All scores of one row on one target, which may be a column of several classes.

    `counts`, (resamples, n), are those of `participants`; the row may have predicted some of them
    only.
    """
    is_predicted = pd.Index(participants).isin(predictions["participant"])
    own = participants[is_predicted]
    parts = [part for _, part in predictions.groupby(["target", "repeat"], sort=False)]
    binary = is_binary(predictions["observed_raw"])

    scores: dict[str, Any] = {"n": len(own), "n_folds": predictions["fold"].nunique()}
    scores |= dict.fromkeys(_SCORES, np.nan)
    scores["r_fold_mean"] = float(np.mean([_fold_mean("r", part) for part in parts]))
    scores["r2"] = float(np.mean([_predictive_cod(part) for part in parts]))
    scores["mae"] = float((predictions["observed"] - predictions["predicted"]).abs().mean())
    for metric in ("r", "auc") if binary else ("r",):
        score = line_score(metric, predictions, own)
        scores[metric] = score
        if counts is None:
            continue
        resampled = resampled_scores(metric, predictions, own, counts[:, is_predicted])
        low, high = bootstrap.interval(resampled)
        scores[f"{metric}_low"] = low
        scores[f"{metric}_high"] = high
        # where no participant is both trained on and tested, there is nothing to correct
        if not trained_on_another_cohort(predictions):
            fold_mean = float(np.mean([_fold_mean(metric, part) for part in parts]))
            low, high = _corrected_interval(
                metric, score, fold_mean, resampled, scores["n_folds"], count_units(own, groups)
            )
        scores[f"{metric}_low_cv"] = low
        scores[f"{metric}_high_cv"] = high
    if counts is not None:
        scores["r_half_width"] = (scores["r_high"] - scores["r_low"]) / 2
    if binary:
        repeats = [part for _, part in predictions.groupby("repeat")]
        scores["balanced_accuracy"] = float(np.mean([_balanced_accuracy(part) for part in repeats]))
    return scores


def _corrected_interval(
    metric: str,
    score: float,
    fold_mean: float,
    resampled: np.ndarray,
    n_folds: int,
    n_units: int,
) -> tuple[float, float]:
    """`cross_validation_interval` of r, or of an AUC by way of 2 AUC − 1, which is 0 by chance."""
    standard_error = float(np.nanstd(resampled))
    if metric == "r":
        return cross_validation_interval(score, fold_mean, standard_error, n_folds, n_units)
    low, high = cross_validation_interval(
        2 * score - 1, 2 * fold_mean - 1, 2 * standard_error, n_folds, n_units
    )
    return (1 + low) / 2, (1 + high) / 2


def _fold_mean(metric: str, predictions: pd.DataFrame) -> float:
    """Mean score within folds of three participants or more; an AUC needs both classes there."""
    values = []
    for _, fold in predictions.groupby("fold", sort=False):
        if len(fold) < 3:
            continue
        if metric == "r":
            values.append(bootstrap.correlation(fold["observed"], fold["predicted"]))
        elif is_binary(fold["observed_raw"]):
            positive = fold["observed_raw"].to_numpy() == 1
            once = np.ones((1, len(fold)))
            predicted = fold["predicted"].to_numpy(float)
            values.append(bootstrap.weighted_auc(once, positive, predicted)[0])
    return float(np.mean(values)) if values else np.nan


def _predictive_cod(predictions: pd.DataFrame) -> float:
    """1 − SSE / SS around the training mean; NaN where the target does not vary."""
    observed = predictions["observed"]
    total = ((observed - _training_means(predictions)) ** 2).sum()
    if total <= 0:
        return np.nan
    errors = ((observed - predictions["predicted"]) ** 2).sum()
    return float(1.0 - errors / total)


def _balanced_accuracy(predictions: pd.DataFrame) -> float:
    """Balanced accuracy of choosing the class whose prediction is highest above its training mean.

    A target of two classes is cut at the training mean.
    """
    parts = []
    for _, part in predictions.groupby("target"):
        parts.append(part.assign(above=part["predicted"] - _training_means(part)))
    wide = pd.concat(parts).pivot(
        index="participant", columns="target", values=["above", "observed_raw"]
    )
    above = wide["above"].to_numpy(float)  # (n, targets)
    observed = wide["observed_raw"].to_numpy(float)
    if len(parts) == 1:
        above = np.column_stack([-above, above])  # (n, 2)
        observed = np.column_stack([1 - 2 * observed, 2 * observed - 1])
    predicted_class = above.argmax(axis=1)
    true_class = observed.argmax(axis=1)
    accuracies = [np.mean(predicted_class[true_class == k] == k) for k in np.unique(true_class)]
    return float(np.mean(accuracies))


def _training_means(predictions: pd.DataFrame) -> np.ndarray:
    """Mean observed value of the other folds, or of the cohort trained on, for each prediction."""
    if trained_on_another_cohort(predictions):
        return predictions["training_mean"].to_numpy(float)
    by_fold = predictions.groupby("fold")["observed"]
    sum_of_others = predictions["observed"].sum() - by_fold.transform("sum")
    n_others = len(predictions) - by_fold.transform("size")
    return (sum_of_others / np.maximum(n_others, 1)).to_numpy(float)


def _one_column_per_run(
    predictions: pd.DataFrame, participants: np.ndarray, name: str
) -> np.ndarray:
    """Values of one column as (participants, runs): one run for each row (seed) and repeat."""
    run = predictions.groupby(["row", "repeat"], sort=False, dropna=False).ngroup().to_numpy()
    position = pd.Index(participants).get_indexer(predictions["participant"])
    wide = np.full((len(participants), run.max() + 1), np.nan)
    wide[position, run] = predictions[name].to_numpy(float)
    return wide


def _warn_of_gaps(scores: pd.DataFrame, columns: list[str]) -> None:
    """Warn of scores that could not be computed, so that none is missing silently."""
    if not len(scores):
        return
    for column in columns:
        gaps = scores[~np.isfinite(scores[column].to_numpy(float))]
        if not len(gaps):
            continue
        targets = listed(gaps["target"].unique())
        rows = listed(gaps["row"].unique())
        reason = ""
        if column == "r_fold_mean":
            reason = " (it needs folds of three participants or more)"
        warnings.warn(
            f"{column} of {targets} could not be computed for {rows} and is left empty{reason}.",
            NerveWarning,
            stacklevel=3,
        )
