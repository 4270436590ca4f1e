"""What stands in each section of the page, as plain values that the template prints (and escapes)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from nerve.report.figures import FIGURES, Drawn, NothingToDraw, drawn
from nerve.report.paper_table import extended_table, paper_table
from nerve.report.results import CohortFacts, Results
from nerve.report.tables import ResultsTable

log = logging.getLogger("nerve.report")
MOST_ROWS = 400  # of a table on the page; its file has all
BUDGET = 3_500_000  # characters of all figures; with tables the page stays below 5 MB
LONG = 12  # rows beyond which a table is folded
HEADS = {  # columns of our files whose names are no words
    "r_low": "r, 95 % CI from", "r_high": "to", "r_low_cv": "wider CI from", "r_high_cv": "to", "auc": "AUC",
    "auc_low": "AUC, 95 % CI from", "auc_high": "to", "r2": "R²", "mae": "MAE", "r_fold_mean": "r, mean of folds",
    "p_permuted_networks": "p against permuted networks", "r_target_motion": "r of target and motion",
    "r_prediction_motion": "r of prediction and motion", "scope": "pretraining", "difference_low": "95 % CI from",
    "difference_high": "to", "drop_low": "95 % CI from", "drop_high": "to", "n_seeds": "seeds",
    "stability": "agreement of seeds", "from": "from network", "to": "to network", "id": "run id",
}  # fmt: skip


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


@dataclass
class Section:
    """A part of the page."""

    anchor: str
    title: str
    lead: str = ""
    figures: list[Drawn] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    paper: ResultsTable | None = None


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


def table_of(frame: pd.DataFrame, title: str, note: str = "", digits: int = 3, total: int = 0) -> Table:
    """A DataFrame as text, numbers rounded, sorted by what they are; the note says where the rest of a cut one is."""
    total = max(total, len(frame))
    if total > MOST_ROWS:
        title = f"{title} (the first {MOST_ROWS:,} of {total:,} rows)"
    else:
        note = ""
    frame = frame.head(MOST_ROWS)
    rows = [[_text(value, digits) for value in row] for row in frame.itertuples(index=False)]
    sort = [[_key(value) for value in row] for row in frame.itertuples(index=False)]
    return Table(title, [worded(str(name)) for name in frame.columns], rows, sort, note)


def cohorts_table(results: Results) -> Table | None:
    """One row per cohort."""
    rows = [_cohort_row(facts) for facts in results.cohorts.values()]
    frame = pd.DataFrame(rows).replace("", np.nan).dropna(axis=1, how="all").fillna("not known")
    return table_of(frame, "Cohorts") if rows else None


def _cohort_row(facts: CohortFacts) -> dict[str, Any]:
    age, motion, order = facts.numbers("age"), facts.numbers("mean_fd"), facts.order
    known = facts.participants
    sex = known["sex"].dropna().astype(str).value_counts() if "sex" in known else pd.Series(dtype=int)
    return {
        "cohort": facts.label + (" (simulated)" if facts.simulated else ""),
        "participants": facts.n,
        "left out": int(facts.left_out["participants"].sum()) if len(known) else "",
        "age, mean ± SD (range), years": _spread(age),
        "sex": ", ".join(f"{level} {count}" for level, count in sex.head(4).items()),
        "sites": known["site"].nunique() if "site" in known else "",
        "mean FD, median (largest), mm": f"{np.median(motion):.2f} ({motion.max():.2f})" if len(motion) else "",
        "time series": facts.volumes if len(known) else "",
        "regions in order": "" if order is None else ("yes" if order.plausible else "in doubt"),
        "used in pretraining": {None: "", True: "yes", False: "no"}[facts.pretrained_on],
    }


def exclusions_table(results: Results) -> Table | None:
    """How many were left out, and why."""
    parts = [facts.left_out.assign(cohort=facts.label) for facts in results.cohorts.values() if len(facts.left_out)]
    if not parts:
        return None
    frame = pd.concat(parts, ignore_index=True)[["cohort", "participants", "reason"]]
    return table_of(frame, "Participants left out, and why")


def checks_table(results: Results) -> Table | None:
    """What was checked before anything was computed."""
    if results.checks.empty:
        return None
    doubts = int(results.checks["verdict"].isin(["warning", "not usable"]).sum())
    said = "nothing in doubt" if not doubts else f"{doubts} warning{'s' * (doubts > 1)}"
    return table_of(results.checks, f"Checks of the cohort, {said}")


def encoders_table(results: Results) -> Table | None:
    """One row per encoder; reference rows are computed, not trained."""
    rows = []
    for one in (one for one in results.encoders if len(one.history)):
        held = one.history["validation_loss"].min() if "validation_loss" in one.history else np.nan
        row = {
            "encoder": one.label,
            "trainable parameters": one.parameters or np.nan,
            "epochs": one.history["epoch"].iloc[-1] if len(one.history) else 0,
            "best held-out loss": held,
            "minutes": one.seconds / 60,
            "error, as a share of the group mean's": _ratio(one.errors),
        }
        rows.append(row)
    return table_of(pd.DataFrame(rows).dropna(axis=1, how="all"), "Encoders", digits=4) if rows else None


def scores_table(results: Results) -> Table | None:
    """Everything a reviewer asks for."""
    if results.scores.empty:
        return None
    note = "The whole table is tables/extended.tsv."
    return table_of(extended_table(results), "All scores, with intervals, R², MAE and p", note)


def comparisons_table(results: Results) -> Table | None:
    """The paired comparisons: best two first, then references against the best method."""
    table = results.comparisons
    if table.empty:
        return None
    order = [*table.index[table["best_two"]], *table.index[~table["best_two"] & (table["among"] == "reference")]]
    shown = table.loc[[*order, *table.index.difference(order)]].head(MOST_ROWS)
    kept = ["metric", "difference", "difference_low", "difference_high", "p", "q", "n"]
    pair = shown["among"].where(shown["among"] == "reference", "methods").mask(shown["best_two"], "the best two")
    frame = results.labelled(shown, method="line_a", against="line_b").assign(pair=pair)
    return table_of(frame.join(shown[[name for name in kept if name in shown]]), "Paired comparisons", total=len(table))


def provenance_tables(results: Results) -> list[Table]:
    """Versions, fingerprints and seeds; runs and how they ended."""
    about = results.about
    rows = [(str(name), str(version)) for name, version in about.get("versions", {}).items()]
    rows += [(f"data of {results.cohort_label(name)}", str(mark)) for name, mark in about.get("data", {}).items()]
    rows += [(name, str(about[name])) for name in ("code", "id") if about.get(name)]
    rows += [("seeds", ", ".join(map(str, about["seeds"])))] if about.get("seeds") else []
    tables = [table_of(pd.DataFrame(rows, columns=["what", "version or fingerprint"]), "Versions, data and seeds")]
    if len(results.runs):
        shown = [name for name in ("run", "status", "seconds", "reason", "id") if name in results.runs.columns]
        tables.append(table_of(results.runs[shown], "Runs", "The whole table is runs.tsv.", digits=1))
    return tables


def interpretation_tables(results: Results) -> list[Table]:
    """Every table that interpretation left, of the experiment and of its encoders."""
    every = [("", results.interpretation), *((one.label, one.interpretation) for one in results.encoders)]
    return [
        table_of(
            frame, ", ".join(filter(None, [label, worded(name)])), f"The whole table is interpretation/{name}.tsv."
        )
        for label, tables in every
        for name, frame in tables.items()
        if len(frame)
    ]


def worded(column: str) -> str:
    """The head of a column in words."""
    return HEADS.get(column, column.replace("_", " "))


def _ratio(errors: Mapping[str, Any]) -> float:
    model, mean = errors.get("model"), errors.get("group_mean")
    return float(model) / float(mean) if model is not None and mean else float("nan")


def _spread(values: np.ndarray) -> str:
    if not len(values):
        return ""
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


TITLES = {
    "cohorts": ("Cohorts", "Who was studied, who was left out, and whether regions stand in the order they should."),
    "pretraining": ("Pretraining", "What the encoders learned before they were asked to predict anything."),
    "prediction": ("Prediction", "How well targets are predicted in participants whom the model has not seen."),
    "comparison": ("Comparison and ablations", "Which differences between methods and settings are more than chance."),
    "interpretation": ("Interpretation", "What the models rely on."),
}
TABLES: dict[str, list[Callable[[Results], Table | None]]] = {
    "cohorts": [cohorts_table, exclusions_table, checks_table],
    "pretraining": [encoders_table],
    "prediction": [scores_table],
    "comparison": [comparisons_table],
}


def sections(results: Results) -> list[Section]:
    """The sections after the methods."""
    drawn = {name: figures_of(name, results) for name in TITLES}
    small = _within_budget([figure for figures, _ in drawn.values() for figure in figures])
    made = {}
    for name, (title, lead) in TITLES.items():
        figures, missing = drawn[name]
        tables = [table for make in TABLES.get(name, []) if (table := make(results)) is not None]
        made[name] = Section(name, title, lead, [small[figure.name] for figure in figures], tables, missing)
    made["prediction"].paper = paper_table(results)
    made["interpretation"].tables = interpretation_tables(results)
    return [*made.values(), Section("provenance", "Provenance", tables=provenance_tables(results))]


def _within_budget(figures: list[Drawn]) -> dict[str, Drawn]:
    """Figures by name; the largest become images, one after another, until all fit a page that can be mailed."""
    kept = {figure.name: figure for figure in figures}
    for figure in sorted(figures, key=lambda one: len(one.source), reverse=True):
        if sum(len(one.source) for one in kept.values()) <= BUDGET:
            break
        kept[figure.name] = min(figure, figure.as_image(), key=lambda one: len(one.source))
    return kept
