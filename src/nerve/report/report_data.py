"""`ReportData`, all that a page shows: results or a training run, and facts of cohorts and encoders.

It holds no identifiers. `nerve.report.load.load_results` makes one from a folder; in a notebook any
part can be given by hand:

    ReportData(interpretation={"importance": table})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError
from nerve._utils.privacy import Identifiers, shared_counts
from nerve.data.cohort import Cohort
from nerve.data.common_space import MeanPair
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

_MOST_MATRICES = 1000  # participants in a group mean: more do not change the picture


class NothingToDraw(NerveError):
    """The results lack what a figure needs; the sentence says what."""


@dataclass(frozen=True)
class CohortFacts:  # numpydoc ignore=PR02
    """A cohort as a page may show it: no ids, no paths, one mean matrix.

    Parameters
    ----------
    label : str
        What tables call the cohort.
    n : int
        Number of participants.
    participants : DataFrame
        The participants table without `participant_id`; empty where only cohorts.tsv is known.
    parcellation : Parcellation, optional
        The regions, in order.
    mean : (R, R) array, optional
        Mean FC over `n_in_mean` participants.
    n_in_mean : int
        Number of participants in the mean.
    left_out : DataFrame
        Columns reason and participants: how many were left out, and why.
    volumes : str
        Lengths of the time series, in words.
    pretrained_on : str
        Whether encoders were trained on the cohort, in words.
    simulated : bool
        Whether the participants are simulated.
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
    pretrained_on: str = ""
    simulated: bool = False

    @property
    def order(self) -> OrderCheck | None:
        """Whether the mean has high FC within networks, as it should in the right region order."""
        if self.mean is None or self.parcellation is None:
            return None
        return check_order(self.mean, self.parcellation)

    def numbers(self, column: str) -> np.ndarray:
        """The finite values of a column, empty where there is no such column."""
        values = self.participants.get(column, pd.Series(dtype=float))
        numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
        return numbers[np.isfinite(numbers)]

    def counts(self, column: str) -> pd.Series:
        """Participants per value of a column, most first; rare values are "other"."""
        return shared_counts(self.participants.get(column, pd.Series(dtype=str)))


@dataclass(frozen=True)
class EncoderRun:  # numpydoc ignore=PR02
    """A trained encoder: its loss, and what `nerve.interpret.pretraining.describe_run` wrote.

    Parameters
    ----------
    label : str
        What figures call it.
    history : DataFrame
        Loss by epoch.
    settings : mapping
        Its parameters, by name.
    parameters : int
        Number of trainable parameters; 0 where it is not known.
    seconds : float
        Time of training.
    example : mapping
        Arrays original, masked, reconstructed and group_of.
    errors : mapping
        What reconstruction.json holds.
    masked_error : float
        Error as a share of the group mean's, from the config.json of the model; used where
        `errors` are missing.
    interpretation : mapping
        Name → table of its maps.
    """

    label: str
    history: pd.DataFrame
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 0
    seconds: float = float("nan")
    example: Mapping[str, np.ndarray] = field(default_factory=dict)
    errors: Mapping[str, Any] = field(default_factory=dict)
    masked_error: float = float("nan")
    interpretation: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def error_ratio(self) -> float:
        """Error of masked patches as a share of the group mean's, NaN where it is not known."""
        model = self.errors.get("model")
        group_mean = self.errors.get("group_mean")
        if model is None or not group_mean:
            return self.masked_error
        return float(model) / float(group_mean)

    @property
    def warning(self) -> str:
        """A sentence where training has learned next to nothing; empty otherwise."""
        return learned_little(self.error_ratio, int(self.settings.get("epochs") or 0))


