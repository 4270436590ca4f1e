"""A cohort's participants table made ready: targets as numbers, covariates, families, sites and folds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import known_columns, listed, problem
from nerve._utils.numbers import as_numbers, odd_cells
from nerve._utils.privacy import Note
from nerve.data.cohort import Cohort
from nerve.data.duplicates import SAME
from nerve.evaluation.combat import in_subset, sites_of
from nerve.evaluation.covariates import CovariateRegression, is_numeric, motion_column, written
from nerve.evaluation.folds import (
    NO_FOLD,
    ONLY_TRAINED_ON,
    group_codes,
    leave_groups_out,
    strata_of,
    stratified_folds,
)
from nerve.evaluation.protocol import AUTO, NONE, Protocol
from nerve.evaluation.rows import class_target

LEAST_SPREAD, MOST_SPREAD = (
    1e-100,
    1e100,
)  # of a target: beyond, its squares leave the range of numbers
LAST_DIGITS = 1e-12  # a spread of this share of the values leaves few digits of float64

Classes = dict[str, tuple[str, str]]  # of two-class targets: what 0 and 1 stand for


@dataclass(frozen=True)
class Participants:
    """What an evaluation knows of the participants; every method is given the same one."""

    cohort: str
    ids: np.ndarray  # (n,)
    targets: (
        pd.DataFrame
    )  # (n, T) numbers; a column of three or more classes gives one target per class
    classes: Classes
    whole: dict[str, str]  # of a class against all others: the column that it is a class of
    covariates: pd.DataFrame  # (n, p)
    table: pd.DataFrame  # all participants' columns
    groups: (
        np.ndarray | None
    )  # families and participants of the same FC: on one side of folds, draws, resamples
    sites: np.ndarray | None
    inner_groups: (
        np.ndarray | None
    )  # what inner folds keep whole: sites when whole sites are left out
    motion: str | None
    folds: np.ndarray  # (repeats, n)
    notes: tuple[str, ...]
    trained_on: str = (
        ""  # the cohort that is only trained on, where another is tested: see `transfer.py`
    )

    @property
    def tested(self) -> np.ndarray:
        """Who is in a fold, (n,) booleans; where another cohort is trained on, its participants are not."""
        return self.folds[0] >= 0 if self.trained_on else np.ones(len(self.ids), bool)

    @property
    def order(self) -> np.ndarray:
        """Positions of the participants by id, (n,): random draws follow this order, not that of the table."""
        return _by_id(self.ids)

    def only(self, column: str) -> Participants:
        """The same participants with one column to predict, all of its classes."""
        mine = [name for name in map(str, self.targets) if self.whole.get(name, name) == column]
        return replace(self, targets=self.targets[mine])

    def without(self, missing: np.ndarray | None) -> Participants:
        """The same participants, with no targets for those whose features are missing."""
        if missing is None:
            return self
        return replace(
            self, targets=self.targets.mask(pd.Series(missing, index=self.targets.index))
        )


def prepare_participants(
    cohort: Cohort, protocol: Protocol, only_trained_on: np.ndarray | None = None
) -> tuple[Participants, Protocol]:
    """Check columns, code targets, choose covariates and make folds.

    Parameters
    ----------
    cohort : Cohort
    protocol : Protocol
    only_trained_on : (n,) booleans, optional
        Where another cohort is tested (`transfer.py`): the participants of the first one. Then there is one fold, of
        all others.

    Returns
    -------
    tuple
        The participants, and the protocol with motion and preserved columns resolved.
    """
    table, where = cohort.participants, f"participants of {cohort.name!r}"
    known_columns(protocol.columns, table.columns, where)
    _check_sites(table, protocol, where)
    protocol, notes = _resolved(protocol, table, where)
    table = _in_numbers(table, protocol, where)
    targets, classes, whole = code_targets(table, protocol)
    covariates, sites = table[list(protocol.covariates)].copy(), None
    if protocol.site:  # a site number is a name, not a quantity
        known = table[protocol.site].notna()
        table = table.assign(**{protocol.site: table[protocol.site].astype(str)})
        sites = table[protocol.site].to_numpy(object)
        if protocol.site in covariates:
            covariates[protocol.site] = table[protocol.site].where(known)
    for name in covariates.columns[covariates.isna().all()]:
        raise problem(f"covariate {name!r}", "every value is missing", remedy="Leave it out.")
    notes += _notes(cohort.participants, targets, covariates, whole, protocol)

    ids = table["participant_id"].to_numpy(object)
    groups, duplicate_notes = _families_and_duplicates(cohort, protocol.groups)
    notes += duplicate_notes
    in_training = np.ones(len(ids), bool) if only_trained_on is None else only_trained_on
    left_out: dict[str, np.ndarray] = {}  # (n,) booleans, by whom participants are related to
    if only_trained_on is not None:
        left_out["participants who are tested"] = _related_to_others(groups, only_trained_on)
    if protocol.leave_site_out:  # inner folds are made of sites in transfer too
        counted = in_training & targets.notna().any(axis=1).to_numpy()
        for related in left_out.values():
            counted &= ~related
        left_out["participants of another site"] = _related_to_another_site(
            groups, sites, counted, _by_id(ids)
        )
    for whom, related in left_out.items():
        if related.any():
            count = f"{related.sum()} participant{'s' if related.sum() > 1 else ''}"
            notes.append(f"{count} left out: they share a family or their FC with {whom}.")
            targets = targets.mask(pd.Series(related, index=targets.index))

    if only_trained_on is None:
        folds = _folds(targets, protocol, _by_id(ids), groups, sites)
    else:
        folds = np.where(only_trained_on, ONLY_TRAINED_ON, 0)[None]
        folds[:, targets.isna().all(axis=1).to_numpy()] = NO_FOLD
    participants = Participants(
        cohort=cohort.name,
        ids=ids,
        targets=targets,
        classes=classes,
        whole=whole,
        covariates=covariates,
        table=table,
        groups=groups,
        sites=sites,
        inner_groups=sites if protocol.leave_site_out else groups,
        motion=None if protocol.motion == NONE else protocol.motion,
        folds=folds,
        notes=tuple(notes),
    )
    return participants, protocol


def groups_of(cohort: Cohort, column: str | None = None) -> pd.Series:
    """The group of each participant: those of one family, or of the same FC, have the same number.

    Folds keep these groups whole; `score_table(predictions, groups=groups_of(cohort))` resamples them whole.

    Parameters
    ----------
    cohort : Cohort
    column : str, optional
        The column of families.

    Returns
    -------
    Series
        Numbers, by participant_id.
    """
    labels, _ = _families_and_duplicates(cohort, column)
    return pd.Series(group_codes(labels, len(cohort)), index=cohort.participants["participant_id"])


def code_targets(
    table: pd.DataFrame, protocol: Protocol
) -> tuple[pd.DataFrame, Classes, dict[str, str]]:
    """All targets as numbers, what 0 and 1 stand for, and which of them are classes of which column."""
    values: dict[str, np.ndarray] = {}
    classes: Classes = {}
    whole: dict[str, str] = {}
    for name in protocol.targets:
        column, are_classes = table[name], not is_numeric(table[name]) or name in protocol.classes
        if (
            are_classes
            and name not in protocol.classes
            and column.nunique() > 2
            and len(odd_cells(column))
        ):
            column, are_classes = (
                as_numbers(table, [name], missing=protocol.non_numeric == "missing")[name],
                False,
            )
        if column.nunique() < 3 or not are_classes:
            values[name], pair = code_target(column, name, protocol.n_folds)
            classes |= {name: pair} if pair else {}
            continue
        least = 2 if protocol.leave_site_out else protocol.n_folds
        for label, member in code_classes(column, name, least).items():
            one = class_target(name, label)
            if one in protocol.targets or one in values:
                raise problem(
                    f"target {one!r}",
                    f"class {label!r} of target {name!r} has the same name",
                    expected="names that differ",
                    remedy="Rename one of the two columns, or the class.",
                )
            values[one], classes[one], whole[one] = member, ("others", label), name
    return pd.DataFrame(values), classes, whole


def code_classes(column: pd.Series, name: str, least: int = 2) -> dict[str, np.ndarray]:
    """Each class against all others: 1 for its members, 0 for other participants who have a value.

    Examples
    --------
    >>> code_classes(pd.Series(["a", "b", "c", None, "a", "b", "c"]), "group")["b"]
    array([ 0.,  1.,  0., nan,  0.,  1.,  0.])
    """
    labels = column.map(written, na_action="ignore")
    counts = labels.value_counts().sort_index()
    if (counts < least).any():
        small = listed((f"{label} ({n})" for label, n in counts[counts < least].items()), most=5)
        wanted = f"at least {least} of every class, so that each fold can have one"
        remedy = "Ask for fewer folds, join classes, or leave such participants empty (n/a)."
        raise problem(
            f"target {name!r}",
            f"class {small} has too few participants",
            expected=wanted,
            remedy=remedy,
        )
    return {
        label: (labels == label).astype(float).where(labels.notna()).to_numpy()
        for label in counts.index
    }


def code_target(
    column: pd.Series, name: str, n_folds: int = 2
) -> tuple[np.ndarray, tuple[str, str] | None]:
    """A target as numbers; two classes (text, true/false or two numbers) become 0 and 1, in sorted order.

    Examples
    --------
    >>> code_target(pd.Series(["M", "F", None, "F", "M"]), "sex")
    (array([ 1.,  0., nan,  0.,  1.]), ('F', 'M'))
    """
    where, present = f"target {name!r}", column.dropna()
    different, n = sorted(present.unique().tolist()), len(present)
    if len(different) < 2:
        found = f"every value is {different[0]!r}" if different else "every value is missing"
        raise problem(where, found, expected="values that differ", remedy="Leave it out.")
    if n < n_folds:
        found = f"there are values for {n} of {len(column)} participants"
        raise problem(
            where,
            found,
            expected=f"at least one for each of {n_folds} folds",
            remedy="Ask for fewer folds.",
        )
    if n - -(-n // n_folds) < 2:
        raise problem(
            where, f"it has values for {n}", expected="at least two to train on in every fold"
        )
    if is_numeric(column) and np.isinf(present.to_numpy(float)).any():
        raise problem(
            where, "a value is infinite", expected="numbers", remedy="Mark it as missing (n/a)."
        )
    if len(different) == 2:
        values = (column == different[1]).astype(float).where(column.notna()).to_numpy(float)
        return values, (written(different[0]), written(different[1]))
    spread = (
        different[-1] / 2 - different[0] / 2
    )  # halves: the difference of the largest numbers is none
    if not LEAST_SPREAD < spread < MOST_SPREAD:
        limits = f"between {LEAST_SPREAD:.0e} and {MOST_SPREAD:.0e}"
        raise problem(
            where,
            f"its values span {2 * spread:.0e}",
            expected=limits,
            remedy="Give it in other units.",
        )
    return column.to_numpy(float, na_value=np.nan), None


def _by_id(ids: np.ndarray) -> np.ndarray:
    return np.argsort(ids.astype(str), kind="stable")


def _folds(
    targets: pd.DataFrame, protocol: Protocol, order: np.ndarray, groups: Any, sites: Any
) -> np.ndarray:
    """Test fold of each participant in each repeat, (repeats, n); −1 for participants without any target.

    Made of the participants sorted by id: a table in another order gives the same folds.
    """
    rows = order[targets.notna().any(axis=1).to_numpy()[order]]
    folds = np.full((protocol.n_repeats, len(order)), NO_FOLD)
    strata = np.column_stack(
        [strata_of(column, protocol.n_folds) for column in targets.to_numpy(float)[rows].T]
    )
    groups = None if groups is None else groups[rows]
    for repeat in range(protocol.n_repeats):
        seed = protocol.seed + repeat
        if protocol.leave_site_out:
            folds[repeat, rows] = leave_groups_out(sites[rows], protocol.n_folds, seed)
        else:
            folds[repeat, rows] = stratified_folds(
                strata, protocol.n_folds, groups=groups, seed=seed
            )
    return folds


def _families_and_duplicates(
    cohort: Cohort, column: str | None
) -> tuple[np.ndarray | None, list[str]]:
    """Families, joined where participants have the same FC, and what is to be said of these participants.

    Returns (n,) labels, None for a participant who is alone, or no labels if everyone is.
    """
    ids = cohort.participants["participant_id"].to_numpy(object)
    families = cohort.participants[column].to_numpy(object) if column else None
    duplicates = cohort.same_matrices()
    if not duplicates:
        return families, []
    if len(duplicates[0]) == len(cohort):
        found = f"all {len(cohort)} participants have the same FC (correlations above {SAME})"
        remedy = "Check how the matrices were made, and run `nerve check`."
        raise problem(f"Cohort {cohort.name!r}", found, expected="FC that differs", remedy=remedy)
    codes = group_codes(families, len(cohort))
    labels = np.full(len(cohort), None, object)
    if families is not None:
        has_family = pd.notna(families)
        labels[has_family] = families[has_family].astype(str)
    for rows in duplicates:
        together = np.isin(codes, codes[rows])
        codes[together] = codes[rows[0]]
        known = [label for label in labels[together] if label is not None]
        labels[together] = known[0] if known else f"same FC as {ids[rows[0]]}"
    sentence = (
        f"The same FC under several ids, probably one participant each ({len(duplicates)}): they are kept together, as "
        "a family is. Leave all but one out"
    )
    copies = [" = ".join(map(str, ids[rows])) for rows in duplicates]
    return labels, [Note.about(sentence, copies, most=3)]


def _related_to_others(groups: np.ndarray | None, some: np.ndarray) -> np.ndarray:
    """Which of some participants share a group with one of the others, (n,) booleans."""
    codes = group_codes(groups, len(some))
    return some & np.isin(codes, codes[~some])


def _related_to_another_site(
    groups: np.ndarray | None, sites: Any, counted: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Who of those counted is left out so that no group spans two sites, (n,) booleans.

    A group keeps its members of one site: where most of them are, or else where the first of them is. Whole sites are
    tested, so that any other member would be trained on while relatives are tested.
    """
    table = pd.DataFrame({"group": group_codes(groups, len(order)), "site": sites}).iloc[order]
    table = table[counted[order]]
    n_sites = table.groupby("group")["site"].transform("nunique")
    spanning = table[n_sites > 1]
    n_members = spanning.groupby(["group", "site"])["site"].transform("size")
    first_of_largest = n_members.groupby(
        spanning["group"]
    ).idxmax()  # of each group, a row of the table
    kept_site = spanning["group"].map(first_of_largest).map(spanning["site"])
    left_out = np.zeros(len(order), bool)
    left_out[spanning.index[spanning["site"] != kept_site]] = True
    return left_out


