"""Results → the paper's tables as data: a number in each cell, and the marks it carries.

    bold, underline   best value of a column and the next one, as printed: ties share a mark; methods only
    shading           two-sided paired bootstrap between the best two, p < 0.05; never on a tie; not in Table 2
    dagger            one-sided p < 0.05 against models with permuted networks; in Table 3 with bold, the only mark
    ↑ ↓               a reference row above or below the best method, p < 0.05
    n.                negative r (Tables 1 and 2); --  not available: the cohort lacks what the method needs
    ‡                 an adapted method: an input it needs was replaced by a documented substitute

Reference rows stand apart, in a block of their own. `nerve.report.table_formats` writes the tables as Markdown, LaTeX,
CSV, plain text and DataFrame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nerve.evaluation.results import Results
from nerve.evaluation.rows import NULL, lines_under_test, rows_of, setting_words, without_swept
from nerve.report.report_data import ReportData, at
from nerve.report.words import seen

LEVEL = 0.05
NAN = float("nan")
FIRST_COLUMN = {"tokenizers": "Tokenizer", "parcellations": "Parcellation"}  # by layout
_TESTED = "p < 0.05, two-sided paired bootstrap"


@dataclass(frozen=True)
class Cell:
    """One number of a table and its marks; `r` is NaN where there is none."""

    r: float = NAN
    margin: str = (
        ""  # behind ±: half the width of the interval, or a standard deviation over models
    )
    of_models: bool = False
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
    headers : sequence of (cohort, target)
        What the table calls them.
    rows : sequence of TableRow
    title : str
    notes : sequence of str
        Sentences below the table.
    signed : bool
        Print negative r as it is (Table 3) rather than "n." (Tables 1 and 2).
    """

    columns: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]
    rows: tuple[TableRow, ...]
    title: str
    notes: tuple[str, ...]
    signed: bool
    first_column: str

    @property
    def cohorts(self) -> list[tuple[str, int]]:
        """What each cohort is called and how many columns it has."""
        names = {
            cohort: name for (cohort, _), (name, _) in zip(self.columns, self.headers, strict=True)
        }
        return [
            (names[cohort], count)
            for cohort, count in Counter(cohort for cohort, _ in self.columns).items()
        ]

    @property
    def lead_header(self) -> list[str]:
        """The words above the start of the lines; a swept setting has a column of its own."""
        return (
            [self.first_column, "Setting"]
            if any(row.variant for row in self.rows)
            else [self.first_column]
        )

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
    text = f"{value:z.2f}"
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def mark_best(column: Sequence[Cell], p: float) -> list[Cell]:
    """Mark the best printed value and the next one, so that a tie is seen as one; negative ones take no mark."""
    printed = [float(number(cell.r)) if cell.available and cell.r >= 0 else None for cell in column]
    best, second = [
        *sorted({value for value in printed if value is not None}, reverse=True),
        None,
        None,
    ][:2]
    shaded = p < LEVEL and printed.count(best) == 1
    marked = []
    for cell, value in zip(column, printed, strict=True):
        if value is not None and value == best:
            cell = replace(cell, rank=1, shaded=shaded)
        elif value is not None and value == second:
            cell = replace(cell, rank=2)
        marked.append(cell)
    return marked


def paper_table(results: ReportData | Results) -> ResultsTable | None:
    """The table of the folder's layout, or None where nothing was predicted."""
    results = ReportData.of(results) if isinstance(results, Results) else results
    if results.scores.empty:
        return None
    layout = str(results.about.get("layout", "methods"))
    signed = layout == "parcellations"
    apart = [line for line in results.lines.index if line not in results.contenders]
    lines = [*results.null_lines, *results.contenders, *apart]
    grid = []
    for column in results.columns:
        cells = {line: _cell(results, column, line, signed) for line in lines}
        grid.append(
            cells if signed else _ranked(results, column, cells, shading=layout != "tokenizers")
        )
    rows = tuple(_row(results, line, apart, tuple(cells[line] for cells in grid)) for line in lines)
    headers = tuple(
        (results.cohort_label(cohort), results.target_label(cohort, t))
        for cohort, t in results.columns
    )
    told = dict.fromkeys(
        f"{results.label(line)}: {how}" for (_, line), how in results.adapted.items()
    )
    adapted = [f"‡: adapted. {'; '.join(told)}."] if told else []
    notes = (
        *_legend(rows, signed, bool(apart)),
        *_null_note(results),
        *identities(results),
        *adapted,
        *seen(results),
    )
    first = FIRST_COLUMN.get(layout, "Method")
    return ResultsTable(tuple(results.columns), headers, rows, results.title, notes, signed, first)


def extended_table(results: ReportData) -> pd.DataFrame:
    """The same results with everything a reviewer asks for: fold-mean r, R², MAE, CI, p and n; one row per seed."""
    wanted = ["n", "r", "r_low", "r_high", "r_low_cv", "r_high_cv", "r_fold_mean", "r2", "mae", "auc", "auc_low",
              "auc_high", "balanced_accuracy", "p", "q", "p_permuted_networks", "r_target_motion",
              "r_prediction_motion", "r_within_site", "site_accuracy", "scope", "adapted"]  # fmt: skip
    scores = results.scores
    seed_of = dict(zip(results.rows["row"], results.rows["seed"], strict=True))
    table = results.labelled(scores, method="line").assign(seed=scores["row"].map(seed_of))
    known = scores[[name for name in wanted if name in scores]]
    return table.join(known.replace("", np.nan).dropna(axis=1, how="all")).reset_index(drop=True)


