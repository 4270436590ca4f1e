"""What stands in each section of the page, as plain values that the template prints (and escapes)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.progress import progress_bar
from nerve.evaluation.rows import rows_of, setting_words
from nerve.report import figures
from nerve.report.figures import Drawn, NothingToDraw
from nerve.report.report_data import CohortFacts, ReportData
from nerve.report.tables import ResultsTable, extended_table, paper_table

log = logging.getLogger("nerve.report")
MOST_ROWS = 400  # of a table on the page; its file has all
BUDGET = 3_500_000  # characters of all figures; with tables the page stays below 5 MB
LONG = 12  # rows beyond which a table is folded


class Table:
    """A DataFrame as text: its header, and in each row (what is shown, what the column is sorted by)."""

    def __init__(self, frame: pd.DataFrame, title: str, whole: str = "", digits: int = 3) -> None:
        cut = len(frame) > MOST_ROWS
        self.title = f"{title} (the first {MOST_ROWS:,} of {len(frame):,} rows)" if cut else title
        self.note = f"The whole table is {whole}." if cut and whole else ""
        self.header = [str(name) for name in frame.columns]
        self.rows = [
            [_cell(value, digits) for value in row]
            for row in frame.head(MOST_ROWS).itertuples(index=False)
        ]
        self.folded = len(self.rows) > LONG  # closed at first
        keys = [
            [row[i][1] for row in self.rows if row[i][1] != ""] for i in range(len(self.header))
        ]
        self.numeric = [
            bool(some) and all(isinstance(key, float) for key in some) for some in keys
        ]  # set as numbers


@dataclass
class Section:
    """A part of the page."""

    anchor: str
    title: str
    figures: list[Drawn]
    tables: list[Table]
    missing: list[str]  # sentences on what is not shown
    paper: ResultsTable | None


def figures_of(section: str, results: ReportData) -> tuple[list[Drawn], list[str]]:
    """The figures of a section that can be drawn, and a sentence for each that cannot."""
    missing: list[str] = []
    names = figures.SECTIONS.get(section, ())
    made = [
        _attempt(f"figure {name}", partial(figures.drawn, name, results), missing) for name in names
    ]
    return [figure for figure in made if figure is not None], list(dict.fromkeys(missing))


def _attempt(what: str, make: Callable[[], Any], missing: list[str]) -> Any:
    """A part of the page, or a sentence in `missing`: what is wrong with one part must not cost the reader the rest."""
    try:
        return make()
    except NothingToDraw as reason:
        missing.append(str(reason))
    except Exception as fault:
        log.exception("The %s could not be made", what)
        missing.append(
            f"The {what} could not be made ({type(fault).__name__}): please report this."
        )
    return None


def cohort_tables(results: ReportData) -> Iterator[Table]:
    """One row per cohort; how many were left out, and why; what was checked before anything was computed."""
    cohorts = results.cohorts.values()
    frame = pd.DataFrame([_cohort_row(facts) for facts in cohorts]).replace("", np.nan)
    yield Table(frame.dropna(axis=1, how="all").fillna("not known"), "Cohorts")
    left_out = [
        facts.left_out.assign(cohort=facts.label) for facts in cohorts if len(facts.left_out)
    ]
    if left_out:
        frame = pd.concat(left_out, ignore_index=True)[["cohort", "participants", "reason"]]
        yield Table(frame, "Participants left out, and why")
    if len(results.checks):
        doubts = int(results.checks["verdict"].isin(["warning", "not usable"]).sum())
        said = f"{doubts} warning{'s' * (doubts > 1)}" if doubts else "nothing in doubt"
        yield Table(results.checks, f"Checks of the cohort, {said}")


def _cohort_row(facts: CohortFacts) -> dict[str, Any]:
    age, motion, order, site = (
        facts.numbers("age"),
        facts.numbers("mean_fd"),
        facts.order,
        facts.counts("site"),
    )
    known = len(facts.participants)
    spread = (
        f"{age.mean():.1f} ± {age.std():.1f} ({age.min():.1f}–{age.max():.1f})" if len(age) else ""
    )
    return {
        "cohort": facts.label + (" (simulated)" if facts.simulated else ""),
        "participants": facts.n,
        "left out": int(facts.left_out["participants"].sum()) if known else "",
        "age, mean ± SD (range), years": spread,
        "sex": ", ".join(
            f"{level} {count}" for level, count in facts.counts("sex").head(4).items()
        ),
        "sites": len(site) if "site" in facts.participants else "",
        "mean FD, median (largest), mm": f"{np.median(motion):.2f} ({motion.max():.2f})"
        if len(motion)
        else "",
        "time series": facts.volumes if known else "",
        "regions in order": "" if order is None else ("yes" if order.plausible else "in doubt"),
        "used in pretraining": facts.pretrained_on,
    }


def encoder_tables(results: ReportData) -> Iterator[Table]:
    """One row per encoder; reference rows are computed, not trained."""
    rows = [
        {
            "encoder": one.label,
            "trainable parameters": one.parameters or np.nan,
            "epochs": one.history["epoch"].iloc[-1],
            "best held-out loss": one.history.get("validation_loss", pd.Series(dtype=float)).min(),
            "minutes": one.seconds / 60,
            "error, as a share of the group mean's": one.error_ratio,
        }
        for one in results.encoders
        if len(one.history)
    ]
    yield Table(pd.DataFrame(rows).dropna(axis=1, how="all"), "Encoders", digits=4)


def score_tables(results: ReportData) -> Iterator[Table]:
    """What each line is, and everything a reviewer asks for."""
    if len(results.lines):
        yield Table(row_table(results), "Rows: what was compared", "rows.tsv")
    if len(results.scores):
        yield Table(
            extended_table(results),
            "All scores, with intervals, R², MAE and p",
            "tables/extended.tsv",
        )


def row_table(results: ReportData) -> pd.DataFrame:
    """One row per line: method, preset, every setting that differs from it, and whom it had seen where."""
    found = []
    for row in rows_of(results.lines):
        seeds = results.rows.loc[results.rows["line"] == row.line, "seed"]
        found.append(
            {
                "row": results.name(row.line),
                "method": row.title or row.method,
                "preset": row.preset,
                "settings that differ": ", ".join(setting_words(row)) or "none",
                "view": row.view,
                "numbers per participant": row.width or np.nan,
                "seeds": ", ".join(map(str, dict.fromkeys(seeds))),
                "trained on": row.trained_on,
                "pretraining": row.scope,
            }
        )
    return (
        pd.DataFrame(found)
        .replace("", np.nan)
        .dropna(axis=1, how="all")
        .fillna({"preset": "", "trained on": ""})
    )


def comparison_tables(results: ReportData) -> Iterator[Table]:
    """The paired comparisons: best two first, then references against the best method."""
    table = results.comparisons
    if len(table):
        names = ["the best two", "reference", "methods"]
        pair = np.select([table["best_two"], table["among"] == "reference"], names[:2], names[2])
        frame = results.labelled(table, method="line_a", against="line_b").assign(
            pair=pd.Categorical(pair, names)
        )
        kept = ["metric", "difference", "difference_low", "difference_high", "p", "q", "n"]
        yield Table(
            frame.join(table[kept]).sort_values("pair", kind="stable"), "Paired comparisons"
        )


def interpretation_tables(results: ReportData) -> Iterator[Table]:
    """Every table that interpretation left, of the experiment and of its encoders."""
    for label, tables in results.interpretations:
        for name, frame in tables.items():
            title = ", ".join(filter(None, [label, name.replace("_", " ")]))
            yield Table(frame, title, f"interpretation/{name}.tsv")


def provenance_tables(results: ReportData) -> Iterator[Table]:
    """Versions, fingerprints and seeds; runs and how they ended."""
    about = results.about
    known = {
        **about.get("versions", {}),
        **{
            f"data of {results.cohort_label(name)}": mark
            for name, mark in about.get("data", {}).items()
        },
        **{name: about.get(name) for name in ("code", "id")},
        "seeds": ", ".join(map(str, about.get("seeds", ()))),
    }
    rows = [(str(name), str(value)) for name, value in known.items() if value]
    frame = pd.DataFrame(rows, columns=["what", "version or fingerprint"])
    yield Table(frame, "Versions, data and seeds")
    shown = [
        name
        for name in ("run", "status", "seconds", "reason", "id")
        if name in results.runs.columns
    ]
    yield Table(results.runs[shown], "Runs", "runs.tsv", digits=1)


def _cell(value: Any, digits: int) -> tuple[str, float | str]:
    """What is shown, and what the column is sorted by."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–", ""
    if isinstance(value, bool):
        return "yes" if value else "no", float(value)
    if isinstance(value, float) and not (value.is_integer() and abs(value) >= 1):
        return f"{value:.{digits}f}", value
    return (
        (f"{value:,.0f}", float(value))
        if isinstance(value, (int, float))
        else (str(value), str(value)[:200])
    )


