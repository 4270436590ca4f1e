"""All scans of one participant → one checked matrix in the cohort's region order. Runs in other processes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nerve.checks import NerveError, listed, problem
from nerve.connectivity import connectivity_from_series, fisher_z, inverse_fisher_z, kept_volumes
from nerve.measures import CORRELATIONS, in_words
from nerve.readers import get_reader
from nerve.readers.base import Options, Reading, Scan
from nerve.readers.matrices import clean_matrix
from nerve.readers.regions import Regions, reorder_matrix, reorder_series
from nerve.readers.valuing import mixed, shown_values


@dataclass(frozen=True)
class Recipe:
    """What is done to every scan alike."""

    reader: str
    options: Options
    regions: Regions
    values: str = "r"  # what matrices hold, where the format does not say
    said: bool = True  # the user said so: who does not fit is left out, and the source is not doubted


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
    doubt : str
        What proves that the decision about the whole source (r or Fisher z) is wrong.
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
    doubt: str = ""

    def at(self, regions: np.ndarray) -> Person:
        """The same with only these regions."""
        series = None if self.series is None else self.series[:, regions]
        return replace(self, matrix=self.matrix[np.ix_(regions, regions)], series=series)


class _Doubt(NerveError):
    """What one matrix says against the decision about its whole source."""


def read_scan(reader: str, scan: Scan, options: Options) -> Reading:
    """What stands in the file of a scan; what the system stumbles into becomes a sentence too."""
    try:
        reading = get_reader(reader).read(scan, options)
    except OSError as error:
        raise problem(scan.where, f"it cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise problem(scan.where, "there is not enough memory to read it") from error
    except NerveError as error:
        raise NerveError(str(error).replace(f"{scan.path}:", f"{scan.where}:", 1)) from error
    if reading.matrix is None and reading.series is None:
        raise problem(scan.where, "it holds neither a matrix nor a time series")
    return reading


def read_person(recipe: Recipe, scans: Sequence[Scan]) -> Person:
    """Read, check and reorder all scans of a participant, and average them in Fisher z.

    A scan that cannot be used is left out with a note; a participant none of whose scans can be used has a `reason`.
    """
    person = scans[0].participant
    parts, reasons = [], []
    for scan in scans:
        try:
            parts.append(_part(recipe, scan))
        except _Doubt as doubt:
            return Person(person, doubt=str(doubt))
        except NerveError as error:
            reasons.append(str(error))
    if not parts:
        return Person(person, reason=listed(reasons, most=2))
    measures = dict.fromkeys(part.measure for part in parts)
    if len(measures) > 1:
        return Person(person, reason=f"the scans hold different measures ({listed(map(in_words, measures))})")
    notes = [note for part in parts for note in part.notes] + [f"scan left out: {reason}" for reason in reasons]
    return replace(parts[0] if len(parts) == 1 else _joined(parts), notes=tuple(notes))


def _part(recipe: Recipe, scan: Scan) -> Person:
    """The participant by one scan alone."""
    reading = read_scan(recipe.reader, scan, recipe.options)
    part = _from_matrix if reading.series is None else _from_series
    return part(recipe, scan, replace(reading, notes=(*scan.notes, *reading.notes)))


def _from_matrix(recipe: Recipe, scan: Scan, reading: Reading) -> Person:
    notes, measure = reading.notes, reading.measure or ("other" if reading.values == "other" else "pearson")
    matrix = np.asarray(reading.matrix)
    if not recipe.said and reading.values is None:
        shown = shown_values(matrix)
        if shown not in ("", recipe.values):
            where = [scan.where]
            raise _Doubt(mixed("The source", where * (shown == "r"), where * (shown == "z")))
    matrix = clean_matrix(matrix, scan.where, reading.values or recipe.values).astype(np.float32)
    matrix = reorder_matrix(matrix, recipe.regions.positions(len(matrix), reading.labels, scan.where))
    if recipe.options.fd_threshold is not None:
        notes += ("volumes of too much motion cannot be left out of a finished matrix (--fd-threshold)",)
    if measure == "fisher_z":
        measure = "pearson"  # which it was made
    n_volumes = 0 if reading.motion is None else len(reading.motion)
    return Person(scan.participant, matrix, None, reading.mean_motion, n_volumes, 1, measure, notes)


def _from_series(recipe: Recipe, scan: Scan, reading: Reading) -> Person:
    series, options, notes = np.asarray(reading.series, np.float64), recipe.options, reading.notes
    if series.ndim != 2:
        raise problem(scan.where, f"the time series has shape {series.shape}", expected="(volumes, regions)")
    index = recipe.regions.positions(series.shape[1], reading.labels, scan.where)
    try:
        if options.fd_threshold is not None and reading.motion is not None:
            series = series[kept_volumes(reading.motion, options.fd_threshold, len(series))]
        elif options.fd_threshold is not None:
            notes += ("there is no motion file, so that no volumes were left out (--fd-threshold)",)
        series = reorder_series(series, index)
        matrix = connectivity_from_series(series, options.kind).astype(np.float32)
    except NerveError as error:
        raise NerveError(f"{scan.where}: {str(error)[0].lower()}{str(error)[1:]}") from error
    measure = "partial" if options.kind == "partial" else "pearson"
    kept = series.astype(np.float32) if options.timeseries else None
    return Person(scan.participant, matrix, kept, reading.mean_motion, len(series), 1, measure, notes)


def _joined(parts: Sequence[Person]) -> Person:
    """One participant of several scans."""
    motion = [part.mean_fd for part in parts if np.isfinite(part.mean_fd)]
    series = [part.series for part in parts if part.series is not None]
    return replace(
        parts[0],
        matrix=_average(np.stack([part.matrix for part in parts]), parts[0].measure),
        series=np.concatenate([_standardised(one) for one in series]) if len(series) == len(parts) else None,
        mean_fd=float(np.mean(motion)) if motion else float("nan"),
        n_volumes=sum(part.n_volumes for part in parts),
        n_scans=len(parts),
    )


def _average(matrices: np.ndarray, measure: str) -> np.ndarray:
    """The mean in Fisher z of (runs, R, R) matrices; a region that one run lacks is taken from the others.

    Values that are no correlations (covariances, netmats of UK Biobank) are averaged as they are.
    """
    correlations = measure in CORRELATIONS
    z = fisher_z(matrices) if correlations else matrices
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of regions that all runs lack, which stay NaN
        mean = np.nanmean(z, axis=0)
    return (inverse_fisher_z(mean) if correlations else mean).astype(np.float32)


def _standardised(run: np.ndarray) -> np.ndarray:
    """A run whose scale counts no more than that of others."""
    return (run - run.mean(axis=0)) / np.maximum(run.std(axis=0), 1e-12)
