"""Train on one cohort and test on another: both are joined into one cohort with one fold."""

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


def prepare_transfer(
    train: Cohort, test: Cohort, protocol: Protocol
) -> tuple[Cohort, Participants, Protocol]:
    """Join two cohorts, with folds that train on the first and test on the second.

    Participants of the first cohort who share a family or their FC with a participant of the second
    are left out.

    Parameters
    ----------
    train, test : Cohort
        Of the same regions, in any order.
    protocol : Protocol
        Its columns must be in both.

    Returns
    -------
    cohort : Cohort
        Both under the name of the second; the training cohort comes first.
    participants : Participants
        Of both, with folds.
    protocol : Protocol
        With motion and preserved columns by name.
    """
    _check_tables(train, test, protocol)
    both = _join(train, test)
    only_trained_on = np.arange(len(both)) < len(train)
    participants, protocol = prepare_participants(
        both, replace(protocol, n_repeats=1), only_trained_on
    )
    n_training = participants.targets[only_trained_on].notna().sum()
    for target in n_training.index[n_training < 2]:
        raise problem(
            f"{train.name!r} and {test.name!r}",
            f"{n_training[target]} participants of {train.name!r} are left to train on for "
            f"{target!r}",
            expected="at least two",
            remedy="Participants who share a family or their FC with a tested participant are not "
            "trained on: test other participants.",
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
        True for such participants.
    """
    other = other.align(cohort.parcellation)
    stack = Stack.concat([Stack.of(cohort.connectivity), Stack.of(other.connectivity)])
    # numbers instead of ids, because an id may be in both cohorts
    numbers = pd.DataFrame({"participant_id": [str(i) for i in range(len(stack))]})
    n = len(cohort)
    shared = np.zeros(n, bool)
    for rows in Cohort(stack, numbers, cohort.parcellation).same_matrices():
        if rows.min() < n <= rows.max():
            shared[rows[rows < n]] = True
    return shared


def _join(train: Cohort, test: Cohort) -> Cohort:
    """Both cohorts under the name of the second, regions matched by label; the first comes first.

    An id that is in both cohorts is taken to be of two participants. In the first cohort, the name
    of the cohort is added to it (after a space, which keeps its place in the sorted ids).
    """
    ids = train.participants["participant_id"]
    in_both = ids.isin(test.participants["participant_id"])
    renamed = train.subset(np.arange(len(train)))
    renamed.participants["participant_id"] = ids.where(~in_both, ids + f" ({train.name})")
    if train.name == test.name:
        # recentring by cohort tells cohorts apart by their names
        renamed.name = f"{train.name} (training)"
    return Cohort.concat([renamed, test.align(train.parcellation)], name=test.name)


def _check_tables(train: Cohort, test: Cohort, protocol: Protocol) -> None:
    """Refuse columns that one cohort lacks, or that hold something else there."""
    for cohort, other in ((train, test), (test, train)):
        where = f"participants of {cohort.name!r}"
        known_columns(protocol.columns, cohort.participants.columns, where)
        motion = motion_column(other.participants.columns)
        if protocol.motion == AUTO and motion and motion not in cohort.participants:
            raise problem(
                where,
                f"there is no column {motion!r}, head motion, which the other cohort has",
                remedy="Add it under that name, or say --motion none.",
            )

    where = f"participants of {test.name!r}"
    for name in dict.fromkeys([*protocol.targets, *protocol.covariates, *protocol.preserve]):
        training_column = train.participants[name]
        test_column = test.participants[name]
        if test_column.isna().all():
            raise problem(where, f"{name!r} has no values", remedy="Fill it in, or leave it out.")
        if is_numeric(training_column) != is_numeric(test_column):
            content = "numbers" if is_numeric(test_column) else "words"
            raise problem(
                where, f"{name!r} holds {content}", expected=f"what it holds in {train.name!r}"
            )
    for name in protocol.covariates:
        training_column = train.participants[name]
        if is_numeric(training_column):
            continue
        words = test.participants[name].dropna().astype(str)
        unknown_words = words[~words.isin(set(training_column.dropna().astype(str)))]
        if len(unknown_words):
            levels = listed(shared_levels(unknown_words), most=4)
            examples = f" ({levels})" if levels else ""
            warnings.warn(
                f"{len(unknown_words)} of {len(test)} {where} have a value of {name!r} that "
                f"{train.name!r} lacks{examples}. For them it counts as missing, as the average of "
                "the training participants.",
                NerveWarning,
                stacklevel=2,
            )
    for name in protocol.targets:
        training_column = train.participants[name]
        training_values = set(training_column.dropna())
        unknown = sorted(set(test.participants[name].dropna()) - training_values, key=str)
        are_words = not is_numeric(training_column)
        has_classes = len(training_values) < 3 or are_words or name in protocol.classes
        if unknown and has_classes:
            raise problem(
                f"{where}, target {name!r}",
                f"class {listed(unknown, most=5)}",
                expected="only classes to train on: "
                f"{listed(sorted(training_values, key=str), most=6)}",
                remedy="Write the classes alike in both cohorts.",
            )
