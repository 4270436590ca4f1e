"""Patching: an FC matrix is cut into one patch for every pair of networks (Methods, "Patching").

Networks, permuted networks and a regular grid are all *one group label per region*. Everything
that follows from the labels (pairs, sizes, packed layout) is derived here and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, problem


class Patching:
    """Patches of an R × R matrix, one for every pair of groups (l ≤ m).

    Pairs are ordered (0,0), (0,1) … (0,G-1), (1,1), (1,2) …, with groups in the order of
    `group_names`. A packed matrix is the concatenation of its patches in that order, each flattened
    row by row: rows are the regions of group l, columns those of group m, both in ascending
    position. A patch within one group keeps its whole square, so the packed length is
    S = Σ_{l≤m} n_l n_m.

    Parameters
    ----------
    group_of : sequence of int
        The group of each region, 0 … G-1. Every group has at least one region.
    group_names : sequence of str, optional
        Names of the groups, used in tables and figures.

    Attributes
    ----------
    n_regions : int
        Number of regions, R.
    n_groups : int
        Number of groups, G (the paper's N_n).
    n_patches : int
        Number of patches, P = G (G + 1) / 2.
    n_entries : int
        Packed length S: the entries of all patches together.
    members : tuple of arrays
        Positions of the regions of each group, ascending.
    pairs : (P, 2) array
        The groups (l, m), l ≤ m, of each patch: the one pair order of the package.
    pair_names : list of str
        Names of the patches, for tables and figures.
    shapes : (P, 2) array
        Rows and columns of each patch.
    sizes : (P,) array
        Entries of each patch.
    offsets : (P + 1,) array
        Where each patch starts in the packed layout.
    fingerprint : str
        A short hash of the group labels.

    Examples
    --------
    >>> import nerve
    >>> patching = Patching.from_parcellation(nerve.load_parcellation("schaefer400-17"))
    >>> patching.n_patches, patching.n_entries
    (153, 85313)
    >>> Patching([0, 1, 0]).pairs.tolist()
    [[0, 0], [0, 1], [1, 1]]
    """

    def __init__(
        self, group_of: Sequence[int] | np.ndarray, group_names: Sequence[str] | None = None
    ) -> None:
        groups = np.array(group_of)
        if groups.ndim != 1 or groups.size == 0 or not np.issubdtype(groups.dtype, np.integer):
            cause = f"group labels of shape {groups.shape}"
            raise problem("Patching", cause, expected="one whole number per region")
        n_groups = int(groups.max()) + 1
        if groups.min() < 0 or len(np.unique(groups)) != n_groups:
            expected = f"every label from 0 to {n_groups - 1} in use"
            raise problem("Patching", "group labels with gaps", expected=expected)
        if group_names is None:
            group_names = [f"G{group + 1}" for group in range(n_groups)]
        if len(group_names) != n_groups:
            cause = f"{len(group_names)} group names for {n_groups} groups"
            raise problem("Patching", cause, expected="one name per group")

        groups.setflags(write=False)
        self.group_of = groups
        self.group_names = tuple(str(name) for name in group_names)
        self.n_regions = len(groups)
        self.n_groups = n_groups
        self.members = tuple(np.flatnonzero(groups == group) for group in range(n_groups))
        self.pairs = np.stack(np.triu_indices(n_groups), axis=1)
        self.pair_names = [
            f"{self.group_names[row]}–{self.group_names[col]}" for row, col in self.pairs
        ]
        self.shapes = np.bincount(groups)[self.pairs]
        self.sizes = self.shapes.prod(axis=1)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self.n_patches = len(self.pairs)
        self.n_entries = int(self.offsets[-1])
        digest = hashlib.blake2b(groups.astype("<i8").tobytes(), digest_size=8)
        self.fingerprint = digest.hexdigest()

    @classmethod
    def from_parcellation(cls, parcellation: Any) -> Patching:
        """One group per network, in the order in which networks first occur.

        Parameters
        ----------
        parcellation : Parcellation
            Anything with `networks` (one name per region) and `network_names` will do.

        Returns
        -------
        Patching
        """
        network_names = list(parcellation.network_names)
        group_of = [network_names.index(network) for network in parcellation.networks]
        return cls(group_of, network_names)

    @classmethod
    def grid(cls, n_regions: int, size: int = 16) -> Patching:
        """Groups of `size` consecutive regions; the last one may be smaller.

        Parameters
        ----------
        n_regions : int
            Number of regions.
        size : int
            Regions per group.

        Returns
        -------
        Patching

        Examples
        --------
        >>> Patching.grid(400, 16).n_patches
        325
        """
        if size < 1 or n_regions < 1:
            cause = f"{n_regions} regions in groups of {size}"
            raise problem("Patching.grid", cause, expected="at least 1 of each")
        return cls(np.arange(n_regions) // size)

    def permuted(self, seed: int) -> Patching:
        """The same group sizes with regions assigned at random.

        Parameters
        ----------
        seed : int
            Fixes the permutation of the labels.

        Returns
        -------
        Patching
        """
        labels = np.random.default_rng(seed).permutation(self.group_of)
        return Patching(labels, self.group_names)

    @cached_property
    def rows(self) -> np.ndarray:
        """(S,): row region of each packed entry."""
        parts = []
        for row_group, col_group in self.pairs:
            parts.append(np.repeat(self.members[row_group], len(self.members[col_group])))
        return np.concatenate(parts)

    @cached_property
    def cols(self) -> np.ndarray:
        """(S,): column region of each packed entry."""
        parts = []
        for row_group, col_group in self.pairs:
            parts.append(np.tile(self.members[col_group], len(self.members[row_group])))
        return np.concatenate(parts)

    @cached_property
    def patch_of(self) -> np.ndarray:
        """(S,): patch of each packed entry."""
        return np.repeat(np.arange(self.n_patches), self.sizes)

    @cached_property
    def places(self) -> np.ndarray:
        """(R, R): packed entry of each element of a matrix, above and below the diagonal."""
        places = np.empty((self.n_regions, self.n_regions), int)
        places[self.cols, self.rows] = np.arange(self.n_entries)
        # second, so that a patch within one group is not transposed
        places[self.rows, self.cols] = np.arange(self.n_entries)
        return places

    def pack(self, fc: Any) -> np.ndarray:
        """Cut matrices into patches.

        Parameters
        ----------
        fc : (…, R, R) array
            Matrices in the region order of the patching.

        Returns
        -------
        (…, S) array
            Patches one after another, in the order of `pairs`.
        """
        fc = np.asarray(fc)
        if fc.ndim < 2 or fc.shape[-2:] != (self.n_regions, self.n_regions):
            raise NerveError(
                f"The matrices have shape {fc.shape}, expected (…, {self.n_regions}, "
                f"{self.n_regions}): the patching was made for another parcellation."
            )
        flat = fc.reshape(*fc.shape[:-2], -1)  # (…, R²)
        return np.take(flat, self.rows * self.n_regions + self.cols, axis=-1)

    def unpack(self, packed: Any) -> np.ndarray:
        """Put patches back into matrices; the inverse of `pack` for symmetric matrices.

        Parameters
        ----------
        packed : (…, S) array
            Patches as `pack` gives them.

        Returns
        -------
        (…, R, R) array
            Each patch also stands, transposed, below the diagonal.
        """
        packed = np.asarray(packed)
        if packed.ndim < 1 or packed.shape[-1] != self.n_entries:
            raise NerveError(
                f"The packed array has shape {packed.shape}, expected (…, {self.n_entries})."
            )
        return np.take(packed, self.places, axis=-1)

    def means(self, packed: np.ndarray, *, empty: float = np.nan) -> np.ndarray:
        """The mean of every patch, without the diagonal of the matrix.

        Parameters
        ----------
        packed : (…, S) array
            Patches as `pack` gives them.
        empty : float
            The mean of a patch that has nothing but the diagonal (a group of one region).

        Returns
        -------
        (…, P) array
        """
        off_diagonal = (self.rows != self.cols).astype(packed.dtype)
        counts = np.add.reduceat(off_diagonal, self.offsets[:-1])
        sums = np.add.reduceat(packed * off_diagonal, self.offsets[:-1], axis=-1)
        return np.divide(sums, counts, out=np.full_like(sums, empty), where=counts > 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Patching):
            return NotImplemented
        same_groups = np.array_equal(self.group_of, other.group_of)
        return same_groups and self.group_names == other.group_names

    def __repr__(self) -> str:
        return (
            f"Patching({self.n_regions} regions, {self.n_groups} groups, {self.n_patches} patches)"
        )