@dataclass(frozen=True)
class ReportData:  # numpydoc ignore=PR02
    """Everything that figures and the page read; what is missing is empty.

    Parameters
    ----------
    title : str
        Heading of the page.
    about : mapping
        protocol.json: title, kind, layout, the protocol of each cohort, versions, fingerprints.
    rows, predictions, scores, null_scores, comparisons, nulls, curves : DataFrame
        The tables of the results folder, with the `line` of each row, and no participants. A line
        is a row of the printed tables: rows that differ only in their seed share it. `scores` are
        those of real rows, `null_scores` those of models with permuted networks.
    runs : DataFrame
        Columns id, kind, line, cohort, run, status, seconds, reason.
    cohorts : mapping
        Name → facts of the cohort.
    encoders : sequence of EncoderRun
        Encoders that were trained or given.
    likeness : mapping
        (model, cohort) → how like the model's training cohort the cohort is.
    mean_pairs : sequence of MeanPair
        Group means that are shown side by side, beside those of resampled cohorts.
    checks : DataFrame
        What `nerve check` said: check, value, verdict, detail.
    interpretation : mapping
        Name → table, of all encoders of the experiment together.
    parcellation : Parcellation, optional
        The regions that everything is in, where no cohort says so.
    methods_text, warnings, notices : sequences of str
        Paragraphs on what was run; warnings that were shown meanwhile; what the reader should know
        before reading.
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
    mean_pairs: Sequence[MeanPair] = ()
    checks: pd.DataFrame = field(default_factory=pd.DataFrame)
    interpretation: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    parcellation: Parcellation | None = None
    methods_text: Sequence[str] = ()
    warnings: Sequence[str] = ()
    notices: Sequence[str] = ()

    @classmethod
    def from_results(cls, results: Results, **parts: Any) -> ReportData:
        """What a page shows of results.

        Parameters
        ----------
        results : Results
            What was predicted.
        **parts
            Further fields of `ReportData`.

        Returns
        -------
        ReportData
            The tables without participants, and what cohorts.tsv says of each cohort.
        """
        rows = results.rows
        line_of = dict(zip(rows["row"], rows["line"], strict=True))

        def with_lines(table: pd.DataFrame) -> pd.DataFrame:
            return table.assign(line=table.get("row", pd.Series(dtype=str)).map(line_of))

        predictions = with_lines(results.predictions)
        scores = with_lines(results.scores)
        null_lines = rows.loc[rows["kind"] == NULL, "line"]
        is_null = scores["line"].isin(null_lines)
        cohorts = {
            str(row.cohort): _facts_of_row(row) for row in results.cohorts.itertuples(index=False)
        }
        return cls(
            title=str(results.about.get("title") or "Results"),
            about=results.about,
            rows=rows,
            predictions=predictions.drop(columns="participant", errors="ignore"),
            scores=scores[~is_null],
            null_scores=scores[is_null],
            comparisons=results.comparisons,
            nulls=with_lines(results.nulls),
            curves=with_lines(results.curves),
            cohorts=cohorts,
            **parts,
        )

    @property
    def is_run(self) -> bool:
        """Whether this is one training run, in which no target is predicted."""
        return self.about.get("kind") == "run"

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """(cohort, target) in the order asked for; three or more classes follow their target."""
        columns = []
        for cohort, protocol in self.about.get("protocols", {}).items():
            targets = self.about["participants"][cohort]["targets"]
            for target in protocol["targets"]:
                columns.append((cohort, target))
                classes = targets.get(target, {}).get("classes") or []
                if len(classes) > 2:
                    columns += [(cohort, class_target(target, name)) for name in classes]
        if not columns and len(self.scores):
            places = zip(self.scores["cohort"], self.scores["target"], strict=True)
            return list(dict.fromkeys(places))
        return columns

    @cached_property
    def target_columns(self) -> list[tuple[str, str]]:
        """(cohort, target) as asked for, without the single classes of a target."""
        asked = []
        for cohort, protocol in self.about.get("protocols", {}).items():
            asked += [(cohort, target) for target in protocol["targets"]]
        return asked or self.columns

    @cached_property
    def lines(self) -> pd.DataFrame:
        """One row per line, in order, indexed by its id; without models of permuted networks."""
        lines = lines_of(self.rows)
        return lines[lines["kind"] != NULL]

    @cached_property
    def null_lines(self) -> list[str]:
        """Lines of models with permuted networks."""
        return [line for line, row in self._rows.items() if row.kind == NULL]

    @cached_property
    def contenders(self) -> list[str]:
        """Lines that are compared with each other; the others are references."""
        return contenders(self.rows)

    @cached_property
    def covariate_lines(self) -> list[str]:
        """Lines that predict from covariates alone."""
        return list(self.lines.index[self.lines["method"] == "covariates"])

    @cached_property
    def _rows(self) -> dict[str, Row]:
        return {row.line: row for row in rows_of(lines_of(self.rows))}

    def label(self, line: str) -> str:
        """What figures and sentences call a line: with its preset and its first few settings."""
        return self._labels[line]

    @cached_property
    def _labels(self) -> dict[str, str]:
        return line_labels(self._rows.values())

    def name(self, line: str) -> str:
        """What the paper's tables call a line: its short name, or its label if others share that."""
        return self._names[line]

    def name_in_table(self, line: str) -> str:
        """What stands at the start of a line of the paper's tables: its name and swept settings."""
        return ", ".join(part for part in (self._names[line], self._rows[line].variant) if part)

    def name_of_sweep(self, line: str) -> str:
        """The label that lines share if they differ only in swept settings."""
        return line_label(without_swept(self._rows[line]), most=3)

    @cached_property
    def _names(self) -> dict[str, str]:
        rows = self._rows.values()
        used = Counter((short_name(row), row.variant) for row in rows)
        names = {}
        for row in rows:
            name = short_name(row)
            names[row.line] = name if used[name, row.variant] == 1 else self._labels[row.line]
        return names

    def column_name(self, cohort: str, target: str) -> str:
        """What figures call a cohort's target."""
        name = self.target_label(cohort, target)
        cohorts = {cohort for cohort, _ in self.columns}
        return f"{self.cohort_label(cohort)}: {name}" if len(cohorts) > 1 else name

    def cohort_label(self, cohort: str) -> str:
        """What tables call a cohort."""
        return self.cohorts[cohort].label if cohort in self.cohorts else cohort

    def target_label(self, cohort: str, target: str) -> str:
        """What tables call a target."""
        labels = self.about.get("target_labels", {}).get(cohort) or {}
        return str(labels.get(target, target))

    def labelled(self, table: pd.DataFrame, **line_columns: str) -> pd.DataFrame:
        """Columns that name the rows of a table, as tables call them.

        Parameters
        ----------
        table : DataFrame
            With columns cohort and target.
        **line_columns
            New column = column of `table` that holds lines.

        Returns
        -------
        DataFrame
            Columns cohort, target and the new ones.
        """
        places = list(zip(table["cohort"], table["target"], strict=True))
        names = pd.DataFrame(index=table.index)
        names["cohort"] = [self.cohort_label(cohort) for cohort, _ in places]
        names["target"] = [self.target_label(cohort, target) for cohort, target in places]
        for name, column in line_columns.items():
            names[name] = table[column].map(self.label)
        return names

    def map_tables(self, name: str, if_empty: str) -> list[tuple[str, pd.DataFrame]]:
        """The tables interpretation/NAME.tsv of the experiment and of its encoders.

        Parameters
        ----------
        name : str
            Such as "importance".
        if_empty : str
            Sentence of the error where there are none.

        Returns
        -------
        list of (str, DataFrame)
            Each with the label of its encoder; "" for the experiment.
        """
        tables = [
            (label, maps[name]) for label, maps in self.interpretations if len(maps.get(name, ()))
        ]
        if not tables:
            raise NothingToDraw(if_empty)
        return tables

    @property
    def interpretations(self) -> list[tuple[str, Mapping[str, pd.DataFrame]]]:
        """The maps of the experiment (labelled "") and of each encoder."""
        of_encoders = [(encoder.label, encoder.interpretation) for encoder in self.encoders]
        return [("", self.interpretation), *of_encoders]

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
    def scores_at(self) -> dict[tuple[str, str, str], dict[str, float]]:
        """(cohort, target, line) → its scores, seeds averaged."""
        records: list[dict[Any, Any]] = self.mean_scores.to_dict("records")
        return {(row["cohort"], row["target"], row["line"]): row for row in records}

    @cached_property
    def adapted(self) -> dict[tuple[str, str], str]:
        """(cohort, line) → what replaced an input that the cohort lacks."""
        if "adapted" not in self.scores:
            return {}
        adapted = self.scores[self.scores["adapted"].fillna("") != ""]
        places = zip(adapted["cohort"], adapted["line"], strict=True)
        return dict(zip(places, adapted["adapted"], strict=True))

    @cached_property
    def failed(self) -> set[tuple[str, str]]:
        """(cohort, line) of failed runs; an encoder that serves all cohorts has the cohort ""."""
        if self.runs.empty:
            return set()
        failed = self.runs[self.runs["status"] == "failed"]
        return set(zip(failed["cohort"].fillna(""), failed["line"], strict=True))

    def r(self, cohort: str, target: str, line: str) -> float:
        """Pearson's r of a line, NaN where it has none."""
        return float(self.scores_at.get((cohort, target, line), {}).get("r", np.nan))

    def metric(self, cohort: str, target: str) -> str:
        """The score that lines are compared by: AUC for classes, else r."""
        scores = rows_at(self.scores, cohort, target)
        return "auc" if "auc" in scores and scores["auc"].notna().any() else "r"

    def best_line(
        self, cohort: str, target: str, among: Collection[str], metric: str = "r"
    ) -> str | None:
        """The line with the highest score, None where none has any.

        Parameters
        ----------
        cohort, target : str
            Where.
        among : collection of str
            Lines to choose from.
        metric : str
            The score.

        Returns
        -------
        str or None
            The line.
        """
        best = None
        highest = -np.inf
        for line in among:
            score = self.scores_at.get((cohort, target, line), {}).get(metric, np.nan)
            if score > highest:  # never true of NaN
                best = line
                highest = score
        return best


