"""Learning curves: scores over the number of labelled participants; all rows have the same draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from nerve._utils.errors import naming_participants, problem
from nerve._utils.progress import progress_bar
from nerve.evaluation.bootstrap import correlation, weighted_auc
from nerve.evaluation.cross_validation import (
    FoldTask,
    fit_and_predict,
    group_targets,
    remove_covariates,
)
from nerve.evaluation.feature_sets import FeatureSet
from nerve.evaluation.folds import group_codes, strata_of
from nerve.evaluation.participants import Participants
from nerve.evaluation.predictions_table import is_binary
from nerve.evaluation.protocol import Protocol

# the smallest number of test participants
_LEAST_TEST = 10


class Draw(NamedTuple):  # numpydoc ignore=PR02
    """One draw of labelled and tested participants, for targets that the same participants have.

    Parameters
    ----------
    number : int
        Of the draw, from 0.
    targets : list of int
        Positions of the targets among the columns of `Participants.targets`.
    pool : (k,) integers
        Positions of the max(k) participants from whom everything is learned.
    test : (m,) integers
        Positions of the test participants, none of whom shares a group with the pool.
    labelled : dict
        Target → places in the pool, in the order in which participants are labelled.
    """

    number: int
    targets: list[int]
    pool: np.ndarray
    test: np.ndarray
    labelled: dict[int, np.ndarray]


def learning_curve(
    features: FeatureSet, participants: Participants, protocol: Protocol
) -> pd.DataFrame:
    """The score of each target with k labelled participants, for each k of `protocol.labels`.

    In each of `protocol.n_draws` draws, a pool of max(k) participants is drawn, stratified by the
    targets, and for every k the first k of the pool are labelled. All others are tested, except
    those who share a group (a family, or the same FC) with the pool: they are left out. What a row
    learns without labels inside folds, it learns here from the pool, once for all targets that the
    same participants have.

    Parameters
    ----------
    features : FeatureSet
        Prepared.
    participants : Participants
        With targets, covariates and groups.
    protocol : Protocol
        With `labels`, `n_draws` and the seed.

    Returns
    -------
    DataFrame
        cohort, target, labels, draw, metric (r, or auc for two-class targets), score.
    """
    participants = participants.without_targets_of(features.missing)
    names = [str(name) for name in participants.targets]
    source_columns = _source_columns(participants)
    raw = participants.targets.to_numpy(float)  # (n, T)
    covariates = participants.covariates if features.removes_covariates else None
    is_kernel = getattr(features.model, "kernel", "") == "precomputed"
    rows = []
    with naming_participants(participants.ids):
        shared = _draws_that_share_features(participants, protocol, features)
        for draw, targets in progress_bar(shared, label="learning curves", unit="draws"):
            predicted_columns = list(dict.fromkeys(source_columns[target] for target in targets))
            of_pool, of_test = features.split(draw.pool, draw.test, predicted_columns)
            for target, k in itertools.product(targets, protocol.labels):
                labelled = draw.labelled[target][:k]
                train = draw.pool[labelled]
                values, _ = remove_covariates(
                    raw[:, target], source_columns[target], train, draw.test, covariates
                )
                task = FoldTask(
                    fold=draw.number,
                    names=[names[target]],
                    train=train,
                    test=draw.test,
                    values=values[:, None],
                    strata=None,
                    features=_labelled_part(of_pool, of_test, labelled, is_kernel),
                )
                # inner folds keep families whole; sites are not used, since k participants may be
                # of too few of them
                predicted = fit_and_predict(
                    features.model, task, values[train, None], participants.groups
                )[:, 0]
                metric, score = _score(raw[:, target], values, draw.test, predicted)
                rows.append((participants.cohort, names[target], k, draw.number, metric, score))
    table = pd.DataFrame(rows, columns=["cohort", "target", "labels", "draw", "metric", "score"])
    by_target = table["target"].map(names.index).argsort(kind="stable")
    return table.iloc[by_target].reset_index(drop=True)


def draws(participants: Participants, protocol: Protocol) -> list[Draw]:
    """All draws. They depend only on which participants have which target, not on the features.

    Parameters
    ----------
    participants : Participants
        With targets and groups.
    protocol : Protocol
        With `labels`, `n_draws` and the seed.

    Returns
    -------
    list of Draw
        `n_draws` for each set of targets that the same participants have.
    """
    raw = participants.targets.to_numpy(float)
    all_draws: list[Draw] = []
    for targets in group_targets(raw, [str(name) for name in participants.targets]):
        all_draws += _draws_of_targets(targets, participants, protocol)
    return all_draws


def _draws_that_share_features(
    participants: Participants, protocol: Protocol, features: FeatureSet
) -> list[tuple[Draw, list[int]]]:
    """Each draw with those of its targets that can share features (`group_targets`)."""
    raw = participants.targets.to_numpy(float)  # (n, T)
    source_columns = _source_columns(participants)
    shared = []
    for draw in draws(participants, protocol):
        columns = [source_columns[target] for target in draw.targets]
        for positions in group_targets(raw[:, draw.targets], columns, features.columns):
            shared.append((draw, [draw.targets[position] for position in positions]))
    return shared


def _source_columns(participants: Participants) -> list[str]:
    """For each target, the column of the participants table that it comes from."""
    names = [str(name) for name in participants.targets]
    return [participants.class_columns.get(name, name) for name in names]


def _draws_of_targets(
    targets: list[int], participants: Participants, protocol: Protocol
) -> Iterator[Draw]:
    """The draws of targets that the same participants have."""
    raw = participants.targets.to_numpy(float)
    most = max(protocol.labels)
    known = participants.order[np.isfinite(raw[participants.order, targets[0]])]
    if participants.trained_on:
        # relatives of tested participants have no targets (`prepare_participants`), and relatives
        # among the candidates may be drawn one by one
        is_tested = participants.tested[known]
        candidates = known[~is_tested]
        other_cohort = known[is_tested]
        labels = None
    else:
        candidates = known
        labels = None if participants.groups is None else participants.groups[known]
    groups = group_codes(labels, len(candidates))
    _, first_member = np.unique(groups, return_index=True)
    strata = {target: strata_of(raw[candidates, target], 5) for target in targets}
    every_stratum = np.column_stack(list(strata.values()))
    _, joint_strata = np.unique(every_stratum, axis=0, return_inverse=True)
    name = participants.targets.columns[targets[0]]
    if len(candidates) < most:
        cohort = participants.trained_on or participants.cohort
        raise problem(
            "labels",
            f"{most} labelled participants were asked for, and {len(candidates)} of {cohort!r} "
            f"with {name!r} can be labelled",
            expected=f"at most {len(candidates)}",
            remedy="Ask for fewer labels.",
        )
    for number in range(protocol.n_draws):
        seed = [protocol.seed, number]
        place = _stratified_places(joint_strata.reshape(-1), np.random.default_rng(seed))
        # a group is placed where its first member is, so that large groups do not come first
        order = np.lexsort((place, groups, place[first_member][groups]))
        pool = order[:most]
        pool = pool[np.argsort(place[pool], kind="stable")]
        if participants.trained_on:
            test = other_cohort
        else:
            others = order[most:]
            unrelated = others[~np.isin(groups[others], groups[pool])]
            test = candidates[unrelated]
        if len(test) < _LEAST_TEST:
            left_out = ""
            if participants.groups is not None:
                left_out = ", relatives of labelled ones left out"
            raise problem(
                "labels",
                f"{most} labelled participants leave {len(test)} of the {len(known)} who have "
                f"{name!r} to be tested on{left_out}",
                expected=f"at least {_LEAST_TEST}",
                remedy="Ask for fewer labels.",
            )
        labelled = {targets[0]: np.arange(most)}
        if len(targets) > 1:
            # the pool is stratified by all targets at once; its first k, for each target by itself
            for target in targets:
                own_place = _stratified_places(strata[target][pool], np.random.default_rng(seed))
                labelled[target] = np.argsort(own_place, kind="stable")
        yield Draw(number, targets, candidates[pool], test, labelled)


def _stratified_places(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random place between 0 and 1 for each participant, (n,).

    The participants in the first places have each stratum in its proportion.
    """
    place = np.empty(len(strata))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        place[rng.permutation(members)] = (np.arange(len(members)) + rng.random()) / len(members)
    return place


