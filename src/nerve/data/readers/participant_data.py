"""From scans to participants: all scans of one become one checked matrix in the cohort's order.

`read_participant` does this for one participant, in another process where there are several;
`ParticipantReader` does it for all participants of a plan.
"""

from __future__ import annotations

import itertools
import re
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
from nerve.data.readers.base import ScanData, ScanFile
from nerve.data.readers.ids import counted
from nerve.data.readers.joining import MOST_EXCLUDED
from nerve.data.readers.matrices import (
    average_matrices,
    clean_matrix,
    infer_values,
    mixed_values_message,
)
from nerve.data.readers.parallel import in_order, processes_for
from nerve.data.readers.plan_lines import PlanLine
from nerve.data.readers.planning import Plan, read_scan
from nerve.data.readers.regions import reorder_matrix

_MOST_MISSING = 0.5  # share of the regions: who lacks more is left out whatever --missing says
_ADVICE = "; --missing drop-region or impute-group-mean would keep the participant"


@dataclass
class ParticipantData:  # numpydoc ignore=PR02
    """One participant as read.

    Parameters
    ----------
    participant : str
    matrix : (R, R) float32 array
        FC in the cohort's order, with NaN rows for regions without data; empty if the participant
        cannot be used.
    series : (volumes, R) float32 array, optional
        The runs one after another, each standardised when there are several; kept only if asked
        for.
    mean_fd : float
        Mean framewise displacement over the scans, NaN if not known.
    n_volumes, n_scans : int
    measure : str
        A name in `nerve.data.connectivity.MEASURES`.
    notes : tuple of str
        What the user should know.
    reason : str
        Why there is no matrix.
    lost : dict
        `ScanFile.entry` → why that scan is left out.
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
    lost: dict[Any, str] = field(default_factory=dict)

    @property
    def missing(self) -> np.ndarray:
        """(R,) whether each region has no data."""
        return np.isnan(self.matrix.diagonal())


class MixedValuesError(NerveError):
    """One matrix contradicts the decision (r or Fisher z) about its source: nothing is read."""


def read_participant(plan: Plan, scans: Sequence[ScanFile]) -> ParticipantData:
    """Read, check and reorder all scans of a participant, and average them in Fisher z.

    Parameters
    ----------
    plan : Plan
    scans : sequence of ScanFile
        Of one participant.

    Returns
    -------
    ParticipantData
        A scan that cannot be used is left out with a note; a participant none of whose scans can be
        used has a `reason`.
    """
    participant = scans[0].participant
    parts = []
    lost = {}
    for scan in scans:
        try:
            data = plan.sampled.get(scan.entry) or read_scan(plan.reader, scan, plan.options)
            if data.series is None:
                parts.append(_from_matrix(plan, scan, data))
            else:
                parts.append(_from_series(plan, scan, data))
        except MixedValuesError:
            raise
        except NerveError as error:
            lost[scan.entry] = str(error)
        except MemoryError:
            shortage = problem(scan.where, "there is not enough memory to read it")
            lost[scan.entry] = str(shortage)
    if not parts:
        return ParticipantData(participant, reason=listed(lost.values(), most=2), lost=lost)
    measures = dict.fromkeys(part.measure for part in parts)
    if len(measures) > 1:
        words = listed(in_words(measure) for measure in measures)
        return ParticipantData(participant, reason=f"the scans hold different measures ({words})")
    notes: list[str] = []
    for part in parts:
        notes += part.notes
    notes += [f"scan left out: {reason}" for reason in lost.values()]
    joined = parts[0] if len(parts) == 1 else _join_scans(parts)
    return replace(joined, notes=tuple(notes), lost=lost)


class ParticipantReader:
    """Reads the participants of a plan in parallel, and records who is left out and why.

    Iterating reads; the other attributes are complete once the iteration has ended.

    Parameters
    ----------
    plan : Plan

    Attributes
    ----------
    excluded : dict
        Participant → reason.
    lost : dict
        `ScanFile.entry` → reason, of scans that could not be used.
    measure : str
        What the matrices hold: that of the first participant, which all others must share.
    n_participants : int
        How many could be used.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.options = plan.options
        self.excluded = dict(plan.excluded)
        self.lost: dict[Any, str] = {}
        self._first: ParticipantData | None = None
        self._note_counts: Counter[str] = Counter()
        self._rows: list[dict[str, Any]] = []  # of the participants that could be used

    @property
    def measure(self) -> str:
        """What the matrices hold, a name in `nerve.data.connectivity.MEASURES`."""
        return "pearson" if self._first is None else self._first.measure

    @property
    def n_participants(self) -> int:
        """How many participants could be used."""
        return len(self._rows)

    def __iter__(self) -> Iterator[ParticipantData]:
        """Read participants: with data in all regions, or in half where `--missing` allows it."""
        groups = list(self.plan.scans.values())
        all_scans = itertools.chain.from_iterable(groups)
        is_shared_file = any(scan.key is not None for scan in all_scans)
        # a file of many participants is read by one process, which keeps it open
        jobs = 1 if is_shared_file else processes_for(len(groups), self.options.jobs)
        plan = self.plan if jobs == 1 else self.plan.without_participants()
        results = in_order(partial(read_participant, plan), groups, jobs)
        for data in progress_bar(results, label="reading", total=len(groups), unit="participants"):
            if self.accept(data):
                yield data

    def accept(self, data: ParticipantData) -> bool:
        """Record a participant, and tell whether their data can be used.

        Parameters
        ----------
        data : ParticipantData

        Returns
        -------
        bool
        """
        self._note_counts.update(data.notes)
        self.lost |= data.lost
        reason = data.reason or self._unlike_the_first(data) or self._lacks_too_much(data)
        if not reason:
            self._rows.append(
                {
                    "participant": data.participant,
                    "mean_fd": data.mean_fd,
                    "n_volumes": data.n_volumes,
                    "n_scans": data.n_scans,
                    "n_missing_regions": data.missing.sum(),
                }
            )
            return True
        if self.options.strict:
            raise NerveError(f"Participant {data.participant}: {reason.removesuffix('.')}.")
        self.excluded[data.participant] = reason
        for scan in self.plan.scans[data.participant]:
            self.lost.setdefault(scan.entry, reason)
        return False

    def losses(self) -> Counter[str]:
        """Count the scans that are left out, by reason.

        Returns
        -------
        Counter
            Reason without names and numbers of a participant → scans.
        """
        reasons: Counter[str] = Counter()
        for scan in self.plan.wanted_scans:
            reason = self.lost.get(scan.entry) or self.excluded.get(scan.participant)
            if reason is not None:
                reasons[_without_names(reason)] += 1
        return reasons

    def losses_line(self) -> PlanLine:
        """Say how many scans are left out, for the plan."""
        reasons = self.losses()
        n_lost = sum(reasons.values())
        words = [f"{n_scans} ({reason})" for reason, n_scans in reasons.most_common()]
        decision = f"{n_lost} of {len(self.plan.wanted_scans)} scans" if n_lost else "no scan"
        return PlanLine("left out", decision, listed(words, most=12))

    def notes(self) -> list[str]:
        """What the user should know, with counts, and how many could not be used.

        Returns
        -------
        list of str
            If no participant could be used, or more than a fifth of the scans without
            `--allow-exclusions`, a `NerveError` is raised instead.
        """
        if not self._rows:
            raise self._no_participant_left()
        losses = self.losses()
        is_much = sum(losses.values()) > MOST_EXCLUDED * len(self.plan.wanted_scans)
        if is_much and not self.options.allow_exclusions:
            raise self._too_many_lost(losses)
        notes = []
        for note, n_scans in self._note_counts.items():
            notes.append(note if n_scans == 1 else f"{note} ({n_scans} scans)")
        n_unread = len(self.excluded) - len(self.plan.excluded)
        if n_unread:
            notes.append(f"{counted(n_unread)} could not be used; exclusions.tsv says why")
        return notes

    def participants(self) -> pd.DataFrame:
        """The participants table of those who could be used.

        Returns
        -------
        DataFrame
            The rows of the plan's table, with motion, volumes and scans as their files tell them.
        """
        facts = pd.DataFrame(self._rows)
        table = self.plan.table.set_index("participant_id").loc[facts["participant"]].reset_index()
        if facts["mean_fd"].notna().any():
            table["mean_fd"] = table.get("mean_fd", facts["mean_fd"]).fillna(facts["mean_fd"])
        # a column that says the same of everyone is not added
        for name, usual_value in (("n_volumes", 0), ("n_scans", 1), ("n_missing_regions", 0)):
            if name not in table.columns and (facts[name] != usual_value).any():
                table[name] = facts[name]
        return table

    def exclusions(self) -> pd.DataFrame:
        """Who is left out.

        Returns
        -------
        DataFrame
            Columns participant_id and reason.
        """
        return pd.DataFrame(list(self.excluded.items()), columns=["participant_id", "reason"])

    def _no_participant_left(self) -> NerveError:
        """The error where no participant could be used."""
        reasons = [
            f"participant {participant}: {reason}"
            for participant, reason in self.excluded.items()
            if participant in self.plan.scans
        ]
        first = f"{reasons[0].rstrip('.')}."
        if len(reasons) == 1:
            return NerveError(f"The only participant was left out, nothing was written: {first}")
        return NerveError(
            f"All {len(reasons)} participants were left out, nothing was written. "
            f"The first: {first}"
        )

    def _too_many_lost(self, losses: Counter[str]) -> NerveError:
        """The error where more than a fifth of the scans could not be used."""
        words = [f"{n_scans}: {reason}" for reason, n_scans in losses.most_common()]
        reasons = [
            self.lost.get(scan.entry) or self.excluded.get(scan.participant, "")
            for scan in self.plan.wanted_scans
        ]
        first = next(reason for reason in reasons if reason)
        return NerveError(
            f"{sum(losses.values())} of {len(self.plan.wanted_scans)} scans would be left out, "
            f"expected at most a fifth; nothing was written ({'; '.join(words[:6])}). Mend these, "
            f"or accept it with --allow-exclusions. The first: {first.rstrip('.')}."
        )

    def _unlike_the_first(self, data: ParticipantData) -> str:
        """Why a participant cannot stand beside the first.

        A time series that the first does not have is discarded.
        """
        if self._first is None:
            self._first = data
            if self.options.timeseries and data.series is None:
                self._note_counts["the source has no time series to keep (--timeseries)"] += 1
        if data.measure != self._first.measure:
            return f"it holds {in_words(data.measure)}, the others {in_words(self._first.measure)}"
        if self._first.series is None:
            data.series = None
        elif data.series is None:
            return "it has no time series, which the others have (--no-timeseries keeps it)"
        return ""

    def _lacks_too_much(self, data: ParticipantData) -> str:
        """Which regions are missing, where they are too many."""
        share = data.missing.mean()
        allowed = 0.0 if self.options.missing == "drop-participant" else _MOST_MISSING
        if share <= allowed:
            return ""
        labels = self.plan.regions.target.labels
        names = [labels[region] for region in np.flatnonzero(data.missing)]
        advice = _ADVICE if share <= _MOST_MISSING else ""
        where = self.plan.scans[data.participant][0].where
        missing = f"{len(names)} of {len(labels)} regions have no data ({listed(names, most=4)})"
        return f"{where}: {missing}{advice}"


