"""Results: what an experiment, an evaluation or a training run left, as plain tables and arrays without identifiers.

`nerve.report.load.load_results` fills one from a folder; in a notebook any part can be given by hand:

    Results(scores=scores, predictions=predictions)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.cohort import Cohort
from nerve.parcellation import Parcellation
from nerve.quality import OrderCheck, check_order

MODEL = ["method", "variant"]
MOST_MATRICES = 1000  # people in a group mean: more do not change the picture


class NothingToDraw(NerveError):
    """The results lack what a figure shows; the sentence says what."""


@dataclass(frozen=True)
class CohortFacts:
    """A cohort as a page may show it: no ids, no paths, one mean matrix.

    Parameters
    ----------
    people : DataFrame
        The participants table without `participant_id`.
    mean : (R, R) array, optional
        Mean FC over `n_in_mean` people.
    left_out : DataFrame
        Columns reason and people: how many were left out, and why.
    """

    name: str
    label: str
    n: int
    people: pd.DataFrame
    parcellation: Parcellation | None = None
    mean: np.ndarray | None = None
    n_in_mean: int = 0
    left_out: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"reason": [], "people": []}))
    fingerprint: str = ""
    volumes: str = "none"
    pretrained_on: bool | None = None

    @property
    def order(self) -> OrderCheck | None:
        """Whether networks show in the mean as the declared region order says."""
        return None if self.mean is None or self.parcellation is None else check_order(self.mean, self.parcellation)

    def numbers(self, column: str) -> np.ndarray:
        """The finite values of a column, empty where there is no such column."""
        if column not in self.people.columns:
            return np.empty(0)
        values = pd.to_numeric(self.people[column], errors="coerce").to_numpy(float)
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class EncoderRun:
    """A trained encoder: its loss, and what `nerve.interpret.pretraining.describe_encoder` found."""

    label: str
    history: pd.DataFrame
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: int = 0
    seconds: float = float("nan")
    example: Mapping[str, np.ndarray] = field(default_factory=dict)  # original, masked, reconstructed, group_of
    networks: Sequence[str] = ()
    errors: Mapping[str, Any] = field(default_factory=dict)
    interpretation: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """Everything that figures and the page read; what is missing is empty.

    Parameters
    ----------
    predictions : DataFrame
        cohort, target, method, variant, seed, observed, predicted; no participants.
    scores, comparisons, null_scores : DataFrame
        As `nerve.evaluation` and `nerve.experiments` write them.
    nulls : DataFrame
        cohort, target, method, variant, r: one row a permutation of the target.
    runs : DataFrame
        run, status, seconds, reason.
    cohorts : mapping
    encoders : sequence of EncoderRun
    interpretation : mapping
        Name → table, of the whole experiment.
    parcellation : Parcellation, optional
        The regions that everything is in, where no cohort says so.
    config : dict
        The experiment file, or the settings of an evaluation.
    facts : dict
        Versions, seeds, fingerprints and the like, for provenance.
    warnings, problems : sequences of str
        What was said while running; what could not be read for the page.
    """

    title: str = "Results"
    kind: str = "experiment"
    predictions: pd.DataFrame = field(default_factory=pd.DataFrame)
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    comparisons: pd.DataFrame = field(default_factory=pd.DataFrame)
    null_scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    nulls: pd.DataFrame = field(default_factory=pd.DataFrame)
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    cohorts: Mapping[str, CohortFacts] = field(default_factory=dict)
    encoders: Sequence[EncoderRun] = ()
    interpretation: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    parcellation: Parcellation | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    methods_text: Sequence[str] = ()
    warnings: Sequence[str] = ()
    problems: Sequence[str] = ()

    @property
    def columns(self) -> list[tuple[str, str]]:
        """(cohort, target) in the order of the scores."""
        if self.scores.empty:
            return []
        return list(dict.fromkeys(zip(self.scores["cohort"], self.scores["target"], strict=True)))

    @property
    def models(self) -> list[tuple[str, str]]:
        """(method, variant) in the order of the scores."""
        if self.scores.empty:
            return []
        return list(dict.fromkeys(zip(self.scores["method"], self.scores["variant"], strict=True)))

    @property
    def groups(self) -> dict[str, str]:
        """Method → the group that it stands in."""
        rows = self.config.get("methods", [])
        return {str(row.get("label") or row["method"]): str(row.get("group", "")) for row in rows}

    def column_name(self, cohort: str, target: str) -> str:
        """What figures call a cohort's target."""
        about = self.config.get("cohorts", {}).get(cohort, {})
        shown = (about.get("target_labels") or {}).get(target, target)
        label = about.get("label") or cohort
        return f"{label}: {shown}" if len({c for c, _ in self.columns}) > 1 or label != "cohort" else str(shown)

    def interpreted(self, name: str) -> list[tuple[str, pd.DataFrame]]:
        """The tables interpretation/`name`.tsv that there are, each with what it belongs to ("" for the whole)."""
        sources = [("", self.interpretation), *((one.label, one.interpretation) for one in self.encoders)]
        return [(label, tables[name]) for label, tables in sources if len(tables.get(name, ()))]

    @cached_property
    def mean_scores(self) -> pd.DataFrame:
        """One row a cohort, target, method and variant: seeds are averaged."""
        if self.scores.empty:
            return self.scores
        keys = ["cohort", "target", *MODEL]
        numbers = [name for name in self.scores.columns if name not in (*keys, "seed")]
        return self.scores.groupby(keys, sort=False)[numbers].mean(numeric_only=True).reset_index()

    @cached_property
    def by_place(self) -> dict[tuple[str, str, str, str], dict[str, float]]:
        """(cohort, target, method, variant) → its scores, seeds averaged."""
        keys = ["cohort", "target", *MODEL]
        return {tuple(row[key] for key in keys): row for row in self.mean_scores.to_dict("records")}  # type: ignore[misc]

    def best(self, cohort: str, target: str, among: Sequence[tuple[str, str]] | None = None) -> tuple[str, str]:
        """The model with the highest r on a target."""
        scores = self.mean_scores
        rows = scores[(scores["cohort"] == cohort) & (scores["target"] == target)].dropna(subset=["r"])
        pairs = pd.Series(list(zip(rows["method"], rows["variant"], strict=True)), index=rows.index, dtype=object)
        if among is not None:
            rows = rows[pairs.isin(list(among)).to_numpy(bool)]
        if rows.empty:
            raise NothingToDraw(f"No method has a score for {target} in {cohort}.")
        top = int(np.argmax(rows["r"].to_numpy(float)))
        return str(rows["method"].iloc[top]), str(rows["variant"].iloc[top])


