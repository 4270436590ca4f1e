"""A cohort's participants table made ready: targets as numbers, covariates, families, sites and folds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import known_columns, listed, problem
from nerve.cohort import Cohort
from nerve.evaluation.combat import in_subset
from nerve.evaluation.covariates import CovariateRegression, is_numeric, motion_column
from nerve.evaluation.folds import NO_FOLD, leave_groups_out, strata_of, stratified_folds
from nerve.evaluation.rows import class_target
from nerve.numbers import as_numbers, odd_cells
from nerve.protocol import AUTO, NONE, Protocol

LEAST_SPREAD, MOST_SPREAD = 1e-100, 1e100  # of a target: beyond, its squares leave the range of numbers
LAST_DIGITS = 1e-12  # a spread of this share of the values leaves few digits of float64


@dataclass(frozen=True)
class People:
    """What an evaluation knows of the participants; every method is given the same one."""

    cohort: str
    ids: np.ndarray  # (n,)
    targets: pd.DataFrame  # (n, T) numbers; a column of three or more classes gives one target per class
    classes: dict[str, tuple[str, str]]  # of two-class targets: what 0 and 1 stand for
    whole: dict[str, str]  # of a class against all others: the column that it is a class of
    covariates: pd.DataFrame  # (n, p)
    table: pd.DataFrame  # all participants' columns
    groups: np.ndarray | None  # families: kept whole in folds, bootstrap and permutations
    sites: np.ndarray | None
    inner_groups: np.ndarray | None  # what inner folds keep whole: sites when whole sites are left out
    motion: str | None
    folds: np.ndarray  # (repeats, n)
    notes: tuple[str, ...]
    trained_on: str = ""  # the cohort that is only trained on, where another is tested: see `transfer.py`

    @property
    def tested(self) -> np.ndarray:
        """Who is in a fold, (n,) booleans; where another cohort is trained on, its participants are not."""
        return self.folds[0] >= 0 if self.trained_on else np.ones(len(self.ids), bool)

    @property
    def order(self) -> np.ndarray:
        """Positions of the participants by id, (n,): random draws follow this order, not that of the table."""
        return np.argsort(self.ids.astype(str), kind="stable")

    def only(self, column: str) -> People:
        """The same participants with one column to predict, all of its classes."""
        mine = [name for name in map(str, self.targets) if self.whole.get(name, name) == column]
        return replace(self, targets=self.targets[mine])

    def without(self, missing: np.ndarray) -> People:
        """The same participants, with no targets for those whose features are missing."""
        return replace(self, targets=self.targets.mask(pd.Series(missing, index=self.targets.index)))


def prepare_people(cohort: Cohort, protocol: Protocol) -> tuple[People, Protocol]:
    """Check columns, code targets, choose covariates and make folds.

    Returns the participants and the protocol with motion and preserved columns resolved.
    """
    table = cohort.participants
    where = f"participants of {cohort.name!r}"
    optional = [name for name in (protocol.groups, protocol.site, protocol.subset[0]) if name]
    known_columns([*protocol.targets, *protocol.covariates, *protocol.preserve, *optional], table.columns, where)
    if protocol.site and (protocol.combat or protocol.leave_site_out) and table[protocol.site].isna().any():
        raise problem(
            where,
            f"column {protocol.site!r} is empty for {table[protocol.site].isna().sum()} of {len(table)} participants",
            expected="a site for everyone",
            remedy="Fill it in, or leave them out (cohort.subset).",
        )
    if protocol.combat:
        _check_sites(table, protocol, where)
    named = {protocol.site, protocol.groups, "participant_id", *protocol.targets}
    if protocol.non_numeric == "missing":
        table = as_numbers(table, [column for column in table if column not in named], missing=True)
    protocol, notes = _resolved(protocol, table, where)
    as_numbers(table, [name for name in (*protocol.covariates, *protocol.preserve) if name not in named])
    targets, classes, whole = code_targets(table, protocol)
    covariates = _covariates(table, protocol)
    notes += (
        _missing_notes(table[list(protocol.targets)], covariates)
        + _overlap_notes(protocol)
        + _doubtful_notes(targets, covariates, whole)
    )
    groups, twice = _one_fold_each(cohort, protocol)
    notes += twice
    sites = table[protocol.site].astype(str).to_numpy(object) if protocol.site else None
    people = People(
        cohort=cohort.name,
        ids=table["participant_id"].to_numpy(object),
        targets=targets,
        classes=classes,
        whole=whole,
        covariates=covariates,
        table=table.assign(**{protocol.site: table[protocol.site].astype(str)}) if protocol.site else table,
        groups=groups,
        sites=sites,
        inner_groups=sites if protocol.leave_site_out else groups,
        motion=None if protocol.motion == NONE else protocol.motion,
        folds=_folds_by_id(targets, protocol, table, groups),
        notes=tuple(notes),
    )
    return people, protocol


def code_targets(
    table: pd.DataFrame, protocol: Protocol
) -> tuple[pd.DataFrame, dict[str, tuple[str, str]], dict[str, str]]:
    """All targets as numbers, what 0 and 1 stand for, and which of them are classes of which column."""
    values: dict[str, np.ndarray] = {}
    classes: dict[str, tuple[str, str]] = {}
    whole: dict[str, str] = {}
    for name in protocol.targets:
        words = not is_numeric(table[name])
        if words and name not in protocol.classes and table[name].nunique() > 2 and len(odd_cells(table[name])):
            table, words = as_numbers(table, [name], missing=protocol.non_numeric == "missing"), False
        if table[name].nunique() < 3 or not (words or name in protocol.classes):
            values[name], pair = code_target(table[name], name, protocol.n_folds)
            classes |= {name: pair} if pair else {}
            continue
        for label, member in code_classes(
            table[name], name, 2 if protocol.leave_site_out else protocol.n_folds
        ).items():
            one = class_target(name, label)
            values[one], classes[one], whole[one] = member, ("others", label), name
    return pd.DataFrame(values), classes, whole


def code_classes(column: pd.Series, name: str, least: int = 2) -> dict[str, np.ndarray]:
    """Each class against all others: 1 for its members, 0 for other participants who have a value.

    Examples
    --------
    >>> code_classes(pd.Series(["a", "b", "c", None, "a", "b", "c"]), "group")["b"]
    array([ 0.,  1.,  0., nan,  0.,  1.,  0.])
    """
    labels = column.map(_label, na_action="ignore")
    counts = labels.value_counts()
    small = counts[counts < least].sort_index()
    if len(small):
        raise problem(
            f"target {name!r}",
            f"class {listed((f'{label} ({n})' for label, n in small.items()), most=5)} has too few participants",
            expected=f"at least {least} of every class, so that each fold can have one",
            remedy="Ask for fewer folds, join classes, or leave such participants empty (n/a).",
        )
    known = labels.notna().to_numpy()
    return {label: np.where(known, (labels == label).to_numpy(float), np.nan) for label in sorted(counts.index)}


def code_target(column: pd.Series, name: str, n_folds: int = 2) -> tuple[np.ndarray, tuple[str, str] | None]:
    """A target as numbers; two classes (text, true/false or two numbers) become 0 and 1, in sorted order.

    Examples
    --------
    >>> code_target(pd.Series(["M", "F", None, "F", "M"]), "sex")
    (array([ 1.,  0., nan,  0.,  1.]), ('F', 'M'))
    """
    where = f"target {name!r}"
    present = column.dropna()
    if present.empty:
        raise problem(where, "every value is missing", expected="numbers or classes", remedy="Leave it out.")
    different = sorted(present.unique().tolist())
    if len(different) == 1:
        raise problem(where, f"every value is {different[0]!r}", expected="values that differ", remedy="Leave it out.")
    if len(present) < n_folds:
        raise problem(
            where,
            f"there are values for {len(present)} of {len(column)} participants",
            expected=f"at least one for each of {n_folds} folds",
            remedy="Ask for fewer folds.",
        )
    if len(present) - -(-len(present) // n_folds) < 2:
        raise problem(where, f"it has values for {len(present)}", expected="at least two to train on in every fold")
    if is_numeric(column) and np.isinf(present.to_numpy(float)).any():
        raise problem(where, "a value is infinite", expected="numbers", remedy="Mark it as missing (n/a).")
    if len(different) > 2:
        values = column.to_numpy(float, na_value=np.nan)
        spread = different[-1] / 2 - different[0] / 2  # halves: the difference of the largest numbers is none
        if not LEAST_SPREAD < spread < MOST_SPREAD:
            raise problem(
                where,
                f"its values span {2 * spread:.0e}",
                expected=f"between {LEAST_SPREAD:.0e} and {MOST_SPREAD:.0e}",
                remedy="Give it in other units.",
            )
        return values, None
    values = (column == different[1]).to_numpy(float, na_value=np.nan)
    values[column.isna().to_numpy()] = np.nan
    return values, (_label(different[0]), _label(different[1]))


def make_folds(targets: pd.DataFrame, protocol: Protocol, table: pd.DataFrame, groups: Any = None) -> np.ndarray:
    """Test fold of each participant in each repeat, (repeats, n); −1 for participants without any target."""
    used = targets.notna().any(axis=1).to_numpy()
    folds = np.full((protocol.n_repeats, len(targets)), NO_FOLD)
    strata = np.column_stack([strata_of(values, protocol.n_folds) for values in targets[used].to_numpy(float).T])
    groups = None if groups is None else groups[used]
    for repeat in range(protocol.n_repeats):
        seed = protocol.seed + repeat
        if protocol.leave_site_out:
            sites = table.loc[used, protocol.site].astype(str).to_numpy(object)
            folds[repeat, used] = leave_groups_out(sites, protocol.n_folds, seed)
        else:
            folds[repeat, used] = stratified_folds(strata, protocol.n_folds, groups=groups, seed=seed)
    return folds


def _folds_by_id(targets: pd.DataFrame, protocol: Protocol, table: pd.DataFrame, groups: Any) -> np.ndarray:
    """`make_folds` of the participants sorted by id: a table in another order gives the same folds."""
    order = np.argsort(table["participant_id"].to_numpy(object).astype(str), kind="stable")
    folds = np.empty((protocol.n_repeats, len(table)), int)
    folds[:, order] = make_folds(
        targets.iloc[order].reset_index(drop=True),
        protocol,
        table.iloc[order].reset_index(drop=True),
        None if groups is None else groups[order],
    )
    return folds


def _one_fold_each(cohort: Cohort, protocol: Protocol) -> tuple[np.ndarray | None, list[str]]:
    """Families, joined where two participants have the very same FC, and what is to be said of those."""
    ids = cohort.participants["participant_id"]
    groups = cohort.participants[protocol.groups].to_numpy(object).copy() if protocol.groups else None
    room = -(-len(cohort) // protocol.n_folds)
    same = [rows for rows in cohort.same_matrices() if len(rows) <= room]  # more: FC that tells nobody apart
    if not same:
        return groups, []
    groups = np.full(len(cohort), None, object) if groups is None else groups
    for rows in same:
        known = [groups[row] for row in rows if not pd.isna(groups[row])] or [f"same FC as {ids[rows[0]]}"]
        joined = np.isin(groups.astype(str), [str(label) for label in known])
        joined[rows] = True
        groups[joined] = known[0]
    pairs = listed((" = ".join(map(str, ids[rows])) for rows in same), most=3)
    kept = "folds of sites may part them" if protocol.leave_site_out else "they are kept in one fold"
    return groups, [
        f"The same FC under several ids, probably one participant ({pairs}): {kept}. Leave all but one out."
    ]


def _resolved(protocol: Protocol, table: pd.DataFrame, where: str) -> tuple[Protocol, list[str]]:
    notes = []
    motion = None if protocol.motion == NONE else protocol.motion
    if motion == AUTO:
        motion = motion_column(table.columns)
        if motion and motion not in protocol.covariates and motion not in protocol.targets:
            notes.append(
                f"Head motion ({motion}) is a covariate because the cohort has it; --motion none leaves it out."
            )
    elif motion:
        known_columns([motion], table.columns, where)
    if motion and not is_numeric(table[motion]):
        words = table[motion][pd.to_numeric(table[motion].astype(str), errors="coerce").isna() & table[motion].notna()]
        raise problem(
            where,
            f"column {motion!r} holds {listed(map(repr, words), most=1) if len(words) else 'words'}",
            expected="mean framewise displacement in mm",
            remedy="Mend it, or say --motion none.",
        )
    covariates = protocol.covariates
    if motion and motion not in covariates and motion not in protocol.targets:
        covariates = (*covariates, motion)
    preserve = protocol.preserve
    if protocol.combat and not preserve:
        preserve = tuple(column for column in table.columns if str(column).lower() in ("age", "sex", "age_at_scan"))
        notes.append(f"ComBat preserves {listed(preserve) or 'nothing (no column is called age or sex)'}.")
    return replace(protocol, motion=motion or NONE, covariates=covariates, preserve=preserve), notes


def _covariates(table: pd.DataFrame, protocol: Protocol) -> pd.DataFrame:
    covariates = table[list(protocol.covariates)].copy()
    for name in covariates:
        if covariates[name].isna().all():
            raise problem(f"covariate {name!r}", "every value is missing", remedy="Leave it out.")
    if protocol.site in covariates:  # a site number is a name, not a quantity
        covariates[protocol.site] = covariates[protocol.site].astype(str).where(covariates[protocol.site].notna())
    return covariates


def _check_sites(table: pd.DataFrame, protocol: Protocol, where: str) -> None:
    """ComBat needs everyone's site in training and in test."""
    sites = table[str(protocol.site)].astype(str)
    learned_from = in_subset(table, protocol.subset) if protocol.combat_on else np.ones(len(table), bool)
    counts = sites[learned_from].value_counts().reindex(sites.unique(), fill_value=0)
    lonely = sorted(counts.index[counts < 2])
    if lonely:
        of = f" with {protocol.combat_on}" if protocol.combat_on else ""
        raise problem(
            where,
            f"site {listed(lonely, most=5)} has {'fewer than two participants' + of if of else 'one participant'}",
            expected=f"at least two participants{of} of every site with ComBat",
            remedy="Leave these participants out, or ComBat.",
        )


