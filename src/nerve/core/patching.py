"""A Patching cuts an FC matrix into one patch for every pair of groups, and owns the one pair order.

Networks, permuted networks and a regular grid are all *one group label per region*. Everything that follows
(pairs, sizes, packed layout) is derived here and nowhere else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve.data.parcellation import Parcellation, load_parcellation, parcellation_names


class Patching:
    """Patches of an R × R matrix, one for every pair of groups (l ≤ m).

    Pairs are ordered (0,0), (0,1) … (0,G-1), (1,1), (1,2) …, groups in the order of `group_names`. A packed
    matrix is the concatenation of its patches in that order, each flattened row by row: rows are the regions of
    group l, columns those of group m, both in ascending position. A patch within one group keeps its whole square,
    so the packed length is S = Σ_{l≤m} n_l n_m.

    Parameters
    ----------
    group_of : sequence of int
        The group of each region, 0 … G-1; every group has at least one region.
    group_names : sequence of str, optional
        Names of the groups, used in tables and figures.

    Examples
    --------
    >>> patching = Patching.from_parcellation("schaefer400-17")
    >>> patching.n_patches, patching.n_entries
    (153, 85313)
    >>> Patching([0, 1, 0]).pairs.tolist()
    [[0, 0], [0, 1], [1, 1]]
    """

    def __init__(self, group_of: Sequence[int] | np.ndarray, group_names: Sequence[str] | None = None) -> None:
        groups = np.array(group_of)
        if groups.ndim != 1 or groups.size == 0 or not np.issubdtype(groups.dtype, np.integer):
            raise problem("Patching", f"group labels of shape {groups.shape}", expected="one whole number per region")
        n_groups = int(groups.max()) + 1
        if groups.min() < 0 or len(np.unique(groups)) != n_groups:
            raise problem("Patching", "group labels with gaps", expected=f"every label from 0 to {n_groups - 1} in use")
        names = tuple(map(str, group_names)) if group_names is not None else tuple(f"G{g + 1}" for g in range(n_groups))
        if len(names) != n_groups:
            raise problem("Patching", f"{len(names)} group names for {n_groups} groups", expected="one name per group")
        groups.setflags(write=False)
        #: A short hash of the group labels.
        self.fingerprint = hashlib.blake2b(groups.astype("<i8").tobytes(), digest_size=8).hexdigest()
        self.group_of, self.group_names = groups, names
        self.n_regions = len(groups)  #: Number of regions, R.
        self.n_groups = n_groups  #: Number of groups, G (the paper's N_n).
        #: Positions of the regions of each group, ascending.
        self.members = tuple(np.flatnonzero(groups == g) for g in range(n_groups))
        #: (n_patches, 2): the groups (l, m), l ≤ m, of each patch. The one pair order of the package.
        self.pairs = np.stack(np.triu_indices(n_groups), axis=1)
        self.pair_names = [f"{names[a]}–{names[b]}" for a, b in self.pairs]  #: Of the patches, for tables and figures.
        self.shapes = np.bincount(groups)[self.pairs]  #: (n_patches, 2): rows and columns of each patch.
        self.sizes = self.shapes.prod(axis=1)  #: (n_patches,): entries of each patch.
        #: (n_patches + 1,): where each patch starts in the packed layout.
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self.n_patches = len(self.pairs)  #: Number of patches, G (G + 1) / 2.
        self.n_entries = int(self.offsets[-1])  #: Packed length S: the entries of all patches together.

    @classmethod
    def from_parcellation(cls, parcellation: Parcellation | str) -> Patching:
        """One group per network, in the order in which networks first occur."""
        parcellation = load_parcellation(parcellation)
        number = {name: g for g, name in enumerate(parcellation.network_names)}
        return cls([number[network] for network in parcellation.networks], parcellation.network_names)

    @classmethod
    def grid(cls, n_regions: int, size: int = 16) -> Patching:
        """Groups of `size` consecutive regions; the last one may be smaller.

        Examples
        --------
        >>> Patching.grid(400, 16).n_patches
        325
        """
        if size < 1 or n_regions < 1:
            raise problem("Patching.grid", f"{n_regions} regions in groups of {size}", expected="at least 1 of each")
        return cls(np.arange(n_regions) // size)

    def permuted(self, seed: int) -> Patching:
        """The same group sizes with regions assigned at random: one permutation of the labels per seed."""
        return Patching(np.random.default_rng(seed).permutation(self.group_of), self.group_names)

    @cached_property
    def rows(self) -> np.ndarray:
        """(S,): row region of each packed entry."""
        return np.concatenate([np.repeat(self.members[row], len(self.members[col])) for row, col in self.pairs])

    @cached_property
    def cols(self) -> np.ndarray:
        """(S,): column region of each packed entry."""
        return np.concatenate([np.tile(self.members[col], len(self.members[row])) for row, col in self.pairs])

    @cached_property
    def patch_of(self) -> np.ndarray:
        """(S,): patch of each packed entry."""
        return np.repeat(np.arange(self.n_patches), self.sizes)

    @cached_property
    def places(self) -> np.ndarray:
        """(R, R): packed entry of each element of a matrix, above and below the diagonal."""
        places = np.empty((self.n_regions, self.n_regions), int)
        places[self.cols, self.rows] = np.arange(self.n_entries)
        places[self.rows, self.cols] = np.arange(self.n_entries)  # second: a patch within one group stays as it is
        return places

    def pack(self, fc: Any) -> np.ndarray:
        """(…, R, R) matrices → (…, S) packed patches."""
        fc = np.asarray(fc)
        if fc.ndim < 2 or fc.shape[-2:] != (self.n_regions, self.n_regions):
            expected = f"(…, {self.n_regions}, {self.n_regions}): the patching was made for another parcellation"
            raise NerveError(f"The matrices have shape {fc.shape}, expected {expected}.")
        flat = fc.reshape(*fc.shape[:-2], -1)
        return np.take(flat, self.rows * self.n_regions + self.cols, axis=-1)

    def unpack(self, packed: Any) -> np.ndarray:
        """(…, S) packed patches → (…, R, R) matrices, each patch also written, transposed, below the diagonal."""
        packed = np.asarray(packed)
        if packed.ndim < 1 or packed.shape[-1] != self.n_entries:
            raise NerveError(f"The packed array has shape {packed.shape}, expected (…, {self.n_entries}).")
        return np.take(packed, self.places, axis=-1)

    def means(self, packed: np.ndarray, *, empty: float = np.nan) -> np.ndarray:
        """(…, S) packed patches → (…, n_patches): the mean of every patch, without the diagonal.

        A group of one region has nothing but the diagonal within: its mean is `empty`.
        """
        off_diagonal = (self.rows != self.cols).astype(packed.dtype)
        counts = np.add.reduceat(off_diagonal, self.offsets[:-1])
        sums = np.add.reduceat(packed * off_diagonal, self.offsets[:-1], axis=-1)
        return np.divide(sums, counts, out=np.full_like(sums, empty), where=counts > 0)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Patching):
            return NotImplemented
        return np.array_equal(self.group_of, other.group_of) and self.group_names == other.group_names

    def __repr__(self) -> str:
        return f"Patching({self.n_regions} regions, {self.n_groups} groups, {self.n_patches} patches)"


def is_patching_name(name: str) -> bool:
    """Whether a patching is known by its name alone, wherever it is read: no file of the user's."""
    made = re.fullmatch(r"networks|grid\d{1,4}|permuted\d+", name) is not None
    return made or name in parcellation_names()


def patching_for(parcellation: Parcellation, name: str) -> Patching:
    """A patching by its name in configurations.

    Parameters
    ----------
    parcellation : Parcellation
    name : str
        ``networks``; ``grid<size>``, consecutive regions; ``permuted<seed>``, networks with regions assigned at
        random; or a parcellation (name or table) whose networks group the same regions, ``schaefer400-7`` say.
    """
    if name == "networks":
        return Patching.from_parcellation(parcellation)
    if grid := re.fullmatch(r"grid(\d+)", name):
        return Patching.grid(parcellation.n_regions, int(grid[1]))
    if permuted := re.fullmatch(r"permuted(\d+)", name):
        return Patching.from_parcellation(parcellation).permuted(int(permuted[1]))
    try:
        return Patching.from_parcellation(parcellation.with_networks_of(name))
    except NerveError as error:
        remedy = "Other choices: networks, grid16, permuted0 (any number)."
        raise problem(f"patching is {name!r}", f"{error}", remedy=remedy) from error
