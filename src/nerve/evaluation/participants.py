"""A cohort's participants prepared: targets as numbers, covariates, groups, sites and folds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import known_columns, listed, problem
from nerve._utils.numbers import as_numbers
from nerve.data.cohort import Cohort
from nerve.data.quality.codes import refuse_doubtful_column
from nerve.evaluation.combat import in_subset, sites_of
from nerve.evaluation.covariates import CovariateRegression, is_numeric, motion_column
from nerve.evaluation.folds import (
    NO_FOLD,
    ONLY_TRAINED_ON,
    leave_groups_out,
    strata_of,
    stratified_folds,
)
from nerve.evaluation.protocol import AUTO, NONE, Protocol
from nerve.evaluation.relatives import (
    families_and_duplicates,
    related_to_another_site,
    related_to_others,
)
from nerve.evaluation.targets import Classes, code_targets

# a target whose spread is a smaller share of its values differs in the last digits of float64 only
_LAST_DIGITS = 1e-12


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
    targets, classes, class_columns = code_targets(table, protocol)
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
    groups, duplicate_notes = families_and_duplicates(cohort, protocol.groups)
    notes += duplicate_notes

    # Elsewhere the folds keep relatives together. Here a cohort or a site is tested whole, and those
    # whose relatives are tested lose their targets, so that they are not trained on.
    if only_trained_on is not None:
        is_relative = related_to_others(groups, only_trained_on)
        notes += _note_on_relatives(is_relative, "participants who are tested")
        targets = targets.mask(pd.Series(is_relative, index=targets.index))
    if protocol.leave_site_out:
        has_target = targets.notna().any(axis=1).to_numpy()
        # in a transfer, the inner folds of the training cohort are made of sites
        is_placed = has_target if only_trained_on is None else has_target & only_trained_on
        is_relative = related_to_another_site(groups, sites, is_placed, order)
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
            # no group spans two sites: `related_to_another_site` left those members out
            folds[repeat, rows] = leave_groups_out(sites[rows], protocol.n_folds, seed)
        else:
            folds[repeat, rows] = stratified_folds(
                strata,
                protocol.n_folds,
                groups=None if groups is None else groups[rows],
                seed=seed,
            )
    return folds


def _note_on_relatives(is_relative: np.ndarray, relatives: str) -> list[str]:
    """A note on participants who are left out because of their relatives, if there are any."""
    n = is_relative.sum()
    if n == 0:
        return []
    count = f"{n} participant{'s' if n > 1 else ''}"
    return [f"{count} left out: they share a family or their FC with {relatives}."]


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
