"""What a page shows: `Results` or a training run, with facts of cohorts and encoders, without identifiers.

`nerve.report.load.load_results` fills one from a folder; in a notebook any part can be given by hand:

    ReportData(interpretation={"importance": table})
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError
from nerve._utils.privacy import Identifiers, shared_counts
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.data.quality import OrderCheck, check_order
from nerve.data.quality.learned import learned_little
from nerve.data.quality.likeness import Likeness
from nerve.evaluation.results import Results
from nerve.evaluation.rows import (
    NULL,
    Row,
    class_target,
    contenders,
    line_label,
    line_labels,
    lines_of,
    rows_of,
    rows_table,
    short_name,
    without_swept,
)

MOST_MATRICES = 1000  # participants in a group mean: more do not change the picture


class NothingToDraw(NerveError):
    """The results lack what a figure shows; the sentence says what."""


@dataclass(frozen=True)
class CohortFacts:
    """A cohort as a page may show it: no ids, no paths, one mean matrix.

    Parameters
    ----------
    participants : DataFrame
        The participants table without `participant_id`; empty where only cohorts.tsv is known.
    mean : (R, R) array, optional
        Mean FC over `n_in_mean` participants.
    left_out : DataFrame
        Columns reason and participants: how many were left out, and why.
    """

    label: str
    n: int
    participants: pd.DataFrame = field(default_factory=pd.DataFrame)
    parcellation: Parcellation | None = None
    mean: np.ndarray | None = None
    n_in_mean: int = 0
    left_out: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame({"reason": [], "participants": []})
    )
    volumes: str = "not known"
    pretrained_on: str = ""  # whether encoders were trained on it, in words
    simulated: bool = False

    @property
    def order(self) -> OrderCheck | None:
        """Whether networks show in the mean as the declared region order says."""
        return (
            None
            if self.mean is None or self.parcellation is None
            else check_order(self.mean, self.parcellation)
        )

    def numbers(self, column: str) -> np.ndarray:
        """The finite values of a column, empty where there is no such column."""
        values = pd.to_numeric(
            self.participants.get(column, pd.Series(dtype=float)), errors="coerce"
        ).to_numpy(float)
        return values[np.isfinite(values)]

    def counts(self, column: str) -> pd.Series:
        """How many participants have each value of a column, the most frequent first; rare values are "other"."""
        return shared_counts(self.participants.get(column, pd.Series(dtype=str)))


@dataclass(frozen=True)
class EncoderRun:
    """A trained encoder: its loss, and what `nerve.interpret.pretraining.describe_run` found."""

    label: str
    history: pd.DataFrame
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 0
    seconds: float = float("nan")
    example: Mapping[str, np.ndarray] = field(
        default_factory=dict
    )  # original, masked, reconstructed, group_of
    errors: Mapping[str, Any] = field(default_factory=dict)
    masked_error: float = float("nan")  # as the model itself says, where errors are not known
    interpretation: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def error_ratio(self) -> float:
        """Error of masked patches as a share of the group mean's, NaN where it is not known."""
        model, mean = self.errors.get("model"), self.errors.get("group_mean")
        return float(model) / float(mean) if model is not None and mean else self.masked_error

    @property
    def doubt(self) -> str:
        """A sentence where training has learned next to nothing, empty otherwise."""
        return learned_little(self.error_ratio, int(self.settings.get("epochs") or 0))


