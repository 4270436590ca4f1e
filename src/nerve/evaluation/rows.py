"""What one line of a table of results is. Identity is an id; labels are joined when printing, never compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pandas as pd

REFERENCE, SUPERVISED, SELF_SUPERVISED, GIVEN, NULL = "reference", "supervised", "self-supervised", "given", "null"


@dataclass(frozen=True)
class Row:
    """One set of predictions: a method with its settings and seed.

    Rows that differ in their seed alone share a `line`, which is what a table prints: the mean over its rows.
    """

    row: str  # the id, unique in a results folder
    line: str  # the id of the line that the row belongs to
    method: str  # a name of `nerve.methods.METHODS`, or "features" for numbers that the user has given
    label: str  # what tables call it
    kind: str  # reference, supervised, self-supervised, given (the user's own features) or null (permuted networks)
    group: str = ""  # lines of one group stand together between rules
    view: str = "fc"  # the matrix that is cut into patches
    variant: str = ""  # what sets it apart from other lines of the same label, in words
    settings: dict[str, Any] = field(default_factory=dict)  # the settings that were swept
    preset: str = ""
    seed: int = 0
    scope: str = "none"  # whom whatever it learned without labels had seen: see `SCOPES`
    width: int = 0  # numbers per participant; 0 where it does not apply
    seconds: float = 0.0  # time of training and embedding
    adapted: str = ""  # the substitute that a cohort made necessary


SCOPES = {
    "all": "pretrained, without labels, on all participants including those tested",
    "train_folds": "everything it learned comes from training folds",
    "other_people": "pretrained on other participants",
    "none": "nothing was pretrained",
    "not stated": "whether its encoder saw the tested participants was not stated",
}


def class_target(column: str, label: str) -> str:
    """What the target is called that is one class of a column against all others."""
    return f"{column}: {label}"


def rows_table(rows: Iterable[Row]) -> pd.DataFrame:
    """rows.tsv as a table, one row per `Row`."""
    return pd.DataFrame([asdict(row) for row in rows], columns=[one.name for one in fields(Row)])


def rows_of(table: pd.DataFrame) -> list[Row]:
    """The rows of rows.tsv as objects."""
    return [Row(**{str(name): value for name, value in record.items()}) for record in table.to_dict("records")]


def lines_of(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per line, in order, indexed by line; seeds are dropped."""
    return rows.drop_duplicates("line").set_index("line", drop=False)


def line_label(line: Any) -> str:
    """What a table, figure or sentence calls a line, joined from its parts.

    Examples
    --------
    >>> line_label(Row("a", "a", "nerve", "NERVE", "self-supervised", view="tangent", variant="mask_ratio=0.5"))
    'NERVE, tangent view, mask_ratio=0.5'
    """
    view = "" if line.view in ("", "fc") else f"{line.view} view"
    return ", ".join(part for part in (line.label, view, line.variant) if part)


def contenders(rows: pd.DataFrame) -> list[str]:
    """Lines that are compared with each other: the methods; references where there is no method; never covariates."""
    lines = lines_of(rows)
    compared = lines[(lines["kind"] != NULL) & (lines["method"] != "covariates")]
    methods = compared[compared["kind"] != REFERENCE]
    return list((methods if len(methods) else compared).index)


def references(rows: pd.DataFrame) -> list[str]:
    """Reference lines that stand apart: each is compared with the best contender."""
    lines = lines_of(rows)
    apart = (lines["kind"] == REFERENCE) & (lines["method"] != "covariates") & ~lines.index.isin(contenders(rows))
    return list(lines.index[apart])
