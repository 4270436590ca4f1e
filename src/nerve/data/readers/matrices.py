"""A matrix as a file holds it → a checked, symmetric correlation matrix.

r or Fisher z is decided once for a source from what its matrices show, never file by file.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.connectivity import CORRELATIONS, RANGES, fisher_z, in_words, inverse_fisher_z
from nerve.data.readers.base import Options, SampledScans, ScanData

# of symmetry, of the diagonal and of the range: what rounding in text files may cost
TOLERANCE = 1e-3
# share of the trace: what rounding to two digits may put into eigenvalues below zero
MOST_NEGATIVE = 0.03
_LARGEST_Z = 5.0  # larger values are z statistics, no Fisher z: r would be .9999
_DIAGONAL_OF_Z = 2.5  # Fisher z of a diagonal that was cut at 0.99
_N_THOROUGH = 5  # scans of which eigenvalues are computed
# regions from which on Fisher z has values beyond 1, so that none of them shows r
# (docs/decisions.md)
_REGIONS_THAT_SHOW_Z = 100


def apply_measure(data: ScanData, options: Options, where: object) -> ScanData:
    """Add what the user says that a scan measures, and fill the empty triangle of its matrix.

    Parameters
    ----------
    data : ScanData
        As the reader returned it. What its format says about the measure must not contradict the
        user.
    options : Options
        With the user's `measure`, `values` and `kind`.
    where : object
        The scan, as errors name it.

    Returns
    -------
    ScanData
        Matrices of other measures than correlations have `values` "other".
    """
    wanted = options.measure
    if data.series is not None:
        made = "partial" if options.kind == "partial" else "pearson"
        if wanted not in (None, made):
            raise problem(
                where,
                f"it holds time series, of which --kind {options.kind} makes {in_words(made)}",
                expected=f"matrices of {in_words(str(wanted))}, as --measure says",
                remedy="Leave --measure out, and choose with --kind what is computed.",
            )
        return data
    known = data.measure
    if known == "fisher_z":
        known = "pearson"
    if wanted is not None and known is not None and known != wanted:
        raise problem(
            where,
            f"it holds {in_words(known)}, as its format or name says",
            expected=f"{in_words(wanted)}, as --measure says",
            remedy=f"Leave --measure out, or say --measure {known}.",
        )
    measure = known or wanted
    if measure is not None and measure not in CORRELATIONS:
        if options.values != "auto" and wanted is not None:
            raise problem(
                where,
                f"--values is {options.values} and --measure is {wanted}",
                expected=f"only --measure, since r and z are no {in_words(wanted)}",
                remedy="Leave --values out.",
            )
        data = replace(data, values="other")
    if wanted is not None and data.measure is None:
        data = replace(data, measure=wanted)
    return _with_both_triangles(data)


def clean_matrix(
    matrix: np.ndarray, where: object, values: str = "r", measure: str | None = None
) -> np.ndarray:
    """Check one matrix and turn it into correlations.

    Parameters
    ----------
    matrix : (R, R) array
        As it stands in the file. A region without data is a row of NaN, or of zeros off the
        diagonal.
    where : object
        What errors call it: file and participant.
    values : {"r", "z", "other"}
        Correlations, Fisher z, or something else.
    measure : str, optional
        What it measures, where that is known: the range of "other" values is checked by it.

    Returns
    -------
    (R, R) float64 array
        Exactly symmetric with a unit diagonal (of "other": its own); rows and columns of missing
        regions are NaN. A `NerveError` says what is wrong with a matrix that cannot be used.
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
    matrix[missing] = 0.0  # until all else is checked
    matrix[:, missing] = 0.0
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, column = bad[0] + 1
        raise problem(
            where,
            f"{len(bad)} entries of regions that have data are not finite "
            f"(the first in row {row}, column {column})",
            expected="numbers, or whole rows of missing regions",
            remedy="Make the matrix again, or set the whole row and column of the region to n/a.",
        )
    scale = float(np.abs(matrix).max()) if values == "other" else 1.0
    matrix = _symmetric(matrix, where, TOLERANCE * scale)
    if values != "other":
        low = float(matrix.min())
        high = float(matrix.max())
        if low < -1 - TOLERANCE or high > 1 + TOLERANCE:
            raise problem(
                where,
                f"values run from {low:.3g} to {high:.3g}",
                expected="correlations in [-1, 1]",
                remedy="If they are Fisher z, say --values z; if they measure something else, "
                "--measure NAME.",
            )
        np.clip(matrix, -1.0, 1.0, out=matrix)
    elif measure in RANGES:
        least, most = RANGES[str(measure)]
        low = float(matrix.min())
        high = float(matrix.max())
        if low < least - TOLERANCE or high > most + TOLERANCE:
            upwards = "0 or more" if most == np.inf else f"values in [{least:g}, {most:g}]"
            raise problem(
                where,
                f"values run from {low:.3g} to {high:.3g}",
                expected=f"{in_words(str(measure))}, that is {upwards}",
                remedy="Name what they measure with --measure (other, if nothing fits).",
            )
    if values == "r":
        _check_diagonal(diagonal[~missing], where)
    if values == "other":
        np.fill_diagonal(matrix, np.nan_to_num(diagonal, posinf=0.0))
    else:
        np.fill_diagonal(matrix, 1.0)
    matrix[missing] = np.nan
    matrix[:, missing] = np.nan
    return matrix