def _resolved(protocol: Protocol, table: pd.DataFrame, where: str) -> tuple[Protocol, list[str]]:
    """The protocol with the column of motion and the preserved columns by name, and what is to be said of them."""
    notes, covariates, preserve = [], protocol.covariates, protocol.preserve
    motion = protocol.motion if protocol.motion != AUTO else motion_column(table.columns) or NONE
    if motion not in (NONE, *covariates, *protocol.targets):
        known_columns([motion], table.columns, where)
        covariates = (*covariates, motion)
        if protocol.motion == AUTO:
            notes.append(
                f"Head motion ({motion}) is a covariate because the cohort has it; --motion none leaves it out."
            )
    if protocol.combat and not preserve:
        preserve = tuple(
            column
            for column in table.columns
            if str(column).lower() in ("age", "sex", "age_at_scan")
        )
        notes.append(
            f"ComBat preserves {listed(preserve) or 'nothing (no column is called age or sex)'}."
        )
    return replace(protocol, motion=motion, covariates=covariates, preserve=preserve), notes


def _in_numbers(table: pd.DataFrame, protocol: Protocol, where: str) -> pd.DataFrame:
    """The table with covariates in numbers, but for categories; words among numbers are refused, or missing."""
    named = {protocol.site, protocol.groups, *protocol.targets}
    quantities = [name for name in (*protocol.covariates, *protocol.preserve) if name not in named]
    if protocol.non_numeric == "missing":
        table = as_numbers(table, quantities, missing=True)
    motion = protocol.motion
    if motion != NONE and not is_numeric(table[motion]):
        words = table[motion][
            pd.to_numeric(table[motion].astype(str), errors="coerce").isna() & table[motion].notna()
        ]
        found = (
            f"column {motion!r} holds {listed(map(repr, words), most=1) if len(words) else 'words'}"
        )
        remedy = "Mend it, or say --motion none."
        raise problem(where, found, expected="mean framewise displacement in mm", remedy=remedy)
    return as_numbers(table, quantities)


