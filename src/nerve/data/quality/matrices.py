"""One pass over the matrices of a cohort: what is missing, out of range or asymmetric."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.linalg import lapack

from nerve._utils.progress import progress_bar
from nerve.data.cohort import Cohort

TOLERANCE = 2e-3  # float16 near 1 is this coarse
# how far below zero rounding takes an eigenvalue of a correlation matrix
ROUNDING = {"float16": 5e-3, "float32": 1e-3}
SMALL = 0.05  # correlations as small as this have either sign
POSITIVE = ("pearson", "covariance")  # measures whose matrices have no negative eigenvalue


def scan_matrices(cohort: Cohort) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Compute facts about every matrix, and the group mean.

    Parameters
    ----------
    cohort : Cohort

    Returns
    -------
    facts : DataFrame
        One row per participant: n_missing (regions without data), n_not_finite (other entries),
        asymmetry, low, high (of the entries off the diagonal), diagonal (largest distance from 1),
        lowest (the smallest eigenvalue if it is below zero by more than rounding, else 0; of
        covariances relative to the mean variance), mean (of the entries off the diagonal),
        share_small (of entries between 0 and `SMALL`), n_negative (entries below 0), is_binary.
    mean : (R, R) float64 array
        Over the participants who have each entry, NaN where nobody has.
    n_lacking : (R,) int array
        How many participants lack each region.
    """
    n_regions = cohort.n_regions
    total = np.zeros((n_regions, n_regions))
    n_known = np.zeros((n_regions, n_regions), np.int64)
    n_lacking = np.zeros(n_regions, np.int64)
    rows = []
    rounding = ROUNDING[str(cohort.connectivity.dtype)] if cohort.measure in POSITIVE else None
    matrices = progress_bar(
        cohort.connectivity, label="checking", total=len(cohort), unit="participants"
    )
    for matrix in matrices:
        row, clean = _facts(np.array(matrix, np.float64), rounding)
        is_known = np.isfinite(clean)
        total += np.where(is_known, clean, 0.0)
        n_known += is_known
        n_lacking += ~is_known.any(axis=1)
        rows.append(row)
    facts = pd.DataFrame(rows).assign(participant_id=cohort.participants["participant_id"])
    mean = np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)
    return facts, mean, n_lacking


def _facts(matrix: np.ndarray, rounding: float | None) -> tuple[dict[str, float], np.ndarray]:
    """Facts about one matrix, and the matrix with NaN for missing regions and on the diagonal."""
    diagonal = matrix.diagonal().copy()
    np.fill_diagonal(matrix, 0.0)
    missing = ~np.any(np.nan_to_num(matrix, posinf=1.0, neginf=1.0), axis=1)
    matrix[missing] = np.nan
    matrix[:, missing] = np.nan
    inner = matrix[np.ix_(~missing, ~missing)]
    broken = ~np.isfinite(inner)
    inner = np.where(broken, 0.0, inner)
    np.fill_diagonal(matrix, np.nan)
    n_entries = max(len(inner) * (len(inner) - 1), 1)
    fact = {
        "n_missing": int(missing.sum()),
        "n_not_finite": int(broken.sum()),
        "asymmetry": float(np.abs(inner - inner.T).max(initial=0.0)),
        "low": float(inner.min(initial=0.0)),
        "high": float(inner.max(initial=0.0)),
        "diagonal": float(np.abs(np.nan_to_num(diagonal[~missing]) - 1).max(initial=0.0)),
        "mean": float(inner.sum() / n_entries),
        "share_small": float(((inner > 0) & (inner < SMALL)).sum() / n_entries),
        "n_negative": int((inner < 0).sum()),
        "is_binary": len(inner) > 3 and _is_binary(inner),
        # last: it writes the diagonal into `inner`
        "lowest": 0.0 if rounding is None else _lowest(inner, diagonal[~missing], rounding),
    }
    return fact, matrix


def _is_binary(inner: np.ndarray) -> bool:
    """Whether the entries off the diagonal are two numbers alone."""
    off_diagonal = inner[~np.eye(len(inner), dtype=bool)]
    return bool(np.all((off_diagonal == off_diagonal.min()) | (off_diagonal == off_diagonal.max())))


def _lowest(inner: np.ndarray, diagonal: np.ndarray, rounding: float) -> float:
    """The smallest eigenvalue in units of the mean variance.

    0 if not below zero by more than rounding.

    A factorisation tells in a tenth of the time whether there is any; only then are the eigenvalues
    computed.
    """
    diagonal = np.where(np.isfinite(diagonal), diagonal, 1.0)
    scale = diagonal.mean() if len(diagonal) else 0.0
    if scale <= 0:
        return 0.0  # a blanked diagonal says nothing; the check of values reports it
    np.fill_diagonal(inner, diagonal + rounding * scale)
    with np.errstate(over="ignore"):
        single = (inner if scale == 1 else inner / scale).astype(np.float32)
    _, failure = lapack.spotrf(single.T, clean=0, overwrite_a=1)
    is_positive = failure == 0
    if is_positive or not np.isfinite(inner).all():
        return 0.0
    lowest = float(np.linalg.eigvalsh(inner / scale)[0]) - rounding
    return lowest if lowest < -rounding else 0.0
