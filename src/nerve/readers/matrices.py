"""One matrix from a file → a correlation matrix: checked, symmetric, unit diagonal, missing regions as NaN rows."""

from __future__ import annotations

import numpy as np

from nerve.checks import listed, problem
from nerve.connectivity import inverse_fisher_z

TOLERANCE = 1e-3  # of symmetry, of the diagonal and of the range: what rounding in text files may cost


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
        raise problem(where, f"the matrix is {shape}", expected="a square matrix", remedy="Write it again.")
    if len(matrix) < 2:
        raise problem(where, "the matrix has one entry", expected="at least two regions")
    if values == "z":
        matrix = inverse_fisher_z(matrix)
    diagonal = matrix.diagonal().copy()
    np.fill_diagonal(matrix, 0.0)
    missing = _missing_regions(matrix)
    present = np.flatnonzero(~missing)
    if len(present) < 2:
        raise problem(where, "all regions are missing or zero", remedy="Leave the participant out.")
    inner = matrix if not missing.any() else matrix[np.ix_(present, present)]
    _check_finite(inner, where)
    inner = _symmetric(inner, where)
    if values != "other":
        _check_range(inner, where)
        np.clip(inner, -1.0, 1.0, out=inner)
    if values == "r":
        _check_diagonal(diagonal[present], where)
    np.fill_diagonal(inner, np.nan_to_num(diagonal[present], posinf=0.0) if values == "other" else 1.0)
    if not missing.any():
        return inner
    matrix[:] = np.nan
    matrix[np.ix_(present, present)] = inner
    return matrix


def _missing_regions(matrix: np.ndarray) -> np.ndarray:
    """Mask of the rows that are NaN or zero throughout; the diagonal is zero here."""
    has_data: np.ndarray = np.any(matrix != 0, axis=1)  # NaN counts as data: most need no second look
    if np.isnan(matrix).any():
        has_data = np.any(np.nan_to_num(matrix, nan=0.0, posinf=1.0, neginf=1.0) != 0, axis=1)
    return ~has_data


def _check_finite(inner: np.ndarray, where: object) -> None:
    finite = np.isfinite(inner)
    if finite.all():
        return
    bad = np.argwhere(~finite)
    row, column = bad[0] + 1
    raise problem(
        where,
        f"{len(bad)} entries of regions that have data are not finite (the first in row {row}, column {column})",
        expected="numbers, or whole rows of missing regions",
        remedy="Make the matrix again, or set the whole row and column of the region to n/a.",
    )


def _symmetric(inner: np.ndarray, where: object) -> np.ndarray:
    """The mean of the matrix and its mirror, if they hardly differ."""
    with np.errstate(over="ignore"):
        worst = float((inner - inner.T).max())  # the difference is antisymmetric: its maximum is its largest size
    if worst == 0:
        return inner
    if worst <= TOLERANCE:
        return (inner + inner.T) / 2
    half = not np.tril(inner, -1).any() or not np.triu(inner, 1).any()
    remedy = (
        "Only one triangle is filled: copy it to the other." if half else "Check that the file holds FC and is whole."
    )
    raise problem(
        where,
        f"the matrix is not symmetric (entries differ from their mirror by up to {worst:.3g})",
        expected=f"at most {TOLERANCE:g}",
        remedy=remedy,
    )


def _check_range(inner: np.ndarray, where: object) -> None:
    low, high = float(inner.min()), float(inner.max())
    if low >= -1 - TOLERANCE and high <= 1 + TOLERANCE:
        return
    raise problem(
        where,
        f"values run from {low:.3g} to {high:.3g}",
        expected="correlations in [-1, 1]",
        remedy="If they are Fisher z, say --values z.",
    )


def _check_diagonal(diagonal: np.ndarray, where: object) -> None:
    """A diagonal of ones, or one that was blanked (all 0, or not finite), is accepted."""
    finite = diagonal[np.isfinite(diagonal)]
    if not len(finite) or np.all(np.abs(finite - 1) <= TOLERANCE) or np.all(finite == 0):
        return
    raise problem(
        where,
        f"the diagonal runs from {finite.min():.3g} to {finite.max():.3g}",
        expected="1 (or all 0)",
        remedy="Give correlations, not covariances; if they are Fisher z, say --values z.",
    )


def describe_missing(missing: np.ndarray, labels: tuple[str, ...]) -> str:
    """A phrase that names the missing regions."""
    names = [label for label, gone in zip(labels, missing, strict=True) if gone]
    return f"{len(names)} of {len(labels)} regions have no data ({listed(names, most=4)})"
