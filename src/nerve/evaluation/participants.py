"""A cohort's participants prepared: targets as numbers, covariates, groups, sites and folds."""

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
from nerve.data.quality.codes import refuse_doubtful_column
from nerve.evaluation.combat import in_subset, sites_of
from nerve.evaluation.covariates import CovariateRegression, format_value, is_numeric, motion_column
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

# spreads of a target beyond which squares of its values leave the range of float64
_LEAST_SPREAD = 1e-100
_MOST_SPREAD = 1e100
# a target whose spread is a smaller share of its values differs in the last digits of float64 only
_LAST_DIGITS = 1e-12

# name of a two-class target → what 0 and 1 stand for
Classes = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Participants:  # numpydoc ignore=PR02
    """What an evaluation knows about the participants; every method is given the same.

    Parameters
    ----------
    cohort : str
        Name of the cohort.
    ids : (n,) array
        Ids of the participants.
    targets : DataFrame
        (n, T) numbers. A column of three or more classes gives one target per class.
    classes : dict
        Name of a two-class target → what 0 and 1 stand for.
    class_columns : dict
        Name of a target that is one class against all others → the column of the classes.
    covariates : DataFrame
        (n, p) numbers and categories.
    table : DataFrame
        All columns of the participants table.
    groups : (n,) labels, optional
        Families, and participants with the same FC. A group stays on one side of folds and draws,
        and is resampled as one.
    sites : (n,) labels, optional
        The site of each participant.
    inner_groups : (n,) labels, optional
        What inner folds keep together: sites where whole sites are left out, otherwise groups.
    motion : str, optional
        Column of head motion.
    folds : (repeats, n) integers
        Test fold of each participant in each repeat; negative for those who are not tested.
    notes : tuple of str
        What a user should be told about targets, covariates and participants.
    trained_on : str
        The cohort that is only trained on, where another is tested: see `transfer.py`.
    """

    cohort: str
    ids: np.ndarray
    targets: pd.DataFrame
    classes: Classes
    class_columns: dict[str, str]
    covariates: pd.DataFrame
    table: pd.DataFrame
    groups: np.ndarray | None
    sites: np.ndarray | None
    inner_groups: np.ndarray | None
    motion: str | None
    folds: np.ndarray
    notes: tuple[str, ...]
    trained_on: str = ""

    @property
    def tested(self) -> np.ndarray:
        """All participants, except in a transfer those of the training cohort, (n,) booleans."""
        if self.trained_on:
            return self.folds[0] >= 0
        return np.ones(len(self.ids), bool)

    @property
    def order(self) -> np.ndarray:
        """Positions of the participants sorted by id, (n,): random draws follow this order."""
        return _sorted_by_id(self.ids)

    def with_target(self, column: str) -> Participants:
        """The same participants with one column to predict, in all of its classes."""
        names = [str(name) for name in self.targets]
        kept = [name for name in names if self.class_columns.get(name, name) == column]
        return replace(self, targets=self.targets[kept])

    def without_targets_of(self, missing: np.ndarray | None) -> Participants:
        """The same participants, without the targets of those whose features are missing."""
        if missing is None:
            return self
        is_missing = pd.Series(missing, index=self.targets.index)
        return replace(self, targets=self.targets.mask(is_missing))


