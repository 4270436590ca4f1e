"""All scans of one participant → one checked matrix in the cohort's region order. Runs in other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    matrix : (R, R) float32 array, optional
        FC in the cohort's order, NaN rows for regions without data; None if the participant cannot be used.
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
    matrix: np.ndarray | None = None
    series: np.ndarray | None = None
    mean_fd: float = float("nan")
    n_volumes: int = 0
    n_scans: int = 0
    measure: str = "pearson"
    notes: tuple[str, ...] = ()
    reason: str = ""
    doubt: str = ""


class _Doubt(NerveError):
    """What one matrix says against the decision about its whole source."""


@dataclass
class _Part:
    matrix: np.ndarray
    series: np.ndarray | None
    mean_fd: float
    n_volumes: int
    notes: tuple[str, ...]
    measure: str = "pearson"


def read_person(recipe: Recipe, participant: str, scans: Sequence[Scan]) -> Person:
    """Read, check and reorder all scans of a participant, and average them in Fisher z.

    A scan that cannot be used is left out with a note; a participant none of whose scans can be used has a `reason`.
    """
    parts, reasons = [], []
    for scan in scans:
        try:
            parts.append(_read_scan(recipe, scan))
        except _Doubt as doubt:
            return Person(participant, doubt=str(doubt))
        except NerveError as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(str(problem(scan_name(scan), f"it cannot be read ({error.strerror or error})")))
        except MemoryError:
            reasons.append(str(problem(scan_name(scan), "there is not enough memory to read it")))
    if not parts:
        return Person(participant, reason=listed(reasons, most=2) or "there are no scans")
    measures = dict.fromkeys(part.measure for part in parts)
    if len(measures) > 1:
        return Person(participant, reason=f"the scans hold different measures ({listed(map(in_words, measures))})")
    measure = parts[0].measure
    series = [part.series for part in parts if part.series is not None]
    motion = [part.mean_fd for part in parts if np.isfinite(part.mean_fd)]
    return Person(
        participant,
        _average([part.matrix for part in parts], measure).astype(np.float32),
        _joined(series) if recipe.options.timeseries and len(series) == len(parts) else None,
        float(np.mean(motion)) if motion else float("nan"),
        sum(part.n_volumes for part in parts),
        len(parts),
        measure,
        tuple(note for part in parts for note in part.notes) + tuple(f"scan left out: {reason}" for reason in reasons),
    )


def scan_name(scan: Scan) -> str:
    """What sentences call a scan."""
    return f"{scan.path} (participant {scan.participant})"


def _read_scan(recipe: Recipe, scan: Scan) -> _Part:
    reading = get_reader(recipe.reader).read(scan, recipe.options)
    where = scan_name(scan)
    if reading.series is not None:
        return _from_series(reading, recipe, where)
    if reading.matrix is None:
        raise problem(where, "it holds neither a matrix nor a time series")
    if not recipe.said and reading.values is None:
        _refuse_other_values(reading.matrix, recipe.values, where)
    matrix = clean_matrix(reading.matrix, where, reading.values or recipe.values).astype(np.float32)
    index = recipe.regions.positions(len(matrix), reading.labels, where)
    notes = reading.notes
    if recipe.options.fd_threshold is not None:
        notes += ("volumes of too much motion cannot be left out of a finished matrix (--fd-threshold)",)
    n_volumes = 0 if reading.motion is None else len(reading.motion)
    return _Part(reorder_matrix(matrix, index), None, _mean_fd(reading), n_volumes, notes, _measure(reading))


def _refuse_other_values(matrix: np.ndarray, values: str, where: str) -> None:
    shown = shown_values(matrix)
    if shown and shown != values:
        raise _Doubt(mixed("The source", [where][: shown == "r"], [where][: shown == "z"]))


def _from_series(reading: Reading, recipe: Recipe, where: str) -> _Part:
    series = np.asarray(reading.series, np.float64)
    if series.ndim != 2:
        raise problem(where, f"the time series has shape {series.shape}", expected="(volumes, regions)")
    index = recipe.regions.positions(series.shape[1], reading.labels, where)
    options, notes = recipe.options, reading.notes
    try:
        if options.fd_threshold is not None and reading.motion is not None:
            series = series[kept_volumes(reading.motion, options.fd_threshold, len(series))]
        elif options.fd_threshold is not None:
            notes += ("there is no motion file, so that no volumes were left out (--fd-threshold)",)
        series = reorder_series(series, index)
        matrix = connectivity_from_series(series, options.kind)
    except NerveError as error:
        raise NerveError(f"{where}: {str(error)[0].lower()}{str(error)[1:]}") from error
    measure = "partial" if options.kind == "partial" else "pearson"
    return _Part(matrix, series.astype(np.float32), _mean_fd(reading), len(series), notes, measure)


def _measure(reading: Reading) -> str:
    """What the cleaned matrix measures: of Fisher z it was made r."""
    said = reading.measure or ("other" if reading.values == "other" else "pearson")
    return "pearson" if said == "fisher_z" else said


def _mean_fd(reading: Reading) -> float:
    if reading.mean_fd is not None:
        return float(reading.mean_fd)
    if reading.motion is None or not np.isfinite(reading.motion).any():
        return float("nan")
    return float(np.nanmean(reading.motion))


def _average(matrices: list[np.ndarray], measure: str) -> np.ndarray:
    """The mean in Fisher z of (R, R) matrices; a region that one run lacks is taken from the others.

    Values that are no correlations (covariances, netmats of UK Biobank) are averaged as they are.
    """
    if len(matrices) == 1:
        return matrices[0]
    stack = np.stack(matrices)  # (runs, R, R)
    correlations = measure in CORRELATIONS
    z = fisher_z(stack) if correlations else stack
    counts = np.isfinite(z).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(counts > 0, np.nansum(z, axis=0) / counts, np.nan)
    return inverse_fisher_z(mean) if correlations else mean


def _joined(series: list[np.ndarray]) -> np.ndarray:
    """Runs one after another; several are standardised first, so that no run's scale counts more."""
    if len(series) > 1:
        series = [(one - one.mean(axis=0)) / np.maximum(one.std(axis=0), 1e-12) for one in series]
    return np.concatenate(series)
