"""The paper's tables as data: a number in each cell, and the marks it carries.

    bold, underline   best value of a column and the next one, as printed: ties share a mark; methods only
    shading           two-sided paired bootstrap between the best two, p < 0.05; never on a tie
    dagger            one-sided p < 0.05 against models with permuted networks; in Table 3 with bold, the only mark
    ↑ ↓               a reference row above or below the best method, p < 0.05
    n.                negative r (Tables 1 and 2); --  not available: the cohort lacks what the method needs
    ‡                 an adapted method: an input it needs was replaced by a documented substitute

`nerve.report.table_formats` writes them as Markdown, LaTeX, CSV, plain text and DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

LEVEL = 0.05
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
    against: str = ""
    adapted: bool = False
    failed: bool = False
    signed: bool = False  # negative r is printed as it is

    @property
    def available(self) -> bool:
        """Whether there is a number."""
        return bool(np.isfinite(self.r))

    @property
    def word(self) -> str:
        """What stands in place of a number, or an empty string."""
        if not self.available:
            return "failed" if self.failed else "--"
        return "n." if self.r < 0 and not self.signed else ""

    @property
    def margin(self) -> str:
        """What stands behind ±: a standard deviation over models, else half the width of the interval."""
        if np.isfinite(self.spread):
            return number(self.spread)
        return number(self.half_width) if np.isfinite(self.half_width) and not self.signed else ""

    @property
    def marks(self) -> str:
        """The signs behind the number."""
        return "†" * self.dagger + self.against + "‡" * self.adapted


@dataclass(frozen=True)
class TableRow:
    """A line of a table; `block` says which lines stand together between rules."""

    line: str
    label: str
    cells: tuple[Cell, ...]
    block: tuple[str, ...] = ()
    variant: str = ""


@dataclass(frozen=True)
class ResultsTable:
    """Methods down, targets of each cohort across.

    Parameters
    ----------
    columns : sequence of (cohort, target)
        In the order in which they are printed; the targets of one cohort stand together.
    rows : sequence of TableRow
    title : str
    notes : sequence of str
        Sentences below the table.
    signed : bool
        Print negative r as it is (Table 3) rather than "n." (Tables 1 and 2).
    names : mapping
        What the table calls cohorts and (cohort, target) columns.
    """

    columns: tuple[tuple[str, str], ...]
    rows: tuple[TableRow, ...]
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

    def lead(self, row: TableRow) -> list[str]:
        """The words at the start of a line."""
        return [row.label, row.variant][: len(self.lead_header)]


def number(value: float) -> str:
    """Two decimals without the leading zero, as the paper prints them.

    Examples
    --------
    >>> [number(x) for x in (0.114, -0.04, 1.0, -0.001)]
    ['.11', '-.04', '1.00', '.00']
    """
    text = f"{value:.2f}"
    if float(text) == 0:
        text = "0.00"
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def mark_best(column: Sequence[Cell], p: float) -> list[Cell]:
    """Mark the best printed value and the next one, so that a tie is seen as one; negative ones take no mark."""
    printed = [float(number(cell.r)) if cell.available and cell.r >= 0 else None for cell in column]
    best, second = [*sorted({value for value in printed if value is not None}, reverse=True), None, None][:2]
    shaded = p < LEVEL and printed.count(best) == 1
    marks = {second: {"rank": 2}} | {best: {"rank": 1, "shaded": shaded}} | {None: {}}
    return [replace(cell, **marks.get(value, {})) for cell, value in zip(column, printed, strict=True)]  # type: ignore[arg-type]
