"""Groups of participants that must not be split: families, and copies with the same FC.

A model that is trained on a relative of a test participant may have seen the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import problem
from nerve._utils.privacy import Note
from nerve.data.cohort import Cohort
from nerve.data.duplicates import SAME
from nerve.evaluation.folds import group_codes


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
    labels, _ = families_and_duplicates(cohort, column)
    return pd.Series(group_codes(labels, len(cohort)), index=cohort.participants["participant_id"])


def families_and_duplicates(
    cohort: Cohort, column: str | None
) -> tuple[np.ndarray | None, list[str]]:
    """Label families, and join them where participants have the same FC.

    Parameters
    ----------
    cohort : Cohort
        Whose participants are grouped.
    column : str or None
        The column of families.

    Returns
    -------
    labels : (n,) array or None
        A label is None for a participant without relatives. Without families and the same FC there
        are no labels.
    notes : list of str
        One on participants with the same FC, if there are any.
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


def related_to_others(groups: np.ndarray | None, selected: np.ndarray) -> np.ndarray:
    """Which of the selected participants share a group with one of the others, (n,) booleans."""
    codes = group_codes(groups, len(selected))
    return selected & np.isin(codes, codes[~selected])


def related_to_another_site(
    groups: np.ndarray | None, sites: Any, is_placed: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Choose participants to leave out, so that no group spans two sites.

    Since whole sites are tested, members of a group at another site would be trained on while their
    relatives are tested. A group keeps its members at the site where most of them are, or, among
    equal sites, where the first of them is.

    Parameters
    ----------
    groups : (n,) labels or None
        Families, and participants with the same FC.
    sites : (n,) labels
        The site of each participant.
    is_placed : (n,) booleans
        Participants who are placed in folds; others do not count.
    order : (n,) positions
        The order that decides which member of a group is the first.

    Returns
    -------
    (n,) booleans
        True for participants who are left out.
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
