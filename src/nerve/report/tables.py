"""The paper's tables as data: a number in each cell, and the marks it carries.

    bold, underline   best and second best of a column, by the printed value: ties share a mark
    shading           two-sided paired bootstrap between the best two, p < 0.05
    dagger            one-sided p < 0.05 against models with permuted networks
    n.                negative r (Tables 1 and 2); --  not available: the cohort lacks what the method needs
    ‡                 an adapted method: an input it needs was replaced by a documented substitute

`nerve.report.table_formats` writes them as Markdown, LaTeX, CSV and DataFrame.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

LEVEL = 0.05
KEY = ["cohort", "target", "method", "variant"]
NAN = float("nan")


@dataclass(frozen=True)
class Cell:
    """One number of a table and its marks; `r` is NaN where there is none."""

    r: float = NAN
    half_width: float = NAN
    spread: float = NAN
    rank: int = 0
    shaded: bool = False
    dagger: bool = False
    adapted: bool = False
    failed: bool = False

    @property
    def available(self) -> bool:
        """Whether there is a number to print."""
        return bool(np.isfinite(self.r))


@dataclass(frozen=True)
class Row:
    """A line of a table; `group` says which lines stand together between rules."""

    label: str
    cells: tuple[Cell, ...]
    group: str = ""
    variant: str = ""


@dataclass(frozen=True)
class ResultsTable:
    """Methods down, targets of each cohort across.

    Parameters
    ----------
    columns : sequence of (cohort, target)
        In the order in which they are printed; the targets of one cohort stand together.
    rows : sequence of Row
    title : str
    notes : sequence of str
        Sentences below the table.
    signed : bool
        Print negative r as it is (Table 3) rather than "n." (Tables 1 and 2).
    names : mapping
        What the table calls cohorts and (cohort, target) columns.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    signed: bool = False
    first_column: str = "Method"
    names: Mapping[str | tuple[str, str], str] = field(default_factory=dict)

    @property
    def cohorts(self) -> list[tuple[str, int]]:
        """What each cohort is called and how many columns it has."""
        counts: dict[str, int] = {}
        for cohort, _ in self.columns:
            counts[cohort] = counts.get(cohort, 0) + 1
        return [(self.names.get(cohort, cohort), count) for cohort, count in counts.items()]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """What each column is called: (cohort, target)."""
        return [(self.names.get(c, c), self.names.get((c, t), t)) for c, t in self.columns]

    @property
    def lead_header(self) -> list[str]:
        """The words above the start of the lines; a swept setting has a column of its own."""
        return [self.first_column, "Setting"] if any(row.variant for row in self.rows) else [self.first_column]

    def lead(self, row: Row) -> list[str]:
        """The words at the start of a line."""
        return [row.label, row.variant][: len(self.lead_header)]


def results_table(
    scores: pd.DataFrame,
    comparisons: pd.DataFrame | None = None,
    *,
    rows: Sequence[str] | None = None,
    groups: Mapping[str, str] | None = None,
    columns: Sequence[tuple[str, str]] | None = None,
    names: Mapping[str | tuple[str, str], str] | None = None,
    daggers: pd.DataFrame | None = None,
    spreads: pd.DataFrame | None = None,
    adapted: Mapping[tuple[str, str], str] | None = None,
    failed: Collection[tuple[str, str]] = (),
    title: str = "",
    signed: bool = False,
    first_column: str = "Method",
    notes: Sequence[str] = (),
) -> ResultsTable:
    """Build a table from scores (one row a cohort, target, method and variant; several seeds are averaged).

    Parameters
    ----------
    scores : DataFrame
        Columns cohort, target, method, r, r_half_width, and variant if a setting was swept.
    comparisons : DataFrame, optional
        Columns cohort, target, p: the paired bootstrap between the best two.
    rows, columns : sequences, optional
        Which methods and (cohort, target) columns, in which order; all that occur by default. A method that was asked
        for and has no score prints "--".
    daggers : DataFrame, optional
        Columns cohort, target, method, p: one-sided permutation test against permuted networks.
    spreads : DataFrame, optional
        Columns cohort, target, method, spread: rows that print mean ± standard deviation over models.
    adapted : mapping from (cohort, method) to the substitute, optional
    failed : collection of (cohort, method), optional
        Runs that ended with an error: printed as such, never as "--".
    """
    scores = scores.assign(variant=scores["variant"].fillna("") if "variant" in scores else "")
    columns = tuple(columns or dict.fromkeys(zip(scores["cohort"], scores["target"], strict=True)))
    lines = _lines(scores, rows)
    mean = scores.groupby(KEY, sort=False)[["r", "r_half_width"]].mean()
    p_dagger, spread = _lookup(daggers, KEY[:3], "p"), _lookup(spreads, KEY[:3], "spread")
    adapted = adapted or {}
    grid = [
        [
            _cell(
                mean,
                (*column, *line),
                p_dagger,
                spread,
                (column[0], line[0]) in adapted,
                (column[0], line[0]) in failed,
            )
            for column in columns
        ]
        for line in lines
    ]
    p_best = _lookup(comparisons, KEY[:2], "p")
    marked = [
        mark_best(cells, p_best.get(column, NAN))
        for cells, column in zip(zip(*grid, strict=True), columns, strict=True)
    ]
    made = tuple(
        Row(method, cells, (groups or {}).get(method, ""), variant)
        for (method, variant), cells in zip(lines, zip(*marked, strict=True), strict=True)
    )
    notes = [*notes, *_legend(made, signed, comparisons is not None, adapted)]
    return ResultsTable(columns, made, title, tuple(notes), signed, first_column, dict(names or {}))


