"""Results → the paper's table: methods as the paper marks them, reference rows apart in a block of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from nerve.evaluation.results import ResultsFolder
from nerve.report.results import Results, at
from nerve.report.tables import LEVEL, NAN, Cell, ResultsTable, TableRow, mark_best
from nerve.report.words import seen

FIRST_COLUMN = {"methods": "Method", "tokenizers": "Tokenizer", "parcellations": "Parcellation"}
_TESTED = "p < 0.05, two-sided paired bootstrap"
Column = list[Cell]


def paper_table(results: Results | ResultsFolder) -> ResultsTable | None:
    """The table of the folder's layout, or None where nothing was predicted."""
    results = Results.of(results) if isinstance(results, ResultsFolder) else results
    if results.scores.empty:
        return None
    layout = str(results.about.get("layout", "methods"))
    signed = layout == "parcellations"
    apart = [line for line in results.lines.index if line not in results.contenders]
    lines = [*results.null_lines, *results.contenders, *apart]
    rank = _only_daggers if signed else _ranked
    grid = [rank(results, column, _cells(results, column, lines), lines) for column in results.columns]
    rows = tuple(_row(results, line, apart, cells) for line, cells in zip(lines, zip(*grid, strict=True), strict=True))
    names: dict[str | tuple[str, str], str] = {cohort: results.cohort_label(cohort) for cohort, _ in results.columns}
    names |= {(cohort, target): results.target_label(cohort, target) for cohort, target in results.columns}
    notes = (*_legend(rows, signed, bool(apart)), *_adapted_notes(results), *seen(results))
    return ResultsTable(
        tuple(results.columns), rows, results.title, notes, signed, FIRST_COLUMN.get(layout, "Method"), names
    )


def extended_table(results: Results) -> pd.DataFrame:
    """The same results with everything a reviewer asks for: fold-mean r, R², MAE, CI, p and n; one row per seed."""
    wanted = ["n", "r", "r_low", "r_high", "r_low_cv", "r_high_cv", "r_fold_mean", "r2", "mae", "auc", "auc_low",
              "auc_high", "balanced_accuracy", "p", "q", "p_permuted_networks", "r_target_motion",
              "r_prediction_motion", "r_within_site", "site_accuracy", "scope", "adapted"]  # fmt: skip
    scores = results.scores
    seed_of = dict(zip(results.rows["row"], results.rows["seed"], strict=True))
    table = results.labelled(scores, method="line").assign(seed=scores["row"].map(seed_of))
    known = scores[[name for name in wanted if name in scores]]
    return table.join(known.replace("", np.nan).dropna(axis=1, how="all")).reset_index(drop=True)


def _row(results: Results, line: str, apart: list[str], cells: tuple[Cell, ...]) -> TableRow:
    if line in results.null_lines:
        return TableRow(line, results.label(line), cells, ("null",))
    about = results.lines.loc[line]
    block = ("reference",) if line in apart else ("methods", str(about["group"]))
    return TableRow(line, results.name(line), cells, block, str(about["variant"]))


def _cells(results: Results, column: tuple[str, str], lines: list[str]) -> Column:
    cohort, target = column
    null = _nulls(results)
    cells = []
    for line in lines:
        if (cohort, target, line) in null:
            values = null[cohort, target, line]
            cells.append(Cell(float(values.mean()), spread=float(values.std(ddof=1)) if len(values) > 1 else 0.0))
        elif (one := results.by_place.get((cohort, target, line))) is not None:
            beyond = bool(one.get("p_permuted_networks", NAN) < LEVEL)
            width = float(one.get("r_half_width", NAN))
            cells.append(Cell(float(one["r"]), width, dagger=beyond, adapted=(cohort, line) in results.adapted))
        else:
            cells.append(Cell(failed=bool({(cohort, line), ("", line)} & results.failed)))
    return cells


def _only_daggers(results: Results, column: tuple[str, str], cells: Column, lines: list[str]) -> Column:
    return [replace(cell, rank=int(cell.dagger), signed=True) for cell in cells]


def _ranked(results: Results, column: tuple[str, str], cells: Column, lines: list[str]) -> Column:
    """Methods ranked among themselves; each reference against the best of them."""
    compared = _compared(results, column)
    best = [row["p"] for row in compared if row["among"] == "methods" and row["best_two"]]
    among = [i for i, line in enumerate(lines) if line in results.contenders]
    marked = mark_best([cells[i] for i in among], min(best, default=NAN))
    cells = [dict(zip(among, marked, strict=True)).get(i, cell) for i, cell in enumerate(cells)]
    sides = {row["line_b"]: "↑" if row["score_b"] > row["score_a"] else "↓" for row in compared
             if row["among"] == "reference" and row["p"] < LEVEL}  # fmt: skip
    return [replace(cell, against=sides.get(line, "")) for cell, line in zip(cells, lines, strict=True)]


def _compared(results: Results, column: tuple[str, str]) -> list[dict[Any, Any]]:
    mine = at(results.comparisons, *column)
    return [] if mine.empty else mine[mine["best_two"] | (mine["among"] == "reference")].to_dict("records")


def _nulls(results: Results) -> dict[Any, np.ndarray]:
    groups = results.null_scores.groupby(["cohort", "target", "line"]) if len(results.null_scores) else ()
    return {key: part["r"].to_numpy(float) for key, part in groups}


def _legend(rows: tuple[TableRow, ...], signed: bool, apart: bool) -> list[str]:
    cells = [cell for row in rows for cell in row.cells]
    permuted = "p < 0.05, one-sided permutation test against models with permuted networks"
    spreads = [cell for cell in cells if np.isfinite(cell.spread)]
    told = {
        "r with the half-width of its bootstrap 95 % CI; bold: best method, underlined: next.": not signed,
        f"Shaded: {_TESTED} between the best two methods.": any(cell.shaded for cell in cells),
        f"Bold†: {permuted}.": signed,
        f"†: {permuted}.": not signed and any(cell.dagger for cell in cells),
        "Permuted networks: mean ± standard deviation of r over models.": bool(spreads),
        "Reference rows stand apart and take no part in the ranking.": apart and not signed,
        f"↑, ↓: above, below the best method of the column, {_TESTED}.": any(cell.against for cell in cells),
        "n.: negative r.": not signed and any(cell.available and cell.r < 0 for cell in cells),
        "failed: the run ended with an error; runs.tsv says which.": any(cell.failed for cell in cells),
        "--: not available, the cohort lacks what the method needs.": any(
            not cell.available and not cell.failed for cell in cells
        ),
    }
    return [note for note, holds in told.items() if holds]


def _adapted_notes(results: Results) -> list[str]:
    told = dict.fromkeys(f"{results.label(line)}: {how}" for (_, line), how in results.adapted.items())
    return [f"‡: adapted. {'; '.join(told)}."] if told else []
