"""The contents of each section of the page, as plain values that the template prints and escapes."""

from __future__ import annotations

import base64
import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.formulas import guarded_table
from nerve._utils.progress import progress_bar
from nerve.evaluation.rows import rows_of, setting_words
from nerve.report import figures
from nerve.report.figures import DrawnFigure, NothingToDraw
from nerve.report.findings import too_few_sentence
from nerve.report.report_data import CohortFacts, ReportData
from nerve.report.tables import ResultsTable, extended_table, paper_table

log = logging.getLogger("nerve.report")
BUDGET = 3_500_000  # characters of all figures; with tables the page stays below 5 MB
_DOWNLOADS = 800_000  # characters of all tables that are not shown but can be saved from the page
_MOST_ROWS = 400  # of a table on the page; its file has all
_LONG = 12  # rows beyond which a table is folded
_DRAWN = ("attention", "attention_pairs", "network_weights", "region_occlusion")  # as figures
_RUN_KINDS = {  # what the first word of a run means
    "encode": "encode: an encoder is trained and its features are computed",
    "predict": "predict: targets are predicted from features",
    "train": "train: a network is trained on a target",
}


@dataclass
class Section:  # numpydoc ignore=PR02
    """A part of the page.

    Parameters
    ----------
    anchor : str
        Its id on the page.
    title : str
        Its heading.
    lead : str
        A sentence below the heading.
    figures : list of DrawnFigure
        Those that could be drawn.
    tables : list of Table
        Those that have rows.
    downloads : list of Download
        Tables that can be saved, and whose figure is shown.
    missing : list of str
        A sentence for each part that is not shown.
    paper : ResultsTable, optional
        The paper's table, in the first section.
    """

    anchor: str
    title: str
    lead: str
    figures: list[DrawnFigure]
    tables: list[Table]
    downloads: list[Download]
    missing: list[str]
    paper: ResultsTable | None

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing to show, and no sentence that says why."""
        content = (self.figures, self.tables, self.downloads, self.missing, self.paper)
        return self.anchor in figures.SECTIONS and not any(content) and self.anchor != "findings"


@dataclass
class Download:  # numpydoc ignore=PR02
    """A table that can be saved from the page, where a figure shows what it holds.

    Parameters
    ----------
    title : str
        What it holds.
    file : str
        Its name.
    n_rows : int
        How many rows it has.
    source : str
        The file as a data: address; empty where it would make the page too large to mail.
    """

    title: str
    file: str
    n_rows: int
    source: str

    @property
    def place(self) -> str:
        """Where the file is."""
        return self.file if self.source else f"interpretation/{self.file} beside this page"


class Table:
    """A DataFrame as text.

    Parameters
    ----------
    frame : DataFrame
        What is shown, up to 400 rows of it.
    title : str
        Caption.
    file : str
        Where all rows are.
    digits : int
        Decimals of numbers that are not integers.
    note : str
        A sentence below the table.

    Attributes
    ----------
    header : list of str
        Names of the columns.
    rows : list of list of (str, key)
        In each cell what is shown, and what the column is sorted by.
    numeric : list of bool
        Whether each column holds numbers, which are aligned at the right.
    folded : bool
        Whether the table is closed at first.
    """

    def __init__(
        self, frame: pd.DataFrame, title: str, file: str = "", digits: int = 3, note: str = ""
    ) -> None:
        self.title = title
        self.note = note
        if len(frame) > _MOST_ROWS:
            self.title = f"{title} (the first {_MOST_ROWS:,} of {len(frame):,} rows)"
            if file:
                self.note = f"{note} The whole table is {file}.".strip()
        self.header = [str(name) for name in frame.columns]
        shown = frame.head(_MOST_ROWS).itertuples(index=False)
        self.rows = [[_cell(value, digits) for value in row] for row in shown]
        self.folded = len(self.rows) > _LONG
        self.numeric = []
        for column in range(len(self.header)):
            keys = [row[column][1] for row in self.rows if row[column][1] != ""]
            self.numeric.append(bool(keys) and all(isinstance(key, float) for key in keys))


def make_sections(results: ReportData, has_citations: bool = True) -> list[Section]:
    """The sections of the page, in order."""
    sections = []
    items = progress_bar(SECTIONS.items(), label="writing the report", unit="sections")
    for name, (title, lead, make_tables) in items:
        if name == "citations" and not has_citations:
            continue
        drawn, missing = draw_figures(name, results)
        make_list = partial(_tables_with_rows, make_tables, results)
        tables = _attempt("tables of this section", make_list, missing) or []
        downloads: list[Download] = []
        if name == "interpretation":
            downloads = _attempt("downloads", partial(map_downloads, results), missing) or []
        paper = None
        if name == "findings":
            paper = _attempt("table", partial(paper_table, results), missing)
        sections.append(Section(name, title, lead, drawn, tables, downloads, missing, paper))
    all_figures = itertools.chain.from_iterable(section.figures for section in sections)
    _shrink_to_budget(list(all_figures))
    return sections


def draw_figures(section: str, results: ReportData) -> tuple[list[DrawnFigure], list[str]]:
    """The figures of a section that can be drawn, and a sentence for each that cannot."""
    missing: list[str] = []
    drawn = []
    for name in figures.SECTIONS.get(section, ()):
        draw = partial(figures.draw_with_caption, name, results)
        figure = _attempt(f"figure {name}", draw, missing)
        if figure is not None:
            drawn.append(figure)
    return drawn, list(dict.fromkeys(missing))


def cohort_tables(results: ReportData) -> Iterator[Table]:
    """One row per cohort; how many were left out, and why; what was checked beforehand."""
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
        n_doubts = int(results.checks["verdict"].isin(["warning", "not usable"]).sum())
        verdict = "nothing in doubt"
        if n_doubts:
            verdict = f"{n_doubts} warning" if n_doubts == 1 else f"{n_doubts} warnings"
        yield Table(results.checks, f"Checks of the cohort, {verdict}")


def _encoder_tables(results: ReportData) -> Iterator[Table]:
    """One row per encoder; reference rows are computed, not trained."""
    rows = []
    for encoder in results.encoders:
        history = encoder.history
        if history.empty:
            continue
        held_out_loss = history.get("validation_loss", pd.Series(dtype=float))
        rows.append(
            {
                "encoder": encoder.label,
                "trainable parameters": encoder.parameters or np.nan,
                "epochs": history["epoch"].iloc[-1],
                "best held-out loss": held_out_loss.min(),
                "minutes": encoder.seconds / 60,
                "error, as a share of the group mean's": encoder.error_ratio,
            }
        )
    yield Table(pd.DataFrame(rows).dropna(axis=1, how="all"), "Encoders", digits=4)


def _score_tables(results: ReportData) -> Iterator[Table]:
    """One row per line of the results, and one per score with all that a reviewer may ask for."""
    if len(results.lines):
        yield Table(row_table(results), "Rows: what was compared", "rows.tsv")
    if len(results.scores):
        title = "All scores, with intervals, R², MAE and p"
        table = extended_table(results)
        scores = [name for name in table if name not in ("n", "seed")]
        scores = list(table[scores].select_dtypes("number"))
        few = [
            bool(too_few_sentence(n, n_folds))
            for n, n_folds in zip(results.scores["n"], results.scores["n_folds"], strict=True)
        ]
        table.loc[few, scores] = np.nan
        yield Table(table, title, "tables/extended.tsv")


def row_table(results: ReportData) -> pd.DataFrame:
    """One row per line: method, preset, settings that differ from it, and pretraining data."""
    records = []
    for row in rows_of(results.lines):
        seeds = results.rows.loc[results.rows["line"] == row.line, "seed"]
        records.append(
            {
                "row": results.name(row.line),
                "method": row.title or row.method,
                "preset": row.preset,
                "settings that differ": ", ".join(setting_words(row)) or "none",
                "view": row.view,
                "numbers per participant": row.width or np.nan,
                "seeds": ", ".join(map(str, dict.fromkeys(seeds))),
                "trained on": row.trained_on,
                "scope of pretraining": row.scope,
            }
        )
    table = pd.DataFrame(records).replace("", np.nan).dropna(axis=1, how="all")
    return table.fillna({"preset": "", "trained on": ""})


def _comparison_tables(results: ReportData) -> Iterator[Table]:
    """The paired comparisons: best two first, then references against the best method."""
    table = results.comparisons
    if table.empty:
        return
    pairs = ["the best two", "reference", "methods"]
    is_reference = table["among"] == "reference"
    pair = np.select([table["best_two"], is_reference], pairs[:2], pairs[2])
    frame = results.labelled(table, method="line_a", against="line_b")
    frame["pair"] = pd.Categorical(pair, pairs)
    numbers = ["metric", "difference", "difference_low_cv", "difference_high_cv", "p_cv", "q_cv"]
    frame = frame.join(table[[*numbers, "p", "n"]]).sort_values("pair", kind="stable")
    frame = frame.rename(columns={"p": "p of the paper's bootstrap"})
    yield Table(frame, "Paired comparisons")


def _interpretation_tables(results: ReportData) -> Iterator[Table]:
    """Tables of maps that figures do not show in full, of the experiment and of its encoders."""
    for label, tables in results.interpretations:
        for name, frame in tables.items():
            if name not in _DRAWN:
                # elsewhere r_low is the lower end of the paper's interval
                frame = frame.rename(columns={"r_low": "95 % CI of r, from", "r_high": "to"})
                yield Table(frame, _map_title(label, name), f"interpretation/{name}.tsv")


def map_downloads(results: ReportData) -> list[Download]:
    """Tables of maps that a figure shows: too long to read on a page, so they can be saved from it."""
    downloads = []
    n_characters = 0
    for label, tables in results.interpretations:
        for name, frame in tables.items():
            if name not in _DRAWN or frame.empty:
                continue
            text = guarded_table(frame).to_csv(sep="\t", index=False, na_rep="n/a")
            source = "data:text/tab-separated-values;base64,"
            source += base64.b64encode(text.encode()).decode()
            n_characters += len(source)
            if n_characters > _DOWNLOADS:
                source = ""
            downloads.append(Download(_map_title(label, name), f"{name}.tsv", len(frame), source))
    return downloads


def _provenance_tables(results: ReportData) -> Iterator[Table]:
    """Versions, fingerprints and seeds; runs and how they ended."""
    about = results.about
    facts = dict(about.get("versions", {}))
    for name, fingerprint in about.get("data", {}).items():
        facts[f"data of {results.cohort_label(name)}"] = fingerprint
    facts["code"] = about.get("code")
    facts["id"] = about.get("id")
    facts["seeds"] = ", ".join(map(str, about.get("seeds", ())))
    rows = [(str(name), str(value)) for name, value in facts.items() if value]
    frame = pd.DataFrame(rows, columns=["what", "version or fingerprint"])
    yield Table(frame, "Versions, data and seeds")
    runs = results.runs
    columns = [name for name in ("run", "status", "seconds", "reason", "id") if name in runs]
    kinds = set(runs.get("kind", ()))
    words = [meaning for kind, meaning in _RUN_KINDS.items() if kind in kinds]
    note = f"{'; '.join(words)}." if words else ""
    yield Table(runs[columns], "Runs", "runs.tsv", digits=1, note=note)


def _no_tables(results: ReportData) -> Iterator[Table]:
    """No tables: the template writes these sections."""
    return iter(())


# Title, lead and tables of each section, in the order of the page.
SECTIONS: dict[str, tuple[str, str, Callable[[ReportData], Iterator[Table]]]] = {
    "findings": ("What was found", "", _no_tables),
    "prediction": (
        "In detail",
        "How well targets are predicted in participants whose targets were not used in training.",
        _score_tables,
    ),
    "comparison": (
        "Comparisons",
        "Which differences between methods and settings are more than chance.",
        _comparison_tables,
    ),
    "cohorts": (
        "Cohorts",
        "Who took part, who was left out, and whether the regions are in the expected order.",
        cohort_tables,
    ),
    "pretraining": (
        "Pretraining",
        "What the encoders learned from FC alone, before any target was predicted.",
        _encoder_tables,
    ),
    "interpretation": ("Interpretation", "What the models rely on.", _interpretation_tables),
    "methods": ("What was run", "", _no_tables),
    "provenance": ("Provenance", "", _provenance_tables),
    "glossary": ("Glossary", "", _no_tables),
    "citations": (
        "Citations",
        "Please cite the works that these results are based on.",
        _no_tables,
    ),
}


def _map_title(label: str, name: str) -> str:
    words = name.replace("_", " ")
    return f"{label}, {words}" if label else words


def _tables_with_rows(
    make_tables: Callable[[ReportData], Iterator[Table]], results: ReportData
) -> list[Table]:
    return [table for table in make_tables(results) if table.rows]


def _attempt(what: str, make: Callable[[], Any], missing: list[str]) -> Any:
    """A part of the page; if it cannot be made, None, and the reason is added to `missing`."""
    try:
        return make()
    except NothingToDraw as reason:
        missing.append(str(reason))
    except Exception as error:  # one failing part does not stop the report
        log.exception("The %s could not be made", what)
        missing.append(
            f"The {what} could not be made ({type(error).__name__}): please report this."
        )
    return None


def _cohort_row(facts: CohortFacts) -> dict[str, Any]:
    """A row of the table of cohorts; what is not known is empty."""
    has_table = len(facts.participants) > 0
    age = facts.numbers("age")
    age_words = ""
    if len(age):
        age_words = f"{age.mean():.1f} ± {age.std():.1f} ({age.min():.1f}–{age.max():.1f})"
    motion = facts.numbers("mean_fd")
    motion_words = ""
    if len(motion):
        motion_words = f"{np.median(motion):.2f} ({motion.max():.2f})"
    sexes = facts.counts("sex").head(4)
    order_words = ""
    if facts.order is not None:
        order_words = "yes" if facts.order.plausible else "in doubt"
    return {
        "cohort": f"{facts.label} (simulated)" if facts.simulated else facts.label,
        "participants": facts.n,
        "left out": int(facts.left_out["participants"].sum()) if has_table else "",
        "age, mean ± SD (range), years": age_words,
        "sex": ", ".join(f"{level} {count}" for level, count in sexes.items()),
        "sites": len(facts.counts("site")) if "site" in facts.participants else "",
        "mean FD, median (largest), mm": motion_words,
        "time series": facts.volumes if has_table else "",
        "regions in order": order_words,
        "used in pretraining": facts.pretrained_on,
    }


def _cell(value: Any, digits: int) -> tuple[str, float | str]:
    """What is shown, and what the column is sorted by."""
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–", ""
    if isinstance(value, bool):
        return ("yes" if value else "no"), float(value)
    if isinstance(value, float) and not (value.is_integer() and abs(value) >= 1):
        return f"{value:.{digits}f}", value
    if isinstance(value, (int, float)):
        return f"{value:,.0f}", float(value)
    return str(value), str(value)[:200]


def _shrink_to_budget(drawn: list[DrawnFigure]) -> None:
    """Turn the largest figures into images, coarser if need be, until a page can be mailed."""
    for dpi in (120, 80, 50):
        for figure in sorted(drawn, key=lambda figure: len(figure.source), reverse=True):
            if sum(len(other.source) for other in drawn) > BUDGET:
                figure.shrink(dpi)
