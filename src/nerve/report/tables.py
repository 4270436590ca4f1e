"""Results → the paper's tables as data: a number in each cell, and the marks it carries.

    bold, underline   best value of a column and the next one, as printed: ties share a mark;
                      methods only, and none where a column has one value
    shading           two-sided paired bootstrap between the best two, p < 0.05; never on a tie; not
                      in Table 2
    dagger            one-sided p < 0.05 against models with permuted networks; in Table 3 with
                      bold, the only mark
    ↑ ↓               a reference row above or below the best method, p < 0.05
    n.                negative r (Tables 1 and 2), in Markdown and LaTeX; elsewhere the number
    --                not available: the cohort lacks what the method needs
    few               too few participants per fold for a score
    ‡                 an adapted method: an input it needs was replaced by a documented substitute

Reference rows have a block of their own. `nerve.report.table_formats` writes the tables as
Markdown, LaTeX, CSV, plain text and DataFrame.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nerve.evaluation.results import Results
from nerve.evaluation.rows import (
    NULL,
    lines_with_permuted_networks,
    rows_of,
    setting_words,
    without_swept,
)
from nerve.report.findings import FEWEST_PER_FOLD, LEVEL, too_few_sentence
from nerve.report.report_data import ReportData, rows_at
from nerve.report.words import scope_sentences, view_sentences

_NAN = float("nan")
_FIRST_COLUMN = {"tokenizers": "Tokenizer", "parcellations": "Parcellation"}  # by layout
_TESTED = "p < 0.05, two-sided paired bootstrap (the paper's test)"
_EXTENDED = (
    "n",
    "r",
    "r_low",
    "r_high",
    "r_low_cv",
    "r_high_cv",
    "r_fold_mean",
    "r2",
    "mae",
    "auc",
    "auc_low",
    "auc_high",
    "auc_low_cv",
    "auc_high_cv",
    "balanced_accuracy",
    "r_null_mean",
    "p",
    "q",
    "p_permuted_networks",
    "r_target_motion",
    "r_prediction_motion",
    "r_within_site",
    "site_accuracy",
    "scope",
    "adapted",
)


@dataclass(frozen=True)
class Cell:  # numpydoc ignore=PR02
    """One number of a table and its marks.

    Parameters
    ----------
    r : float
        NaN where there is none.
    margin : str
        The number behind ±: half the width of the interval, or a standard deviation over models.
    of_models : bool
        Whether r and margin are mean and standard deviation over models.
    rank : int
        1 for the best value of a column, 2 for the next, 0 for others.
    shaded : bool
        The best value differs from the next.
    dagger : bool
        Better than models with permuted networks.
    against : str
        ↑ or ↓ where a reference is better or worse than the best method.
    adapted : bool
        An input was replaced by a substitute.
    failed : bool
        The run ended with an error.
    too_few : bool
        There were too few participants per fold for a score.
    signed : bool
        Print negative r as it is, in the paper's tables too.
    """

    r: float = _NAN
    margin: str = ""
    of_models: bool = False
    rank: int = 0
    shaded: bool = False
    dagger: bool = False
    against: str = ""
    adapted: bool = False
    failed: bool = False
    too_few: bool = False
    signed: bool = False

    @property
    def available(self) -> bool:
        """Whether there is a number."""
        return bool(np.isfinite(self.r))

    @property
    def word(self) -> str:
        """The word in place of a number that is not available; empty otherwise."""
        if self.available:
            return ""
        if self.too_few:
            return "few"
        return "failed" if self.failed else "--"

    @property
    def word_in_paper(self) -> str:
        """As `word`, but in the paper's tables, which print "n." for a negative r."""
        return "n." if self.available and self.r < 0 and not self.signed else self.word

    @property
    def marks(self) -> str:
        """The signs behind the number."""
        dagger = "†" if self.dagger else ""
        adapted = "‡" if self.adapted else ""
        return dagger + self.against + adapted


