"""The table of predictions: checked, with the ids of rows and lines, cut by cohort and target.

For each participant, target and row of results the table has: cohort, target, row (or method,
variant and seed), participant, fold, observed, predicted; and, where there are any, observed_raw
(before covariates), repeat, training_mean (where another cohort is trained on) and class_column.
Rows that differ in their seed alone make up a line. Each class of a column of three or more classes
is a target, against all others; then `class_column` names the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, known_columns, listed, problem

# columns that tell one row of results from another, where present
IDENTITY = ["row", "method", "variant", "seed"]
# columns that every table of predictions has
_COLUMNS = ["cohort", "target", "participant", "fold", "observed", "predicted"]


def predictions_by_target(predictions: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Check the table of predictions and cut it by cohort and target.

    Parameters
    ----------
    predictions : DataFrame
        The table of predictions.

    Yields
    ------
    cohort, target : str
        After all targets, each column of several classes comes as one more target.
    part : DataFrame
        The predictions of all rows, with row, line, repeat, observed_raw and class_column; of a
        column of classes, those of each of its classes.
    """
    known_columns(_COLUMNS, predictions.columns, "predictions table")
    table = with_lines(predictions)
    if "repeat" not in table:
        table = table.assign(repeat=0)
    if "observed_raw" not in table:
        table = table.assign(observed_raw=table["observed"])
    if "class_column" not in table:
        table = table.assign(class_column="")
    if table.duplicated(["cohort", "target", "row", "repeat", "participant"]).any():
        raise NerveError(
            "The predictions table predicts a participant twice by the same row, target and repeat."
        )
    is_finite = np.isfinite(table[["observed", "predicted"]].to_numpy(float)).all(axis=1)
    not_finite = table[~is_finite]
    if len(not_finite):
        first = not_finite.iloc[0]
        same_row = not_finite["row"] == first["row"]
        same_target = not_finite["target"] == first["target"]
        ids = not_finite.loc[same_row & same_target, "participant"].unique()
        raise problem(
            "predictions table",
            f"missing or infinite values of {first['target']} by {first['line']} for "
            f"{listed(ids, most=5)}",
            expected="numbers",
            remedy="Leave these rows out, or predict again.",
        )
    for (cohort, target), part in table.groupby(["cohort", "target"], sort=False):
        yield str(cohort), str(target), part
    of_classes = table[table["class_column"] != ""]
    for (cohort, column), part in of_classes.groupby(["cohort", "class_column"], sort=False):
        yield str(cohort), str(column), part


def with_lines(predictions: pd.DataFrame, rows: pd.DataFrame | None = None) -> pd.DataFrame:
    """Add the columns row and line to a table of predictions.

    Parameters
    ----------
    predictions : DataFrame
        With row; or with method, and variant and seed where there are any. Then the id of a line
        is the method and its variant, joined by a comma.
    rows : DataFrame, optional
        Which line a row belongs to (rows.tsv).

    Returns
    -------
    DataFrame
        The table.
    """
    table = predictions
    if "row" not in table:
        known_columns(["method"], table.columns, "predictions table")
        lines = table["method"].astype(str)
        variant = pd.Series("", index=table.index)
        if "variant" in table:
            variant = table["variant"].fillna("").astype(str)
            lines = lines.where(variant == "", lines + ", " + variant)
        seeds = table["seed"] if "seed" in table else [0] * len(table)
        names = [f"{line}, seed {seed}" for line, seed in zip(lines, seeds, strict=True)]
        table = table.assign(variant=variant, line=lines, row=names)
    if rows is not None:
        return table.assign(line=table["row"].map(rows.set_index("row")["line"]))
    if "line" in table:
        return table
    return table.assign(line=table["row"])


def sorted_participants(predictions: pd.DataFrame) -> np.ndarray:
    """Ids of the participants, sorted so that resamples do not depend on the order of the table."""
    return np.array(sorted(predictions["participant"].unique(), key=str), object)


def families_of(participants: np.ndarray, groups: Any) -> np.ndarray | None:
    """Family of each participant, (n,), from a mapping or Series; None without groups."""
    if groups is None:
        return None
    return pd.Series(participants).map(dict(groups)).to_numpy(object)


def trained_on_another_cohort(predictions: pd.DataFrame) -> bool:
    """Whether another cohort was trained on: then all participants are in one fold."""
    if "training_mean" not in predictions or predictions["fold"].nunique() > 1:
        return False
    return bool(predictions["training_mean"].notna().all())


def is_binary(observed_raw: Any) -> bool:
    """Whether a target has two classes, coded 0 and 1."""
    return set(np.unique(np.asarray(observed_raw, float)).tolist()) == {0.0, 1.0}