@dataclass(frozen=True)
class ReportData:
    """Everything that figures and the page read; what is missing is empty.

    Parameters
    ----------
    about : dict
        protocol.json: title, kind, layout, the protocol of each cohort, versions, fingerprints.
    rows, predictions, scores, comparisons, nulls, curves : DataFrame
        The tables of the results folder, with the `line` of each row; no participants. `scores` are those of real
        rows, `null_scores` those of models with permuted networks.
    runs : DataFrame
        id, kind, line, cohort, run, status, seconds, reason.
    likeness : mapping
        (model, cohort) → how like the model's training cohort the cohort is.
    checks : DataFrame
        What `nerve check` said: check, value, verdict, detail.
    interpretation : mapping
        Name → table, of the whole experiment.
    parcellation : Parcellation, optional
        The regions that everything is in, where no cohort says so.
    methods_text, warnings, notices : sequences of str
        What was run; what was said while running; what the reader should know before reading.
    """

    title: str = "Results"
    about: Mapping[str, Any] = field(default_factory=dict)
    rows: pd.DataFrame = field(default_factory=lambda: rows_table([]))
    predictions: pd.DataFrame = field(default_factory=pd.DataFrame)
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    null_scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    comparisons: pd.DataFrame = field(default_factory=pd.DataFrame)
    nulls: pd.DataFrame = field(default_factory=pd.DataFrame)
    curves: pd.DataFrame = field(default_factory=pd.DataFrame)
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    cohorts: Mapping[str, CohortFacts] = field(default_factory=dict)
    encoders: Sequence[EncoderRun] = ()
    likeness: Mapping[tuple[str, str], Likeness] = field(default_factory=dict)
    checks: pd.DataFrame = field(default_factory=pd.DataFrame)
    interpretation: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    parcellation: Parcellation | None = None
    methods_text: Sequence[str] = ()
    warnings: Sequence[str] = ()
    notices: Sequence[str] = ()

    @classmethod
    def of(cls, found: Results, **more: Any) -> ReportData:
        """What a page shows of results."""
        line_of = dict(zip(found.rows["row"], found.rows["line"], strict=True))
        tables = {
            name: getattr(found, name) for name in ("predictions", "scores", "nulls", "curves")
        }
        for name, table in tables.items():
            tables[name] = table.assign(line=table.get("row", pd.Series(dtype=str)).map(line_of))
        scores = tables.pop("scores")
        permuted = scores["line"].isin(found.rows.loc[found.rows["kind"] == NULL, "line"])
        tables |= {
            "scores": scores[~permuted],
            "null_scores": scores[permuted],
            "comparisons": found.comparisons,
        }
        tables["predictions"] = tables["predictions"].drop(columns="participant", errors="ignore")
        facts = {str(row.cohort): _known(row) for row in found.cohorts.itertuples(index=False)}
        title = str(found.about.get("title") or "Results")
        return cls(title, found.about, found.rows, cohorts=facts, **tables, **more)

    @property
    def is_run(self) -> bool:
        """Whether these are of one training run, which predicts nothing."""
        return self.about.get("kind") == "run"

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """(cohort, target) as they were asked for; a column of three or more classes, then each of them."""
        asked = []
        for cohort, protocol in self.about.get("protocols", {}).items():
            for target in protocol["targets"]:
                classes = (
                    self.about["participants"][cohort]["targets"].get(target, {}).get("classes")
                    or []
                )
                each = [class_target(target, one) for one in classes] if len(classes) > 2 else []
                asked += [(cohort, one) for one in (target, *each)]
        if not asked and len(self.scores):
            return list(
                dict.fromkeys(zip(self.scores["cohort"], self.scores["target"], strict=True))
            )
        return asked

    @cached_property
    def lines(self) -> pd.DataFrame:
        """One row per line, in order, indexed by its id; models with permuted networks are left out."""
        lines = lines_of(self.rows)
        return lines[lines["kind"] != NULL]

    @cached_property
    def null_lines(self) -> list[str]:
        """Lines of models with permuted networks."""
        return [line for line, row in self._rows.items() if row.kind == NULL]

    @cached_property
    def contenders(self) -> list[str]:
        """Lines that are compared with each other; the others stand apart."""
        return contenders(self.rows)

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row.line: row for row in rows_of(lines_of(self.rows))}

    def label(self, line: str) -> str:
        """What figures and sentences call a line: with preset and settings, the first few of them."""
        return self._labels[line]

    @cached_property
    def _labels(self) -> dict[str, str]:
        return line_labels(self._rows.values())

    def name(self, line: str) -> str:
        """What the paper's tables call a line: its own name, where no other line is called so."""
        return self._names[line]

    def name_in_table(self, line: str) -> str:
        """The words at the start of a line of the paper's tables, swept settings included."""
        return ", ".join(part for part in (self._names[line], self._rows[line].variant) if part)

    def name_of_sweep(self, line: str) -> str:
        """What lines have in common that differ in swept settings only."""
        return line_label(without_swept(self._rows[line]), most=3)

    @cached_property
    def _names(self) -> dict[str, str]:
        rows = self._rows.values()
        names = [(short_name(row), row.variant) for row in rows]
        alone = {row.line: names.count((short_name(row), row.variant)) == 1 for row in rows}
        return {
            row.line: short_name(row) if alone[row.line] else self._labels[row.line] for row in rows
        }

    def column_name(self, cohort: str, target: str) -> str:
        """What figures call a cohort's target."""
        shown = self.target_label(cohort, target)
        return (
            f"{self.cohort_label(cohort)}: {shown}"
            if len({c for c, _ in self.columns}) > 1
            else shown
        )

    def cohort_label(self, cohort: str) -> str:
        """What tables call a cohort."""
        return self.cohorts[cohort].label if cohort in self.cohorts else cohort

    def target_label(self, cohort: str, target: str) -> str:
        """What tables call a target."""
        return str((self.about.get("target_labels", {}).get(cohort) or {}).get(target, target))

    def labelled(self, table: pd.DataFrame, **lines: str) -> pd.DataFrame:
        """Cohort and target of each row of a table, and the lines in these columns, as tables call them."""
        places = zip(table["cohort"], table["target"], strict=True)
        names = [
            (self.cohort_label(cohort), self.target_label(cohort, target))
            for cohort, target in places
        ]
        labels = {name: table[column].map(self.label) for name, column in lines.items()}
        return pd.DataFrame(names, index=table.index, columns=["cohort", "target"]).assign(**labels)

    def interpreted(self, name: str, otherwise: str) -> list[tuple[str, pd.DataFrame]]:
        """The tables interpretation/`name`.tsv, each with whose it is ("" for the whole); without any, a sentence."""
        found = [
            (label, tables[name])
            for label, tables in self.interpretations
            if len(tables.get(name, ()))
        ]
        if not found:
            raise NothingToDraw(otherwise)
        return found

    @property
    def interpretations(self) -> list[tuple[str, Mapping[str, pd.DataFrame]]]:
        """What interpretation left, of the experiment ("") and of each encoder."""
        return [
            ("", self.interpretation),
            *((one.label, one.interpretation) for one in self.encoders),
        ]

    @cached_property
    def mean_scores(self) -> pd.DataFrame:
        """One row per cohort, target and line: rows that differ in their seed are averaged."""
        if self.scores.empty:
            return self.scores
        return (
            self.scores.groupby(["cohort", "target", "line"], sort=False)
            .mean(numeric_only=True)
            .reset_index()
        )

    @cached_property
    def by_place(self) -> dict[tuple[str, str, str], dict[str, float]]:
        """(cohort, target, line) → its scores, seeds averaged."""
        records: list[dict[Any, Any]] = self.mean_scores.to_dict("records")
        return {(row["cohort"], row["target"], row["line"]): row for row in records}

    @cached_property
    def adapted(self) -> dict[tuple[str, str], str]:
        """(cohort, line) → the substitute that the method had to make there."""
        if "adapted" not in self.scores:
            return {}
        told = self.scores[self.scores["adapted"].fillna("") != ""]
        return dict(
            zip(zip(told["cohort"], told["line"], strict=True), told["adapted"], strict=True)
        )

    @cached_property
    def failed(self) -> set[tuple[str, str]]:
        """(cohort, line) of runs that ended with an error; the cohort is empty for an encoder that serves them all."""
        if self.runs.empty:
            return set()
        ended = self.runs[self.runs["status"] == "failed"]
        return set(zip(ended["cohort"].fillna(""), ended["line"], strict=True))

    def r(self, cohort: str, target: str, line: str) -> float:
        """Pearson's r of a line, NaN where it has none."""
        return float(self.by_place.get((cohort, target, line), {}).get("r", np.nan))

    def best(self, cohort: str, target: str, among: Collection[str]) -> str | None:
        """The line with the highest r, None where none has any."""
        known = {line: r for line in among if np.isfinite(r := self.r(cohort, target, line))}
        return max(known, key=known.__getitem__, default=None)


