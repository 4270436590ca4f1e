"""All scans of one participant → one checked matrix in the cohort's region order. Runs in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nerve.checks import NerveError, listed, problem
from nerve.connectivity import connectivity_from_series, in_words, kept_volumes
from nerve.readers.base import Reading, Scan
from nerve.readers.matrices import average, clean_matrix, mixed, shown_values
from nerve.readers.planning import Plan, read_scan
from nerve.readers.regions import reorder_matrix


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
            parts.append((_from_matrix if reading.series is None else _from_series)(plan, scan, reading))
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
        return Person(person, reason=f"the scans hold different measures ({listed(map(in_words, measures))})")
    notes = [note for part in parts for note in part.notes] + [f"scan left out: {reason}" for reason in reasons]
    joined = parts[0] if len(parts) == 1 else _joined(parts)
    return replace(joined, notes=tuple(notes))


def _from_matrix(plan: Plan, scan: Scan, reading: Reading) -> Person:
    """The participant by one scan alone."""
    notes, measure = reading.notes, reading.measure or ("other" if reading.values == "other" else "pearson")
    matrix = np.asarray(reading.matrix)
    if not plan.said and reading.values is None:
        shown = shown_values(matrix)
        if shown not in ("", plan.values):
            raise Doubt(mixed("The source", **{shown: [scan.where]}))
    matrix = clean_matrix(matrix, scan.where, reading.values or plan.values).astype(np.float32)
    matrix = reorder_matrix(matrix, plan.regions.positions(len(matrix), reading.labels, scan.where))
    if plan.options.fd_threshold is not None:
        notes += ("volumes of too much motion cannot be left out of a finished matrix (--fd-threshold)",)
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
    return Person(scan.participant, matrix, kept, reading.mean_motion, len(series), 1, measure, notes)


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