def _row(results: ReportData, line: str, apart: list[str], cells: tuple[Cell, ...]) -> TableRow:
    if line in results.null_lines:
        return TableRow(line, results.label(line), cells, ("null",))
    about = results.lines.loc[line]
    block = ("reference",) if line in apart else ("methods", str(about["group"]))
    return TableRow(line, results.name(line), cells, block, str(about["variant"]))


def _cell(results: ReportData, column: tuple[str, str], line: str, signed: bool) -> Cell:
    """The mean over seeds; for permuted networks, mean and standard deviation over models."""
    cohort, null = column[0], at(results.null_scores, *column)
    values = null.loc[null["line"] == line, "r"] if len(null) else pd.Series(dtype=float)
    if len(values):
        return Cell(
            values.mean(),
            number(values.std() if len(values) > 1 else 0),
            of_models=True,
            signed=signed,
        )
    one = results.by_place.get((*column, line))
    if one is None:
        return Cell(failed=bool({(cohort, line), ("", line)} & results.failed))
    beyond, width = bool(one.get("p_permuted_networks", NAN) < LEVEL), one.get("r_half_width", NAN)
    margin = number(width) if np.isfinite(width) and not signed else ""
    bold, adapted = int(beyond and signed), (cohort, line) in results.adapted
    return Cell(one["r"], margin, rank=bold, dagger=beyond, adapted=adapted, signed=signed)


def _ranked(
    results: ReportData, column: tuple[str, str], cells: dict[str, Cell], shading: bool = True
) -> dict[str, Cell]:
    """Methods ranked among themselves; each reference against the best of them."""
    mine = at(results.comparisons, *column)
    compared = (
        mine[mine["best_two"] | (mine["among"] == "reference")].to_dict("records")
        if len(mine)
        else []
    )
    best = [
        row["p"] for row in compared if shading and row["among"] == "methods" and row["best_two"]
    ]
    marked = mark_best([cells[line] for line in results.contenders], min(best, default=NAN))
    cells = cells | dict(zip(results.contenders, marked, strict=True))
    for row in compared:
        if row["among"] == "reference" and row["p"] < LEVEL:
            side = "↑" if row["score_b"] > row["score_a"] else "↓"
            cells[row["line_b"]] = replace(cells[row["line_b"]], against=side)
    return cells


def identities(results: ReportData) -> list[str]:
    """What the names of the rows stand for: their presets, and every setting that differs."""
    unchanged: dict[str, list[str]] = {}  # preset → names
    changed: list[str] = []
    for row in rows_of(results.lines):
        name = results.name(row.line)
        words = ", ".join(
            setting_words(without_swept(row))
        )  # what was swept has a column of its own
        if words:
            method = row.title if row.title.casefold() not in name.casefold() else ""
            base = " ".join(part for part in (method, row.preset) if part)
            changed.append(f"{name}{f' ({base})' if base else ''}: {words}")
        elif row.preset:
            unchanged.setdefault(row.preset, []).append(name)
    notes = [f"Preset {preset}, nothing else changed: {'; '.join(dict.fromkeys(names))}."
             for preset, names in unchanged.items()]  # fmt: skip
    return notes + (
        [f"Settings that differ from the preset: {'; '.join(dict.fromkeys(changed))}."]
        if changed
        else []
    )


def _null_note(results: ReportData) -> list[str]:
    """What the row of permuted networks is."""
    null = [row for row in rows_of(results.rows) if row.kind == NULL]
    if not null or results.null_scores.empty:
        return []
    n_models = results.null_scores["row"].nunique()
    names = " and ".join(
        results.name(row.line) for row in lines_under_test(null, rows_of(results.lines))
    )
    return [
        f"{null[0].label}: mean ± standard deviation of r over {n_models} models, each retrained with regions assigned "
        f"at random to networks of the same sizes{f', otherwise as {names}' if names else ''}."
    ]


def _legend(rows: tuple[TableRow, ...], signed: bool, apart: bool) -> list[str]:
    cells = [cell for row in rows for cell in row.cells]
    missing = [cell for cell in cells if not cell.available]
    permuted = "p < 0.05, one-sided, against models retrained with permuted networks"
    told = {
        "r with the half-width of its bootstrap 95 % CI; bold: best method, underlined: next.": not signed,
        f"Shaded: {_TESTED} between the best two methods.": any(cell.shaded for cell in cells),
        f"Bold†: {permuted}.": signed,
        f"†: {permuted}.": not signed and any(cell.dagger for cell in cells),
        "Reference rows stand apart and take no part in the ranking.": apart and not signed,
        f"↑, ↓: above, below the best method of the column, {_TESTED}.": any(
            cell.against for cell in cells
        ),
        "n.: negative r.": any(cell.word == "n." for cell in cells),
        "failed: the run ended with an error; runs.tsv says which.": any(
            cell.failed for cell in missing
        ),
        "--: not available, the cohort lacks what the method needs.": any(
            not cell.failed for cell in missing
        ),
    }
    return [note for note, holds in told.items() if holds]
