"""One pass over the matrices of a cohort, one at a time: missing, out of range, asymmetric, twice, not positive."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.linalg import lapack

from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort

TOLERANCE = 2e-3  # float16 near 1 is this coarse
ROUNDING = {
    "float16": 5e-3,
    "float32": 1e-3,
}  # how far below zero it takes an eigenvalue of a correlation matrix
POSITIVE = ("pearson", "covariance")  # measures whose matrices have no negative eigenvalue


def scan_matrices(cohort: Cohort) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Facts about every matrix, and their group mean.

    Returns
    -------
    facts : DataFrame
        One row per participant: n_missing (regions without data), n_not_finite (other entries), asymmetry, low, high
        (of the entries off the diagonal), diagonal (largest distance from 1), lowest (the smallest eigenvalue if it is
        below zero by more than rounding, else 0; of covariances relative to the mean variance).
    mean : (R, R) float64 array
        Over the participants who have each entry, NaN where nobody has.
    lacking : (R,) int array
        How many participants lack each region.
    """
    r = cohort.n_regions
    total, count, lacking = np.zeros((r, r)), np.zeros((r, r), np.int64), np.zeros(r, np.int64)
    facts = []
    rounding = ROUNDING[str(cohort.connectivity.dtype)] if cohort.measure in POSITIVE else None
    for matrix in progress_bar(
        cohort.connectivity, label="checking", total=len(cohort), unit="participants"
    ):
        fact, clean = _facts(np.array(matrix, np.float64), rounding)
        known = np.isfinite(clean)
        total += np.where(known, clean, 0.0)
        count += known
        lacking += ~known.any(axis=1)
        facts.append(fact)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return (
        pd.DataFrame(facts).assign(participant_id=cohort.participants["participant_id"]),
        mean,
        lacking,
    )


def _facts(matrix: np.ndarray, rounding: float | None) -> tuple[dict[str, float], np.ndarray]:
    """Facts about one matrix, and the matrix with NaN for missing regions and on the diagonal."""
    diagonal = matrix.diagonal().copy()
    np.fill_diagonal(matrix, 0.0)
    missing = ~np.any(np.nan_to_num(matrix, posinf=1.0, neginf=1.0), axis=1)
    matrix[missing] = matrix[:, missing] = np.nan
    inner = matrix[np.ix_(~missing, ~missing)]
    broken = ~np.isfinite(inner)
    inner = np.where(broken, 0.0, inner)
    np.fill_diagonal(matrix, np.nan)
    fact = {
        "n_missing": int(missing.sum()),
        "n_not_finite": int(broken.sum()),
        "asymmetry": float(np.abs(inner - inner.T).max(initial=0.0)),
        "low": float(inner.min(initial=0.0)),
        "high": float(inner.max(initial=0.0)),
        "diagonal": float(np.abs(np.nan_to_num(diagonal[~missing]) - 1).max(initial=0.0)),
        "lowest": 0.0 if rounding is None else _lowest(inner, diagonal[~missing], rounding),
    }
    return fact, matrix


def _lowest(inner: np.ndarray, diagonal: np.ndarray, rounding: float) -> float:
    """The smallest eigenvalue of a matrix in units of its mean variance, 0 if none is below zero by more than rounding.

    A factorisation tells in a tenth of the time whether there is any; only then are the eigenvalues computed.
    """
    diagonal = np.where(np.isfinite(diagonal), diagonal, 1.0)
    scale = diagonal.mean() if len(diagonal) else 0.0
    if scale <= 0:
        return 0.0  # a blanked diagonal says nothing; `values` tells of it
    np.fill_diagonal(inner, diagonal + rounding * scale)
    with np.errstate(over="ignore"):
        single = (inner if scale == 1 else inner / scale).astype(np.float32)
    if lapack.spotrf(single.T, clean=0, overwrite_a=1)[1] == 0 or not np.isfinite(inner).all():
        return 0.0
    lowest = float(np.linalg.eigvalsh(inner / scale)[0]) - rounding
    return lowest if lowest < -rounding else 0.0
