"""Vectors back to matrices: which triangle, in which order, is proved and never guessed.

The upper triangle row by row is the lower one column by column, and the lower one row by row is the
upper one column by column: so there are two orders. The wrong one scrambles the matrix, which
shows: a matrix of correlations has no eigenvalue below zero, and regions of one network are more
alike than others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from nerve._utils.errors import problem
from nerve.data.connectivity import inverse_fisher_z
from nerve.data.parcellation import Parcellation
from nerve.data.quality.order import clearly_higher, network_contrast
from nerve.data.readers.base import Options
from nerve.data.readers.matrices import MOST_NEGATIVE, TOLERANCE, is_symmetric, negative_share
from nerve.data.readers.regions import N_ASEG, OTHER_ATLAS

ORDERS = {
    "upper": "the upper triangle row by row (the lower one column by column)",
    "lower": "the lower triangle row by row (the upper one column by column)",
}
_CLEARLY_MORE = 3.0  # times as much below zero: the other order is wrong


@dataclass(frozen=True)
class Unfolding:  # numpydoc ignore=PR02
    """How the values of a vector lie in a matrix.

    Parameters
    ----------
    n_regions : int
    order : {"upper", "lower", "square"}
        One of `ORDERS`, or all R² entries.
    diagonal : bool
        Whether the diagonal is among the values.
    scale : float
        What the diagonal was multiplied by (1/√2 by nilearn).
    """

    n_regions: int
    order: str
    diagonal: bool = False
    scale: float = 1.0

    def __str__(self) -> str:
        if self.order == "square":
            return f"all {self.n_regions} x {self.n_regions} entries"
        diagonal = " with the diagonal" if self.diagonal else ""
        return ORDERS[self.order] + diagonal + (" times 1/√2" if self.scale != 1 else "")

    def matrix(self, vector: np.ndarray, where: object) -> np.ndarray:
        """Make the matrix of a vector.

        Parameters
        ----------
        vector : (values,) array
        where : object
            The file, as errors name it.

        Returns
        -------
        (R, R) array
            With a diagonal of NaN where the vector has none.
        """
        vector = np.asarray(vector, np.float64).ravel()
        if len(vector) != self.n_values:
            raise problem(
                where, f"{len(vector)} values", expected=f"{self.n_values}, as in the others"
            )
        if self.order == "square":
            return vector.reshape(self.n_regions, self.n_regions)
        matrix = np.full((self.n_regions, self.n_regions), np.nan)
        first = 0 if self.diagonal else 1
        if self.order == "upper":
            rows, columns = np.triu_indices(self.n_regions, first)
        else:
            rows, columns = np.tril_indices(self.n_regions, -first)
        matrix[rows, columns] = vector
        matrix[columns, rows] = vector
        if self.diagonal:
            matrix[np.diag_indices(self.n_regions)] /= self.scale
        return matrix

    @property
    def n_values(self) -> int:
        """How many values a vector has."""
        if self.order == "square":
            return self.n_regions**2
        n_off_diagonal = self.n_regions * (self.n_regions - 1) // 2
        return n_off_diagonal + self.n_regions if self.diagonal else n_off_diagonal

    def fits(self, matrices: Sequence[np.ndarray]) -> bool:
        """Whether matrices unfolded so are symmetric, with a diagonal of 1 or 0 if any."""
        stack = np.stack(matrices)
        known = stack[:, np.eye(self.n_regions, dtype=bool) & self.diagonal]
        known = known[np.isfinite(known)]
        is_all_ones = bool(np.all(np.abs(known - 1.0) <= TOLERANCE))
        is_all_zeros = bool(np.all(np.abs(known) <= TOLERANCE))
        return is_symmetric(stack) and (is_all_ones or is_all_zeros)


def unfoldings(n_values: int, sizes: Collection[int] = ()) -> list[Unfolding]:
    """List the ways in which so many values can be a matrix.

    Parameters
    ----------
    n_values : int
    sizes : collection of int
        Numbers of regions that are possible; any where it is empty.

    Returns
    -------
    list of Unfolding

    Examples
    --------
    >>> [str(unfolding) for unfolding in unfoldings(9)]
    ['all 3 x 3 entries']
    >>> sorted({(unfolding.n_regions, unfolding.diagonal) for unfolding in unfoldings(6)})
    [(3, True), (4, False)]
    """
    candidates = []
    # R (R - 1) / 2 values without the diagonal, or R (R + 1) / 2 with it
    root = math.isqrt(8 * n_values + 1)
    if root * root == 8 * n_values + 1:
        for order in ORDERS:
            candidates.append(Unfolding((root + 1) // 2, order))
            candidates.append(Unfolding((root - 1) // 2, order, diagonal=True))
            scale = math.sqrt(0.5)
            candidates.append(Unfolding((root - 1) // 2, order, diagonal=True, scale=scale))
    if math.isqrt(n_values) ** 2 == n_values:
        candidates.append(Unfolding(math.isqrt(n_values), "square"))
    candidates = [unfolding for unfolding in candidates if unfolding.n_regions > 2]
    if sizes:
        candidates = [unfolding for unfolding in candidates if unfolding.n_regions in sizes]
    return candidates


def from_triangle(vector: np.ndarray, order: str, where: object) -> np.ndarray:
    """The symmetric matrix, with a unit diagonal, of the R (R - 1) / 2 entries of one triangle.

    Parameters
    ----------
    vector : (R (R - 1) / 2,)
    order : {"upper", "lower"}
    where : object
        The file, for errors.

    Returns
    -------
    (R, R)

    Examples
    --------
    >>> from_triangle(np.array([0.1, 0.2, 0.3]), "upper", "example").tolist()
    [[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]]
    """
    for unfolding in unfoldings(np.size(vector)):
        if unfolding.order == order and not unfolding.diagonal:
            matrix = unfolding.matrix(vector, where)
            np.fill_diagonal(matrix, 1.0)
            return matrix
    raise problem(
        where, f"{np.size(vector)} values", expected="the R (R - 1) / 2 values of one triangle"
    )


def expected_sizes(options: Options) -> set[int]:
    """Numbers of regions that would fit the user's parcellation.

    Parameters
    ----------
    options : Options

    Returns
    -------
    set of int
        Empty where no parcellation is named.
    """
    if options.file_regions is None:
        return set()
    n_regions = options.file_regions.n_regions
    return {n_regions, n_regions + N_ASEG}


def find_unfolding(vectors: Sequence[np.ndarray], options: Options, where: object) -> Unfolding:
    """Find the one way in which vectors become matrices of correlations.

    It is the one that gives matrices without negative eigenvalues, or in which the networks show.
    Where neither tells, nothing is guessed: the user is asked.

    Parameters
    ----------
    vectors : sequence of (values,) arrays
        Of some participants.
    options : Options
        With the unfolding and the values that the user named, and the regions.
    where : object
        The source, as errors name it.

    Returns
    -------
    Unfolding
    """
    n_values = np.size(vectors[0])
    regions = options.file_regions
    orders = ["square", *ORDERS] if options.unfolding == "auto" else ["square", options.unfolding]
    matrices = {}
    for unfolding in unfoldings(n_values, expected_sizes(options)):
        if unfolding.order in orders:
            unfolded = [unfolding.matrix(vector, where) for vector in vectors]
            if unfolding.fits(unfolded):
                matrices[unfolding] = unfolded
    if not matrices:
        size = f"{regions.n_regions} regions" if regions else "R regions"
        raise problem(
            where,
            f"{n_values:,} values per participant",
            expected=f"one triangle of a matrix of {size}, with or without its diagonal of ones, "
            "or all its entries",
            remedy=OTHER_ATLAS,
        )

    # a symmetric square, or a diagonal of ones among the values, is no accident: it excludes others
    squares = [unfolding for unfolding in matrices if unfolding.order == "square"]
    with_diagonal = [unfolding for unfolding in matrices if unfolding.diagonal]
    remaining = squares or with_diagonal or list(matrices)
    if len(remaining) == 1:
        return remaining[0]

    # by eigenvalues: those of a scrambled matrix go far below zero
    negative = {}
    means = {}
    for unfolding in remaining:
        correlations = [_as_correlations(matrix, options.values) for matrix in matrices[unfolding]]
        negative[unfolding] = float(np.mean([negative_share(matrix) for matrix in correlations]))
        means[unfolding] = np.mean(correlations, axis=0)
    best, second = sorted(remaining, key=lambda unfolding: negative[unfolding])[:2]
    clearly_more = max(_CLEARLY_MORE * negative[best], MOST_NEGATIVE / 3)
    if negative[best] <= MOST_NEGATIVE and negative[second] > clearly_more:
        return best

    # by networks: regions of one network are more alike than others
    by_networks = _find_by_networks(means, regions)
    if by_networks is not None and negative[by_networks] <= MOST_NEGATIVE:
        return by_networks
    raise problem(
        where,
        f"{n_values:,} values per participant can be {' or '.join(map(str, remaining))}, "
        "and neither negative eigenvalues nor networks tell which",
        remedy="Say it: --unfolding upper (NumPy's triu_indices, CBIG) "
        "or --unfolding lower (nilearn's sym_matrix_to_vec, MATLAB's triu).",
    )


def _as_correlations(matrix: np.ndarray, values: str) -> np.ndarray:
    """The matrix with a unit diagonal; Fisher z, where stated or shown, as r."""
    off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
    is_beyond_one = np.nanmax(np.abs(off_diagonal), initial=0.0) > 1 + TOLERANCE
    if values == "z" or (values == "auto" and is_beyond_one):
        matrix = inverse_fisher_z(matrix)
    return np.where(np.eye(len(matrix)), 1.0, matrix)


def _find_by_networks(
    means: dict[Unfolding, np.ndarray], regions: Parcellation | None
) -> Unfolding | None:
    """The unfolding in which the networks stand out clearly more than in the others."""
    if regions is None or regions.n_networks < 2:
        return None
    if any(unfolding.n_regions != regions.n_regions for unfolding in means):
        return None
    networks = np.array(regions.networks)
    contrasts = {unfolding: network_contrast(mean, networks) for unfolding, mean in means.items()}
    best, second = sorted(contrasts, key=lambda unfolding: -contrasts[unfolding])[:2]
    return best if clearly_higher(contrasts[best], contrasts[second]) else None
