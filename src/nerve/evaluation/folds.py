"""Folds: balanced on quantile bins of every target at once, with whole groups kept together.

All targets share one set of folds, so that one kernel decomposition serves them all and every method meets the same
participants in the same fold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed

MOST_BINS = 5
NO_FOLD, ONLY_TRAINED_ON = (
    -1,
    -2,
)  # instead of a fold: participants who are left out, or never tested


def strata_of(values: Any, n_folds: int, most_bins: int = MOST_BINS) -> np.ndarray:
    """Quantile bin of each value, (n,) integers; missing values are a bin of their own (−1).

    A target with at most `most_bins` different values keeps them as they are. There are never so many bins that one
    holds fewer participants than there are folds, unless ties force it.

    Examples
    --------
    >>> strata_of([1.0, 2.0, 3.0, 4.0, np.nan, 6.0], n_folds=2).tolist()
    [0, 0, 1, 1, -1, 1]
    >>> strata_of([0.0, 1.0, 1.0], n_folds=2).tolist()
    [0, 1, 1]
    """
    values = np.asarray(values, float)
    strata = np.full(len(values), -1)
    seen = np.isfinite(values)
    present = values[seen]
    different = np.unique(present)
    if len(different) <= 2 or (len(different) <= most_bins and len(present) > 2 * most_bins):
        strata[seen] = np.searchsorted(different, present)
        return strata
    n_bins = int(np.clip(len(present) // n_folds, 1, most_bins))
    edges = np.unique(np.quantile(present, np.arange(1, n_bins) / n_bins))
    strata[seen] = np.searchsorted(edges, present, side="right")
    return strata


def stratified_folds(
    strata: Any,
    n_folds: int,
    *,
    groups: Any = None,
    seed: int = 42,
    whole_groups_may_exceed: bool = False,
) -> np.ndarray:
    """Fold number of each participant, (n,) integers, balanced on every column of `strata`.

    Participants (or whole groups) are placed one after another, those with rare strata and large groups first, each
    in the
    fold where it adds least to Σ over strata of (count in fold)² / (count in all), fold size counting as one more
    stratum: the sum is smallest when every stratum is spread evenly.

    Parameters
    ----------
    strata : (n,) or (n, S) integers
    groups : (n,) labels, optional
        A participant without a label is a group by themself.
    whole_groups_may_exceed : bool
        Accept groups larger than a fold, and as many folds as there are groups, instead of refusing them.
    """
    strata = np.asarray(strata).reshape(len(strata), -1)
    codes = group_codes(groups, len(strata))
    sizes = np.bincount(codes)
    if whole_groups_may_exceed:
        n_folds = min(n_folds, len(sizes))
    n, room = len(strata), -(-len(strata) // n_folds)
    if n_folds < 2:
        raise NerveError(
            f"n_folds is {n_folds}, expected at least 2 (there are {len(sizes)} participants or groups)."
        )
    if len(sizes) < n_folds:
        few = f"{n} participants" if n < n_folds else f"{len(sizes)} groups"
        kept = "" if n < n_folds else " Families, and participants of the same FC, are groups."
        wanted = "expected at least one per fold. Ask for fewer folds."
        raise NerveError(f"There are {few} for {n_folds} folds, {wanted}{kept}")
    large = np.flatnonzero(sizes > room)
    if len(large) and not whole_groups_may_exceed:
        names = [
            f"{np.asarray(groups, object)[codes == g][0]} ({sizes[g]} participants)" for g in large
        ]
        raise NerveError(
            f"Groups are kept whole, but {listed(names, most=3)} would not fit one of {n_folds} folds of {room} "
            f"participants: ask for at most {max(n // sizes.max(), 1)} folds, or leave sites out (leave_site_out). Of "
            "participants with the same FC, leave all but one out."
        )
    labels = [column[:, None] == np.unique(column) for column in strata.T]
    counts = np.zeros(
        (len(sizes), 1 + sum(one.shape[1] for one in labels))
    )  # (groups, fold size and labels)
    np.add.at(counts, codes, np.column_stack([np.ones(len(codes)), *labels]))
    return _place(counts, n_folds, np.random.default_rng(seed))[codes]


def leave_groups_out(groups: Any, n_folds: int | None = None, seed: int = 42) -> np.ndarray:
    """Each group is a fold of its own, or whole groups are gathered in `n_folds` folds of similar size."""
    codes = group_codes(groups, len(groups))
    n_groups = codes.max() + 1
    if n_groups < 2:
        raise NerveError(
            "There is only one site, expected at least two to leave one out. Use ordinary folds instead."
        )
    if n_folds is None or n_folds >= n_groups:
        return codes
    return stratified_folds(
        np.zeros(len(codes), int), n_folds, groups=groups, seed=seed, whole_groups_may_exceed=True
    )


def group_codes(groups: Any, n: int) -> np.ndarray:
    """Group of each participant as 0 … G−1; without groups, or without a label, everyone is their own."""
    if groups is None:
        return np.arange(n)
    codes, _ = pd.factorize(pd.Series(np.asarray(groups, object)), sort=False)
    lonely = codes < 0
    codes[lonely] = codes.max(initial=-1) + 1 + np.arange(lonely.sum())
    return codes


def complete_labels(groups: Any) -> np.ndarray:
    """Labels of groups as words, with a label of their own for participants who have none.

    Examples
    --------
    >>> complete_labels(["a", None, "a", None]).tolist()
    ['a', 'alone 1', 'a', 'alone 3']
    """
    labels = np.asarray(groups, object)
    return np.array(
        [f"alone {i}" if pd.isna(label) else str(label) for i, label in enumerate(labels)]
    )


def _place(counts: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    weight = 1.0 / counts.sum(axis=0)  # (labels,)
    shuffled = rng.permutation(len(counts))
    order = shuffled[np.argsort(-(counts[shuffled] @ weight), kind="stable")]
    in_fold = np.zeros((n_folds, counts.shape[1]))
    fold_of = np.empty(len(counts), int)
    for unit in order:
        cost = in_fold @ (weight * counts[unit])  # the squares' increase, up to a constant
        best = np.flatnonzero(cost <= cost.min() + 1e-12)
        fold = best[in_fold[best, 0].argmin()]
        in_fold[fold] += counts[unit]
        fold_of[unit] = fold
    return fold_of
