"""Scores, comparisons and intervals from a table of predictions; nothing is trained here.

For each participant, target and row of results the table has: cohort, target, row (or method,
variant and seed), participant, fold, observed, predicted, and observed_raw (before covariates) and
repeat where there are any. Rows that differ in their seed alone make up a line, and comparisons are
between lines. Of a column of three or more classes each class is a target, against all others, and
the column `class_column` names it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from nerve._utils.errors import NerveError, NerveWarning, known_columns, listed, problem
from nerve.evaluation import bootstrap
from nerve.evaluation.folds import group_codes
from nerve.evaluation.rows import contenders, references
from nerve.evaluation.whole_table import WholeTable

# columns that every table of predictions has
_COLUMNS = ["cohort", "target", "participant", "fold", "observed", "predicted"]
# columns that tell one set of predictions from another, where present
_IDENTITY = ["row", "method", "variant", "seed"]
# scores that every target has
_ALWAYS = ["r", "r2", "mae", "r_fold_mean"]
_BOUNDS = ["r_half_width", "r_low", "r_high", "r_low_cv", "r_high_cv"]
_CLASS_SCORES = [
    *("auc", "auc_low", "auc_high", "auc_low_cv", "auc_high_cv"),
    "balanced_accuracy",
]
_SCORES = ["r", *_BOUNDS, "r_fold_mean", "r2", "mae", *_CLASS_SCORES]
_COMPARISON_COLUMNS = [
    *("cohort", "target", "line_a", "line_b", "metric", "score_a", "score_b"),
    *("difference", "difference_low", "difference_high", "p"),
    *("difference_low_cv", "difference_high_cv", "p_cv", "tie", "n"),
    *("among", "best_two", "q", "q_cv"),
]
# how much wider intervals of few participants (or families) are: √(1 + this / how many)
_SMALL_SAMPLE = 12
_LEVEL = 0.95

# line → its predictions
Sides = Mapping[str, pd.DataFrame]
# metric, line, participants → score, and the score in each resample
Scorer = Callable[[str, str, tuple[Any, ...]], tuple[float, np.ndarray]]


def score_table(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """Every score of every row and target, with bootstrap 95 % intervals; the table prints whole.

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
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
        concatenated over folds) with r_half_width, r_low, r_high (the paper's interval), and
        r_low_cv, r_high_cv, which cover (see `cross_validation_interval`); r_fold_mean; r2
        (predictive COD); mae; and for two-class targets auc, with the same two intervals, and
        balanced_accuracy (cut at the mean of the other folds).
        Repeats are averaged. A column of several classes has a row per class, and one for the
        column: means over its classes, and the balanced accuracy of the class whose prediction is
        highest above what the other folds have on average.
    """
    records = []
    for (cohort, target), participants, models in _by_target(predictions):
        counts = _resample(participants, n_bootstrap, seed, groups) if n_bootstrap else None
        identity = [name for name in _IDENTITY if name in models]
        for key, runs in models.groupby(identity, sort=False, dropna=False):
            place = {"cohort": cohort, "target": target} | dict(zip(identity, key, strict=True))
            records.append(place | _scores(runs, participants, counts, groups))
    table = WholeTable(records)
    _warn_of_gaps(table, [*_ALWAYS, *_BOUNDS] if n_bootstrap else _ALWAYS)
    return table


def compare(
    predictions: pd.DataFrame,
    line_a: str,
    line_b: str,
    n_bootstrap: int = 1000,
    seed: int = 42,
    groups: Any = None,
) -> pd.DataFrame:
    """Compare two lines: by the test that holds its level, and by the paper's paired bootstrap.

    The same resampled participants are scored for both; those whom only one line has predicted are
    left out. Seeds and repeats are averaged. The score is r, or the AUC for two-class targets. The
    paper's test calls methods that are equal different in more than 5 %, because everyone is tested
    and trained on; the other one (`corrected_difference`) knows of that.

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
    line_a, line_b : str
        Ids of lines: see `with_lines`.
    n_bootstrap : int
        Resamples.
    seed : int
        Of the resamples.
    groups : mapping or Series, optional
        Participant → family; families are then resampled whole.

    Returns
    -------
    DataFrame
        One row per cohort and target: line_a, line_b, metric, score_a, score_b, difference;
        difference_low, difference_high and p of the paper's test; difference_low_cv,
        difference_high_cv and p_cv of the one that holds; tie (equal to three digits), n.
    """
    records = []
    for (cohort, target), _, models in _by_target(predictions):
        sides = {line: models[models["line"] == line] for line in (line_a, line_b)}
        if all(map(len, sides.values())):
            scorer = _make_scorer(sides, n_bootstrap, seed, groups)
            place = {"cohort": cohort, "target": target}
            records.append(place | _comparison(sides, line_a, line_b, scorer, groups))
    if not records:
        known = sorted(with_lines(predictions)["line"].astype(str).unique())
        raise NerveError(
            f"No target has predictions of both {line_a} and {line_b}; the table has {known}."
        )
    return pd.DataFrame(records)


def all_comparisons(
    predictions: pd.DataFrame,
    rows: pd.DataFrame | None = None,
    n_bootstrap: int = 1000,
    seed: int = 42,
    groups: Any = None,
) -> pd.DataFrame:
    """Compare every two methods on every target, and the best one with each reference.

    The row of covariates is in no comparison: it predicts another observed value, with the
    covariates left in.

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
    rows : DataFrame, optional
        What each row is (rows.tsv); without it all lines but one called covariates count as
        methods.
    n_bootstrap : int
        Resamples.
    seed : int
        Of the resamples.
    groups : mapping or Series, optional
        Participant → family; families are then resampled whole.

    Returns
    -------
    DataFrame
        What `compare` gives, the better line first, and: `among`, which is ``methods`` or
        ``reference``; `best_two`, which marks the top pair of methods; and `q` and `q_cv`, over
        targets (and cohorts), of the best two together and of every other pair by itself.
    """
    table = with_lines(predictions, rows)
    if rows is None:
        methods = [line for line in dict.fromkeys(table["line"]) if line != "covariates"]
        reference_lines = []
    else:
        methods = contenders(rows)
        reference_lines = references(rows)
    records = []
    for (cohort, target), _, models in _by_target(table):
        sides = {str(line): runs for line, runs in models.groupby("line", sort=False)}
        scorer = _make_scorer(sides, n_bootstrap, seed, groups)
        ranked = _rank(sides, methods)
        pairs = [(first, second, "methods") for first, second in combinations(ranked, 2)]
        if ranked:
            best = ranked[0]
            pairs += [(best, line, "reference") for line in _rank(sides, reference_lines)]
        for first, second, among in pairs:
            record: dict[str, Any] = {"cohort": cohort, "target": target}
            record |= _comparison(sides, first, second, scorer, groups)
            record["among"] = among
            record["best_two"] = among == "methods" and [first, second] == ranked[:2]
            records.append(record)
    if not records:
        return pd.DataFrame(columns=_COMPARISON_COLUMNS)
    comparisons = pd.DataFrame(records)
    lines = zip(comparisons["line_a"], comparisons["line_b"], strict=True)
    families = pd.Series([str(sorted(pair)) for pair in lines])
    # the comparison of the best two is one test, whichever lines they are
    families = families.where(~comparisons["best_two"], "the best two")
    q = comparisons["p"].groupby(families).transform(bootstrap.adjusted_p)
    q_cv = comparisons["p_cv"].groupby(families).transform(bootstrap.adjusted_p)
    return comparisons.assign(q=q, q_cv=q_cv)


def best_two(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """Compare the best two lines of each cohort and target.

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
    n_bootstrap : int
        Resamples.
    seed : int
        Of the resamples.
    groups : mapping or Series, optional
        Participant → family; families are then resampled whole.

    Returns
    -------
    DataFrame
        One row per cohort and target, as `compare` gives it.
    """
    table = all_comparisons(predictions, None, n_bootstrap, seed, groups)
    if not len(table):
        return table
    return table[table["best_two"]].drop(columns="best_two").reset_index(drop=True)


def motion_table(predictions: pd.DataFrame, motion: Any) -> pd.DataFrame:
    """Correlation of head motion with each target and with the predictions of each row.

    Parameters
    ----------
    predictions : DataFrame
        The predictions table.
    motion : mapping or Series
        Participant → mean framewise displacement.

    Returns
    -------
    DataFrame
        cohort, target, row, r_target_motion, r_prediction_motion.
    """
    values = predictions["participant"].map(dict(motion)).to_numpy(float)
    table = predictions.assign(motion=values).dropna(subset=["motion"])
    raw = "observed_raw" if "observed_raw" in table else "observed"

    def correlations(runs: pd.DataFrame) -> dict[str, Any]:
        return {
            "r_target_motion": bootstrap.correlation(runs[raw], runs["motion"]),
            "r_prediction_motion": bootstrap.correlation(runs["predicted"], runs["motion"]),
        }

    return score_each_row(table, correlations)


def score_each_row(
    table: pd.DataFrame, scores: Callable[[pd.DataFrame], dict[str, Any]]
) -> pd.DataFrame:
    """Compute scores from the predictions of each row of results and target.

    Parameters
    ----------
    table : DataFrame
        The predictions table.
    scores : callable
        Predictions of one row and target → name of a score → its value.

    Returns
    -------
    DataFrame
        cohort, target, row (or method, variant, seed), and the scores.
    """
    identity = ["cohort", "target", *(name for name in _IDENTITY if name in table)]
    records = []
    for key, runs in table.groupby(identity, sort=False, dropna=False):
        records.append(dict(zip(identity, key, strict=True)) | scores(runs))
    return pd.DataFrame(records)


def with_lines(predictions: pd.DataFrame, rows: pd.DataFrame | None = None) -> pd.DataFrame:
    """The table with the columns row and line.

    Parameters
    ----------
    predictions : DataFrame
        With row; or with method, and variant and seed where there are any. Then the id of a line
        is the method and its variant, joined by a comma.
    rows : DataFrame, optional
        Which line a row belongs to (rows.tsv).

    Returns
    -------
    DataFrame
        The table.
    """
    table = predictions
    if "row" not in table:
        known_columns(["method"], table.columns, "predictions table")
        lines = table["method"].astype(str)
        variant = pd.Series("", index=table.index)
        if "variant" in table:
            variant = table["variant"].fillna("").astype(str)
            lines = lines.where(variant == "", lines + ", " + variant)
        seeds = table["seed"] if "seed" in table else [0] * len(table)
        names = [f"{line}, seed {seed}" for line, seed in zip(lines, seeds, strict=True)]
        table = table.assign(variant=variant, line=lines, row=names)
    if rows is not None:
        return table.assign(line=table["row"].map(rows.set_index("row")["line"]))
    return table if "line" in table else table.assign(line=table["row"])


def overlap_factor(n_folds: int, n_units: int) -> float:
    """How much larger the standard error of an out-of-fold score is than resampling says.

    Everyone is a test participant once and a training participant of the other folds, which
    resampling participants with their predictions held fixed cannot see. Nadeau and Bengio (2003)
    multiply the variance over K folds, whose training sets overlap, by 1 + K / (K − 1). For a ridge
    and many folds that is the theory too: where nothing is predictable, r is close to a quadratic
    form Σ yᵢ aᵢⱼ yⱼ with symmetric a, whose variance is twice what resampling sees. In few
    participants it is larger still; √(1 + 12 / n) is what simulations needed (`studies.nulls`).

    Parameters
    ----------
    n_folds : int
        Folds of one repeat.
    n_units : int
        Participants, or families where there are any.

    Returns
    -------
    float
        The factor.

    Examples
    --------
    >>> round(overlap_factor(10, 60), 2), round(overlap_factor(10, 1000), 2)
    (1.59, 1.46)
    """
    of_overlap = 1 + n_folds / (n_folds - 1) if n_folds > 1 else 1.0
    of_few = 1 + _SMALL_SAMPLE / n_units
    return float(np.sqrt(of_overlap * of_few))


def cross_validation_interval(
    score: float, centre: float, standard_error: float, n_folds: int, n_units: int
) -> tuple[float, float]:
    """95 % interval of an out-of-fold r, or of 2 AUC − 1, for new participants of the same kind.

    Its centre is the mean over folds: where nothing can be predicted, the r of all folds together
    is below 0, and the mean of folds is not. Its width is that of resampling times
    `overlap_factor`, on Fisher's z scale. It is extended to the score itself where it must be.

    Parameters
    ----------
    score : float
        Of all folds together.
    centre : float
        The mean over folds; not a number where folds are too small.
    standard_error : float
        Of the score, over resampled participants.
    n_folds : int
        Folds of one repeat.
    n_units : int
        Participants, or families where there are any.

    Returns
    -------
    low, high : float
        The interval.

    Examples
    --------
    >>> low, high = cross_validation_interval(0.3, 0.32, 0.09, n_folds=10, n_units=100)
    >>> round(low, 2), round(high, 2)
    (0.03, 0.56)
    """
    if not np.isfinite(score) or not np.isfinite(standard_error):
        return np.nan, np.nan
    if not np.isfinite(centre):
        centre = score
    almost_one = 1 - 1e-6
    z = np.arctanh(np.clip(centre, -almost_one, almost_one))
    slope = 1 - min(abs(score), almost_one) ** 2  # of r in z
    quantile = student_t.isf((1 - _LEVEL) / 2, n_units - 1)
    half_width = quantile * overlap_factor(n_folds, n_units) * standard_error / slope
    low = min(score, np.tanh(z - half_width))
    high = max(score, np.tanh(z + half_width))
    return float(low), float(high)


def corrected_difference(
    difference: float, resampled: np.ndarray, n_folds: int, n_units: int
) -> tuple[float, float, float]:
    """95 % interval and two-sided p of a difference between two rows, which hold their level.

    Student's t of the difference, whose standard error over paired resamples is multiplied by
    `overlap_factor`.

    Parameters
    ----------
    difference : float
        Of two scores.
    resampled : (resamples,) array
        The difference in every resample of participants (or families).
    n_folds : int
        Folds of one repeat.
    n_units : int
        Participants, or families where there are any.

    Returns
    -------
    low, high, p : float
        The interval and p; p is 1 where the rows are the same in every resample.

    Examples
    --------
    >>> resampled = np.random.default_rng(0).normal(0.1, 0.04, 1000)
    >>> low, high, p = corrected_difference(0.1, resampled, n_folds=10, n_units=200)
    >>> low < 0 < high, 0.05 < p < 0.2
    (True, True)
    """
    resampled = resampled[np.isfinite(resampled)]
    if not len(resampled) or not np.isfinite(difference):
        return np.nan, np.nan, np.nan
    standard_error = float(resampled.std()) * overlap_factor(n_folds, n_units)
    if standard_error == 0:
        return difference, difference, float(difference == 0)
    half_width = float(student_t.isf((1 - _LEVEL) / 2, n_units - 1)) * standard_error
    p = float(2 * student_t.sf(abs(difference) / standard_error, n_units - 1))
    return difference - half_width, difference + half_width, p


def is_binary(observed_raw: Any) -> bool:
    """Whether a target has two classes, coded 0 and 1."""
    return set(np.unique(np.asarray(observed_raw, float)).tolist()) == {0.0, 1.0}


def _by_target(
    predictions: pd.DataFrame,
) -> Iterator[tuple[tuple[str, str], np.ndarray, pd.DataFrame]]:
    """Cohort and target, participants, predictions of all rows; columns of classes come last."""
    known_columns(_COLUMNS, predictions.columns, "predictions table")
    table = with_lines(predictions)
    defaults: dict[str, Any] = {"repeat": 0, "observed_raw": table["observed"], "class_column": ""}
    table = table.assign(**{name: value for name, value in defaults.items() if name not in table})
    if table.duplicated(["cohort", "target", "row", "repeat", "participant"]).any():
        raise NerveError(
            "The predictions table predicts a participant twice by the same row, target and repeat."
        )
    wrong = table[~np.isfinite(table[["observed", "predicted"]].to_numpy(float)).all(axis=1)]
    if len(wrong):
        first = wrong.iloc[0]
        same = wrong[(wrong["row"] == first["row"]) & (wrong["target"] == first["target"])]
        ids = listed(same["participant"].unique(), most=5)
        raise problem(
            "predictions table",
            f"missing or infinite values of {first['target']} by {first['line']} for {ids}",
            expected="numbers",
            remedy="Leave these rows out, or predict again.",
        )
    for (cohort, target), rows in table.groupby(["cohort", "target"], sort=False):
        yield (str(cohort), str(target)), _participants_of(rows), rows
    of_classes = table[table["class_column"] != ""]
    for (cohort, column), rows in of_classes.groupby(["cohort", "class_column"], sort=False):
        yield (str(cohort), str(column)), _participants_of(rows), rows


def _warn_of_gaps(scores: pd.DataFrame, columns: list[str]) -> None:
    """Warn of scores that could not be computed: nothing is missing from a table silently."""
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


def _participants_of(rows: pd.DataFrame) -> np.ndarray:
    """Ids, sorted so that resamples do not depend on the order of the table."""
    return np.array(sorted(rows["participant"].unique(), key=str), object)


def _resample(participants: np.ndarray, n_bootstrap: int, seed: int, groups: Any) -> np.ndarray:
    """How often each participant is in each resample, (resamples, n)."""
    families = None
    if groups is not None:
        families = pd.Series(participants).map(dict(groups)).to_numpy(object)
    return bootstrap.resample_counts(len(participants), n_bootstrap, seed, families)


def _columns(runs: pd.DataFrame, participants: np.ndarray, *values: str) -> np.ndarray:
    """Values as (values, participants, runs): one column for each row and repeat."""
    run = runs.groupby(["row", "repeat"], sort=False, dropna=False).ngroup().to_numpy()
    position = pd.Index(participants).get_indexer(runs["participant"])
    wide = np.full((len(values), len(participants), run.max() + 1), np.nan)
    wide[:, position, run] = runs[list(values)].to_numpy(float).T
    return wide


def _scores(
    runs: pd.DataFrame, participants: np.ndarray, counts: np.ndarray | None, groups: Any
) -> dict[str, Any]:
    """Scores of a target; of a column of classes, means over them and the balanced accuracy."""
    own = pd.Index(participants).isin(runs["participant"])
    scores: dict[str, Any] = {"n": int(own.sum()), "n_folds": runs["fold"].nunique()}
    scores |= dict.fromkeys(_SCORES, np.nan)
    binary = is_binary(runs["observed_raw"])
    parts = [part for _, part in runs.groupby(["target", "repeat"], sort=False)]
    scores["r_fold_mean"] = float(np.mean([_fold_mean("r", part) for part in parts]))
    scores["r2"] = float(np.mean([_predictive_cod(part) for part in parts]))
    scores["mae"] = float((runs["observed"] - runs["predicted"]).abs().mean())
    for name in ("r", "auc") if binary else ("r",):
        score = _score(name, runs, participants[own])
        scores[name] = score
        if counts is None:
            continue
        resampled = _resampled_scores(name, runs, participants[own], counts[:, own])
        low, high = bootstrap.interval(resampled)
        scores[f"{name}_low"] = low
        scores[f"{name}_high"] = high
        if not _trained_on_another_cohort(runs):
            n_units = _n_units(participants[own], groups)
            fold_mean = scores["r_fold_mean"]
            if name == "auc":
                fold_mean = float(np.mean([_fold_mean(name, part) for part in parts]))
            low, high = _interval_that_holds(
                name, score, fold_mean, resampled, scores["n_folds"], n_units
            )
        scores[f"{name}_low_cv"] = low
        scores[f"{name}_high_cv"] = high
    if counts is not None:
        scores["r_half_width"] = (scores["r_high"] - scores["r_low"]) / 2
    if binary:
        repeats = [part for _, part in runs.groupby("repeat")]
        scores["balanced_accuracy"] = float(np.mean([_balanced_accuracy(run) for run in repeats]))
    return scores


def _interval_that_holds(
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


def _n_units(participants: np.ndarray, groups: Any) -> int:
    """How many families there are, where a participant without one counts as one."""
    if groups is None:
        return len(participants)
    families = pd.Series(participants).map(dict(groups)).to_numpy(object)
    return int(group_codes(families, len(participants)).max()) + 1


def _balanced_accuracy(runs: pd.DataFrame) -> float:
    """Balanced accuracy of choosing the class whose prediction is highest above its training mean.

    A target of two classes is cut at the training mean.
    """
    parts = []
    for _, part in runs.groupby("target"):
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


def _make_scorer(sides: Sides, n_bootstrap: int, seed: int, groups: Any) -> Scorer:
    """A function that scores a line over participants, and in each resample of them.

    A line is in as many comparisons as there are others: it is scored once for all of those with
    the same participants.
    """

    @lru_cache(2)
    def resample(participants: tuple[Any, ...]) -> np.ndarray:
        return _resample(np.array(participants, object), n_bootstrap, seed, groups)

    @cache
    def score(metric: str, line: str, participants: tuple[Any, ...]) -> tuple[float, np.ndarray]:
        ids = np.array(participants, object)
        runs = sides[line][sides[line]["participant"].isin(ids)]
        resampled = _resampled_scores(metric, runs, ids, resample(participants))
        return _score(metric, runs, ids), resampled

    return score


def _comparison(
    sides: Sides, line_a: str, line_b: str, scorer: Scorer, groups: Any
) -> dict[str, Any]:
    """Compare two lines over the participants whom both have predicted."""
    both = sides[line_a][sides[line_a]["participant"].isin(sides[line_b]["participant"])]
    metric = _metric_of(both)
    participants = _participants_of(both)
    score_a, resampled_a = scorer(metric, line_a, tuple(participants))
    score_b, resampled_b = scorer(metric, line_b, tuple(participants))
    difference = score_a - score_b
    differences = resampled_a - resampled_b
    low, high = bootstrap.interval(differences)
    p = bootstrap.two_sided_p(differences)
    if _trained_on_another_cohort(both):
        # nobody is both trained on and tested
        low_cv, high_cv, p_cv = low, high, p
    else:
        low_cv, high_cv, p_cv = corrected_difference(
            difference, differences, both["fold"].nunique(), _n_units(participants, groups)
        )
    return {
        "line_a": line_a,
        "line_b": line_b,
        "metric": metric,
        "score_a": score_a,
        "score_b": score_b,
        "difference": difference,
        "difference_low": low,
        "difference_high": high,
        "p": p,
        "difference_low_cv": low_cv,
        "difference_high_cv": high_cv,
        "p_cv": p_cv,
        "tie": round(score_a, 3) == round(score_b, 3),
        "n": len(participants),
    }


def _metric_of(runs: pd.DataFrame) -> str:
    return "auc" if is_binary(runs["observed_raw"]) else "r"


def _resampled_scores(
    metric: str, runs: pd.DataFrame, participants: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """A score in every resample, (resamples,); the mean over classes where there are several."""
    if runs["target"].nunique() > 1:
        of_classes = []
        for _, part in runs.groupby("target"):
            of_classes.append(_resampled_scores(metric, part, participants, counts))
        return np.mean(of_classes, axis=0)
    observed, raw, predicted = _columns(runs, participants, "observed", "observed_raw", "predicted")
    if metric == "r":
        return bootstrap.weighted_correlations(counts, observed, predicted).mean(axis=1)
    positive = raw[:, 0] == 1
    of_runs = [bootstrap.weighted_auc(counts, positive, column) for column in predicted.T]
    return np.mean(of_runs, axis=0)


def _score(metric: str, runs: pd.DataFrame, participants: np.ndarray) -> float:
    once = np.ones((1, len(participants)))
    return float(_resampled_scores(metric, runs, participants, once)[0])


def _rank(sides: Sides, lines: list[str]) -> list[str]:
    """Those of the lines that have predictions, from the best to the worst."""
    scores = {}
    for line in lines:
        if line in sides:
            runs = sides[line]
            scores[line] = _score(_metric_of(runs), runs, _participants_of(runs))
    return sorted(scores, key=lambda line: -scores[line])


def _fold_mean(metric: str, runs: pd.DataFrame) -> float:
    """Mean score within folds of three participants or more; an AUC needs both classes there."""
    values = []
    for _, part in runs.groupby("fold", sort=False):
        if len(part) < 3:
            continue
        if metric == "r":
            values.append(bootstrap.correlation(part["observed"], part["predicted"]))
        elif is_binary(part["observed_raw"]):
            positive = part["observed_raw"].to_numpy() == 1
            once = np.ones((1, len(part)))
            predicted = part["predicted"].to_numpy(float)
            values.append(bootstrap.weighted_auc(once, positive, predicted)[0])
    return float(np.mean(values)) if values else np.nan


def _training_means(runs: pd.DataFrame) -> np.ndarray:
    """Mean observed value of the other folds, or of the cohort trained on, for each prediction."""
    if _trained_on_another_cohort(runs):
        return runs["training_mean"].to_numpy(float)
    by_fold = runs.groupby("fold")["observed"]
    sum_of_others = runs["observed"].sum() - by_fold.transform("sum")
    n_others = len(runs) - by_fold.transform("size")
    return (sum_of_others / np.maximum(n_others, 1)).to_numpy(float)


def _trained_on_another_cohort(runs: pd.DataFrame) -> bool:
    """Whether another cohort was trained on: then all participants are in one fold."""
    if "training_mean" not in runs or runs["fold"].nunique() > 1:
        return False
    return bool(runs["training_mean"].notna().all())


def _predictive_cod(runs: pd.DataFrame) -> float:
    """1 − SSE / SS around the training mean; NaN where the target does not vary."""
    spread = ((runs["observed"] - _training_means(runs)) ** 2).sum()
    if spread <= 0:
        return np.nan
    return float(1.0 - ((runs["observed"] - runs["predicted"]) ** 2).sum() / spread)