@dataclass(frozen=True)
class TableRow:  # numpydoc ignore=PR02
    """A row of a printed table: one line of the results, its seeds averaged.

    Parameters
    ----------
    line : str
        Its id.
    label : str
        What the table calls it.
    cells : tuple of Cell
        One per column.
    block : tuple of str
        Rows of one block stand together between rules.
    variant : str
        Swept settings, in words.
    """

    line: str
    label: str
    cells: tuple[Cell, ...]
    block: tuple[str, ...] = ()
    variant: str = ""


@dataclass(frozen=True)
class ResultsTable:  # numpydoc ignore=PR02
    """Methods down, targets of each cohort across.

    Parameters
    ----------
    columns : tuple of (cohort, target)
        In the order in which they are printed; the targets of one cohort stand together.
    headers : tuple of (cohort, target)
        What the table calls them.
    rows : tuple of TableRow
        From the top down.
    title : str
        Caption.
    notes : tuple of str
        Sentences below the table.
    signed : bool
        Print negative r as it is (Table 3) rather than "n." (Tables 1 and 2) in the paper's
        tables.
    first_column : str
        Header of the names of the rows.
    """

    columns: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]
    rows: tuple[TableRow, ...]
    title: str
    notes: tuple[str, ...]
    signed: bool
    first_column: str

    @property
    def cells(self) -> list[Cell]:
        """The cells of all rows."""
        return list(itertools.chain.from_iterable(row.cells for row in self.rows))

    @property
    def cohorts(self) -> list[tuple[str, int]]:
        """What each cohort is called and how many columns it has."""
        cohorts = [cohort for cohort, _ in self.columns]
        labels = [label for label, _ in self.headers]
        label_of = dict(zip(cohorts, labels, strict=True))
        return [(label_of[cohort], count) for cohort, count in Counter(cohorts).items()]

    @property
    def lead_header(self) -> list[str]:
        """Headers of the words before the numbers; swept settings have a column of their own."""
        if any(row.variant for row in self.rows):
            return [self.first_column, "Setting"]
        return [self.first_column]

    def lead(self, row: TableRow) -> list[str]:
        """The words of a row before its numbers."""
        return [row.label, row.variant][: len(self.lead_header)]


def number(value: float) -> str:
    """Two decimals without the leading zero, as the paper prints them.

    Parameters
    ----------
    value : float
        Such as r.

    Returns
    -------
    str
        As printed.

    Examples
    --------
    >>> [number(x) for x in (0.114, -0.04, 1.0, -0.001)]
    ['.11', '-.04', '1.00', '.00']
    """
    text = f"{value:z.2f}"
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def _mark_best(column: Sequence[Cell], p: float) -> list[Cell]:
    """Mark the best printed value and the next one; a lone value takes no mark.

    Parameters
    ----------
    column : sequence of Cell
        The methods of one column. Negative values take no mark; ties, as printed, share one.
    p : float
        Of the comparison between the best two; below 0.05 the best is shaded.

    Returns
    -------
    list of Cell
        The same cells, marked.
    """
    if sum(cell.available for cell in column) < 2:
        return list(column)
    printed = [float(number(cell.r)) if cell.available and cell.r >= 0 else None for cell in column]
    ranked = sorted({value for value in printed if value is not None}, reverse=True)
    best = ranked[0] if ranked else None
    second = ranked[1] if len(ranked) > 1 else None
    shaded = p < LEVEL and printed.count(best) == 1
    marked = []
    for cell, value in zip(column, printed, strict=True):
        if value is None:
            marked.append(cell)
        elif value == best:
            marked.append(replace(cell, rank=1, shaded=shaded))
        elif value == second:
            marked.append(replace(cell, rank=2))
        else:
            marked.append(cell)
    return marked