SECTIONS: dict[str, tuple[str, Callable[[ReportData], Iterator[Table]]]] = {
    "cohorts": ("Cohorts", cohort_tables),
    "pretraining": ("Pretraining", encoder_tables),
    "prediction": ("Prediction", score_tables),
    "comparison": ("Comparison and ablations", comparison_tables),
    "interpretation": ("Interpretation", interpretation_tables),
    "provenance": ("Provenance", provenance_tables),
}


def sections(results: ReportData) -> list[Section]:
    """The sections after the methods."""
    made = []
    for name, (title, make) in progress_bar(
        SECTIONS.items(), label="writing the report", unit="sections"
    ):
        drawn, missing = figures_of(name, results)
        tables = _attempt("tables of this section", lambda: list(make(results)), missing) or []  # noqa: B023
        paper = (
            _attempt("table", partial(paper_table, results), missing)
            if name == "prediction"
            else None
        )
        made.append(
            Section(name, title, drawn, [table for table in tables if table.rows], missing, paper)
        )
    _within_budget([figure for section in made for figure in section.figures])
    return made


def _within_budget(figures: list[Drawn]) -> None:
    """The largest figures become images, coarser if need be, until all fit a page that can be mailed."""
    for dpi in (120, 80, 50):
        for figure in sorted(figures, key=lambda one: len(one.source), reverse=True):
            if sum(len(one.source) for one in figures) > BUDGET:
                figure.shrink(dpi)