def rows_at(table: pd.DataFrame, cohort: str, target: str) -> pd.DataFrame:
    """The rows of a table that are of one cohort and target."""
    if table.empty:
        return table
    return table[(table["cohort"] == cohort) & (table["target"] == target)]


def cohort_facts(cohort: Cohort, known: CohortFacts | None = None) -> CohortFacts:
    """What a page may show of a cohort; matrices are read a few at a time.

    Parameters
    ----------
    cohort : Cohort
        The participants.
    known : CohortFacts, optional
        What results say of it: label, whether encoders were trained on it, whether it is simulated.

    Returns
    -------
    CohortFacts
        Without ids and paths.
    """
    n_in_mean = min(len(cohort), _MOST_MATRICES)
    rows = np.unique(np.linspace(0, len(cohort) - 1, n_in_mean).astype(int))
    total = np.zeros((cohort.n_regions, cohort.n_regions))
    n_finite = np.zeros((cohort.n_regions, cohort.n_regions))
    for chunk in np.array_split(rows, len(rows) // 64 + 1):
        fc = cohort.inputs("fc", chunk).astype(float)  # (k, R, R)
        total += np.nansum(fc, axis=0)
        n_finite += np.isfinite(fc).sum(axis=0)
    volumes = "none"
    if cohort.timeseries is not None:
        lengths = cohort.timeseries.lengths
        volumes = f"{lengths.min()} to {lengths.max()} volumes"
        if lengths.min() == lengths.max():
            volumes = f"{lengths.min()} volumes"
    return replace(
        known or CohortFacts(cohort.name, len(cohort)),
        n=len(cohort),
        participants=cohort.participants.drop(columns="participant_id"),
        parcellation=cohort.parcellation,
        mean=total / np.where(n_finite > 0, n_finite, np.nan),
        n_in_mean=len(rows),
        left_out=_left_out(cohort),
        volumes=volumes,
    )


def ids_of(cohort: Cohort) -> set[str]:
    """The ids of all participants of a cohort, and of those who were left out of it."""
    ids = {str(name) for name in cohort.participants["participant_id"]}
    return ids | {str(name) for name in cohort.exclusions["participant_id"]}


def _left_out(cohort: Cohort) -> pd.DataFrame:
    """How many were left out for each reason."""
    # What stands before a colon belongs to one participant.
    reasons = cohort.exclusions["reason"].astype(str)
    general = reasons.map(lambda reason: reason.rpartition(": ")[2] or reason)
    identifiers = Identifiers(ids_of(cohort))
    without_ids = {reason: identifiers.removed_from(reason) for reason in general.unique()}
    counts = general.map(without_ids).value_counts()
    return pd.DataFrame({"reason": counts.index, "participants": counts.to_numpy()})


def _facts_of_row(row: Any) -> CohortFacts:
    """What a row of cohorts.tsv says of a cohort."""
    return CohortFacts(
        label=str(row.label or row.cohort),
        n=int(row.n),
        pretrained_on=str(row.pretrained_on),
        simulated=bool(row.simulated),
    )