def extended_table(scores: pd.DataFrame) -> pd.DataFrame:
    """The same results with everything a reviewer asks for: fold-mean r, R², MAE, CI, p and N."""
    wanted = [*KEY, "seed", "n", "r", "r_low", "r_high", "r_fold_mean", "r2", "mae", "auc", "balanced_accuracy"]
    wanted += ["p", "q", "p_permuted_networks", "r_target_motion", "r_prediction_motion"]
    return scores[[name for name in wanted if name in scores.columns]].dropna(axis=1, how="all").reset_index(drop=True)


def mark_best(column: Sequence[Cell], p: float) -> list[Cell]:
    """Mark the best and the second best, by the printed value, so that a tie is seen as one and never shaded."""
    printed = [round(cell.r, 2) if cell.available and not np.isfinite(cell.spread) else -np.inf for cell in column]
    order = sorted({value for value in printed if value >= 0}, reverse=True)
    alone = bool(order) and printed.count(order[0]) == 1
    marked = list(column)
    for i, value in enumerate(printed):
        if order and value == order[0]:
            marked[i] = replace(column[i], rank=1, shaded=alone and p < LEVEL)
        elif alone and len(order) > 1 and value == order[1]:
            marked[i] = replace(column[i], rank=2)
    return marked


def _lines(scores: pd.DataFrame, rows: Sequence[str] | None) -> list[tuple[str, str]]:
    """(method, variant) of each line."""
    found = list(dict.fromkeys(zip(scores["method"], scores["variant"], strict=True)))
    lines: list[tuple[str, str]] = []
    for method in rows or dict.fromkeys(method for method, _ in found):
        lines += [line for line in found if line[0] == method] or [(method, "")]
    return lines


def _cell(
    mean: pd.DataFrame, key: tuple[str, ...], p_dagger: Mapping, spread: Mapping, adapted: bool, failed: bool
) -> Cell:
    if key not in mean.index:
        return Cell(failed=failed)
    r, width = mean.loc[key, ["r", "r_half_width"]].to_numpy(float)
    dagger = bool(p_dagger.get(key[:3], 1.0) < LEVEL)
    return Cell(float(r), float(width), float(spread.get(key[:3], NAN)), dagger=dagger, adapted=adapted)


def _legend(rows: Sequence[Row], signed: bool, compared: bool, adapted: Mapping[tuple[str, str], str]) -> list[str]:
    cells = [cell for row in rows for cell in row.cells]
    notes = []
    if not signed:
        notes.append("r with the half-width of its bootstrap 95 % CI; bold: best, underlined: second best.")
    if compared:
        notes.append("Shaded: p < 0.05, two-sided paired bootstrap between the best two methods.")
    if any(cell.dagger for cell in cells):
        notes.append("†: p < 0.05, one-sided permutation test against models with permuted networks.")
    if any(cell.available and cell.r < 0 for cell in cells) and not signed:
        notes.append("n.: negative r.")
    if any(cell.failed for cell in cells):
        notes.append("failed: the run ended with an error; runs.tsv says which.")
    if any(not cell.available and not cell.failed for cell in cells):
        notes.append("--: not available, the cohort lacks what the method needs.")
    substitutes = dict.fromkeys(f"{method}: {how}" for (_, method), how in adapted.items())
    if substitutes and any(cell.adapted for cell in cells):
        notes.append("‡: adapted. " + "; ".join(substitutes) + ".")
    return notes


def _lookup(table: pd.DataFrame | None, keys: list[str], value: str) -> dict:
    if table is None or not len(table):
        return {}
    return table.groupby(keys, sort=False)[value].mean().to_dict()
