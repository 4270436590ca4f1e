"""One matrix from a file → a correlation matrix: checked, symmetric, unit diagonal, missing regions as NaN rows.

r or Fisher z is decided once for a source from what its matrices show, never file by file.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.connectivity import CORRELATIONS, fisher_z, inverse_fisher_z
from nerve.data.readers.base import Options, Probes

TOLERANCE = (
    1e-3  # of symmetry, of the diagonal and of the range: what rounding in text files may cost
)
MOST_NEGATIVE = (
    0.03  # of the trace: what rounding to two digits may put into eigenvalues below zero
)
LARGEST_Z = 10.0  # beyond it values are no Fisher z: r would be 1 to eight digits
_DIAGONAL_OF_Z = 2.5  # Fisher z of a diagonal that was cut at 0.99
_N_THOROUGH = 5  # scans of which eigenvalues are computed


def clean_matrix(matrix: np.ndarray, where: object, values: str = "r") -> np.ndarray:
    """The (R, R) matrix as correlations, or a `NerveError` that says what is wrong with it.

    Parameters
    ----------
    matrix : (R, R) array
        As it stands in the file. A region without data is a row of NaN, or of zeros off the diagonal.
    where : object
        What the sentence calls it: file and participant.
    values : {"r", "z", "other"}
        Correlations, Fisher z, or something else whose range is not checked.

    Returns
    -------
    (R, R) float64 array
        Exactly symmetric with a unit diagonal (of "other": its own); rows and columns of missing regions are NaN.
    """
    matrix = np.array(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = " x ".join(map(str, matrix.shape))
        raise problem(
            where, f"the matrix is {shape}", expected="a square matrix", remedy="Write it again."
        )
    if len(matrix) < 2:
        raise problem(where, "the matrix has one entry", expected="at least two regions")
    if values == "z":
        matrix = inverse_fisher_z(matrix)
    diagonal = matrix.diagonal().copy()
    np.fill_diagonal(matrix, 0.0)
    missing = ((matrix == 0) | np.isnan(matrix)).all(axis=1)
    if (~missing).sum() < 2:
        raise problem(where, "all regions are missing or zero", remedy="Leave the participant out.")
    matrix[missing] = matrix[:, missing] = 0.0  # until all else is checked
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, column = bad[0] + 1
        found = f"{len(bad)} entries of regions that have data are not finite (the first in row {row}, column {column})"
        expected = "numbers, or whole rows of missing regions"
        remedy = "Make the matrix again, or set the whole row and column of the region to n/a."
        raise problem(where, found, expected=expected, remedy=remedy)
    matrix = _symmetric(matrix, where)
    if values != "other":
        low, high = float(matrix.min()), float(matrix.max())
        if low < -1 - TOLERANCE or high > 1 + TOLERANCE:
            found, remedy = (
                f"values run from {low:.3g} to {high:.3g}",
                "If they are Fisher z, say --values z.",
            )
            raise problem(where, found, expected="correlations in [-1, 1]", remedy=remedy)
        np.clip(matrix, -1.0, 1.0, out=matrix)
    if values == "r":
        _check_diagonal(diagonal[~missing], where)
    np.fill_diagonal(matrix, np.nan_to_num(diagonal, posinf=0.0) if values == "other" else 1.0)
    matrix[missing] = matrix[:, missing] = np.nan
    return matrix


def is_symmetric(matrices: np.ndarray) -> bool:
    """Whether all of (…, R, R) matrices are symmetric but for rounding, missing entries apart."""
    known = np.nan_to_num(np.asarray(matrices, np.float64), posinf=1.0, neginf=-1.0)
    return bool(np.allclose(known, known.swapaxes(-1, -2), atol=TOLERANCE))


def _symmetric(matrix: np.ndarray, where: object) -> np.ndarray:
    """The mean of the matrix and its mirror, if they hardly differ."""
    with np.errstate(over="ignore"):
        worst = float(
            (matrix - matrix.T).max()
        )  # the difference is antisymmetric: its maximum is its largest size
    if worst == 0:
        return matrix
    if worst <= TOLERANCE:
        return (matrix + matrix.T) / 2
    found = f"the matrix is not symmetric (entries differ from their mirror by up to {worst:.3g})"
    remedy = "Check that the file holds FC and is whole."
    if not np.tril(matrix, -1).any() or not np.triu(matrix, 1).any():
        remedy = "Only one triangle is filled: copy it to the other."
    raise problem(where, found, expected=f"at most {TOLERANCE:g}", remedy=remedy)


def _check_diagonal(diagonal: np.ndarray, where: object) -> None:
    """A diagonal of ones, or one that was blanked (all 0, or not finite), is accepted."""
    finite = diagonal[np.isfinite(diagonal)]
    if not len(finite) or np.all(np.abs(finite - 1) <= TOLERANCE) or np.all(finite == 0):
        return
    found = f"the diagonal runs from {finite.min():.3g} to {finite.max():.3g}"
    remedy = "Give correlations, not covariances; if they are Fisher z, say --values z."
    raise problem(where, found, expected="1 (or all 0)", remedy=remedy)


def infer_values(matrix: np.ndarray, *, thorough: bool = False) -> str:
    """What the entries of a matrix prove to be: "r", "z", or an empty string.

    An infinite diagonal, or one that is the same large number throughout, is that of Fisher z; so are entries beyond 1
    of a matrix that is none of covariances. A diagonal of ones with entries up to 1 is that of r, unless the matrix
    has clearly negative eigenvalues as r and none as z (`thorough`).

    Examples
    --------
    >>> r = np.array([[1, 0.5], [0.5, 1]])
    >>> infer_values(r), infer_values(np.array([[np.inf, 0.5], [0.5, np.inf]])), infer_values(r - np.eye(2))
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
    if largest > LARGEST_Z:
        return ""
    constant = (
        len(finite) > 0 and float(np.ptp(finite)) <= TOLERANCE and finite[0] >= _DIAGONAL_OF_Z
    )
    if np.isinf(known).any() or constant:
        return "z"
    if largest > 1 + TOLERANCE:
        return "z" if ones or blank else ""
    if thorough and (ones or blank) and _only_as_z(matrix):
        return "z"
    return "r" if ones else ""