def paper_table(results: ReportData | Results) -> ResultsTable | None:
    """The table of the folder's layout, or None where nothing was predicted."""
    if isinstance(results, Results):
        results = ReportData.from_results(results)
    if results.scores.empty:
        return None
    layout = str(results.about.get("layout", "methods"))
    signed = layout == "parcellations"
    references = [line for line in results.lines.index if line not in results.contenders]
    lines = [*results.null_lines, *results.contenders, *references]
    cells_of_columns = []
    for column in results.columns:
        cells = {line: _cell(results, column, line, signed) for line in lines}
        if not signed:
            cells = _ranked(results, column, cells, shading=layout != "tokenizers")
        cells_of_columns.append(cells)
    rows = []
    for line in lines:
        cells_of_row = tuple(cells[line] for cells in cells_of_columns)
        if line in results.null_lines:
            rows.append(TableRow(line, results.label(line), cells_of_row, ("null",)))
            continue
        facts = results.lines.loc[line]
        block = ("reference",) if line in references else ("methods", str(facts["group"]))
        name = results.name(line)
        rows.append(TableRow(line, name, cells_of_row, block, str(facts["variant"])))
    headers = [
        (results.cohort_label(cohort), results.target_label(cohort, target))
        for cohort, target in results.columns
    ]
    notes = [
        *_legend(rows, signed, bool(references)),
        *_null_note(results),
        *_setting_notes(results),
        *_adapted_note(results),
        *view_sentences(rows_of(results.lines)),
        *scope_sentences(results),
    ]
    return ResultsTable(
        columns=tuple(results.columns),
        headers=tuple(headers),
        rows=tuple(rows),
        title=results.title,
        notes=tuple(notes),
        signed=signed,
        first_column=_FIRST_COLUMN.get(layout, "Method"),
    )


def extended_table(results: ReportData) -> pd.DataFrame:
    """All scores: r, mean r of the folds, R², MAE, intervals, p and n; one row per seed."""
    scores = results.scores
    seed_of = dict(zip(results.rows["row"], results.rows["seed"], strict=True))
    table = results.labelled(scores, method="line").assign(seed=scores["row"].map(seed_of))
    known = scores[[name for name in _EXTENDED if name in scores]]
    known = known.replace("", np.nan).dropna(axis=1, how="all")
    return table.join(known).reset_index(drop=True)


def _setting_notes(results: ReportData) -> list[str]:
    """Notes on what the names of the rows stand for: presets, and every setting that differs."""
    names_of_preset: dict[str, list[str]] = {}
    changed: list[str] = []
    for row in rows_of(results.lines):
        name = results.name(row.line)
        # swept settings have a column of their own
        settings = ", ".join(setting_words(without_swept(row)))
        if settings:
            method = row.title if row.title.casefold() not in name.casefold() else ""
            base = " ".join(part for part in (method, row.preset) if part)
            start = f"{name} ({base})" if base else name
            changed.append(f"{start}: {settings}")
        elif row.preset:
            names_of_preset.setdefault(row.preset, []).append(name)
    notes = []
    for preset, names in names_of_preset.items():
        unique = "; ".join(dict.fromkeys(names))
        notes.append(f"Preset {preset}, nothing else changed: {unique}.")
    if changed:
        unique = "; ".join(dict.fromkeys(changed))
        notes.append(f"Settings that differ from the preset: {unique}.")
    return notes


def _cell(results: ReportData, column: tuple[str, str], line: str, signed: bool) -> Cell:
    """The mean over seeds; for permuted networks, mean and standard deviation over models.

    `signed` is for Table 3: negative r are printed, half-widths are not, and bold goes with †.
    """
    cohort, target = column
    if line in results.null_lines:
        null = rows_at(results.null_scores, cohort, target)
        values = null.loc[null["line"] == line, "r"] if len(null) else pd.Series(dtype=float)
        if len(values):
            deviation = values.std() if len(values) > 1 else 0
            return Cell(values.mean(), number(deviation), of_models=True, signed=signed)
    scores = results.scores_at.get((cohort, target, line))
    if scores is None:
        # An encoder that serves all cohorts has no cohort of its own.
        failed = (cohort, line) in results.failed or ("", line) in results.failed
        return Cell(failed=failed)
    if too_few_sentence(scores.get("n", _NAN), scores.get("n_folds", _NAN)):
        return Cell(too_few=True)
    beyond_null = bool(scores.get("p_permuted_networks", _NAN) < LEVEL)
    half_width = scores.get("r_half_width", _NAN)
    return Cell(
        scores["r"],
        margin=number(half_width) if np.isfinite(half_width) and not signed else "",
        rank=1 if beyond_null and signed else 0,
        dagger=beyond_null,
        adapted=(cohort, line) in results.adapted,
        signed=signed,
    )


