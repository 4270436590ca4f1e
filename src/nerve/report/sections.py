"""What stands in each section of the page, as plain values that the template prints (and escapes)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from nerve.report.figures import FIGURES, Drawn, NothingToDraw, drawn
from nerve.report.results import EncoderRun, Results
from nerve.report.table_formats import number
from nerve.report.tables import Cell, ResultsTable

log = logging.getLogger("nerve.report")
MOST_ROWS = 1000  # of a table on the page; its file has all
LONG = 12  # rows beyond which a table is folded


@dataclass(frozen=True)
class Table:
    """Header and cells as text; `sort` holds what a column is sorted by."""

    title: str
    header: list[str]
    rows: list[list[str]]
    sort: list[list[Any]]
    note: str = ""

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers, and is aligned as such."""
        columns = list(zip(*self.sort, strict=True)) or [()] * len(self.header)
        known = [[key for key in column if key != ""] for column in columns]
        return [bool(keys) and all(isinstance(key, float) for key in keys) for keys in known]

    @property
    def folded(self) -> bool:
        """Whether the table is long enough to be closed at first."""
        return len(self.rows) > LONG


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    anchor: str
    title: str
    lead: str = ""
    figures: list[Drawn] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    paper: dict[str, Any] | None = None


def figures_of(section: str, results: Results) -> tuple[list[Drawn], list[str]]:
    """The figures of a section that can be drawn, and a sentence for each that cannot."""
    made, missing = [], []
    for name, place in FIGURES.items():
        if section != import_module(place).SECTION:
            continue
        try:
            made.append(drawn(name, results))
        except NothingToDraw as reason:
            missing.append(str(reason))
        except Exception as fault:  # a fault of ours must not cost the reader the rest of the page
            log.exception("The figure %s could not be drawn", name)
            missing.append(f"The figure {name} could not be drawn ({type(fault).__name__}): please report this.")
    return made, list(dict.fromkeys(missing))


def table_of(frame: pd.DataFrame, title: str, note: str = "", digits: int = 3) -> Table:
    """A DataFrame as text, numbers rounded, sorted by what they are."""
    if len(frame) > MOST_ROWS:
        title = f"{title} (the first {MOST_ROWS:,} of {len(frame):,} rows)"
    frame = frame.head(MOST_ROWS)
    rows = [[_text(value, digits) for value in row] for row in frame.itertuples(index=False)]
    sort = [[_key(value) for value in row] for row in frame.itertuples(index=False)]
    return Table(title, [str(name) for name in frame.columns], rows, sort, note)


def cohorts_table(results: Results) -> Table | None:
    """One row a cohort."""
    rows = []
    for facts in results.cohorts.values():
        age, motion = facts.numbers("age"), facts.numbers("mean_fd")
        sites = facts.people["site"].nunique() if "site" in facts.people else 0
        sex = facts.people["sex"].dropna().astype(str).value_counts() if "sex" in facts.people else pd.Series(dtype=int)
        order = facts.order
        rows.append(
            {
                "cohort": facts.label,
                "people": facts.n,
                "left out": int(facts.left_out["people"].sum()) if len(facts.left_out) else 0,
                "age, mean ± sd (range), years": _spread(age),
                "sex": ", ".join(f"{level} {count}" for level, count in sex.head(4).items()) or "not known",
                "sites": sites or "not known",
                "mean FD, median (largest), mm": f"{np.median(motion):.2f} ({motion.max():.2f})"
                if len(motion)
                else "not known",
                "time series": facts.volumes,
                "regions in order": "not checked" if order is None else ("yes" if order.plausible else "in doubt"),
                "used in pretraining": {None: "", True: "yes", False: "no"}[facts.pretrained_on],
            }
        )
    return table_of(pd.DataFrame(rows), "Cohorts") if rows else None


def exclusions_table(results: Results) -> Table | None:
    """How many were left out, and why."""
    parts = [facts.left_out.assign(cohort=facts.label) for facts in results.cohorts.values() if len(facts.left_out)]
    if not parts:
        return None
    frame = pd.concat(parts, ignore_index=True)[["cohort", "people", "reason"]]
    return table_of(frame, "People left out, and why")


def encoders_table(encoders: list[EncoderRun]) -> Table | None:
    """One row an encoder."""
    rows = []
    for one in encoders:
        last = one.history.iloc[-1] if len(one.history) else pd.Series(dtype=float)
        held = one.history["validation_loss"].min() if "validation_loss" in one.history else np.nan
        row = {
            "encoder": one.label,
            "trainable parameters": one.parameters or np.nan,
            "epochs": last.get("epoch", 0),
            "best held-out loss": held,
            "minutes": one.seconds / 60,
        }
        rows.append(row | {"error against group mean": _ratio(one.errors)})
    frame = pd.DataFrame(rows)
    return table_of(frame.dropna(axis=1, how="all"), "Encoders", digits=4) if rows else None


