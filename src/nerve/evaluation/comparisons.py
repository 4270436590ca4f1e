"""Comparisons of two lines of results: the difference of their scores, with intervals and p values.

Rows that differ in their seed alone make up a line. Every comparison has two tests: the paper's
paired bootstrap (p), and one that allows for training sets that overlap (p_cv; see `intervals.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError
from nerve.evaluation import bootstrap
from nerve.evaluation.intervals import corrected_difference
from nerve.evaluation.predictions_table import (
    predictions_by_target,
    sorted_participants,
    trained_on_another_cohort,
    with_lines,
)
from nerve.evaluation.rows import contenders, references
from nerve.evaluation.statistics import (
    count_units,
    line_score,
    metric_of,
    resample_participants,
    resampled_scores,
)

_COLUMNS = [
    "cohort",
    "target",
    "line_a",
    "line_b",
    "metric",
    "score_a",
    "score_b",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "difference_low_cv",
    "difference_high_cv",
    "p_cv",
    "tie",
    "n",
    "among",
    "best_two",
    "q",
    "q_cv",
]


def compare(
    predictions: pd.DataFrame,
    line_a: str,
    line_b: str,
    n_bootstrap: int = 1000,
    seed: int = 42,
    groups: Any = None,
) -> pd.DataFrame:
    """Compare two lines on every target, by the corrected test and by the paper's paired bootstrap.

    The same resampled participants are scored for both lines; participants predicted by only one
    line are left out. Seeds and repeats are averaged. The score is r, or the AUC for two-class
    targets. The paper's test calls equal methods different in more than 5 % of cases, because all
    participants are both trained on and tested; the other test (`corrected_difference`) allows for
    that.

    Parameters
    ----------
    predictions : DataFrame
        The table of predictions.
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
        difference_high_cv and p_cv of the corrected test; tie (equal to three digits), n.
    """
    records = []
    for cohort, target, part in predictions_by_target(predictions):
        lines = _LinesOfTarget(part, n_bootstrap, seed, groups)
        if line_a in lines and line_b in lines:
            place = {"cohort": cohort, "target": target}
            records.append(place | lines.compare(line_a, line_b))
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
        The table of predictions.
    rows : DataFrame, optional
        What each row is (rows.tsv); without it all lines except "covariates" count as methods.
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
        ``reference``; `best_two`, which marks the top pair of methods; and `q` and `q_cv`, p values
        adjusted over targets and cohorts: of the best two together, whichever lines they are, and
        of every other pair by itself.
    """
    table = with_lines(predictions, rows)
    if rows is None:
        methods = [line for line in dict.fromkeys(table["line"]) if line != "covariates"]
        reference_lines = []
    else:
        methods = contenders(rows)
        reference_lines = references(rows)

    records = []
    for cohort, target, part in predictions_by_target(table):
        lines = _LinesOfTarget(part, n_bootstrap, seed, groups)
        ranked = lines.rank(methods)
        pairs = [(first, second, "methods") for first, second in combinations(ranked, 2)]
        if ranked:
            best = ranked[0]
            pairs += [(best, line, "reference") for line in lines.rank(reference_lines)]
        for first, second, among in pairs:
            record: dict[str, Any] = {"cohort": cohort, "target": target}
            record |= lines.compare(first, second)
            record["among"] = among
            record["best_two"] = among == "methods" and [first, second] == ranked[:2]
            records.append(record)
    if not records:
        return pd.DataFrame(columns=_COLUMNS)

    comparisons = pd.DataFrame(records)
    pair_names = []
    for pair in zip(comparisons["line_a"], comparisons["line_b"], strict=True):
        pair_names.append(str(sorted(pair)))
    # p values are adjusted within these families of tests; the comparison of the best two is one
    # test, whichever lines they are
    tests = pd.Series(pair_names).where(~comparisons["best_two"], "the best two")
    q = comparisons["p"].groupby(tests).transform(bootstrap.adjusted_p)
    q_cv = comparisons["p_cv"].groupby(tests).transform(bootstrap.adjusted_p)
    return comparisons.assign(q=q, q_cv=q_cv)


def best_two(
    predictions: pd.DataFrame, n_bootstrap: int = 1000, seed: int = 42, groups: Any = None
) -> pd.DataFrame:
    """Compare the best two lines of each cohort and target.

    Parameters
    ----------
    predictions : DataFrame
        The table of predictions.
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


class _LinesOfTarget:
    """The lines that predict one target of one cohort, to be ranked and compared.

    A line takes part in as many comparisons as there are other lines, mostly over the same
    participants: its score there and in all resamples is computed once and kept.

    Parameters
    ----------
    predictions : DataFrame
        A part that `predictions_by_target` yields.
    n_bootstrap, seed, groups
        As in `compare`.
    """

    def __init__(self, predictions: pd.DataFrame, n_bootstrap: int, seed: int, groups: Any) -> None:
        self.predictions_of: dict[str, pd.DataFrame] = {}
        for line, part in predictions.groupby("line", sort=False):
            self.predictions_of[str(line)] = part
        self.n_bootstrap = n_bootstrap
        self.seed = seed
        self.groups = groups
        # (line, ids of participants) → score, (resamples,) scores
        self._scores: dict[tuple[str, tuple], tuple[float, Any]] = {}
        # of the participants who were resampled last: their ids, (resamples, n) counts
        self._resampled_ids: tuple = ()
        self._counts: Any = None

    def __contains__(self, line: str) -> bool:
        return line in self.predictions_of

    def rank(self, lines: Sequence[str]) -> list[str]:
        """Those of the lines that have predictions, from the best to the worst."""
        scores = {}
        for line in lines:
            if line in self:
                part = self.predictions_of[line]
                scores[line] = line_score(metric_of(part), part, sorted_participants(part))
        return sorted(scores, key=lambda line: -scores[line])

    def compare(self, line_a: str, line_b: str) -> dict[str, Any]:
        """Compare two lines over the participants that both have predicted."""
        part_a = self.predictions_of[line_a]
        part_b = self.predictions_of[line_b]
        both = part_a[part_a["participant"].isin(part_b["participant"])]
        participants = sorted_participants(both)
        metric = metric_of(both)
        score_a, resampled_a = self._score(metric, line_a, participants)
        score_b, resampled_b = self._score(metric, line_b, participants)
        difference = score_a - score_b
        differences = resampled_a - resampled_b  # (resamples,)
        low, high = bootstrap.interval(differences)
        p = bootstrap.two_sided_p(differences)
        if trained_on_another_cohort(both):
            # no participant is both trained on and tested: there is nothing to correct
            low_cv, high_cv, p_cv = low, high, p
        else:
            low_cv, high_cv, p_cv = corrected_difference(
                difference,
                differences,
                n_folds=both["fold"].nunique(),
                n_units=count_units(participants, self.groups),
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

    def _score(self, metric: str, line: str, participants: Any) -> tuple[float, Any]:
        """The score of a line over participants, and in each resample of them, (resamples,)."""
        ids = tuple(participants)
        if (line, ids) not in self._scores:
            if ids != self._resampled_ids:
                self._resampled_ids = ids
                self._counts = resample_participants(
                    participants, self.n_bootstrap, self.seed, self.groups
                )
            part = self.predictions_of[line]
            part = part[part["participant"].isin(participants)]
            self._scores[line, ids] = (
                line_score(metric, part, participants),
                resampled_scores(metric, part, participants, self._counts),
            )
        return self._scores[line, ids]