def model_name(method: str, variant: str) -> str:
    """What figures call a model.

    Examples
    --------
    >>> model_name("NERVE", "mask_ratio=0.5"), model_name("Raw FC", "")
    ('NERVE (mask_ratio=0.5)', 'Raw FC')
    """
    return f"{method} ({variant})" if variant else method


def cohort_facts(cohort: Cohort, label: str | None = None, pretrained_on: bool | None = None) -> CohortFacts:
    """What a page may show of a cohort; matrices are read a few at a time."""
    rows = np.unique(np.linspace(0, len(cohort) - 1, min(len(cohort), MOST_MATRICES)).astype(int))
    total = np.zeros((cohort.n_regions, cohort.n_regions))
    known = np.zeros_like(total)
    for start in range(0, len(rows), 64):
        chunk = cohort.inputs("fc", rows[start : start + 64]).astype(float)
        total += np.nansum(chunk, axis=0)
        known += np.isfinite(chunk).sum(axis=0)
    reasons = cohort.exclusions["reason"].astype(str).map(_general).value_counts()
    left_out = pd.DataFrame({"reason": reasons.index, "people": reasons.to_numpy()})
    lengths = None if cohort.timeseries is None else cohort.timeseries.lengths
    with np.errstate(invalid="ignore"):
        mean = total / known
    return CohortFacts(
        name=cohort.name,
        label=label or cohort.name,
        n=len(cohort),
        people=cohort.participants.drop(columns="participant_id"),
        parcellation=cohort.parcellation,
        mean=mean,
        n_in_mean=len(rows),
        left_out=left_out,
        fingerprint=cohort.fingerprint,
        volumes="none" if lengths is None else f"{lengths.min()} to {lengths.max()} volumes",
        pretrained_on=pretrained_on,
    )


def _general(reason: str) -> str:
    """A reason without what belongs to one person (file names, what stands before a colon)."""
    return reason.rpartition(": ")[2] or reason