def scores_table(results: Results) -> Table | None:
    """Everything a reviewer asks for."""
    if results.scores.empty:
        return None
    from nerve.report.tables import extended_table

    return table_of(extended_table(results.scores), "All scores, with intervals, R², MAE and p")


def comparisons_table(results: Results) -> Table | None:
    """The paired comparisons, best two first."""
    frame = results.comparisons
    if frame.empty:
        return None
    wanted = ["cohort", "target", "method_a", "variant_a", "method_b", "variant_b", "metric", "difference"]
    wanted += ["difference_low", "difference_high", "p", "q", "best_two"]
    wanted = [name for name in wanted if not name.startswith("variant") or set(frame[name]) != {""}]
    frame = frame[wanted]
    return table_of(frame.sort_values("best_two", ascending=False, kind="stable"), "Paired comparisons")


def paper_cells(table: ResultsTable) -> dict[str, Any]:
    """The paper's table for the template: text, marks and what to sort by."""
    rows = [
        {
            "lead": table.lead(row),
            "rule": i > 0 and table.rows[i - 1].group != row.group,
            "cells": [_paper_cell(cell, table.signed) for cell in row.cells],
        }
        for i, row in enumerate(table.rows)
    ]
    return {
        "cohorts": table.cohorts,
        "lead": table.lead_header,
        "targets": [target for _, target in table.headers],
        "rows": rows,
        "notes": table.notes,
    }


def _paper_cell(cell: Cell, signed: bool) -> dict[str, Any]:
    if not cell.available:
        return {"text": "failed" if cell.failed else "--", "sort": "", "class": "none", "below": "", "marks": ""}
    if cell.r < 0 and not signed:
        return {"text": "n.", "sort": cell.r, "class": "none", "below": "", "marks": ""}
    below = cell.spread if np.isfinite(cell.spread) else cell.half_width
    shown = np.isfinite(cell.spread) or (np.isfinite(cell.half_width) and not signed)
    marks = ("†" if cell.dagger else "") + ("‡" if cell.adapted else "")
    looks = [["", "best", "second"][cell.rank], "shaded" if cell.shaded else ""]
    return {
        "text": number(cell.r),
        "sort": cell.r,
        "class": " ".join(filter(None, looks)),
        "below": f"±{number(below)}" if shown else "",
        "marks": marks,
    }


def provenance_tables(results: Results) -> list[Table]:
    """Versions, fingerprints and seeds; runs and how they ended."""
    facts = results.facts
    rows: list[tuple[str, str]] = [(str(name), str(value)) for name, value in facts.get("versions", {}).items()]
    marks = facts.get("fingerprints", {})
    rows += [(f"data of {name}", str(mark)) for name, mark in (marks.get("cohorts") or {}).items() if mark]
    rows += [(str(name), str(mark)) for name, mark in marks.items() if name != "cohorts" and mark]
    seeds = [seed for seed in facts.get("seeds", []) if seed is not None]
    rows += [("seeds", ", ".join(map(str, seeds)))] if seeds else []
    tables = [table_of(pd.DataFrame(rows, columns=["what", "version or fingerprint"]), "Versions, data and seeds")]
    if len(results.runs):
        shown = [name for name in ("run", "status", "seconds", "reason", "id") if name in results.runs.columns]
        tables.append(table_of(results.runs[shown], "Runs", digits=1))
    return tables


def interpretation_tables(results: Results) -> list[Table]:
    """Every table that interpretation left, of the experiment and of its encoders."""
    sources: list[tuple[str, Mapping[str, pd.DataFrame]]] = [("", results.interpretation)]
    sources += [(one.label, one.interpretation) for one in results.encoders]
    return [
        table_of(frame, " · ".join(filter(None, [label, name.replace("_", " ")])))
        for label, tables in sources
        for name, frame in tables.items()
        if len(frame)
    ]


def _ratio(errors: Mapping[str, Any]) -> float:
    model, mean = errors.get("model"), errors.get("group_mean")
    return float(model) / float(mean) if model is not None and mean else float("nan")


def _spread(values: np.ndarray) -> str:
    if not len(values):
        return "not known"
    return f"{values.mean():.1f} ± {values.std():.1f} ({values.min():.1f}–{values.max():.1f})"


def _text(value: Any, digits: int) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    if isinstance(value, (float, np.floating)):
        plain = float(value)
        return f"{plain:,.0f}" if plain.is_integer() and abs(plain) >= 1 else f"{plain:.{digits}f}"
    return f"{value:,}" if isinstance(value, (int, np.integer)) else str(value)


def _key(value: Any) -> Any:
    if isinstance(value, (int, float, np.integer, np.floating)):
        return float(value) if np.isfinite(value) else ""
    return str(value)[:200]