def _labelled_part(
    of_pool: Any, of_test: Any, labelled: np.ndarray, is_kernel: bool
) -> tuple[Any, Any]:
    """Features of labelled and of test participants; an array, a table, a cohort or a kernel."""
    if is_kernel:
        # its columns are the participants of the pool
        return of_pool[labelled][:, labelled], of_test[:, labelled]
    if isinstance(of_pool, pd.DataFrame):
        return of_pool.iloc[labelled], of_test
    return of_pool[labelled], of_test


def _score(
    raw: np.ndarray, values: np.ndarray, test: np.ndarray, predicted: np.ndarray
) -> tuple[str, float]:
    """The name and value of the score: AUC of two classes, otherwise r after covariates."""
    if is_binary(raw[np.isfinite(raw)]):
        once = np.ones((1, len(test)))
        return "auc", float(weighted_auc(once, raw[test] == 1, predicted)[0])
    return "r", correlation(values[test], predicted)


def curve_table(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean and 95 % interval over draws, per cohort, target, row and number of labels."""
    grouped = curves.groupby(["cohort", "target", "row", "metric", "labels"], sort=False)["score"]
    columns = {
        "score": grouped.mean(),
        "low": grouped.quantile(0.025),
        "high": grouped.quantile(0.975),
    }
    return pd.DataFrame(columns).reset_index()


def equivalent_labels(table: pd.DataFrame, row: str, other: str, labels: int) -> float:
    """How many labels another row needs to reach the score of a row.

    Between two numbers of labels, the score is interpolated linearly over the logarithm of labels.

    Parameters
    ----------
    table : DataFrame
        What `curve_table` gives, for one cohort and target.
    row, other : str
        Ids of rows.
    labels : int
        Number of labels of `row`.

    Returns
    -------
    float
        Number of labels of `other`; NaN where it never reaches the score.
    """
    score = table[(table["row"] == row) & (table["labels"] == labels)]["score"].iloc[0]
    curve = table[table["row"] == other].sort_values("labels")
    reached = np.flatnonzero(curve["score"].to_numpy() >= score)
    if not len(reached):
        return float("nan")
    between = curve.iloc[max(reached[0] - 1, 0) : reached[0] + 1]
    return float(np.exp(np.interp(score, between["score"], np.log(between["labels"]))))


def curve_sentences(table: pd.DataFrame, label: dict[str, str], best: Sequence[str]) -> list[str]:
    """Sentences "at k labels, A is where B is at m": k is the fewest labels, A the best row there.

    Parameters
    ----------
    table : DataFrame
        What `curve_table` gives.
    label : dict
        Row → what it is called.
    best : sequence of str
        Rows that are compared with A.

    Returns
    -------
    list of str
        One per cohort, target and row that is compared with A.
    """
    sentences = []
    for (cohort, target), part in table.groupby(["cohort", "target"], sort=False):
        k = int(part["labels"].min())
        ranked = part[part["labels"] == k].sort_values("score", ascending=False)["row"].tolist()
        first = ranked[0]
        for other in ranked[1:]:
            if other not in best:
                continue
            needed = equivalent_labels(part, first, other, k)
            if np.isfinite(needed):
                count = f"{needed:.0f}"
            else:
                count = f"more than {int(part['labels'].max())}"
            sentences.append(
                f"{cohort}, {target}: at {k} labels, {label[first]} is where {label[other]} is "
                f"at {count}."
            )
    return sentences