def _check_sites(table: pd.DataFrame, protocol: Protocol, where: str) -> None:
    """ComBat and folds of sites need everyone's site, and ComBat two participants of each to learn from."""
    if not (protocol.combat or protocol.leave_site_out):
        return
    sites = sites_of(table, str(protocol.site), where)
    learned_from = sites[in_subset(table, protocol.subset)] if protocol.combat_on else sites
    lonely = [site for site in np.unique(sites) if (learned_from == site).sum() < 2]
    if protocol.combat and lonely:
        of = f" with {protocol.combat_on}" if protocol.combat_on else ""
        found = f"site {listed(lonely, most=5)} has fewer than two participants{of}"
        raise problem(
            where, found, expected="at least two of every site", remedy="Leave them out, or ComBat."
        )


def _notes(
    table: pd.DataFrame,
    targets: pd.DataFrame,
    covariates: pd.DataFrame,
    whole: dict[str, str],
    protocol: Protocol,
) -> list[str]:
    """Who is left out, what counts as an average, and which targets have hardly anything that could be predicted."""
    gaps = table[list(protocol.targets)].isna().sum()
    left_out = f"of {len(table)} participants have no value and are left out."
    notes = [f"{name}: {n} {left_out}" for name, n in gaps.items() if n]
    for name, column in covariates.items():
        missing = (
            ~np.isfinite(column.to_numpy(float, na_value=np.nan))
            if is_numeric(column)
            else column.isna()
        ).sum()
        if missing:
            notes.append(
                f"Covariate {name}: {missing} missing or infinite values count as the training fold's average."
            )
    both = [name for name in protocol.targets if name in (*protocol.covariates, *protocol.preserve)]
    notes += (
        [f"{listed(both)}: a target is no covariate of itself; it is left out there."]
        if both
        else []
    )
    for name, column in targets.items():
        values, others = (
            column.dropna(),
            covariates.drop(columns=whole.get(str(name), name), errors="ignore"),
        )
        if np.ptp(values) < LAST_DIGITS * np.abs(values).max():
            notes.append(
                f"{name}: its values differ in their last digits only. Take a constant away from it first."
            )
        if others.shape[1] and np.ptp(values) > 0:
            known = others.loc[values.index]
            left = values - CovariateRegression().fit(known, values.to_numpy()).predict(known)
            if np.ptp(left) < 1e-8 * np.ptp(values):
                notes.append(
                    f"{name}: the covariates explain all of it. Nothing is left to predict: use fewer."
                )
    return notes