def prepare_participants(
    cohort: Cohort, protocol: Protocol, only_trained_on: np.ndarray | None = None
) -> tuple[Participants, Protocol]:
    """Check columns, code targets, choose covariates and make folds.

    Parameters
    ----------
    cohort : Cohort
        Whose participants table is read.
    protocol : Protocol
        Names the columns of targets, covariates, groups and sites.
    only_trained_on : (n,) booleans, optional
        In a transfer (`transfer.py`), the participants of the training cohort. Then there is one
        fold, of all other participants.

    Returns
    -------
    participants : Participants
        What the evaluation knows of them.
    protocol : Protocol
        The protocol with motion and preserved columns by name.
    """
    table = cohort.participants
    where = f"participants of {cohort.name!r}"
    known_columns([*protocol.columns, *protocol.confirmed_values], table.columns, where)
    _check_sites(table, protocol, where)
    protocol, notes = _resolve_columns(protocol, table, where)
    for name in dict.fromkeys((*protocol.targets, *protocol.covariates)):
        if name not in (protocol.site, protocol.groups):
            refuse_doubtful_column(table, name, where, protocol.confirmed_values)
    table = _covariates_as_numbers(table, protocol, where)
    targets, classes, class_columns = _code_targets(table, protocol)
    covariates = table[list(protocol.covariates)].copy()
    sites = None
    if protocol.site:
        # a site number is a name, not a quantity
        has_site = table[protocol.site].notna()
        table = table.assign(**{protocol.site: table[protocol.site].astype(str)})
        sites = table[protocol.site].to_numpy(object)
        if protocol.site in covariates:
            covariates[protocol.site] = table[protocol.site].where(has_site)
    for name in covariates.columns[covariates.isna().all()]:
        raise problem(f"covariate {name!r}", "every value is missing", remedy="Leave it out.")
    notes += _notes_on_columns(cohort.participants, targets, covariates, class_columns, protocol)

    ids = table["participant_id"].to_numpy(object)
    order = _sorted_by_id(ids)
    groups, duplicate_notes = _families_and_duplicates(cohort, protocol.groups)
    notes += duplicate_notes

    # relatives of tested participants are not trained on: they lose their targets
    if only_trained_on is not None:
        is_relative = _related_to_others(groups, only_trained_on)
        notes += _note_on_relatives(is_relative, "participants who are tested")
        targets = targets.mask(pd.Series(is_relative, index=targets.index))
    if protocol.leave_site_out:
        has_target = targets.notna().any(axis=1).to_numpy()
        # in a transfer, the inner folds of the training cohort are made of sites
        is_placed = has_target if only_trained_on is None else has_target & only_trained_on
        is_relative = _related_to_another_site(groups, sites, is_placed, order)
        notes += _note_on_relatives(is_relative, "participants of another site")
        targets = targets.mask(pd.Series(is_relative, index=targets.index))

    if only_trained_on is None:
        folds = _make_folds(targets, protocol, order, groups, sites)
    else:
        folds = np.where(only_trained_on, ONLY_TRAINED_ON, 0)[None]  # (1, n)
        folds[:, targets.isna().all(axis=1).to_numpy()] = NO_FOLD
    participants = Participants(
        cohort=cohort.name,
        ids=ids,
        targets=targets,
        classes=classes,
        class_columns=class_columns,
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
    """The group of each participant: those of one family, or with the same FC, share a number.

    Folds keep these groups together; `score_table(predictions, groups=groups_of(cohort))` resamples
    them together.

    Parameters
    ----------
    cohort : Cohort
        Whose participants are grouped.
    column : str, optional
        The column of families.

    Returns
    -------
    Series
        Numbers, by participant_id.
    """
    labels, _ = _families_and_duplicates(cohort, column)
    return pd.Series(group_codes(labels, len(cohort)), index=cohort.participants["participant_id"])


def _code_targets(
    table: pd.DataFrame, protocol: Protocol
) -> tuple[pd.DataFrame, Classes, dict[str, str]]:
    """All targets as numbers, with `classes` and `class_columns` of `Participants`."""
    values: dict[str, np.ndarray] = {}
    classes: Classes = {}
    class_columns: dict[str, str] = {}
    for name in protocol.targets:
        column = table[name]
        has_classes = name in protocol.classes
        if not has_classes and not is_numeric(column):
            if column.nunique() > 2 and len(odd_cells(column)):
                # numbers with a few words among them
                column = as_numbers(table, [name], missing=protocol.non_numeric == "missing")[name]
            else:
                has_classes = True
        if not has_classes or column.nunique() < 3:
            values[name], pair = _code_target(column, name, protocol.n_folds)
            if pair:
                classes[name] = pair
            continue
        # three or more classes: each becomes a target, against all others
        least = 2 if protocol.leave_site_out else protocol.n_folds
        for label, is_member in _code_classes(column, name, least).items():
            target = class_target(name, label)
            if target in protocol.targets or target in values:
                raise problem(
                    f"target {target!r}",
                    f"class {label!r} of target {name!r} has the same name",
                    expected="names that differ",
                    remedy="Rename one of the two columns, or the class.",
                )
            values[target] = is_member
            classes[target] = ("others", label)
            class_columns[target] = name
    return pd.DataFrame(values), classes, class_columns


def _code_classes(column: pd.Series, name: str, least: int = 2) -> dict[str, np.ndarray]:
    """Each class against all others: 1 for its members, 0 for others who have a value.

    Parameters
    ----------
    column : Series
        Names of classes.
    name : str
        What errors call the target.
    least : int
        The smallest number of members.

    Returns
    -------
    dict
        Name of the class → (n,) numbers.

    Examples
    --------
    >>> _code_classes(pd.Series(["a", "b", "c", None, "a", "b", "c"]), "group")["b"]
    array([ 0.,  1.,  0., nan,  0.,  1.,  0.])
    """
    labels = column.map(format_value, na_action="ignore")
    counts = labels.value_counts().sort_index()
    small = counts[counts < least]
    if len(small):
        names = [f"{label} ({count})" for label, count in small.items()]
        raise problem(
            f"target {name!r}",
            f"class {listed(names, most=5)} has too few participants",
            expected=f"at least {least} of every class, so that each fold can have one",
            remedy="Ask for fewer folds, join classes, or leave such participants empty (n/a).",
        )
    return {
        label: (labels == label).astype(float).where(labels.notna()).to_numpy()
        for label in counts.index
    }


def _code_target(
    column: pd.Series, name: str, n_folds: int = 2
) -> tuple[np.ndarray, tuple[str, str] | None]:
    """A target as numbers; two classes (text, true/false or two numbers) become 0 and 1.

    Parameters
    ----------
    column : Series
        Values of the target.
    name : str
        What errors call it.
    n_folds : int
        Folds, each of which needs participants who have it.

    Returns
    -------
    values : (n,) array
        Numbers; NaN where they are missing.
    classes : (str, str) or None
        What 0 and 1 stand for, in sorted order.

    Examples
    --------
    >>> _code_target(pd.Series(["M", "F", None, "F", "M"]), "sex")
    (array([ 1.,  0., nan,  0.,  1.]), ('F', 'M'))
    """
    where = f"target {name!r}"
    present = column.dropna()
    n = len(present)
    different = sorted(present.unique().tolist())
    if len(different) < 2:
        values = f"every value is {different[0]!r}" if different else "every value is missing"
        raise problem(where, values, expected="values that differ", remedy="Leave it out.")
    if n < n_folds:
        raise problem(
            where,
            f"there are values for {n} of {len(column)} participants",
            expected=f"at least one for each of {n_folds} folds",
            remedy="Ask for fewer folds.",
        )
    largest_fold = -(-n // n_folds)
    if n - largest_fold < 2:
        raise problem(
            where, f"it has values for {n}", expected="at least two to train on in every fold"
        )
    if is_numeric(column) and np.isinf(present.to_numpy(float)).any():
        raise problem(
            where, "a value is infinite", expected="numbers", remedy="Mark it as missing (n/a)."
        )
    if len(different) == 2:
        values = (column == different[1]).astype(float).where(column.notna()).to_numpy(float)
        return values, (format_value(different[0]), format_value(different[1]))
    half_spread = different[-1] / 2 - different[0] / 2  # the full difference could overflow
    if not _LEAST_SPREAD < half_spread < _MOST_SPREAD:
        raise problem(
            where,
            f"its values span {2 * half_spread:.0e}",
            expected=f"between {_LEAST_SPREAD:.0e} and {_MOST_SPREAD:.0e}",
            remedy="Give it in other units.",
        )
    return column.to_numpy(float, na_value=np.nan), None


def _sorted_by_id(ids: np.ndarray) -> np.ndarray:
    """Positions of the participants sorted by id, (n,)."""
    return np.argsort(ids.astype(str), kind="stable")


def _make_folds(
    targets: pd.DataFrame, protocol: Protocol, order: np.ndarray, groups: Any, sites: Any
) -> np.ndarray:
    """Test fold of each participant in each repeat, (repeats, n); −1 for those without a target.

    Made of the participants sorted by id: a table in another order gives the same folds.
    """
    has_target = targets.notna().any(axis=1).to_numpy()
    rows = order[has_target[order]]
    strata = np.column_stack(
        [strata_of(column, protocol.n_folds) for column in targets.to_numpy(float)[rows].T]
    )
    folds = np.full((protocol.n_repeats, len(order)), NO_FOLD)
    for repeat in range(protocol.n_repeats):
        seed = protocol.seed + repeat
        if protocol.leave_site_out:
            # no group spans two sites: `_related_to_another_site` left those members out
            folds[repeat, rows] = leave_groups_out(sites[rows], protocol.n_folds, seed)
        else:
            folds[repeat, rows] = stratified_folds(
                strata,
                protocol.n_folds,
                groups=None if groups is None else groups[rows],
                seed=seed,
            )
    return folds


def _families_and_duplicates(
    cohort: Cohort, column: str | None
) -> tuple[np.ndarray | None, list[str]]:
    """Labels of families, joined where participants have the same FC, and a note on such FC.

    Labels are (n,), None for a participant without relatives; None instead of labels where there
    are neither families nor the same FC.
    """
    ids = cohort.participants["participant_id"].to_numpy(object)
    families = cohort.participants[column].to_numpy(object) if column else None
    duplicates = cohort.same_matrices()
    if not duplicates:
        return families, []
    if len(duplicates[0]) == len(cohort):
        raise problem(
            f"Cohort {cohort.name!r}",
            f"all {len(cohort)} participants have the same FC (correlations above {SAME})",
            expected="FC that differs",
            remedy="Check how the matrices were made, and run `nerve check`.",
        )
    codes = group_codes(families, len(cohort))
    labels = np.full(len(cohort), None, object)
    if families is not None:
        has_family = pd.notna(families)
        labels[has_family] = families[has_family].astype(str)
    for rows in duplicates:
        together = np.isin(codes, codes[rows])
        codes[together] = codes[rows[0]]
        family_labels = [label for label in labels[together] if label is not None]
        labels[together] = family_labels[0] if family_labels else f"same FC as {ids[rows[0]]}"
    sentence = (
        f"The same FC under several ids, probably one participant each ({len(duplicates)}): they "
        "are kept together, as a family is. Leave all but one out"
    )
    copies = [" = ".join(map(str, ids[rows])) for rows in duplicates]
    return labels, [Note.about(sentence, copies, most=3)]


def _note_on_relatives(is_relative: np.ndarray, relatives: str) -> list[str]:
    """A note on participants who are left out because of their relatives, if there are any."""
    n = is_relative.sum()
    if n == 0:
        return []
    count = f"{n} participant{'s' if n > 1 else ''}"
    return [f"{count} left out: they share a family or their FC with {relatives}."]


def _related_to_others(groups: np.ndarray | None, selected: np.ndarray) -> np.ndarray:
    """Which of the selected participants share a group with one of the others, (n,) booleans."""
    codes = group_codes(groups, len(selected))
    return selected & np.isin(codes, codes[~selected])


def _related_to_another_site(
    groups: np.ndarray | None, sites: Any, is_placed: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Which participants are left out so that no group spans two sites, (n,) booleans.

    Since whole sites are tested, members of a group at another site would be trained on while their
    relatives are tested. A group keeps its members at the site where most of them are, or, among
    equal sites, where the first of them in `order` is. Participants who are not placed in folds do
    not count.
    """
    table = pd.DataFrame({"group": group_codes(groups, len(order)), "site": sites}).iloc[order]
    table = table[is_placed[order]]
    n_sites = table.groupby("group")["site"].transform("nunique")
    spanning = table[n_sites > 1]
    n_members = spanning.groupby(["group", "site"])["site"].transform("size")
    # group → the first row of its largest site → that site
    first_row = n_members.groupby(spanning["group"]).idxmax()
    kept_site = spanning["group"].map(first_row).map(spanning["site"])
    left_out = np.zeros(len(order), bool)
    left_out[spanning.index[spanning["site"] != kept_site]] = True
    return left_out


def _resolve_columns(
    protocol: Protocol, table: pd.DataFrame, where: str
) -> tuple[Protocol, list[str]]:
    """The protocol with motion and preserved columns by name, and notes on them."""
    notes = []
    motion = protocol.motion
    if motion == AUTO:
        motion = motion_column(table.columns) or NONE
    covariates = protocol.covariates
    if motion not in (NONE, *covariates, *protocol.targets):
        known_columns([motion], table.columns, where)
        covariates = (*covariates, motion)
        if protocol.motion == AUTO:
            notes.append(
                f"Head motion ({motion}) is a covariate because the cohort has it; "
                "--motion none leaves it out."
            )
    preserve = protocol.preserve
    if protocol.combat and not preserve:
        usual = ("age", "sex", "age_at_scan")
        preserve = tuple(column for column in table.columns if str(column).lower() in usual)
        names = listed(preserve) or "nothing (no column is called age or sex)"
        notes.append(f"ComBat preserves {names}.")
    return replace(protocol, motion=motion, covariates=covariates, preserve=preserve), notes


def _covariates_as_numbers(table: pd.DataFrame, protocol: Protocol, where: str) -> pd.DataFrame:
    """The table with covariates as numbers, except categories; words are refused or missing."""
    not_quantities = {protocol.site, protocol.groups, *protocol.targets}
    adjusted_for = (*protocol.covariates, *protocol.preserve)
    quantities = [name for name in adjusted_for if name not in not_quantities]
    if protocol.non_numeric == "missing":
        table = as_numbers(table, quantities, missing=True)
    motion = protocol.motion
    if motion != NONE and not is_numeric(table[motion]):
        is_word = pd.to_numeric(table[motion].astype(str), errors="coerce").isna()
        words = table[motion][is_word & table[motion].notna()]
        example = listed(map(repr, words), most=1) if len(words) else "words"
        raise problem(
            where,
            f"column {motion!r} holds {example}",
            expected="mean framewise displacement in mm",
            remedy="Mend it, or say --motion none.",
        )
    return as_numbers(table, quantities)


def _check_sites(table: pd.DataFrame, protocol: Protocol, where: str) -> None:
    """Refuse missing sites where ComBat or folds need them, and sites too small for ComBat."""
    if not (protocol.combat or protocol.leave_site_out):
        return
    sites = sites_of(table, str(protocol.site), where)
    learned_from = sites[in_subset(table, protocol.combat_subset)] if protocol.combat_on else sites
    small = [site for site in np.unique(sites) if (learned_from == site).sum() < 2]
    if protocol.combat and small:
        subset = f" with {protocol.combat_on}" if protocol.combat_on else ""
        raise problem(
            where,
            f"site {listed(small, most=5)} has fewer than two participants{subset}",
            expected="at least two of every site",
            remedy="Leave them out, or ComBat.",
        )


def _notes_on_columns(
    table: pd.DataFrame,
    targets: pd.DataFrame,
    covariates: pd.DataFrame,
    class_columns: dict[str, str],
    protocol: Protocol,
) -> list[str]:
    """Notes on missing values, and on targets that leave hardly anything to predict."""
    notes = []
    for name, n_missing in table[list(protocol.targets)].isna().sum().items():
        if n_missing:
            notes.append(
                f"{name}: {n_missing} of {len(table)} participants have no value and are left out."
            )
    for name, column in covariates.items():
        if is_numeric(column):
            is_missing = ~np.isfinite(column.to_numpy(float, na_value=np.nan))
        else:
            is_missing = column.isna()
        if is_missing.any():
            notes.append(
                f"Covariate {name}: {is_missing.sum()} missing or infinite values count as the "
                "training fold's average."
            )
    adjusted_for = (*protocol.covariates, *protocol.preserve)
    both = [name for name in protocol.targets if name in adjusted_for]
    if both:
        notes.append(f"{listed(both)}: a target is never its own covariate; it is left out there.")
    for name, column in targets.items():
        values = column.dropna()
        others = covariates.drop(columns=class_columns.get(str(name), name), errors="ignore")
        if np.ptp(values) < _LAST_DIGITS * np.abs(values).max():
            notes.append(
                f"{name}: its values differ in their last digits only. "
                "Take a constant away from it first."
            )
        if others.shape[1] and np.ptp(values) > 0:
            others = others.loc[values.index]
            regression = CovariateRegression().fit(others, values.to_numpy())
            residuals = values - regression.predict(others)
            if np.ptp(residuals) < 1e-8 * np.ptp(values):
                notes.append(
                    f"{name}: the covariates explain all of it. "
                    "Nothing is left to predict: use fewer."
                )
    return notes
