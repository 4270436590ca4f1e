"""Participants as they are read: all scans of one, in another process, become one checked matrix in region order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve._utils.progress import progress_bar
from nerve.data.connectivity import connectivity_from_series, in_words, kept_volumes
from nerve.data.readers.base import Reading, Scan
from nerve.data.readers.ids import counted
from nerve.data.readers.matrices import average, clean_matrix, mixed, shown_values
from nerve.data.readers.parallel import in_order, processes_for
from nerve.data.readers.planning import Plan, read_scan
from nerve.data.readers.regions import reorder_matrix

MOST_MISSING = 0.5  # of the regions: whoever lacks more is left out under any policy
_ADVICE = "; --missing drop-region or impute-group-mean would keep the participant"


@dataclass
class Person:
    """One participant as read.

    Parameters
    ----------
    participant : str
    matrix : (R, R) float32 array
        FC in the cohort's order, NaN rows for regions without data; empty if the participant cannot be used.
    series : (volumes, R) float32 array, optional
        The runs one after another, each standardised when there are several; kept only if asked for.
    mean_fd : float
        Mean framewise displacement over the scans, NaN if not known.
    n_volumes, n_scans : int
    notes : tuple of str
    reason : str
        Why there is no matrix.
    """

    participant: str
    matrix: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    series: np.ndarray | None = None
    mean_fd: float = float("nan")
    n_volumes: int = 0
    n_scans: int = 0
    measure: str = "pearson"
    notes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def missing(self) -> np.ndarray:
        """The (R,) regions without data."""
        return np.isnan(self.matrix.diagonal())


class Doubt(NerveError):
    """What one matrix says against the decision (r or Fisher z) about its whole source: nothing of it is read."""


def read_person(plan: Plan, scans: Sequence[Scan]) -> Person:
    """Read, check and reorder all scans of a participant, and average them in Fisher z.

    A scan that cannot be used is left out with a note; a participant none of whose scans can be used has a `reason`.
    """
    person = scans[0].participant
    parts, reasons = [], []
    for scan in scans:
        try:
            reading = plan.looked.get(scan.entry) or read_scan(plan.reader, scan, plan.options)
            parts.append(
                (_from_matrix if reading.series is None else _from_series)(plan, scan, reading)
            )
        except Doubt:
            raise
        except NerveError as error:
            reasons.append(str(error))
        except MemoryError:
            reasons.append(str(problem(scan.where, "there is not enough memory to read it")))
    if not parts:
        return Person(person, reason=listed(reasons, most=2))
    measures = dict.fromkeys(part.measure for part in parts)
    if len(measures) > 1:
        return Person(
            person, reason=f"the scans hold different measures ({listed(map(in_words, measures))})"
        )
    notes = [note for part in parts for note in part.notes] + [
        f"scan left out: {reason}" for reason in reasons
    ]
    return replace(parts[0] if len(parts) == 1 else _joined(parts), notes=tuple(notes))


def _from_matrix(plan: Plan, scan: Scan, reading: Reading) -> Person:
    """The participant by one scan alone."""
    notes, measure = (
        reading.notes,
        reading.measure or ("other" if reading.values == "other" else "pearson"),
    )
    if not plan.said and reading.values is None:
        shown = shown_values(reading.array)
        if shown not in ("", plan.values):
            raise Doubt(mixed("The source", **{shown: [scan.where]}))
    matrix = clean_matrix(reading.array, scan.where, reading.values or plan.values).astype(
        np.float32
    )
    matrix = reorder_matrix(matrix, plan.regions.positions(len(matrix), reading.labels, scan.where))
    if plan.options.fd_threshold is not None:
        notes += (
            "volumes of too much motion cannot be left out of a finished matrix (--fd-threshold)",
        )
    if measure == "fisher_z":
        measure = "pearson"  # which it was made
    n_volumes = 0 if reading.motion is None else len(reading.motion)
    return Person(scan.participant, matrix, None, reading.mean_motion, n_volumes, 1, measure, notes)


def _from_series(plan: Plan, scan: Scan, reading: Reading) -> Person:
    series, options, notes = np.asarray(reading.series, np.float64), plan.options, reading.notes
    index = plan.regions.positions(series.shape[1], reading.labels, scan.where)
    try:
        if options.fd_threshold is not None and reading.motion is not None:
            series = series[kept_volumes(reading.motion, options.fd_threshold, len(series))]
        elif options.fd_threshold is not None:
            notes += ("there is no motion file, so that no volumes were left out (--fd-threshold)",)
        series = np.where(index < 0, np.nan, series[:, index])
        matrix = connectivity_from_series(series, options.kind).astype(np.float32)
    except NerveError as error:
        raise NerveError(f"{scan.where}: {str(error)[0].lower()}{str(error)[1:]}") from error
    measure = "partial" if options.kind == "partial" else "pearson"
    kept = series.astype(np.float32) if options.timeseries else None
    return Person(
        scan.participant, matrix, kept, reading.mean_motion, len(series), 1, measure, notes
    )


def _joined(parts: Sequence[Person]) -> Person:
    """One participant of several scans; runs are standardised, so that the scale of one counts no more than others'."""
    motion = [part.mean_fd for part in parts if np.isfinite(part.mean_fd)]
    series = [part.series for part in parts if part.series is not None]
    runs = [(run - run.mean(axis=0)) / np.maximum(run.std(axis=0), 1e-12) for run in series]
    return replace(
        parts[0],
        matrix=average(np.stack([part.matrix for part in parts]), parts[0].measure),
        series=np.concatenate(runs) if len(runs) == len(parts) else None,
        mean_fd=float(np.mean(motion)) if motion else float("nan"),
        n_volumes=sum(part.n_volumes for part in parts),
        n_scans=len(parts),
    )