def _missing_notes(targets: pd.DataFrame, covariates: pd.DataFrame) -> list[str]:
    notes = []
    for name, values in targets.items():
        if values.isna().any():
            notes.append(f"{name}: {values.isna().sum()} of {len(values)} participants have no value and are left out.")
    for name, values in covariates.items():
        missing = values.isna()
        if is_numeric(values):
            missing = missing | np.isinf(values.to_numpy(float, na_value=np.nan))
        if missing.any():
            notes.append(
                f"Covariate {name}: {missing.sum()} missing or infinite values count as the training fold's average."
            )
    return notes


def _doubtful_notes(targets: pd.DataFrame, covariates: pd.DataFrame, whole: dict[str, str]) -> list[str]:
    """Which targets have hardly anything in them that could be predicted."""
    notes = []
    for name, column in targets.items():
        used = column.notna().to_numpy()
        values, table = (
            column.to_numpy(float)[used],
            covariates.loc[used].drop(columns=whole.get(str(name), name), errors="ignore"),
        )
        if np.ptp(values) < LAST_DIGITS * np.abs(values).max():
            notes.append(f"{name}: its values differ in their last digits only. Take a constant away from it first.")
        if table.shape[1] and np.ptp(values) > 0:
            left = CovariateRegression().fit(table, values[:, None]).residuals(table, values[:, None])
            if np.ptp(left) < 1e-8 * np.ptp(values):
                notes.append(f"{name}: the covariates explain all of it. Nothing is left to predict: use fewer.")
    return notes


def _overlap_notes(protocol: Protocol) -> list[str]:
    both = [name for name in protocol.targets if name in (*protocol.covariates, *protocol.preserve)]
    if not both:
        return []
    return [f"{listed(both)}: a target is no covariate of itself; it is left out there."]


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