def decide_values(probes: Probes, options: Options, source: object) -> tuple[str, bool, list[str]]:
    """Decide for a whole source whether its matrices hold r or Fisher z.

    Parameters
    ----------
    probes : list of (ScanFile, ScanData)
        Scans that were read to learn about the source.
    options : Options
        With the user's `values`.
    source : object
        What errors call the source.

    Returns
    -------
    values : {"r", "z"}
    is_stated : bool
        Whether the user or the format says so.
    notes : list of str
        What to tell the user.
    """
    if options.values != "auto":
        return options.values, True, []
    if any(data.values_are_known for _, data in probes):
        return "r", True, []
    names: dict[str, list[str]] = {"r": [], "z": [], "": []}
    for number, (scan, data) in enumerate(probes):
        values = infer_values(data.array, thorough=number < _N_THOROUGH)
        names[values].append(scan.path.name if scan.key is None else scan.participant)
    if names["r"] and names["z"]:
        raise NerveError(mixed_values_message(source, names["r"], names["z"]))
    if not names["z"]:
        return "r", False, []
    note = (
        f"matrices hold Fisher z, as {len(names['z'])} of {len(probes)} looked at prove, "
        "and are turned to r"
    )
    return "z", False, [note]


def mixed_values_message(
    where: object, r: Sequence[str] = ("others",), z: Sequence[str] = ("others",)
) -> str:
    """The sentence about a source of which some matrices are r and some Fisher z."""
    remedy = "keep the others out with --id-pattern, or say what all files hold with --values r or --values z"
    found = f"{where}: {listed(z, 2)} can only hold Fisher z, and {listed(r, 2)} only r"
    return f"{found}. Read one kind: {remedy} (who does not fit is then left out)."


def _only_as_z(matrix: np.ndarray) -> bool:
    """Whether the matrix has clearly negative eigenvalues as correlations, and none as Fisher z."""
    as_r = np.where(np.eye(len(matrix)), 1.0, matrix)
    return (
        negative_share(as_r) > MOST_NEGATIVE
        and negative_share(inverse_fisher_z(as_r)) < MOST_NEGATIVE / 3
    )


def negative_share(matrix: np.ndarray) -> float:
    """How much of the trace of a matrix lies in eigenvalues below zero, as a share; missing entries count as 0."""
    eigenvalues = np.linalg.eigvalsh(np.nan_to_num(matrix, nan=0.0, posinf=1.0, neginf=-1.0))
    return float(-eigenvalues[eigenvalues < 0].sum() / len(matrix))


def average_matrices(matrices: np.ndarray, measure: str) -> np.ndarray:
    """The mean in Fisher z of (runs, R, R) matrices; a region that one run lacks is taken from the others.

    Values that are no correlations (covariances, netmats of UK Biobank) are averaged as they are. Two regions that no
    run has both of are missing: nothing is known of their relation.
    """
    correlations = measure in CORRELATIONS
    z = fisher_z(matrices) if correlations else matrices
    with warnings.catch_warnings(
        action="ignore", category=RuntimeWarning
    ):  # regions that all runs lack stay NaN
        mean = np.nanmean(z, axis=0)
    present = ~np.isnan(mean.diagonal())
    unknown = present & np.isnan(mean[:, present]).any(axis=1)
    mean[unknown], mean[:, unknown] = np.nan, np.nan
    return (inverse_fisher_z(mean) if correlations else mean).astype(np.float32)