class PeopleReader:
    """Reads the participants of a plan in parallel, keeping account of who is left out and of what readers say."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.options = plan, plan.options
        self.excluded = dict(plan.excluded)
        self.first: Person | None = None  # what it holds, everyone must
        self.said: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Person]:
        """Participants with a matrix of which nothing is missing, or at most half where `--missing` allows it."""
        people = list(self.plan.people.values())
        stacked = any(scan.key is not None for scans in people for scan in scans)
        jobs = (
            1 if stacked else processes_for(len(people), self.options.jobs)
        )  # one open file is read by one process
        plan = self.plan if jobs == 1 else self.plan.for_workers()
        results = in_order(partial(read_person, plan), people, jobs)
        for person in progress_bar(
            results, label="reading", total=len(people), unit="participants"
        ):
            self.said.update(person.notes)
            reason = person.reason or self._unlike_others(person) or self._too_much(person)
            if not reason:
                yield person
                kept = {
                    name: getattr(person, name)
                    for name in ("participant", "mean_fd", "n_volumes", "n_scans")
                }
                self.rows.append(kept | {"n_missing_regions": person.missing.sum()})
            elif self.options.strict:
                raise NerveError(
                    f"Participant {person.participant}: {reason}"
                    + ("" if reason.endswith(".") else ".")
                )
            else:
                self.excluded[person.participant] = reason

    def account(self) -> list[str]:
        """What readers said and how many could not be used; an error, if none could."""
        if not self.rows:
            reasons = [
                f"participant {who}: {why}"
                for who, why in self.excluded.items()
                if who in self.plan.people
            ]
            first = f"{reasons[0].rstrip('.')}."
            if len(reasons) == 1:
                raise NerveError(f"The only participant was left out, nothing was written: {first}")
            raise NerveError(
                f"All {len(reasons)} participants were left out, nothing was written. The first: {first}"
            )
        notes = [note if n == 1 else f"{note} ({n} scans)" for note, n in self.said.items()]
        unread = len(self.excluded) - len(self.plan.excluded)
        return notes + [f"{counted(unread)} could not be used; exclusions.tsv says why"] * bool(
            unread
        )

    def table(self) -> pd.DataFrame:
        """The rows of the participants who were used, with what their files told of motion, volumes and scans."""
        rows = pd.DataFrame(self.rows)
        table = self.plan.table.set_index("participant_id").loc[rows["participant"]].reset_index()
        if rows["mean_fd"].notna().any():
            table["mean_fd"] = table.get("mean_fd", rows["mean_fd"]).fillna(rows["mean_fd"])
        for name, common in (("n_volumes", 0), ("n_scans", 1), ("n_missing_regions", 0)):
            if (rows[name] != common).any() and name not in table.columns:
                table[name] = rows[name]
        return table

    def _unlike_others(self, person: Person) -> str:
        """What a participant's scans lack that those of the first hold; a time series that only they have is let go."""
        if self.first is None:
            self.first = person
            if self.options.timeseries and person.series is None:
                self.said["the source has no time series to keep (--timeseries)"] += 1
        if person.measure != self.first.measure:
            return f"it holds {in_words(person.measure)}, the others {in_words(self.first.measure)}"
        if self.first.series is None:
            person.series = None
        elif person.series is None:
            return "it has no time series, which the others have (--no-timeseries keeps it)"
        return ""

    def _too_much(self, person: Person) -> str:
        """Which regions are missing, where they are too many."""
        share = person.missing.mean()
        if share <= (0.0 if self.options.missing == "drop-participant" else MOST_MISSING):
            return ""
        labels = self.plan.regions.target.labels
        names = [labels[i] for i in np.flatnonzero(person.missing)]
        found = f"{len(names)} of {len(labels)} regions have no data ({listed(names, most=4)})"
        where = self.plan.people[person.participant][0].where
        return f"{where}: {found}{_ADVICE if share <= MOST_MISSING else ''}"
