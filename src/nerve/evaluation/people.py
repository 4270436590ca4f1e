"""A cohort's participants table made ready: targets as numbers, covariates, families, sites and folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, known_columns, listed, problem
from nerve.cohort import Cohort
from nerve.evaluation.covariates import CovariateRegression, is_numeric, motion_column
from nerve.evaluation.folds import leave_groups_out, strata_of, stratified_folds
from nerve.evaluation.settings import Settings

LEAST_SPREAD, MOST_SPREAD = 1e-100, 1e100  # of a target: beyond, its squares leave the range of numbers
LAST_DIGITS = 1e-12  # a spread of this share of the values leaves few digits of float64


@dataclass(frozen=True)
class People:
    """What an evaluation knows of the people; every method is given the same one."""

    cohort: str
    ids: np.ndarray  # (n,)
    targets: pd.DataFrame  # (n, T) numbers
    classes: dict[str, tuple[str, str]]  # of two-class targets: what 0 and 1 stand for
    covariates: pd.DataFrame  # (n, p)
    table: pd.DataFrame  # all participants' columns
    groups: np.ndarray | None  # families: kept whole in folds, bootstrap and permutations
    sites: np.ndarray | None
    inner_groups: np.ndarray | None  # what inner folds keep whole: sites when whole sites are left out
    motion: str | None
    folds: np.ndarray  # (repeats, n)
    notes: tuple[str, ...]

    @property
    def order(self) -> np.ndarray:
        """Positions of the people by id, (n,): whatever is drawn is drawn in this order, not in that of the table."""
        return np.argsort(self.ids.astype(str), kind="stable")

    def without(self, missing: np.ndarray) -> People:
        """The same people, with no targets for those whose features are missing."""
        return replace(self, targets=self.targets.mask(pd.Series(missing, index=self.targets.index)))


def prepare_people(cohort: Cohort, settings: Settings) -> tuple[People, Settings]:
    """Check columns, code targets, choose covariates and make folds.

    Returns the people and the settings with motion and preserved columns resolved.
    """
    table = cohort.participants
    where = f"participants of {cohort.name!r}"
    optional = [name for name in (settings.groups, settings.site) if name]
    known_columns([*settings.targets, *settings.covariates, *settings.preserve, *optional], table.columns, where)
    if settings.site and (settings.combat or settings.leave_site_out) and table[settings.site].isna().any():
        raise problem(
            where,
            f"{int(table[settings.site].isna().sum())} people have no value in column {settings.site!r}",
            expected="a site for everyone",
            remedy="Fill it in, or leave them out (cohort.subset).",
        )
    if settings.combat:
        _check_sites(table[str(settings.site)], where)
    settings, notes = _resolved(settings, table, where)
    coded = {name: code_target(table[name], name, settings.n_folds) for name in settings.targets}
    targets = pd.DataFrame({name: values for name, (values, _) in coded.items()})
    classes = {name: pair for name, (_, pair) in coded.items() if pair}
    covariates = _covariates(table, settings)
    notes += _missing_notes(targets, covariates) + _overlap_notes(settings) + _doubtful_notes(targets, covariates)
    groups = table[settings.groups].to_numpy(object) if settings.groups else None
    sites = table[settings.site].astype(str).to_numpy(object) if settings.site else None
    people = People(
        cohort=cohort.name,
        ids=table["participant_id"].to_numpy(object),
        targets=targets,
        classes=classes,
        covariates=covariates,
        table=table.assign(**{settings.site: table[settings.site].astype(str)}) if settings.site else table,
        groups=groups,
        sites=sites,
        inner_groups=sites if settings.leave_site_out else groups,
        motion=settings.motion,
        folds=_folds_by_id(targets, settings, table),
        notes=tuple(notes),
    )
    return people, settings


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
        raise problem(where, "every value is missing", expected="numbers or two classes", remedy="Leave it out.")
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    different = sorted(present.unique().tolist())
    if len(different) == 1:
        raise problem(where, f"every value is {different[0]!r}", expected="values that differ", remedy="Leave it out.")
    if not numeric and len(different) > 2:
        raise problem(
            where,
            f"it has {len(different)} classes ({listed(different, most=5)})",
            expected="numbers or two classes",
            remedy="Make a column for the contrast of interest.",
        )
    if len(present) < n_folds:
        raise problem(
            where,
            f"{len(present)} people have a value",
            expected=f"at least one for each of {n_folds} folds",
            remedy="Ask for fewer folds.",
        )
    if len(present) - -(-len(present) // n_folds) < 2:
        raise problem(where, f"{len(present)} people have a value", expected="at least two to train on in every fold")
    if numeric and np.isinf(present.to_numpy(float)).any():
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


def make_folds(targets: pd.DataFrame, settings: Settings, table: pd.DataFrame) -> np.ndarray:
    """Test fold of each person in each repeat, (repeats, n); −1 for people without any target."""
    used = targets.notna().any(axis=1).to_numpy()
    folds = np.full((settings.n_repeats, len(targets)), -1)
    strata = np.column_stack([strata_of(values, settings.n_folds) for values in targets[used].to_numpy(float).T])
    groups = table.loc[used, settings.groups].to_numpy(object) if settings.groups else None
    for repeat in range(settings.n_repeats):
        seed = settings.seed + repeat
        if settings.leave_site_out:
            sites = table.loc[used, settings.site].astype(str).to_numpy(object)
            folds[repeat, used] = leave_groups_out(sites, settings.n_folds, seed)
        else:
            folds[repeat, used] = stratified_folds(strata, settings.n_folds, groups=groups, seed=seed)
    return folds


def _folds_by_id(targets: pd.DataFrame, settings: Settings, table: pd.DataFrame) -> np.ndarray:
    """`make_folds` of the people sorted by id: a table in another order gives the same folds."""
    order = np.argsort(table["participant_id"].to_numpy(object).astype(str), kind="stable")
    folds = np.empty((settings.n_repeats, len(table)), int)
    folds[:, order] = make_folds(
        targets.iloc[order].reset_index(drop=True), settings, table.iloc[order].reset_index(drop=True)
    )
    return folds


def _resolved(settings: Settings, table: pd.DataFrame, where: str) -> tuple[Settings, list[str]]:
    notes = []
    motion = settings.motion
    if motion == "auto":
        motion = motion_column(table.columns)
        if motion and motion not in settings.covariates and motion not in settings.targets:
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
    covariates = settings.covariates
    if motion and motion not in covariates and motion not in settings.targets:
        covariates = (*covariates, motion)
    preserve = settings.preserve
    if settings.combat and not preserve:
        preserve = tuple(column for column in table.columns if str(column).lower() in ("age", "sex", "age_at_scan"))
        notes.append(f"ComBat preserves {listed(preserve) or 'nothing (no column is called age or sex)'}.")
    return replace(settings, motion=motion, covariates=covariates, preserve=preserve), notes


def _covariates(table: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    covariates = table[list(settings.covariates)].copy()
    for name in covariates:
        if covariates[name].isna().all():
            raise problem(f"covariate {name!r}", "every value is missing", remedy="Leave it out.")
    if settings.site in covariates:  # a site number is a name, not a quantity
        covariates[settings.site] = covariates[settings.site].astype(str).where(covariates[settings.site].notna())
    return covariates


def _check_sites(sites: pd.Series, where: str) -> None:
    """ComBat needs everyone's site in training and in test."""
    counts = sites.astype(str).value_counts()
    lonely = sorted(counts.index[counts < 2])
    if lonely:
        raise problem(
            where,
            f"site {listed(lonely, most=5)} has one person",
            expected="at least two people of every site with ComBat",
            remedy="Leave these people out, or ComBat.",
        )


