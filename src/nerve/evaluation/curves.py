"""How many labels do I need? Scores over the number of labelled participants, the same draws for every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone

from nerve.checks import naming, problem
from nerve.cohort import Cohort
from nerve.evaluation.features import Features
from nerve.evaluation.folds import strata_of
from nerve.evaluation.people import People
from nerve.evaluation.predict import without_covariates
from nerve.evaluation.resampling import correlation, weighted_auc
from nerve.evaluation.statistics import is_binary
from nerve.protocol import Protocol

LEAST_TEST = 10  # participants left to be tested on


def learning_curve(features: Features, cohort: Cohort, people: People, protocol: Protocol) -> pd.DataFrame:
    """The score of each target with k labelled participants, k = `protocol.labels`, over `protocol.n_draws` draws.

    In each draw participants are put in a random order, stratified by the target. The first k are labelled, for every
    k; those after the largest k are tested. Whatever a row learns without labels inside folds, it learns here from the
    first max(k).

    Returns
    -------
    DataFrame
        cohort, target, labels, draw, metric (r, or auc for two-class targets), score
    """
    rows = []
    covariates, mine = people.covariates if features.removes_covariates else None, people.without(features.missing)
    with naming(people.ids):
        model, source = features.prepare(cohort, people, protocol)
        for target, pool, test, draw in _draws(mine, protocol):
            raw, column = mine.targets[target].to_numpy(float), people.whole.get(target, target)
            inside, outside = source.split(pool, test, [column])
            for k in protocol.labels:
                values, _ = without_covariates(raw, column, pool[:k], test, covariates)
                left, right = inside[:k], outside
                if getattr(model, "kernel", "") == "precomputed":  # it has a column for each of the pool
                    left, right = left[:, :k], right[:, :k]
                predicted = np.ravel(clone(model).fit(left, values[pool[:k]]).predict(right)).astype(float)
                name, score = "r", correlation(values[test], predicted)
                if is_binary(raw[np.isfinite(raw)]):
                    name, score = "auc", float(weighted_auc(np.ones((1, len(test))), raw[test] == 1, predicted)[0])
                rows.append((people.cohort, target, k, draw, name, score))
    return pd.DataFrame(rows, columns=["cohort", "target", "labels", "draw", "metric", "score"])


def _draws(people: People, protocol: Protocol) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    """(target, pool of max(k) participants in order, tested participants, draw): the same for every row."""
    most, tested = max(protocol.labels), people.tested
    for target in map(str, people.targets.columns):
        values = people.targets[target].to_numpy(float)
        known = people.order[np.isfinite(values[people.order])]
        pool, elsewhere = (known[~tested[known]], known[tested[known]]) if people.trained_on else (known, known[:0])
        left = len(elsewhere) if people.trained_on else max(0, len(known) - most)
        if left < LEAST_TEST or len(pool) < most:
            found = f"{most} labelled participants leave {left} of the {len(known)} who have {target!r} to be tested on"
            raise problem("labels", found, expected=f"at least {LEAST_TEST}", remedy="Ask for fewer labels.")
        strata = strata_of(values[pool], 5)
        for draw in range(protocol.n_draws):
            order = pool[_stratified_order(strata, np.random.default_rng([protocol.seed, draw]))]
            yield target, order[:most], elsewhere if people.trained_on else order[most:], draw


def _stratified_order(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An order whose beginnings have each stratum in its proportion."""
    place = np.empty(len(strata))
    for stratum in np.unique(strata):
        mine = np.flatnonzero(strata == stratum)
        place[rng.permutation(mine)] = (np.arange(len(mine)) + rng.random()) / len(mine)
    return np.argsort(place, kind="stable")


def curve_table(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean over draws with a 95 % interval of the draws, per cohort, target, row and number of labels."""
    grouped = curves.groupby(["cohort", "target", "row", "metric", "labels"], sort=False)["score"]
    low, high = grouped.quantile(0.025), grouped.quantile(0.975)
    return pd.DataFrame({"score": grouped.mean(), "low": low, "high": high}).reset_index()


def equivalent_labels(table: pd.DataFrame, row: str, other: str, labels: int) -> float:
    """How many labels `other` needs for the score that `row` has with so many; NaN where it never gets there.

    `table` is what `curve_table` gives for one cohort and target; between its numbers of labels the score is taken to
    be linear in their logarithm.
    """
    score = table[(table["row"] == row) & (table["labels"] == labels)]["score"].iloc[0]
    curve = table[table["row"] == other].sort_values("labels")
    reached = np.flatnonzero(curve["score"].to_numpy() >= score)
    if not len(reached):
        return float("nan")
    between = curve.iloc[max(reached[0] - 1, 0) : reached[0] + 1]
    return float(np.exp(np.interp(score, between["score"], np.log(between["labels"]))))


def curve_sentences(table: pd.DataFrame, label: dict[str, str], best: Sequence[str]) -> list[str]:
    """ "At k labels, A is where B is at m", for the best row of each cohort and target against each other row."""
    said = []
    for (cohort, target), part in table.groupby(["cohort", "target"], sort=False):
        k = int(part["labels"].min())
        first = part[part["labels"] == k].sort_values("score", ascending=False)["row"]
        for other in [row for row in first.iloc[1:] if row in best]:
            needed = equivalent_labels(part, first.iloc[0], other, k)
            more = f"at {needed:.0f}" if np.isfinite(needed) else f"at more than {int(part['labels'].max())}"
            said.append(f"{cohort}, {target}: at {k} labels, {label[first.iloc[0]]} is where {label[other]} is {more}.")
    return said