def _from_matrix(plan: Plan, scan: ScanFile, data: ScanData) -> ParticipantData:
    """Make the participant of one scan that holds a matrix."""
    if data.values is None and not plan.values_are_stated:
        values = infer_values(data.array)
        if values not in ("", plan.values):
            raise MixedValuesError(mixed_values_message("The source", **{values: [scan.where]}))
    matrix = clean_matrix(data.array, scan.where, data.values or plan.values, data.measure)
    matrix = matrix.astype(np.float32)
    positions = plan.regions.positions(len(matrix), data.labels, scan.where)
    notes = data.notes
    if plan.options.fd_threshold is not None:
        notes += (
            "volumes of too much motion cannot be left out of a finished matrix (--fd-threshold)",
        )
    measure = data.measure or ("other" if data.values == "other" else "pearson")
    if measure == "fisher_z":
        measure = "pearson"  # `clean_matrix` made it so
    return ParticipantData(
        scan.participant,
        matrix=reorder_matrix(matrix, positions),
        mean_fd=data.mean_motion,
        n_volumes=0 if data.motion is None else len(data.motion),
        n_scans=1,
        measure=measure,
        notes=notes,
    )


def _from_series(plan: Plan, scan: ScanFile, data: ScanData) -> ParticipantData:
    """Make the participant of one scan that holds a time series."""
    options = plan.options
    notes = data.notes
    series = np.asarray(data.series, np.float64)  # (volumes, regions of the file)
    positions = plan.regions.positions(series.shape[1], data.labels, scan.where)
    try:
        if options.fd_threshold is not None and data.motion is not None:
            series = series[kept_volumes(data.motion, options.fd_threshold, len(series))]
        elif options.fd_threshold is not None:
            notes += ("there is no motion file, so that no volumes were left out (--fd-threshold)",)
        series = np.where(positions < 0, np.nan, series[:, positions])  # (volumes, R)
        matrix = connectivity_from_series(series, options.kind)
    except NerveError as error:
        sentence = str(error)
        raise NerveError(f"{scan.where}: {sentence[0].lower()}{sentence[1:]}") from error
    return ParticipantData(
        scan.participant,
        matrix=matrix.astype(np.float32),
        series=series.astype(np.float32) if options.timeseries else None,
        mean_fd=data.mean_motion,
        n_volumes=len(series),
        n_scans=1,
        measure="partial" if options.kind == "partial" else "pearson",
        notes=notes,
    )


def _join_scans(parts: Sequence[ParticipantData]) -> ParticipantData:
    """Join the scans of one participant.

    Runs are standardised before they are put one after another, so that none counts more than the
    others because of its scale.
    """
    runs = []
    for part in parts:
        if part.series is not None:
            scale = np.maximum(part.series.std(axis=0), 1e-12)
            runs.append((part.series - part.series.mean(axis=0)) / scale)
    motion = [part.mean_fd for part in parts if np.isfinite(part.mean_fd)]
    matrices = np.stack([part.matrix for part in parts])  # (scans, R, R)
    return replace(
        parts[0],
        matrix=average_matrices(matrices, parts[0].measure),
        series=np.concatenate(runs) if len(runs) == len(parts) else None,
        mean_fd=float(np.mean(motion)) if motion else float("nan"),
        n_volumes=sum(part.n_volumes for part in parts),
        n_scans=len(parts),
    )


def _without_names(reason: str) -> str:
    """A reason for exclusion without file and participant, so that it can be counted."""
    words = re.sub(r"^.* \(participant [^)]*\): ", "", reason)
    words = re.sub(r"\s*\([^()]*\)", "", words)
    return words.split("; ")[0].split(". ")[0].rstrip(".")
