"""Train here, test there: two cohorts as one, of which the first is only trained on and the second only tested."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveWarning, known_columns, listed, problem
from nerve._utils.privacy import shared_levels
from nerve.data.cohort import Cohort
from nerve.data.lazy_arrays import Stack
from nerve.evaluation.covariates import is_numeric, motion_column
from nerve.evaluation.participants import Participants, prepare_participants
from nerve.evaluation.protocol import AUTO, Protocol


def joined(train: Cohort, test: Cohort) -> Cohort:
    """Both cohorts under the name of the second, regions matched by label; the participants of the first come first.

    An id that stands in both is taken to be of two participants, and that of the first gets the name of its cohort
    (behind a space, so that its place in the order of ids stays).
    """
    ids = train.participants["participant_id"]
    twice = ids.isin(test.participants["participant_id"])
    renamed = train.subset(np.arange(len(train)))
    renamed.participants["participant_id"] = ids.where(~twice, ids + f" ({train.name})")
    return Cohort.concat([renamed, test.align(train.parcellation)], name=test.name)


def prepare_transfer(
    train: Cohort, test: Cohort, protocol: Protocol
) -> tuple[Cohort, Participants, Protocol]:
    """Both cohorts as one, its participants with folds that train on the first and test on the second, the protocol.

    Whoever of the first shares a family or their FC with a participant of the second is not trained on.
    """
    _check_tables(train, test, protocol)
    both = joined(train, test)
    only_trained_on = np.arange(len(both)) < len(train)
    participants, protocol = prepare_participants(
        both, replace(protocol, n_repeats=1), only_trained_on
    )
    n_training = participants.targets[only_trained_on].notna().sum()
    for target in n_training.index[n_training < 2]:
        found = f"{n_training[target]} participants of {train.name!r} are left to train on for {target!r}"
        remedy = "Those who share a family or their FC with someone tested are not trained on: test other participants."
        raise problem(
            f"{train.name!r} and {test.name!r}", found, expected="at least two", remedy=remedy
        )
    return both, replace(participants, trained_on=train.name), protocol


def shared_participants(cohort: Cohort, other: Cohort) -> np.ndarray:
    """Which participants of a cohort have their FC in another cohort too.

    Parameters
    ----------
    cohort, other : Cohort
        Of the same regions, in any order.

    Returns
    -------
    (n,) booleans
    """
    other = other.align(cohort.parcellation)
    stack = Stack.concat([Stack.of(cohort.connectivity), Stack.of(other.connectivity)])
    # numbers instead of ids, which may stand in both cohorts
    numbers = pd.DataFrame({"participant_id": [str(i) for i in range(len(stack))]})
    n = len(cohort)
    shared = np.zeros(n, bool)
    for rows in Cohort(stack, numbers, cohort.parcellation).same_matrices():
        if rows.min() < n <= rows.max():
            shared[rows[rows < n]] = True
    return shared


def _check_tables(train: Cohort, test: Cohort, protocol: Protocol) -> None:
    """Refuse a column that one cohort lacks, or that holds something else there."""
    here, there = train.participants, test.participants
    for cohort, other in ((train, there), (test, here)):
        where = f"participants of {cohort.name!r}"  # of the second, after the loop
        known_columns(protocol.columns, cohort.participants.columns, where)
        motion = motion_column(other.columns)
        if protocol.motion == AUTO and motion and motion not in cohort.participants:
            found = f"there is no column {motion!r}, head motion, which the other cohort has"
            raise problem(where, found, remedy="Add it under that name, or say --motion none.")
    for name in dict.fromkeys([*protocol.targets, *protocol.covariates, *protocol.preserve]):
        if there[name].isna().all():
            raise problem(
                where, f"{name!r} is missing for everyone", remedy="Fill it in, or leave it out."
            )
        if is_numeric(here[name]) != is_numeric(there[name]):
            kind = "numbers" if is_numeric(there[name]) else "words"
            raise problem(
                where, f"{name!r} holds {kind}", expected=f"what it holds in {train.name!r}"
            )
    for name in protocol.covariates:
        if is_numeric(here[name]):
            continue
        words = there[name].dropna().astype(str)
        unknown = words[~words.isin(set(here[name].dropna().astype(str)))]
        if len(unknown):
            named = listed(shared_levels(unknown), most=4)
            warnings.warn(
                f"{len(unknown)} of {len(there)} {where} have a value of {name!r} that "
                f"{train.name!r} lacks{f' ({named})' if named else ''}. For them it counts as "
                "missing, as the average of the training participants.",
                NerveWarning,
                stacklevel=2,
            )
    for name in protocol.targets:
        known = set(here[name].dropna())
        strange = sorted(set(there[name].dropna()) - known, key=str)
        if strange and (len(known) < 3 or not is_numeric(here[name]) or name in protocol.classes):
            wanted = f"only classes to train on: {listed(sorted(known, key=str), most=6)}"
            found, remedy = (
                f"class {listed(strange, most=5)}",
                "Write the classes alike in both cohorts.",
            )
            raise problem(f"{where}, target {name!r}", found, expected=wanted, remedy=remedy)
