"""What may be concluded from a predictions table. Pure functions of the table; nothing is trained here.

Of each participant, target and row of results it has: cohort, target, row (or method, variant and seed, as
`nerve.evaluate` gives them), participant, fold, observed, predicted, and observed_raw (before covariates) and repeat
where there are any. Rows that differ in their seed alone make up a line, and comparisons are between lines.
Of a column of three or more classes each class is a target, against all others, and `whole` names the column.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, NerveWarning, known_columns, listed, problem
from nerve.evaluation import bootstrap
from nerve.evaluation.rows import contenders, references

COLUMNS = ["cohort", "target", "participant", "fold", "observed", "predicted"]
IDENTITY = [
    "row",
    "method",
    "variant",
    "seed",
]  # columns that tell one set of predictions from another, where present
ALWAYS = ["r", "r2", "mae", "r_fold_mean"]  # scores that every target has
BOUNDS = ["r_half_width", "r_low", "r_high", "r_low_cv", "r_high_cv"]
SCORES = [
    "r",
    *BOUNDS,
    "r_fold_mean",
    "r2",
    "mae",
    "auc",
    "auc_low",
    "auc_high",
    "balanced_accuracy",
]
# fmt: off
NO_COMPARISON = ["cohort", "target", "line_a", "line_b", "metric", "score_a", "score_b", "difference", "difference_low",
                 "difference_high", "p", "tie", "n", "among", "best_two", "q"]
# fmt: on


def line_id(method: str, variant: str = "") -> str:
    """The id of a line in a table of `nerve.evaluate`: a method and its variant."""
    return f"{method}, {variant}" if variant else method


def score_table(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """Every score of every row and target, with bootstrap 95 % intervals over participants (or families).

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
        cohort, target, row (or method, variant, seed), n, n_folds; r (observed and predicted concatenated over folds)
        with r_half_width, r_low, r_high, and r_low_cv, r_high_cv (see `cross_validation_interval`); r_fold_mean; r2
        (predictive COD); mae; and for two-class targets auc, auc_low, auc_high and balanced_accuracy (cut at the mean
        of the other folds). Repeats are averaged. A column of several classes has a row per class, and one for the
        whole: means over its classes, and the balanced accuracy of the class whose prediction is highest above what
        the other folds have on average.
    """
    rows = []
    for (cohort, target), participants, models in _by_target(predictions):
        counts = _counts(participants, n_bootstrap, seed, groups) if n_bootstrap else None
        identity = [name for name in IDENTITY if name in models]
        for key, runs in models.groupby(identity, sort=False, dropna=False):
            row = dict(zip(["cohort", "target", *identity], (cohort, target, *key), strict=True))
            rows.append(row | _scores(runs, participants, counts))
    table = pd.DataFrame(rows)
    _warn_of_gaps(table, [*ALWAYS, *(BOUNDS if n_bootstrap else [])])
    return table


def compare(
    predictions: pd.DataFrame,
    line_a: str,
    line_b: str,
    n_bootstrap: int = 1000,
    seed: int = 42,
    groups: Any = None,
) -> pd.DataFrame:
    """Two-sided paired bootstrap between two lines, one row per cohort and target.

    The same resampled participants are scored for both; those whom only one line has predicted are left out. Seeds and
    repeats are averaged. The score is r, or the AUC for two-class targets.

    Parameters
    ----------
    line_a, line_b : str
        Ids of lines: in a table of `nerve.evaluate` the method, or `line_id(method, variant)`.
    """
    rows = []
    for (cohort, target), _, models in _by_target(predictions):
        sides = {line: models[models["line"] == line] for line in (line_a, line_b)}
        if all(map(len, sides.values())):
            scored = _resampled(sides, n_bootstrap, seed, groups)
            rows.append(
                {"cohort": cohort, "target": target} | _comparison(sides, line_a, line_b, scored)
            )
    if not rows:
        known = sorted(with_lines(predictions)["line"].astype(str).unique())
        raise NerveError(
            f"No target has predictions of both {line_a} and {line_b}; the table has {known}."
        )
    return pd.DataFrame(rows)


def all_comparisons(
    predictions: pd.DataFrame,
    rows: pd.DataFrame | None = None,
    n_bootstrap: int = 1000,
    seed: int = 42,
    groups: Any = None,
) -> pd.DataFrame:
    """Every two methods on every target, the better one first, and the best one against each reference.

    `among` says which: ``methods``, of which `best_two` marks the top pair, or ``reference``. The row of covariates is
    in no comparison: it predicts another observed value, with the covariates left in. `q` is over targets (and
    cohorts): of the best two together, and of every other pair by itself.

    Parameters
    ----------
    rows : DataFrame, optional
        What each row is (rows.tsv); without it all lines but one called covariates count as methods.
    """
    table = with_lines(predictions, rows)
    lines = [line for line in dict.fromkeys(table["line"]) if line != "covariates"]
    compared, apart = (lines, []) if rows is None else (contenders(rows), references(rows))
    found = []
    for (cohort, target), _, models in _by_target(table):
        sides = {str(line): runs for line, runs in models.groupby("line", sort=False)}
        ranked, scored = _ranked(sides, compared), _resampled(sides, n_bootstrap, seed, groups)
        pairs = [(*pair, "methods") for pair in combinations(ranked, 2)]
        pairs += [(ranked[0], line, "reference") for line in _ranked(sides, apart) if ranked]
        for first, second, among in pairs:
            row = _comparison(sides, first, second, scored)
            best = among == "methods" and [first, second] == ranked[:2]
            found.append(
                {"cohort": cohort, "target": target} | row | {"among": among, "best_two": best}
            )
    if not found:
        return pd.DataFrame(columns=NO_COMPARISON)
    table = pd.DataFrame(found)
    both = pd.Series(
        [str(sorted(pair)) for pair in zip(table["line_a"], table["line_b"], strict=True)]
    )
    families = both.where(
        ~table["best_two"], "the best two"
    )  # the test that is reported, whoever they are
    return table.assign(q=table["p"].groupby(families).transform(bootstrap.adjusted_p))


def best_two(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """The best two lines of each cohort and target, with the paired bootstrap between them and whether they tie."""
    table = all_comparisons(predictions, None, n_bootstrap, seed, groups)
    return (
        table[table["best_two"]].drop(columns="best_two").reset_index(drop=True)
        if len(table)
        else table
    )


def motion_table(predictions: pd.DataFrame, motion: Any) -> pd.DataFrame:
    """Correlation of head motion with each target and with the predictions of each row.

    Parameters
    ----------
    motion : mapping or Series
        participant → mean framewise displacement.
    """
    values = predictions["participant"].map(dict(motion)).to_numpy(float)
    table = predictions.assign(motion=values).dropna(subset=["motion"])
    raw = "observed_raw" if "observed_raw" in table else "observed"
    sides = {"r_target_motion": raw, "r_prediction_motion": "predicted"}

    def correlations(runs: pd.DataFrame) -> dict[str, Any]:
        return {
            name: bootstrap.correlation(runs[side], runs["motion"]) for name, side in sides.items()
        }

    return of_each_row(table, correlations)


def of_each_row(
    table: pd.DataFrame, scores: Callable[[pd.DataFrame], dict[str, Any]]
) -> pd.DataFrame:
    """What is computed from the predictions of each row of results and target."""
    identity = ["cohort", "target", *(name for name in IDENTITY if name in table)]
    parts = table.groupby(identity, sort=False, dropna=False)
    return pd.DataFrame(
        [dict(zip(identity, key, strict=True)) | scores(runs) for key, runs in parts]
    )


def with_lines(predictions: pd.DataFrame, rows: pd.DataFrame | None = None) -> pd.DataFrame:
    """The table with the columns row and line; `rows` says which line a row belongs to."""
    table = predictions
    if "row" not in table:
        known_columns(["method"], table.columns, "predictions table")
        variant = (
            table["variant"].fillna("").astype(str)
            if "variant" in table
            else pd.Series("", index=table.index)
        )
        lines = [
            line_id(str(method), one) for method, one in zip(table["method"], variant, strict=True)
        ]
        seeds = table["seed"] if "seed" in table else [0] * len(table)
        names = [f"{line}, seed {seed}" for line, seed in zip(lines, seeds, strict=True)]
        table = table.assign(variant=variant, line=lines, row=names)
    if rows is not None:
        return table.assign(line=table["row"].map(rows.set_index("row")["line"]))
    return table if "line" in table else table.assign(line=table["row"])


def _by_target(
    predictions: pd.DataFrame,
) -> Iterator[tuple[tuple[str, str], np.ndarray, pd.DataFrame]]:
    known_columns(COLUMNS, predictions.columns, "predictions table")
    table = with_lines(predictions)
    defaults: dict[str, Any] = {"repeat": 0, "observed_raw": table["observed"], "whole": ""}
    table = table.assign(**{name: value for name, value in defaults.items() if name not in table})
    if table.duplicated(["cohort", "target", "row", "repeat", "participant"]).any():
        raise NerveError(
            "The predictions table predicts a participant twice by the same row, target and repeat."
        )
    wrong = table[~np.isfinite(table[["observed", "predicted"]].to_numpy(float)).all(axis=1)]
    if len(wrong):
        first = wrong.iloc[0]
        same = wrong[(wrong["row"] == first["row"]) & (wrong["target"] == first["target"])]
        who = listed(same["participant"].unique(), most=5)
        found = f"missing or infinite values of {first['target']} by {first['line']} for {who}"
        raise problem(
            "predictions table",
            found,
            expected="numbers",
            remedy="Leave these rows out, or predict again.",
        )
    for name, part in (("target", table), ("whole", table[table["whole"] != ""])):
        for (cohort, target), rows in part.groupby(["cohort", name], sort=False):
            yield (str(cohort), str(target)), _people(rows), rows


def _warn_of_gaps(scores: pd.DataFrame, columns: list[str]) -> None:
    """Say which scores could not be computed: nothing is missing from a table silently."""
    for column in columns:
        gaps = scores[~np.isfinite(scores[column].to_numpy(float))] if len(scores) else scores
        if len(gaps):
            why = (
                " (it needs folds of three participants or more)" if column == "r_fold_mean" else ""
            )
            what, who = (listed(gaps[name].unique()) for name in ("target", "row"))
            said = f"{column} of {what} could not be computed for {who} and is left empty{why}."
            warnings.warn(said, NerveWarning, stacklevel=3)


def _people(rows: pd.DataFrame) -> np.ndarray:
    """Sorted, so that resamples do not depend on the order of the table."""
    return np.array(sorted(rows["participant"].unique(), key=str), object)


def _counts(participants: np.ndarray, n_bootstrap: int, seed: int, groups: Any) -> np.ndarray:
    families = (
        None if groups is None else pd.Series(participants).map(dict(groups)).to_numpy(object)
    )
    return bootstrap.resample_counts(len(participants), n_bootstrap, seed, families)


def _columns(runs: pd.DataFrame, participants: np.ndarray, *values: str) -> np.ndarray:
    """(values, participants, runs): one column for each row and repeat."""
    run = runs.groupby(["row", "repeat"], sort=False, dropna=False).ngroup().to_numpy()
    wide = np.full((len(values), len(participants), run.max() + 1), np.nan)
    wide[:, pd.Index(participants).get_indexer(runs["participant"]), run] = (
        runs[list(values)].to_numpy(float).T
    )
    return wide


def _scores(
    runs: pd.DataFrame, participants: np.ndarray, counts: np.ndarray | None
) -> dict[str, Any]:
    """Scores of a target; of a column of several classes their means, and how often the right class is named."""
    own = pd.Index(participants).isin(runs["participant"])
    row = {"n": int(own.sum()), "n_folds": runs["fold"].nunique(), **dict.fromkeys(SCORES, np.nan)}
    binary = is_binary(runs["observed_raw"])
    for name in ("r", "auc") if binary else ("r",):
        row[name] = _score(name, runs, participants[own])
        if counts is not None:
            resampled = _metric(name, runs, participants[own], counts[:, own])
            row[f"{name}_low"], row[f"{name}_high"] = bootstrap.interval(resampled)
    if counts is not None:
        row["r_half_width"] = (row["r_high"] - row["r_low"]) / 2
        bounds = row["r"], row["r_low"], row["r_high"]
        row["r_low_cv"], row["r_high_cv"] = (
            bounds[1:] if _elsewhere(runs) else cross_validation_interval(*bounds)
        )
    parts = [part for _, part in runs.groupby(["target", "repeat"], sort=False)]
    row["r_fold_mean"] = float(np.mean([_fold_mean_r(part) for part in parts]))
    row["r2"] = float(np.mean([_predictive_cod(part) for part in parts]))
    row["mae"] = float((runs["observed"] - runs["predicted"]).abs().mean())
    if binary:
        row["balanced_accuracy"] = float(
            np.mean([_named_rightly(part) for _, part in runs.groupby("repeat")])
        )
    return row


def _named_rightly(runs: pd.DataFrame) -> float:
    """Balanced accuracy of the class predicted highest above its training mean; with two, of being above it."""
    parts = [
        one.assign(above=one["predicted"] - _training_means(one))
        for _, one in runs.groupby("target")
    ]
    wide = pd.concat(parts).pivot(
        index="participant", columns="target", values=["above", "observed_raw"]
    )
    above, truth = (wide[name].to_numpy(float) for name in ("above", "observed_raw"))
    if len(parts) == 1:  # against all others, at the training mean
        above, truth = (np.column_stack([-one, one]) for one in (above, 2 * truth - 1))
    said, truth = above.argmax(axis=1), truth.argmax(axis=1)
    return float(np.mean([np.mean(said[truth == k] == k) for k in np.unique(truth)]))


def cross_validation_interval(r: float, low: float, high: float) -> tuple[float, float]:
    """A bootstrap interval of an out-of-fold r, widened by √2 for what resampling predictions cannot see.

    Everyone is a test participant once and a training participant of the other folds. With a ridge, r is then close
    to a quadratic form Σ yᵢ aᵢⱼ yⱼ with symmetric a, whose variance under noise is 2 Σ a² σ⁴, while resampling
    participants with
    their predictions held fixed sees Σ a² σ⁴. So where nothing is predictable the plain interval covers 0 in about
    83 % of cohorts, not 95 %, and this one in about 95 %; where r is large it is wider than it need be.
    """
    return max(-1.0, r - np.sqrt(2) * (r - low)), min(1.0, r + np.sqrt(2) * (high - r))


def is_binary(observed_raw: Any) -> bool:
    """Whether a target has two classes, coded 0 and 1."""
    return set(np.unique(np.asarray(observed_raw, float)).tolist()) == {0.0, 1.0}


Sides = Mapping[str, pd.DataFrame]  # line → its runs
Scored = Callable[
    [str, str, tuple[Any, ...]], tuple[float, np.ndarray]
]  # metric, line, participants → `_resampled`


def _resampled(sides: Sides, n_bootstrap: int, seed: int, groups: Any) -> Scored:
    """A function that gives the score of a line over some participants, and that in each resample, (resamples,).

    A line is in as many comparisons as there are others: it is scored once for all with the same participants.
    """
    counts = lru_cache(2)(
        lambda participants: _counts(np.array(participants, object), n_bootstrap, seed, groups)
    )

    @cache
    def scored(metric: str, line: str, participants: tuple[Any, ...]) -> tuple[float, np.ndarray]:
        everyone = np.array(participants, object)
        runs = sides[line][sides[line]["participant"].isin(everyone)]
        return _score(metric, runs, everyone), _metric(metric, runs, everyone, counts(participants))

    return scored


def _comparison(sides: Sides, line_a: str, line_b: str, scored: Scored) -> dict[str, Any]:
    both = sides[line_a][sides[line_a]["participant"].isin(sides[line_b]["participant"])]
    metric, participants = _metric_of(both), _people(both)
    (score_a, resampled_a), (score_b, resampled_b) = (
        scored(metric, line, tuple(participants)) for line in (line_a, line_b)
    )
    differences = resampled_a - resampled_b
    low, high = bootstrap.interval(differences)
    return {
        "line_a": line_a,
        "line_b": line_b,
        "metric": metric,
        "score_a": score_a,
        "score_b": score_b,
        "difference": score_a - score_b,
        "difference_low": low,
        "difference_high": high,
        "p": bootstrap.two_sided_p(differences),
        "tie": round(score_a, 3) == round(score_b, 3),
        "n": len(participants),
    }


def _metric_of(runs: pd.DataFrame) -> str:
    return "auc" if is_binary(runs["observed_raw"]) else "r"


def _metric(
    metric: str, runs: pd.DataFrame, participants: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """A score in every resample, (resamples,); the mean over classes where there are several."""
    if runs["target"].nunique() > 1:
        return np.mean(
            [_metric(metric, one, participants, counts) for _, one in runs.groupby("target")],
            axis=0,
        )
    observed, raw, predicted = _columns(runs, participants, "observed", "observed_raw", "predicted")
    if metric == "r":
        return bootstrap.weighted_correlations(counts, observed, predicted).mean(axis=1)
    return np.mean(
        [bootstrap.weighted_auc(counts, raw[:, 0] == 1, column) for column in predicted.T], axis=0
    )


def _score(metric: str, runs: pd.DataFrame, participants: np.ndarray) -> float:
    return float(_metric(metric, runs, participants, np.ones((1, len(participants))))[0])


def _ranked(sides: dict[str, pd.DataFrame], among: list[str]) -> list[str]:
    """The lines that have predictions, from the best to the worst."""
    known = {line: sides[line] for line in among if line in sides}
    scores = {line: _score(_metric_of(runs), runs, _people(runs)) for line, runs in known.items()}
    return sorted(scores, key=lambda line: -scores[line])


def _fold_mean_r(runs: pd.DataFrame) -> float:
    folds = [part for _, part in runs.groupby("fold", sort=False) if len(part) > 2]
    values = [bootstrap.correlation(part["observed"], part["predicted"]) for part in folds]
    return float(np.mean(values)) if values else np.nan


def _training_means(runs: pd.DataFrame) -> np.ndarray:
    """Mean of the observed values of the other folds, or of the cohort that was trained on, for each row."""
    if _elsewhere(runs):
        return runs["training_mean"].to_numpy(float)
    total, n = runs["observed"].sum(), len(runs)
    fold = runs.groupby("fold")["observed"].transform
    return ((total - fold("sum")) / np.maximum(n - fold("size"), 1)).to_numpy(float)


def _elsewhere(runs: pd.DataFrame) -> bool:
    """Whether another cohort was trained on: then everyone is tested at once."""
    return (
        "training_mean" in runs
        and runs["fold"].nunique() == 1
        and bool(runs["training_mean"].notna().all())
    )


def _predictive_cod(runs: pd.DataFrame) -> float:
    spread = ((runs["observed"] - _training_means(runs)) ** 2).sum()
    return (
        float(1.0 - ((runs["observed"] - runs["predicted"]) ** 2).sum() / spread)
        if spread > 0
        else np.nan
    )