def is_symmetric(matrices: np.ndarray) -> bool:
    """Tell whether matrices are symmetric except for rounding and missing entries.

    Parameters
    ----------
    matrices : (…, R, R) array

    Returns
    -------
    bool
    """
    known = np.nan_to_num(np.asarray(matrices, np.float64), posinf=1.0, neginf=-1.0)
    return bool(np.allclose(known, known.swapaxes(-1, -2), atol=TOLERANCE))


def infer_values(matrix: np.ndarray, *, thorough: bool = False) -> str:
    """Infer from one matrix whether it holds r or Fisher z.

    An infinite diagonal, or one that is the same large number throughout, is that of Fisher z; so
    are entries beyond 1 of a matrix that does not hold covariances. A diagonal of ones with entries
    up to 1 is that of r, unless the matrix has clearly negative eigenvalues as r and none as z.

    Parameters
    ----------
    matrix : (R, R) array
    thorough : bool
        Whether eigenvalues are computed.

    Returns
    -------
    {"r", "z", ""}
        Empty where the matrix does not show it.

    Examples
    --------
    >>> r = np.array([[1, 0.5], [0.5, 1]])
    >>> z = np.array([[np.inf, 0.5], [0.5, np.inf]])
    >>> infer_values(r), infer_values(z), infer_values(r - np.eye(2))
    ('r', 'z', '')
    """
    matrix = np.asarray(matrix, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        return ""
    off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
    largest = float(np.nanmax(np.abs(off_diagonal), initial=0.0))
    if largest > _LARGEST_Z:
        return ""
    diagonal = matrix.diagonal()
    known = diagonal[~np.isnan(diagonal)]
    finite = known[np.isfinite(known)]
    is_ones = len(finite) > 0 and bool(np.all(np.abs(finite - 1) <= TOLERANCE))
    is_blank = len(known) == 0 or bool(np.all(np.abs(known) <= TOLERANCE))
    is_constant = len(finite) > 0 and float(np.ptp(finite)) <= TOLERANCE
    if np.isinf(known).any() or (is_constant and finite[0] >= _DIAGONAL_OF_Z):
        return "z"
    if largest > 1 + TOLERANCE:
        return "z" if is_ones or is_blank else ""
    if thorough and (is_ones or is_blank) and _is_positive_only_as_z(matrix):
        return "z"
    return "r" if is_ones else ""


def decide_values(
    sampled: SampledScans, options: Options, source: object
) -> tuple[str, bool, list[str]]:
    """Decide for a whole source whether its matrices hold r or Fisher z.

    Parameters
    ----------
    sampled : list of (ScanFile, ScanData)
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
    if any(data.values_are_known for _, data in sampled):
        return "r", True, []
    names: dict[str, list[str]] = {"r": [], "z": [], "": []}
    for number, (scan, data) in enumerate(sampled):
        # partial correlations have negative eigenvalues as r too
        is_thorough = number < _N_THOROUGH and data.measure != "partial"
        values = infer_values(data.array, thorough=is_thorough)
        names[values].append(scan.path.name if scan.key is None else scan.participant)
    if names["r"] and names["z"]:
        raise NerveError(mixed_values_message(source, names["r"], names["z"]))
    if not names["z"]:
        is_unknown = not names["r"] and bool(names[""])
        is_unknown = is_unknown and options.measure is None  # the user says: correlations
        if is_unknown and all(_may_be_either(data.array) for _, data in sampled):
            raise problem(
                source,
                "its matrices have no diagonal, and no value beyond 1, that would tell r from "
                "Fisher z",
                expected="one of the two",
                remedy="Say which they hold: --values r or --values z.",
            )
        return "r", False, []
    note = (
        f"matrices hold Fisher z, as {len(names['z'])} of {len(sampled)} looked at prove, "
        "and are turned to r"
    )
    return "z", False, [note]


def mixed_values_message(
    where: object, r: Sequence[str] = ("others",), z: Sequence[str] = ("others",)
) -> str:
    """Write the error about a source of which some matrices are r and some Fisher z.

    Parameters
    ----------
    where : object
        The source.
    r, z : sequence of str
        The files of each.

    Returns
    -------
    str
    """
    return (
        f"{where}: {listed(z, 2)} can only hold Fisher z, and {listed(r, 2)} only r. "
        "Read one kind: keep the others out with --id-pattern, or say what all files hold with "
        "--values r or --values z (who does not fit is then left out)."
    )


def negative_share(matrix: np.ndarray) -> float:
    """Compute how much of the trace of a matrix lies in eigenvalues below zero.

    Parameters
    ----------
    matrix : (R, R) array
        With a unit diagonal; missing entries count as 0.

    Returns
    -------
    float
        A share.
    """
    eigenvalues = np.linalg.eigvalsh(np.nan_to_num(matrix, nan=0.0, posinf=1.0, neginf=-1.0))
    return float(-eigenvalues[eigenvalues < 0].sum() / len(matrix))


def average_matrices(matrices: np.ndarray, measure: str) -> np.ndarray:
    """Average matrices in Fisher z.

    Values that are no correlations (covariances, netmats of UK Biobank) are averaged as they are. A
    region that one run lacks is taken from the others. Two regions that no run has both of are
    missing: nothing is known of their relation.

    Parameters
    ----------
    matrices : (runs, R, R) array
    measure : str
        A name in `nerve.data.connectivity.MEASURES`.

    Returns
    -------
    (R, R) float32 array
    """
    are_correlations = measure in CORRELATIONS
    if are_correlations:
        matrices = fisher_z(matrices)
    # regions that all runs lack stay NaN
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        mean = np.nanmean(matrices, axis=0)
    present = ~np.isnan(mean.diagonal())
    unknown = present & np.isnan(mean[:, present]).any(axis=1)
    mean[unknown] = np.nan
    mean[:, unknown] = np.nan
    if are_correlations:
        mean = inverse_fisher_z(mean)
    return mean.astype(np.float32)


def _with_both_triangles(data: ScanData) -> ScanData:
    """Copy the filled triangle to the other, if that is empty (zeros, or no numbers)."""
    matrix = data.array
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
        return data
    is_below = np.tri(len(matrix), k=-1, dtype=bool)
    has_lower = bool(np.nan_to_num(matrix[is_below]).any())
    has_upper = bool(np.nan_to_num(matrix.T[is_below]).any())
    if has_lower == has_upper:
        return data
    is_taken = is_below.T if has_lower else is_below  # the entries that their mirror fills
    filled = "lower" if has_lower else "upper"
    note = f"only the {filled} triangle is filled; it was copied to the other"
    matrix = np.where(is_taken, matrix.T, matrix)
    return replace(data, matrix=matrix, notes=(*data.notes, note))


def _symmetric(matrix: np.ndarray, where: object, tolerance: float) -> np.ndarray:
    """The mean of the matrix and its mirror, if they hardly differ."""
    with np.errstate(over="ignore"):
        # the difference is antisymmetric, so that its maximum is its largest absolute value
        worst = float((matrix - matrix.T).max())
    if worst == 0:
        return matrix
    if worst <= tolerance:
        return (matrix + matrix.T) / 2
    raise problem(
        where,
        f"the matrix is not symmetric (entries differ from their mirror by up to {worst:.3g})",
        expected=f"at most {tolerance:g}",
        remedy="Check that the file holds connectivity and is whole.",
    )


def _check_diagonal(diagonal: np.ndarray, where: object) -> None:
    """A diagonal of ones, or one that was blanked (all 0, or not finite), is accepted."""
    finite = diagonal[np.isfinite(diagonal)]
    if (
        not len(finite)
        or np.all(np.abs(finite - 1) <= TOLERANCE)
        or np.all(np.abs(finite) <= TOLERANCE)
    ):
        return
    raise problem(
        where,
        f"the diagonal runs from {finite.min():.3g} to {finite.max():.3g}",
        expected="1 (or all 0)",
        remedy="If they are Fisher z, say --values z; if they are covariances, streamline counts "
        "or something else, say --measure NAME.",
    )


def _may_be_either(matrix: np.ndarray) -> bool:
    """Whether r and Fisher z both fit: a blank diagonal, and few regions, none beyond 1."""
    diagonal = np.asarray(matrix, np.float64).diagonal()
    is_blank = bool((np.isnan(diagonal) | (np.abs(diagonal) <= TOLERANCE)).all())
    return is_blank and len(matrix) < _REGIONS_THAT_SHOW_Z


def _is_positive_only_as_z(matrix: np.ndarray) -> bool:
    """Whether the matrix has clearly negative eigenvalues as correlations, and none as Fisher z."""
    as_r = np.where(np.eye(len(matrix)), 1.0, matrix)
    if negative_share(as_r) <= MOST_NEGATIVE:
        return False
    return negative_share(inverse_fisher_z(as_r)) < MOST_NEGATIVE / 3
