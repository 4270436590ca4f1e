"""Folds: balanced on quantile bins of every target at once, with groups kept together.

All targets share one set of folds, so that one kernel decomposition serves them all and every
method is tested on the same participants in the same fold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed

_MOST_BINS = 5
# instead of the number of a fold: of participants who are left out
NO_FOLD = -1
# of participants who are never tested
ONLY_TRAINED_ON = -2


def strata_of(values: Any, n_folds: int, most_bins: int = _MOST_BINS) -> np.ndarray:
    """Quantile bin of each value; missing values are a bin of their own (−1).

    Each value is its own bin where there are at most two different values, or at most `most_bins`
    among many participants. Otherwise bins hold at least as many participants as there are folds,
    except where values are tied.

    Parameters
    ----------
    values : (n,) array
        A target.
    n_folds : int
        Folds that are to be stratified.
    most_bins : int
        The largest number of bins.

    Returns
    -------
    (n,) integers
        The bins.

    Examples
    --------
    >>> strata_of([1.0, 2.0, 3.0, 4.0, np.nan, 6.0], n_folds=2).tolist()
    [0, 0, 1, 1, -1, 1]
    >>> strata_of([0.0, 1.0, 1.0], n_folds=2).tolist()
    [0, 1, 1]
    """
    values = np.asarray(values, float)
    strata = np.full(len(values), -1)
    is_present = np.isfinite(values)
    present = values[is_present]
    different = np.unique(present)
    few_values = len(different) <= most_bins and len(present) > 2 * most_bins
    if len(different) <= 2 or few_values:
        strata[is_present] = np.searchsorted(different, present)
        return strata
    n_bins = int(np.clip(len(present) // n_folds, 1, most_bins))
    edges = np.unique(np.quantile(present, np.arange(1, n_bins) / n_bins))
    strata[is_present] = np.searchsorted(edges, present, side="right")
    return strata


def stratified_folds(
    strata: Any,
    n_folds: int,
    *,
    groups: Any = None,
    seed: int = 42,
    groups_may_exceed_folds: bool = False,
) -> np.ndarray:
    """Fold number of each participant, balanced on every column of `strata`.

    Participants (or groups) are placed one after another, those with rare strata and large groups
    first. Each goes to the fold where it adds least to Σ over strata of
    (count in fold)² / (count in all), which is smallest when every stratum is spread evenly. Fold
    size counts as one more stratum.

    Parameters
    ----------
    strata : (n,) or (n, S) integers
        What folds are balanced on, such as the bins of `strata_of`.
    n_folds : int
        Number of folds.
    groups : (n,) labels, optional
        Kept together. A participant without a label forms a group of its own.
    seed : int
        Of the order in which participants are placed.
    groups_may_exceed_folds : bool
        Accept groups larger than a fold, and as many folds as there are groups, instead of
        refusing them.

    Returns
    -------
    (n,) integers
        Folds, from 0.
    """
    strata = np.asarray(strata).reshape(len(strata), -1)  # (n, S)
    n = len(strata)
    codes = group_codes(groups, n)
    sizes = np.bincount(codes)  # (groups,)
    n_groups = len(sizes)
    if groups_may_exceed_folds:
        n_folds = min(n_folds, n_groups)
    if n_folds < 2:
        raise NerveError(
            f"n_folds is {n_folds}, expected at least 2 (there are {n_groups} participants or "
            "groups)."
        )
    if n < n_folds:
        raise NerveError(
            f"There are {n} participants for {n_folds} folds, expected at least one per fold. "
            "Ask for fewer folds."
        )
    if n_groups < n_folds:
        raise NerveError(
            f"There are {n_groups} groups for {n_folds} folds, expected at least one per fold. "
            "Ask for fewer folds. Families, and participants of the same FC, are groups."
        )
    fold_size = -(-n // n_folds)
    too_large = np.flatnonzero(sizes > fold_size)
    if len(too_large) and not groups_may_exceed_folds:
        labels = np.asarray(groups, object)
        names = [f"{labels[codes == g][0]} ({sizes[g]} participants)" for g in too_large]
        raise NerveError(
            f"Groups are kept whole, but {listed(names, most=3)} would not fit one of {n_folds} "
            f"folds of {fold_size} participants: ask for at most {max(n // sizes.max(), 1)} folds, "
            "or leave sites out (leave_site_out). Of participants with the same FC, leave all but "
            "one out."
        )

    # a column of ones, which counts participants, then one column of zeros and ones per stratum
    columns = [np.ones((n, 1))]
    for column in strata.T:
        columns.append(column[:, None] == np.unique(column))
    indicators = np.column_stack(columns)  # (n, 1 + strata)
    counts = np.zeros((n_groups, indicators.shape[1]))  # (groups, 1 + strata)
    np.add.at(counts, codes, indicators)
    return _place_groups(counts, n_folds, np.random.default_rng(seed))[codes]


def leave_groups_out(groups: Any, n_folds: int | None = None, seed: int = 42) -> np.ndarray:
    """Fold number of each participant, where folds are whole groups, such as sites.

    Parameters
    ----------
    groups : (n,) labels
        Kept together.
    n_folds : int, optional
        Gather the groups in this many folds of similar size; by default each group is a fold.
    seed : int
        Of the order in which groups are placed.

    Returns
    -------
    (n,) integers
        Folds, from 0.
    """
    codes = group_codes(groups, len(groups))
    n_groups = codes.max() + 1
    if n_groups < 2:
        raise NerveError(
            "There is only one site, expected at least two to leave one out. "
            "Use ordinary folds instead."
        )
    if n_folds is None or n_folds >= n_groups:
        return codes
    no_strata = np.zeros(len(codes), int)
    return stratified_folds(
        no_strata, n_folds, groups=groups, seed=seed, groups_may_exceed_folds=True
    )


def group_codes(groups: Any, n: int) -> np.ndarray:
    """Group of each participant as a number from 0.

    Parameters
    ----------
    groups : (n,) labels, optional
        A participant without a label forms a group of its own, as all do without labels.
    n : int
        Number of participants.

    Returns
    -------
    (n,) integers
        The groups.
    """
    if groups is None:
        return np.arange(n)
    codes, _ = pd.factorize(pd.Series(np.asarray(groups, object)), sort=False)
    has_none = codes < 0
    codes[has_none] = codes.max(initial=-1) + 1 + np.arange(has_none.sum())
    return codes


def complete_labels(groups: Any) -> np.ndarray:
    """Labels of groups as text; a participant without a label gets one of its own.

    Parameters
    ----------
    groups : (n,) labels
        Some may be missing.

    Returns
    -------
    (n,) array of str
        The labels.

    Examples
    --------
    >>> complete_labels(["a", None, "a", None]).tolist()
    ['a', 'alone 1', 'a', 'alone 3']
    """
    labels = np.asarray(groups, object)
    return np.array(
        [f"alone {i}" if pd.isna(label) else str(label) for i, label in enumerate(labels)]
    )


def _place_groups(counts: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """Fold of each group, (groups,), from its counts in every stratum, (groups, strata)."""
    weight = 1.0 / counts.sum(axis=0)  # (strata,)
    shuffled = rng.permutation(len(counts))
    rarity = counts[shuffled] @ weight
    order = shuffled[np.argsort(-rarity, kind="stable")]
    in_fold = np.zeros((n_folds, counts.shape[1]))
    fold_of = np.empty(len(counts), int)
    for group in order:
        # how much the sum of squares grows in each fold, up to a constant
        cost = in_fold @ (weight * counts[group])  # (folds,)
        best = np.flatnonzero(cost <= cost.min() + 1e-12)
        fold = best[in_fold[best, 0].argmin()]
        in_fold[fold] += counts[group]
        fold_of[group] = fold
    return fold_of
