"""Vectors back to matrices: which triangle, in which order, with or without the diagonal, is proved and never guessed.

The upper triangle row by row is the lower one column by column, and the lower one row by row is the upper one column by
column: so there are two orders. The wrong one scrambles the matrix, which shows: a matrix of correlations has no
eigenvalue below zero, and regions of one network are more alike than others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from nerve._utils.errors import problem
from nerve.data.connectivity import inverse_fisher_z
from nerve.data.parcellation import Parcellation
from nerve.data.quality.order import clearly_higher, network_means
from nerve.data.readers.base import Options
from nerve.data.readers.matrices import MOST_NEGATIVE, TOLERANCE, is_symmetric, negative_share
from nerve.data.readers.regions import N_ASEG, OTHER_ATLAS

ORDERS = {
    "upper": "the upper triangle row by row (the lower one column by column)",
    "lower": "the lower triangle row by row (the upper one column by column)",
}
CLEARLY_MORE = 3.0  # times as much below zero: the other order is wrong


@dataclass(frozen=True)
class Unfolding:
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
        """The (R, R) matrix; without a diagonal in the vector, that of the matrix is 1."""
        vector = np.asarray(vector, np.float64).ravel()
        if len(vector) != self.n_values:
            raise problem(
                where, f"{len(vector)} values", expected=f"{self.n_values}, as in the others"
            )
        if self.order == "square":
            return vector.reshape(self.n_regions, self.n_regions)
        matrix = np.eye(self.n_regions)
        first = 0 if self.diagonal else 1
        upper = self.order == "upper"
        rows, columns = (
            np.triu_indices(self.n_regions, first)
            if upper
            else np.tril_indices(self.n_regions, -first)
        )
        matrix[rows, columns] = matrix[columns, rows] = vector
        if self.diagonal:
            matrix[np.diag_indices(self.n_regions)] /= self.scale
        return matrix

    @property
    def n_values(self) -> int:
        """How many values a vector has."""
        r = self.n_regions
        return r * r if self.order == "square" else r * (r + 1 if self.diagonal else r - 1) // 2

    def fits(self, matrices: Sequence[np.ndarray]) -> bool:
        """Whether matrices unfolded so are symmetric, and a diagonal that was among the values is all 1, 0 or none."""
        stack = np.stack(matrices)
        known = stack[:, np.eye(self.n_regions, dtype=bool) & self.diagonal]
        known = known[np.isfinite(known)]
        return is_symmetric(stack) and any(
            np.all(np.abs(known - one) <= TOLERANCE) for one in (1.0, 0.0)
        )


def unfoldings(n_values: int, sizes: Collection[int] = ()) -> list[Unfolding]:
    """The ways in which so many values can be a matrix of one of these numbers of regions (or of any number).

    Examples
    --------
    >>> [str(one) for one in unfoldings(9)]
    ['all 3 x 3 entries']
    >>> sorted({(one.n_regions, one.diagonal) for one in unfoldings(6)})
    [(3, True), (4, False)]
    """
    found = []
    root = math.isqrt(8 * n_values + 1)
    if root * root == 8 * n_values + 1:
        for order in ORDERS:
            found.append(Unfolding((root + 1) // 2, order))
            found += [
                Unfolding((root - 1) // 2, order, True, scale) for scale in (1.0, math.sqrt(0.5))
            ]
    if math.isqrt(n_values) ** 2 == n_values:
        found.append(Unfolding(math.isqrt(n_values), "square"))
    return [one for one in found if one.n_regions > 2 and (not sizes or one.n_regions in sizes)]


def from_triangle(vector: np.ndarray, order: str, where: object) -> np.ndarray:
    """The symmetric matrix, with a unit diagonal, of the R (R - 1) / 2 entries of one triangle.

    Examples
    --------
    >>> from_triangle(np.array([0.1, 0.2, 0.3]), "upper", "example").tolist()
    [[1.0, 0.1, 0.2], [0.1, 1.0, 0.3], [0.2, 0.3, 1.0]]
    """
    ways = [way for way in unfoldings(np.size(vector)) if way.order == order and not way.diagonal]
    if ways:
        return ways[0].matrix(vector, where)
    raise problem(
        where, f"{np.size(vector)} values", expected="the R (R - 1) / 2 values of one triangle"
    )


def expected_sizes(options: Options) -> set[int]:
    """Numbers of regions that would fit what the user said."""
    return (
        set() if options.rows is None else {options.rows.n_regions, options.rows.n_regions + N_ASEG}
    )


def find_unfolding(vectors: Sequence[np.ndarray], options: Options, where: object) -> Unfolding:
    """The one way that gives matrices without negative eigenvalues, or that shows the networks; else a refusal.

    Parameters
    ----------
    vectors : sequence of (values,) arrays
        Of some participants.
    options : Options
        With the unfolding and the values that the user said, and the regions, for the proof by networks.
    """
    n_values, regions = np.size(vectors[0]), options.rows
    orders = ORDERS if options.unfolding == "auto" else [options.unfolding]
    ways = [
        one
        for one in unfoldings(n_values, expected_sizes(options))
        if one.order in ("square", *orders)
    ]
    matrices = {one: [one.matrix(vector, where) for vector in vectors] for one in ways}
    ways = [one for one in ways if one.fits(matrices[one])]
    found = f"{n_values:,} values per participant"
    if not ways:
        size = f"{regions.n_regions} regions" if regions else "R regions"
        expected = f"one triangle of a matrix of {size}, with or without its diagonal of ones, or all its entries"
        raise problem(where, found, expected=expected, remedy=OTHER_ATLAS)
    # a symmetric square, or a diagonal of ones among the values, is no accident: it excludes the other ways
    ways = (
        [one for one in ways if one.order == "square"]
        or [one for one in ways if one.diagonal]
        or ways
    )
    if len(ways) == 1:
        return ways[0]
    correlations = {
        one: [_correlations(matrix, options.values) for matrix in matrices[one]] for one in ways
    }
    negative = {
        one: float(np.mean([negative_share(matrix) for matrix in correlations[one]]))
        for one in ways
    }
    best, second = sorted(ways, key=lambda one: negative[one])[:2]
    if negative[best] <= MOST_NEGATIVE and negative[second] > max(
        CLEARLY_MORE * negative[best], MOST_NEGATIVE / 3
    ):
        return best
    shown = _by_networks({one: np.mean(correlations[one], axis=0) for one in ways}, regions)
    if shown is not None and negative[shown] <= MOST_NEGATIVE:
        return shown
    found += f" can be {' or '.join(map(str, ways))}, and neither negative eigenvalues nor networks tell which"
    upper, lower = (
        "upper (NumPy's triu_indices, CBIG)",
        "lower (nilearn's sym_matrix_to_vec, MATLAB's triu)",
    )
    raise problem(where, found, remedy=f"Say it: --unfolding {upper} or --unfolding {lower}.")


def _correlations(matrix: np.ndarray, values: str) -> np.ndarray:
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    if values == "z" or (values == "auto" and np.nanmax(np.abs(off), initial=0.0) > 1 + TOLERANCE):
        matrix = inverse_fisher_z(matrix)
    return np.where(np.eye(len(matrix)), 1.0, matrix)


def _by_networks(
    means: dict[Unfolding, np.ndarray], regions: Parcellation | None
) -> Unfolding | None:
    """The way in which the networks stand out clearly more than in the others."""
    n_regions = {one.n_regions for one in means}
    if regions is None or len(set(regions.networks)) < 2 or n_regions != {regions.n_regions}:
        return None
    networks = np.array(regions.networks)
    contrasts = {
        one: float(np.subtract(*network_means(mean, networks))) for one, mean in means.items()
    }
    best, second = sorted(contrasts, key=lambda one: -contrasts[one])[:2]
    return best if clearly_higher(contrasts[best], contrasts[second]) else None
