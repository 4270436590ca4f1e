"""Targets as numbers: two classes become 0 and 1, and each of several classes its own target."""

from __future__ import annotations

import numpy as np
import pandas as pd

from nerve._utils.errors import listed, problem
from nerve._utils.numbers import as_numbers, odd_cells
from nerve.evaluation.covariates import format_value, is_numeric
from nerve.evaluation.protocol import Protocol
from nerve.evaluation.rows import class_target

# spreads of a target beyond which squares of its values leave the range of float64
_LEAST_SPREAD = 1e-100
_MOST_SPREAD = 1e100
# name of a two-class target → what 0 and 1 stand for
Classes = dict[str, tuple[str, str]]


def code_targets(
    table: pd.DataFrame, protocol: Protocol
) -> tuple[pd.DataFrame, Classes, dict[str, str]]:
    """Code the targets of a protocol as numbers.

    Parameters
    ----------
    table : DataFrame
        The participants table.
    protocol : Protocol
        Names the targets, and those whose numbers are names of classes.

    Returns
    -------
    targets : DataFrame
        (n, T) numbers; NaN where they are missing.
    classes : dict
        Name of a two-class target → what 0 and 1 stand for.
    class_columns : dict
        Name of a target that is one class against all others → the column of the classes.
    """
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