def at(table: pd.DataFrame, cohort: str, target: str) -> pd.DataFrame:
    """The rows of a table that are of one cohort and target."""
    return table[(table["cohort"] == cohort) & (table["target"] == target)] if len(table) else table


def cohort_facts(cohort: Cohort, known: CohortFacts | None = None) -> CohortFacts:
    """What a page may show of a cohort, its names as `known`; matrices are read a few at a time."""
    rows = np.unique(np.linspace(0, len(cohort) - 1, min(len(cohort), MOST_MATRICES)).astype(int))
    total, finite = np.zeros((2, cohort.n_regions, cohort.n_regions))
    for some in np.array_split(rows, len(rows) // 64 + 1):
        chunk = cohort.inputs("fc", some).astype(float)
        total += np.nansum(chunk, axis=0)
        finite += np.isfinite(chunk).sum(axis=0)
    lengths = None if cohort.timeseries is None else cohort.timeseries.lengths
    return replace(
        known or CohortFacts(cohort.name, len(cohort)),
        n=len(cohort),
        participants=cohort.participants.drop(columns="participant_id"),
        parcellation=cohort.parcellation,
        mean=total / np.where(finite > 0, finite, np.nan),
        n_in_mean=len(rows),
        left_out=_left_out(cohort),
        volumes="none" if lengths is None else f"{lengths.min()} to {lengths.max()} volumes",
    )


def ids_of(cohort: Cohort) -> set[str]:
    """Every id that a text about a cohort may hold: of participants, and of those left out."""
    return {
        str(one)
        for table in (cohort.participants, cohort.exclusions)
        for one in table["participant_id"]
    }


def _left_out(cohort: Cohort) -> pd.DataFrame:
    """How many were left out for each reason, without what belongs to one participant (what stands before a colon)."""
    reasons = (
        cohort.exclusions["reason"]
        .astype(str)
        .map(lambda reason: reason.rpartition(": ")[2] or reason)
    )
    clean = Identifiers(ids_of(cohort)).removed_from
    counts = reasons.map({one: clean(one) for one in reasons.unique()}).value_counts()
    return pd.DataFrame({"reason": counts.index, "participants": counts.to_numpy()})


def _known(row: Any) -> CohortFacts:
    """What cohorts.tsv says of a cohort."""
    label = str(row.label or row.cohort)
    return CohortFacts(
        label, int(row.n), pretrained_on=str(row.pretrained_on), simulated=bool(row.simulated)
    )
