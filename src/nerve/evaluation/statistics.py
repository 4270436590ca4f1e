"""What may be concluded from a predictions table. Pure functions of the table; nothing is trained here.

The table has one row a person, target and model: cohort, target, method, variant, seed, participant, fold, observed,
predicted, and observed_raw (before covariates) and repeat where there are any.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, NerveWarning, known_columns, listed
from nerve.evaluation.bootstrap import interval, resample_counts, two_sided_p, weighted_auc, weighted_correlations
from nerve.evaluation.permutation import benjamini_hochberg, permutation_p

__all__ = [
    "COLUMNS",
    "all_comparisons",
    "benjamini_hochberg",
    "best_two",
    "compare",
    "cross_validation_interval",
    "motion_table",
    "permutation_p",
    "score_table",
]

COLUMNS = ["cohort", "target", "method", "variant", "seed", "participant", "fold", "observed", "predicted"]
MODEL = ["method", "variant"]
ALWAYS = ["r", "r2", "mae", "r_fold_mean"]  # scores that every target has
BOUNDS = ["r_half_width", "r_low", "r_high", "r_low_cv", "r_high_cv"]
# fmt: off
NO_COMPARISON = ["cohort", "target", "method_a", "variant_a", "method_b", "variant_b", "metric", "score_a", "score_b",
                 "difference", "difference_low", "difference_high", "p", "tie", "n", "best_two", "q"]
# fmt: on
REFERENCE_ONLY = ("covariates",)  # predicts another observed value (covariates left in), so it is in no comparison


def score_table(predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None) -> pd.DataFrame:
    """Every score of every model and target, with bootstrap 95 % intervals over people (or families).

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
    n_bootstrap : int
        Resamples; 0 leaves the intervals out.
    groups : mapping or Series, optional
        participant → family; families are then resampled whole.

    Returns
    -------
    DataFrame
        cohort, target, method, variant, seed, n, n_folds; r (observed and predicted concatenated over folds) with
        r_half_width, r_low, r_high, and r_low_cv, r_high_cv (see
        `cross_validation_interval`); r_fold_mean; r2 (predictive COD); mae; and for two-class targets auc, auc_low,
        auc_high and balanced_accuracy (cut at the mean of the other folds). Repeats are averaged.
    """
    rows = []
    for (cohort, target), people, models in _by_target(predictions):
        counts = _counts(people, n_bootstrap, seed, groups) if n_bootstrap else None
        for key, runs in models.groupby([*MODEL, "seed"], sort=False, dropna=False):
            row = dict(zip(["cohort", "target", *MODEL, "seed"], (cohort, target, *key), strict=True))
            rows.append(row | _scores(runs, people, counts))
    table = pd.DataFrame(rows)
    _warn_of_gaps(table, [*ALWAYS, *(BOUNDS if n_bootstrap else [])])
    return table


def compare(
    predictions: pd.DataFrame,
    method_a: Any,
    method_b: Any,
    n_bootstrap: int = 1000,
    seed: int = 42,
    groups: Any = None,
) -> pd.DataFrame:
    """Two-sided paired bootstrap between two models, one row a cohort and target.

    The same resampled people are scored for both; people whom only one model has predicted are left out. Seeds and
    repeats are averaged. The score is r, or the AUC for two-class targets.

    Parameters
    ----------
    method_a, method_b : str or (method, variant)
    """
    rows = []
    for (cohort, target), _, models in _by_target(predictions):
        sides = [_model(models, method) for method in (method_a, method_b)]
        if any(side.empty for side in sides):
            continue
        rows.append({"cohort": cohort, "target": target} | _comparison(sides[0], sides[1], n_bootstrap, seed, groups))
    if not rows:
        known = sorted(predictions["method"].astype(str).unique())
        raise NerveError(f"No target has predictions of both {method_a} and {method_b}; the table has {known}.")
    return pd.DataFrame(rows)


def all_comparisons(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """Every two models on every target, the better one first; `best_two` marks the top pair.

    `q` is over targets (and cohorts): of the best two together, and of every other pair by itself.
    """
    rows = []
    for (cohort, target), _, models in _by_target(predictions):
        models = models[~models["method"].isin(REFERENCE_ONLY)]
        ranked = _ranked(models)
        for first, second in combinations(ranked, 2):
            row = _comparison(_model(models, first), _model(models, second), n_bootstrap, seed, groups)
            best = (first, second) == (ranked[0], ranked[1])
            rows.append({"cohort": cohort, "target": target} | row | {"best_two": best})
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=NO_COMPARISON)
    if not table.empty:
        table["q"] = np.nan
        named = zip(table["method_a"], table["variant_a"], table["method_b"], table["variant_b"], strict=True)
        pairs = pd.Series([str(sorted([(a, b), (c, d)])) for a, b, c, d in named])
        families = pairs.where(~table["best_two"], "the best two")  # the test that is reported, whoever they are
        for _, index in families.groupby(families).groups.items():
            table.loc[index, "q"] = benjamini_hochberg(table.loc[index, "p"])
    return table


def best_two(predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None) -> pd.DataFrame:
    """The best two models of each cohort and target, with the paired bootstrap between them and whether they tie."""
    table = all_comparisons(predictions, n_bootstrap, seed, groups)
    return table[table["best_two"]].drop(columns="best_two").reset_index(drop=True) if len(table) else table


def motion_table(predictions: pd.DataFrame, motion: Any) -> pd.DataFrame:
    """Correlation of head motion with each target and with each model's predictions.

    Parameters
    ----------
    motion : mapping or Series
        participant → mean framewise displacement.
    """
    values = predictions["participant"].map(dict(motion)).to_numpy(float)
    table = predictions.assign(motion=values).dropna(subset=["motion"])
    rows = []
    for key, runs in table.groupby(["cohort", "target", *MODEL, "seed"], sort=False, dropna=False):
        raw = runs["observed_raw"] if "observed_raw" in runs else runs["observed"]
        row = dict(zip(["cohort", "target", *MODEL, "seed"], key, strict=True))
        row["r_target_motion"] = _pearson(raw, runs["motion"])
        row["r_prediction_motion"] = _pearson(runs["predicted"], runs["motion"])
        rows.append(row)
    return pd.DataFrame(rows)


def _by_target(predictions: pd.DataFrame) -> Iterator[tuple[tuple[str, str], np.ndarray, pd.DataFrame]]:
    known_columns(COLUMNS, predictions.columns, "predictions table")
    table = predictions.assign(variant=predictions["variant"].fillna("").astype(str))
    if "repeat" not in table:
        table["repeat"] = 0
    if "observed_raw" not in table:
        table["observed_raw"] = table["observed"]
    key = ["cohort", "target", *MODEL, "seed", "repeat", "participant"]
    if table.duplicated(key).any():
        raise NerveError("The predictions table predicts a person twice by the same model, target, seed and repeat.")
    _check_finite(table)
    for (cohort, target), rows in table.groupby(["cohort", "target"], sort=False):
        yield (str(cohort), str(target)), _people(rows), rows


def _check_finite(table: pd.DataFrame) -> None:
    wrong = table[~np.isfinite(table[["observed", "predicted"]].to_numpy(float)).all(axis=1)]
    if len(wrong):
        first = wrong.iloc[0]
        same = wrong[(wrong["method"] == first["method"]) & (wrong["target"] == first["target"])]
        raise NerveError(
            f"The predictions table holds missing or infinite values of {first['target']} by {first['method']} for "
            f"{listed(same['participant'].unique(), most=5)}, expected numbers. Leave these rows out, or predict again."
        )


def _warn_of_gaps(scores: pd.DataFrame, columns: list[str]) -> None:
    """Say which scores could not be computed: nothing is missing from a table silently."""
    for column in columns:
        gaps = scores[~np.isfinite(scores[column].to_numpy(float))] if len(scores) else scores
        if len(gaps):
            why = " (it needs folds of three people or more)" if column == "r_fold_mean" else ""
            warnings.warn(
                f"{column} of {listed(gaps['target'].unique())} could not be computed for "
                f"{listed(gaps['method'].unique())} and is left empty{why}.",
                NerveWarning,
                stacklevel=3,
            )


def _people(rows: pd.DataFrame) -> np.ndarray:
    people = sorted(rows["participant"].unique(), key=str)  # so that resamples do not depend on the order of the table
    return np.array(people, object)


def _counts(people: np.ndarray, n_bootstrap: int, seed: int, groups: Any) -> np.ndarray:
    families = None if groups is None else pd.Series(people).map(dict(groups)).to_numpy(object)
    return resample_counts(len(people), n_bootstrap, seed, families)


def _columns(runs: pd.DataFrame, people: np.ndarray, value: str) -> np.ndarray:
    """(people, runs): one column for each seed and repeat."""
    run = runs.groupby(["seed", "repeat"], sort=False, dropna=False).ngroup().to_numpy()
    wide = np.full((len(people), run.max() + 1), np.nan)
    wide[pd.Index(people).get_indexer(runs["participant"]), run] = runs[value].to_numpy(float)
    return wide


def _scores(runs: pd.DataFrame, people: np.ndarray, counts: np.ndarray | None) -> dict[str, Any]:
    own = pd.Index(people).isin(runs["participant"])
    observed, predicted = (_columns(runs, people[own], value) for value in ("observed", "predicted"))
    row: dict[str, Any] = {"n": int(own.sum()), "n_folds": runs["fold"].nunique(), "r": _mean_r(observed, predicted)}
    row |= dict.fromkeys(["r_half_width", "r_low", "r_high", "r_low_cv", "r_high_cv"], np.nan)
    if counts is not None:
        row |= _bounds("r", weighted_correlations(counts[:, own], observed, predicted).mean(axis=1))
        row["r_low_cv"], row["r_high_cv"] = cross_validation_interval(row["r"], row["r_low"], row["r_high"])
    repeats = [part for _, part in runs.groupby("repeat", sort=False)]
    row["r_fold_mean"] = float(np.mean([_fold_mean_r(part) for part in repeats]))
    row["r2"] = float(np.mean([_predictive_cod(part) for part in repeats]))
    row["mae"] = float((runs["observed"] - runs["predicted"]).abs().mean())
    row |= {"auc": np.nan, "auc_low": np.nan, "auc_high": np.nan, "balanced_accuracy": np.nan}
    if is_binary(runs["observed_raw"]):
        positive = _columns(runs, people[own], "observed_raw")[:, 0] == 1
        row["auc"] = _mean_auc(np.ones((1, len(positive))), positive, predicted)[0]
        row["balanced_accuracy"] = float(np.mean([_balanced_accuracy(part) for part in repeats]))
        if counts is not None:
            bounds = _bounds("auc", _mean_auc(counts[:, own], positive, predicted))
            row |= {name: bounds[name] for name in ("auc_low", "auc_high")}
    return row


def _bounds(name: str, statistic: np.ndarray) -> dict[str, float]:
    low, high = interval(statistic)
    return {f"{name}_half_width": (high - low) / 2, f"{name}_low": low, f"{name}_high": high}


def cross_validation_interval(r: float, low: float, high: float) -> tuple[float, float]:
    """A bootstrap interval of an out-of-fold r, widened by √2 for what resampling predictions cannot see.

    Everyone is a test person once and a training person of the other folds. With a ridge, r is then close to a
    quadratic form Σ yᵢ aᵢⱼ yⱼ with symmetric a, whose variance under noise is 2 Σ a² σ⁴, while resampling people with
    their predictions held fixed sees Σ a² σ⁴. So where nothing is predictable the plain interval covers 0 in about
    83 % of cohorts, not 95 %, and this one in about 95 %; where r is large it is wider than it need be.
    """
    return max(-1.0, r - np.sqrt(2) * (r - low)), min(1.0, r + np.sqrt(2) * (high - r))


def is_binary(observed_raw: Any) -> bool:
    """Whether a target has two classes, coded 0 and 1."""
    return set(np.unique(np.asarray(observed_raw, float)).tolist()) == {0.0, 1.0}


def _comparison(left: pd.DataFrame, right: pd.DataFrame, n_bootstrap: int, seed: int, groups: Any) -> dict[str, Any]:
    people = _people(left)
    people = people[pd.Index(people).isin(right["participant"])]
    left, right = (side[side["participant"].isin(people)] for side in (left, right))
    counts = _counts(people, n_bootstrap, seed, groups)
    metric = "auc" if is_binary(left["observed_raw"]) else "r"
    full = np.ones((1, len(people)))
    score_a, score_b = (float(_metric(metric, side, people, full)[0]) for side in (left, right))
    differences = _metric(metric, left, people, counts) - _metric(metric, right, people, counts)
    low, high = interval(differences)
    return {
        "method_a": left["method"].iloc[0],
        "variant_a": left["variant"].iloc[0],
        "method_b": right["method"].iloc[0],
        "variant_b": right["variant"].iloc[0],
        "metric": metric,
        "score_a": score_a,
        "score_b": score_b,
        "difference": score_a - score_b,
        "difference_low": low,
        "difference_high": high,
        "p": two_sided_p(differences),
        "tie": round(score_a, 3) == round(score_b, 3),
        "n": len(people),
    }


def _metric(metric: str, runs: pd.DataFrame, people: np.ndarray, counts: np.ndarray) -> np.ndarray:
    predicted = _columns(runs, people, "predicted")
    if metric == "auc":
        return _mean_auc(counts, _columns(runs, people, "observed_raw")[:, 0] == 1, predicted)
    return weighted_correlations(counts, _columns(runs, people, "observed"), predicted).mean(axis=1)


def _mean_auc(counts: np.ndarray, positive: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    return np.mean([weighted_auc(counts, positive, column) for column in predicted.T], axis=0)


def _model(models: pd.DataFrame, method: Any) -> pd.DataFrame:
    name, variant = method if isinstance(method, tuple) else (method, None)
    chosen = models[models["method"] == name]
    return chosen if variant is None else chosen[chosen["variant"] == variant]


def _ranked(models: pd.DataFrame) -> list[tuple[str, str]]:
    """(method, variant) from the best to the worst."""
    scores: dict[tuple[str, str], float] = {}
    for (method, variant), runs in models.groupby(MODEL, sort=False, dropna=False):
        people = _people(runs)
        metric = "auc" if is_binary(runs["observed_raw"]) else "r"
        scores[str(method), str(variant)] = float(_metric(metric, runs, people, np.ones((1, len(people))))[0])
    return sorted(scores, key=lambda key: -scores[key])


def _mean_r(observed: np.ndarray, predicted: np.ndarray) -> float:
    return float(weighted_correlations(np.ones((1, len(observed))), observed, predicted).mean())


def _pearson(left: Any, right: Any) -> float:
    return _mean_r(np.asarray(left, float)[:, None], np.asarray(right, float)[:, None])


def _fold_mean_r(runs: pd.DataFrame) -> float:
    folds = [part for _, part in runs.groupby("fold", sort=False) if len(part) > 2]
    values = [_pearson(part["observed"], part["predicted"]) for part in folds]
    return float(np.mean(values)) if values else np.nan


def _training_means(runs: pd.DataFrame) -> np.ndarray:
    """Mean of the observed values of the other folds, for each row."""
    total, n = runs["observed"].sum(), len(runs)
    fold = runs.groupby("fold")["observed"].transform
    return ((total - fold("sum")) / np.maximum(n - fold("size"), 1)).to_numpy(float)


def _predictive_cod(runs: pd.DataFrame) -> float:
    spread = ((runs["observed"] - _training_means(runs)) ** 2).sum()
    return float(1.0 - ((runs["observed"] - runs["predicted"]) ** 2).sum() / spread) if spread > 0 else np.nan


def _balanced_accuracy(runs: pd.DataFrame) -> float:
    said = runs["predicted"].to_numpy(float) > _training_means(runs)
    truth = runs["observed_raw"].to_numpy(float) == 1
    return float((said[truth].mean() + (~said[~truth]).mean()) / 2)