def _missing_notes(targets: pd.DataFrame, covariates: pd.DataFrame) -> list[str]:
    notes = []
    for name, values in targets.items():
        if values.isna().any():
            notes.append(f"{name}: {values.isna().sum()} of {len(values)} people have no value and are left out of it.")
    for name, values in covariates.items():
        missing = values.isna()
        if is_numeric(values):
            missing = missing | np.isinf(values.to_numpy(float, na_value=np.nan))
        if missing.any():
            notes.append(
                f"Covariate {name}: {missing.sum()} missing or infinite values count as the training fold's average."
            )
    return notes


def _doubtful_notes(targets: pd.DataFrame, covariates: pd.DataFrame) -> list[str]:
    """Which targets have hardly anything in them that could be predicted."""
    notes = []
    for name, column in targets.items():
        used = column.notna().to_numpy()
        values, table = column.to_numpy(float)[used], covariates.loc[used].drop(columns=name, errors="ignore")
        if np.ptp(values) < LAST_DIGITS * np.abs(values).max():
            notes.append(f"{name}: its values differ in their last digits only. Take a constant away from it first.")
        if table.shape[1] and np.ptp(values) > 0:
            left = CovariateRegression().fit(table, values[:, None]).residuals(table, values[:, None])
            if np.ptp(left) < 1e-8 * np.ptp(values):
                notes.append(f"{name}: the covariates explain all of it. Nothing is left to predict: use fewer.")
    return notes


def _overlap_notes(settings: Settings) -> list[str]:
    both = [name for name in settings.targets if name in (*settings.covariates, *settings.preserve)]
    if not both:
        return []
    return [f"{listed(both)}: a target is no covariate of itself; it is left out there."]


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Column names as a tuple: a list, one name, or names separated by commas."""
    if names is None:
        return ()
    parts = names.split(",") if isinstance(names, str) else list(names)
    cleaned = tuple(dict.fromkeys(str(name).strip() for name in parts if str(name).strip()))
    if names and not cleaned:
        raise NerveError(f"{names!r} holds no column names, expected names separated by commas.")
    return cleaned