def _ranked(
    results: ReportData, column: tuple[str, str], cells: dict[str, Cell], shading: bool
) -> dict[str, Cell]:
    """Methods ranked among themselves; each reference against the best of them."""
    comparisons = rows_at(results.comparisons, *column).to_dict("records")
    best_two = [row["p"] for row in comparisons if row["among"] == "methods" and row["best_two"]]
    p = min(best_two, default=_NAN) if shading else _NAN
    marked = _mark_best([cells[line] for line in results.contenders], p)
    cells = cells | dict(zip(results.contenders, marked, strict=True))
    for row in comparisons:
        if row["among"] == "reference" and row["p"] < LEVEL:
            reference = row["line_b"]
            side = "↑" if row["score_b"] > row["score_a"] else "↓"
            cells[reference] = replace(cells[reference], against=side)
    return cells


def _null_note(results: ReportData) -> list[str]:
    """A note on the row of permuted networks."""
    null = [row for row in rows_of(results.rows) if row.kind == NULL]
    if not null or results.null_scores.empty:
        return []
    n_models = results.null_scores["row"].nunique()
    tested = lines_with_permuted_networks(null, rows_of(results.lines))
    names = " and ".join(results.name(row.line) for row in tested)
    otherwise = f", otherwise as {names}" if names else ""
    return [
        f"{null[0].label}: mean ± standard deviation of r over {n_models} models, each retrained "
        f"with regions assigned at random to networks of the same sizes{otherwise}."
    ]


def _adapted_note(results: ReportData) -> list[str]:
    """A note on what replaced missing inputs of adapted methods."""
    substitutes = dict.fromkeys(
        f"{results.label(line)}: {substitute}" for (_, line), substitute in results.adapted.items()
    )
    return [f"‡: adapted. {'; '.join(substitutes)}."] if substitutes else []


def _legend(rows: list[TableRow], signed: bool, has_references: bool) -> list[str]:
    """Notes on the marks that occur in the table."""
    cells = list(itertools.chain.from_iterable(row.cells for row in rows))
    missing = [cell for cell in cells if not cell.available]
    permuted = "p < 0.05, one-sided, against models retrained with permuted networks"
    notes = []
    if not signed:
        notes.append("r with the half-width of its bootstrap 95 % CI, as the paper prints it.")
    if any(cell.rank for cell in cells) and not signed:
        notes.append("Bold: best method, underlined: next.")
    if any(cell.shaded for cell in cells):
        notes.append(f"Shaded: {_TESTED} between the best two methods.")
    if signed:
        notes.append(f"Bold†: {permuted}.")
    elif any(cell.dagger for cell in cells):
        notes.append(f"†: {permuted}.")
    if has_references and not signed:
        notes.append("Reference rows take no part in the ranking.")
    if any(cell.against for cell in cells):
        notes.append(f"↑, ↓: above, below the best method of the column, {_TESTED}.")
    if any(cell.too_few for cell in missing):
        notes.append(
            f"few: fewer than {FEWEST_PER_FOLD} participants per fold, too few for a score."
        )
    if any(cell.failed for cell in missing):
        notes.append("failed: the run ended with an error, which is in runs.tsv.")
    if any(cell.word == "--" for cell in missing):
        notes.append("--: not available, the cohort lacks what the method needs.")
    return notes
