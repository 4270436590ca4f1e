"""r or Fisher z: decided once for a source from what its matrices show, never file by file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nerve.checks import NerveError, listed
from nerve.connectivity import inverse_fisher_z
from nerve.readers.matrices import TOLERANCE
from nerve.readers.unfolding import MOST_NEGATIVE, negative_share

LARGEST_Z = 10.0  # beyond it values are no Fisher z: r would be 1 to eight digits
_DIAGONAL_OF_Z = 2.5  # Fisher z of a diagonal that was cut at 0.99


def shown_values(matrix: np.ndarray, *, thorough: bool = False) -> str:
    """What the entries of a matrix prove to be: "r", "z", or an empty string.

    An infinite diagonal, or one that is the same large number throughout, is that of Fisher z; so are entries beyond 1
    of a matrix that is none of covariances. A diagonal of ones with entries up to 1 is that of r, unless the matrix
    has clearly negative eigenvalues as r and none as z (`thorough`).

    Examples
    --------
    >>> r = np.array([[1, 0.5], [0.5, 1]])
    >>> shown_values(r), shown_values(np.array([[np.inf, 0.5], [0.5, np.inf]])), shown_values(r - np.eye(2))
    ('r', 'z', '')
    """
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        return ""
    diagonal, off = np.diagonal(matrix), np.abs(matrix[~np.eye(len(matrix), dtype=bool)])
    largest = float(np.nanmax(off, initial=0.0))
    known = diagonal[~np.isnan(diagonal)]
    finite = known[np.isfinite(known)]
    ones = len(finite) > 0 and bool(np.all(np.abs(finite - 1) <= TOLERANCE))
    blank = not len(known) or bool(np.all(known == 0))
    if largest > LARGEST_Z or not np.isfinite(largest):
        return ""
    constant = len(finite) > 0 and float(np.ptp(finite)) <= TOLERANCE and finite[0] >= _DIAGONAL_OF_Z
    if np.isinf(known).any() or constant:
        return "z"
    if largest > 1 + TOLERANCE:
        return "z" if ones or blank else ""
    if thorough and (ones or blank) and _only_as_z(matrix):
        return "z"
    return "r" if ones else ""


def decided_values(shown: dict[str, str], where: object) -> tuple[str, list[str]]:
    """One decision for a source, and what to tell the user.

    Parameters
    ----------
    shown : dict
        File → what it proves (`shown_values`).
    """
    files: dict[str, list[str]] = {kind: [file for file, found in shown.items() if found == kind] for kind in "rz"}
    if files["r"] and files["z"]:
        raise NerveError(mixed(where, files["r"], files["z"]))
    if files["z"]:
        return "z", [
            f"matrices hold Fisher z, as {len(files['z'])} of {len(shown)} looked at prove, and are turned to r"
        ]
    return "r", []


def mixed(where: object, as_r: Sequence[str], as_z: Sequence[str]) -> str:
    """The sentence about a source of which some matrices are r and some Fisher z."""
    return (
        f"{where}: {listed(as_z, 2)} can only hold Fisher z, and {listed(as_r, 2) or 'others'} only r. Read one kind: "
        "keep the others out with --id-pattern, or say what all files hold with --values r or --values z "
        "(who does not fit is then left out)."
    )


def _only_as_z(matrix: np.ndarray) -> bool:
    """Whether the matrix has clearly negative eigenvalues as correlations, and none as Fisher z."""
    as_r = np.nan_to_num(matrix, nan=0.0)
    np.fill_diagonal(as_r, 1.0)
    if negative_share(as_r) <= MOST_NEGATIVE:
        return False
    as_z = inverse_fisher_z(np.where(np.eye(len(matrix), dtype=bool), 0.0, as_r))
    np.fill_diagonal(as_z, 1.0)
    return negative_share(as_z) < MOST_NEGATIVE / 3
