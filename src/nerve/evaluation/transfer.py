"""Train here, test there: two cohorts as one, of which the first is only trained on and the second only tested."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from nerve.checks import known_columns, listed, problem
from nerve.cohort import Cohort
from nerve.evaluation.covariates import is_numeric, motion_column
from nerve.evaluation.folds import NO_FOLD, ONLY_TRAINED_ON
from nerve.evaluation.people import People, prepare_people
from nerve.protocol import AUTO, Protocol


def joined(train: Cohort, test: Cohort) -> Cohort:
    """Both cohorts under the name of the second, regions matched by label; the participants of the first come first.

    An id that stands in both is taken to be of two participants, and that of the first gets the name of its cohort
    (behind a space, so that its place in the order of ids stays).
    """
    ids = train.participants["participant_id"]
    twice = ids.isin(test.participants["participant_id"])
    renamed = train.subset(np.arange(len(train)))
    renamed.participants["participant_id"] = ids.where(~twice, ids + f" ({train.name})")
    both = Cohort.concat([renamed, test.align(train.parcellation)], name=test.name)
    for rows in both.same_matrices():
        if rows.min() < len(train) <= rows.max():
            names = listed(both.participants["participant_id"].iloc[rows])
            raise problem(
                f"{train.name!r} and {test.name!r}",
                f"the same FC stands in both ({names})",
                expected="other participants to test on than to train on",
                remedy="Leave them out of one.",
            )
    return both


def prepare_transfer(train: Cohort, test: Cohort, protocol: Protocol) -> tuple[Cohort, People, Protocol]:
    """Both cohorts as one, its participants with folds that train on the first and test on the second, the protocol."""
    _check_tables(train, test, protocol)
    both = joined(train, test)
    people, protocol = prepare_people(both, replace(protocol, n_repeats=1))
    tested = np.arange(len(both)) >= len(train)
    folds = np.where(tested, 0, ONLY_TRAINED_ON)
    folds[people.targets.isna().all(axis=1).to_numpy()] = NO_FOLD
    return both, replace(people, folds=folds[None], trained_on=train.name), protocol


def _check_tables(train: Cohort, test: Cohort, protocol: Protocol) -> None:
    """Refuse a column that one cohort lacks, or that holds something else there."""
    asked = [*protocol.targets, *protocol.covariates, *protocol.preserve]
    tables = [(f"participants of {one.name!r}", one.participants) for one in (train, test)]
    for where, table in tables:
        known_columns(
            [*asked, *(name for name in (protocol.groups, protocol.site, protocol.subset[0]) if name)],
            table.columns,
            where,
        )
    _check_motion(tables, protocol)
    (_, here), (where, there) = tables
    for name in dict.fromkeys(asked):
        if there[name].isna().all():
            raise problem(where, f"{name!r} is missing for everyone", remedy="Fill it in, or leave it out.")
        if is_numeric(here[name]) != is_numeric(there[name]):
            kind = "numbers" if is_numeric(there[name]) else "words"
            raise problem(where, f"{name!r} holds {kind}", expected=f"what it holds in {train.name!r}")
    for name in protocol.targets:
        _check_classes(here[name], there[name], name, where, name in protocol.classes)


def _check_motion(tables: list[tuple[str, pd.DataFrame]], protocol: Protocol) -> None:
    if protocol.motion != AUTO:
        return
    found = [motion_column(table.columns) for _, table in tables]
    if found[0] != found[1]:
        column = found[0] or found[1]
        raise problem(
            next(where for (where, _), own in zip(tables, found, strict=True) if own != column),
            f"there is no column {column!r}, head motion, which the other cohort has",
            remedy="Add it under that name, or say --motion none.",
        )


def _check_classes(here: pd.Series, there: pd.Series, name: str, where: str, are_classes: bool) -> None:
    known = set(here.dropna())
    if len(known) > 2 and is_numeric(here) and not are_classes:
        return
    strange = sorted(set(there.dropna()) - known, key=str)
    if strange:
        raise problem(
            f"{where}, target {name!r}",
            f"class {listed(strange, most=5)}",
            expected=f"only classes to train on: {listed(sorted(known, key=str), most=6)}",
            remedy="Write the classes alike in both cohorts.",
        )
