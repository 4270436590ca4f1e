"""Learning curves: scores over the number of labelled participants, equal draws for all rows."""

from __future__ import annotations

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

# participants left to be tested on
_LEAST_TEST = 10


class Draw(NamedTuple):  # numpydoc ignore=PR02
    """One draw of labelled and tested participants, for targets that the same participants have.

    Parameters
    ----------
    number : int
        Of the draw, from 0.
    targets : list of int
        Columns of the targets.
    pool : (k,) integers
        Positions of max(k) participants, from whom everything is learned.
    test : (m,) integers
        Positions of those tested, none of whom shares a group with the pool.
    labelled : dict
        Target → places in the pool, in the order in which participants get labels.
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

    In each of `protocol.n_draws` draws a pool of max(k) participants is drawn, stratified by the
    targets; of them the first k are labelled, for every k. All others are tested, except those who
    share a group (a family, or the same FC) with the pool: they are left out. Whatever a row learns
    without labels inside folds, it learns here from the pool, once for all targets that the same
    participants have.

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
    model = features.model
    participants = participants.without(features.missing)
    names = [str(name) for name in participants.targets]
    columns = [
        participants.class_columns.get(name, name) for name in names
    ]  # of the participants table
    raw = participants.targets.to_numpy(float)  # (n, T)
    covariates = participants.covariates if features.removes_covariates else None
    precomputed = getattr(model, "kernel", "") == "precomputed"
    rows = []
    with naming_participants(participants.ids):
        shared = _draws_that_share_features(participants, protocol, features)
        for draw, targets in progress_bar(shared, label="learning curves", unit="draws"):
            unread = list(dict.fromkeys(columns[target] for target in targets))
            pool_features, test_features = features.split(draw.pool, draw.test, unread)
            for target in targets:
                for k in protocol.labels:
                    first = draw.labelled[target][:k]
                    train = draw.pool[first]
                    training_part = _rows(pool_features, first)
                    test_part = test_features
                    if precomputed:  # a kernel has a column for each of the pool
                        training_part = training_part[:, first]
                        test_part = test_part[:, first]
                    values, _ = remove_covariates(
                        raw[:, target], columns[target], train, draw.test, covariates
                    )
                    task = FoldTask(
                        fold=draw.number,
                        names=[names[target]],
                        train=train,
                        test=draw.test,
                        values=values[:, None],
                        strata=None,
                        features=(training_part, test_part),
                    )
                    # inner folds keep families whole; k participants may be of too few sites
                    predicted = fit_and_predict(
                        model, task, values[train, None], participants.groups
                    )[:, 0]
                    metric, score = _score(raw[:, target], values, draw.test, predicted)
                    rows.append((participants.cohort, names[target], k, draw.number, metric, score))
    table = pd.DataFrame(rows, columns=["cohort", "target", "labels", "draw", "metric", "score"])
    by_target = table["target"].map(names.index).argsort(kind="stable")
    return table.iloc[by_target].reset_index(drop=True)


def draws(participants: Participants, protocol: Protocol) -> list[Draw]:
    """All draws. They depend only on who has which target, so that they are equal for all rows.

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
    raw = participants.targets.to_numpy(float)
    columns = [
        participants.class_columns.get(str(name), str(name)) for name in participants.targets
    ]
    shared = []
    for draw in draws(participants, protocol):
        own_columns = [columns[target] for target in draw.targets]
        for places in group_targets(raw[:, draw.targets], own_columns, features.columns):
            shared.append((draw, [draw.targets[place] for place in places]))
    return shared


def _draws_of_targets(
    targets: list[int], participants: Participants, protocol: Protocol
) -> Iterator[Draw]:
    """The draws of targets that the same participants have."""
    raw = participants.targets.to_numpy(float)
    most = max(protocol.labels)
    known = participants.order[np.isfinite(raw[participants.order, targets[0]])]
    if participants.trained_on:
        # no relatives of tested participants are trained on (`transfer.py`): all are drawn alone
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
    for number in range(protocol.n_draws):
        seed = [protocol.seed, number]
        place = _stratified_places(joint_strata.reshape(-1), np.random.default_rng(seed))
        # a group stands where its first member does, so that large groups come no sooner than small
        order = np.lexsort((place, groups, place[first_member][groups]))
        pool = order[:most]
        pool = pool[np.argsort(place[pool], kind="stable")]
        if participants.trained_on:
            test = other_cohort
        else:
            others = order[most:]
            unrelated = others[~np.isin(groups[others], groups[pool])]
            test = candidates[unrelated]
        if len(pool) < most or len(test) < _LEAST_TEST:
            name = participants.targets.columns[targets[0]]
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
        if len(targets) > 1:  # the pool is stratified by all targets at once, its beginning by each
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


def _rows(features: Any, places: np.ndarray) -> Any:
    """Features at these places: rows of an array, a table or a cohort."""
    return features.iloc[places] if isinstance(features, pd.DataFrame) else features[places]


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
    """How many labels another row needs for the score that a row has with so many.

    Between numbers of labels the score is taken to be linear in their logarithm.

    Parameters
    ----------
    table : DataFrame
        What `curve_table` gives, for one cohort and target.
    row, other : str
        Ids of rows.
    labels : int
        Labels of `row`.

    Returns
    -------
    float
        Labels of `other`; NaN where it never reaches the score.
    """
    score = table[(table["row"] == row) & (table["labels"] == labels)]["score"].iloc[0]
    curve = table[table["row"] == other].sort_values("labels")
    reached = np.flatnonzero(curve["score"].to_numpy() >= score)
    if not len(reached):
        return float("nan")
    between = curve.iloc[max(reached[0] - 1, 0) : reached[0] + 1]
    return float(np.exp(np.interp(score, between["score"], np.log(between["labels"]))))


def curve_sentences(table: pd.DataFrame, label: dict[str, str], best: Sequence[str]) -> list[str]:
    """Sentences "at k labels, A is where B is at m", where A is best with the fewest labels.

    Parameters
    ----------
    table : DataFrame
        What `curve_table` gives.
    label : dict
        Row → what it is called.
    best : sequence of str
        Rows that A is compared with.

    Returns
    -------
    list of str
        One per cohort, target and row that A is compared with.
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
