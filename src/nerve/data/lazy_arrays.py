"""Many matrices or time series seen as one array, read from disk only where they are asked for.

A cohort of 40,000 participants at 400 regions is 13 GB even in float16. `Stack` and `Series` hold
indices into memory maps: reordering regions, choosing participants and joining cohorts change the
indices and copy nothing.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

MATERIALISE_BELOW = 2**30  # bytes: a smaller result is given as a plain array
_MATRICES_PER_READ = 64
_ROWS_PER_READ = 512  # of one region: the pages around each row are read with it


class Stack:
    """Square matrices from one or more (n, R, R) arrays, chosen and reordered by index.

    ``stack[rows]`` reads those rows into an array. Pages of memory maps are given back to the
    system after each read, so that resident memory stays that of one batch.

    Parameters
    ----------
    sources : list of (n, R, R) arrays
    places : (n, 2) array
        The source of each matrix, and its row in there.
    regions : list
        Positions of the regions that are taken from each source; None for all.
    """

    ndim = 3

    def __init__(
        self, sources: list[Any], places: np.ndarray, regions: list[np.ndarray | None]
    ) -> None:
        self._sources = sources
        self._places = places
        self._regions = regions
        first_regions = regions[0]
        n_regions = sources[0].shape[-1] if first_regions is None else len(first_regions)
        self.shape = (len(places), n_regions, n_regions)  #: (participants, regions, regions).
        #: The common type of the sources.
        self.dtype = np.result_type(*(source.dtype for source in sources))
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize  #: Size if it were all read.

    @classmethod
    def of(cls, array: Any) -> Stack:
        """See an array as a stack.

        Parameters
        ----------
        array : (n, R, R) array or Stack

        Returns
        -------
        Stack
            A stack is returned as it is.
        """
        if isinstance(array, Stack):
            return array
        rows = np.arange(len(array))
        places = np.stack([np.zeros_like(rows), rows], axis=1)
        return cls([array], places, [None])

    @classmethod
    def concat(cls, stacks: Sequence[Stack]) -> Stack:
        """Join stacks one after another.

        Parameters
        ----------
        stacks : sequence of Stack
            With the same number of regions.

        Returns
        -------
        Stack
        """
        sources: list[Any] = []
        regions: list[np.ndarray | None] = []
        places = []
        for stack in stacks:
            n_sources_before = len(sources)
            places.append(stack._places + [n_sources_before, 0])
            sources += stack._sources
            regions += stack._regions
        return cls(sources, np.concatenate(places), regions)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *rest = key if isinstance(key, tuple) else (key,)
        index = np.arange(len(self))[rows]
        matrices = self._read(np.atleast_1d(index))
        first = slice(None) if index.ndim else 0
        return matrices[(first, *rest)]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        matrices = self._read(np.arange(len(self)))
        return matrices if dtype is None else matrices.astype(dtype)

    def row_of_region(self, region: int) -> np.ndarray:
        """Read one row of every matrix; little is read.

        Parameters
        ----------
        region : int

        Returns
        -------
        (n, R) array
        """
        return self._read(np.arange(len(self)), region)

    def take(self, index: np.ndarray) -> Stack:
        """Choose participants.

        Parameters
        ----------
        index : (k,) array
            Positions.

        Returns
        -------
        Stack
        """
        return Stack(self._sources, self._places[index], self._regions)

    def reorder(self, regions: np.ndarray) -> Stack:
        """Choose and reorder regions.

        Parameters
        ----------
        regions : (k,) array
            Positions.

        Returns
        -------
        Stack
        """
        return Stack(self._sources, self._places, _reorder_each(self._regions, regions))

    def materialise_if_small(self) -> np.ndarray | Stack:
        """Read the stack into a plain array if that is small.

        Returns
        -------
        array or Stack
            A source of which nothing was left out or reordered is returned as it is.
        """
        is_small = self.nbytes <= MATERIALISE_BELOW
        source = self._sources[0]
        is_one_array = (
            len(self._sources) == 1 and self._regions[0] is None and isinstance(source, np.ndarray)
        )
        if is_one_array and np.array_equal(self._places[:, 1], np.arange(len(source))):
            is_large_map = isinstance(source, np.memmap) and not is_small
            return self if is_large_map else source
        return self[:] if is_small else self

    def _read(self, index: np.ndarray, region: int | None = None) -> np.ndarray:
        """Read the matrices at these positions, or one row of each."""
        n_regions = self.shape[1]
        shape = (n_regions, n_regions) if region is None else (n_regions,)
        out = np.empty((len(index), *shape), self.dtype)
        per_read = _MATRICES_PER_READ if region is None else _ROWS_PER_READ
        for number, source in enumerate(self._sources):
            positions = np.flatnonzero(self._places[index, 0] == number)
            order = self._regions[number]
            for chunk in np.array_split(positions, max(1, len(positions) // per_read)):
                rows = self._places[index[chunk], 1]
                if region is None:
                    block = source[rows]  # (chunk, R, R)
                    if order is not None:
                        block = block[:, order[:, None], order]
                else:
                    block = source[rows, region if order is None else order[region]]  # (chunk, R)
                    if order is not None:
                        block = block[:, order]
                out[chunk] = block
                release_pages(source)
        return out


class Series:
    """Time series of many participants, (volumes, regions) each, of any length.

    Parameters
    ----------
    parts : sequence of (volumes, R) arrays
    regions : sequence, optional
        Positions of the regions that are taken from each part; None for all.
    """

    def __init__(
        self, parts: Sequence[np.ndarray], regions: Sequence[np.ndarray | None] | None = None
    ) -> None:
        self._parts = list(parts)
        self._regions: list[np.ndarray | None] = [None] * len(self._parts)
        if regions is not None:
            self._regions = list(regions)

    @property
    def lengths(self) -> np.ndarray:
        """Volumes of each participant."""
        return np.array([len(part) for part in self._parts], int)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, row: int) -> np.ndarray:
        part = np.asarray(self._parts[row])
        regions = self._regions[row]
        return part if regions is None else part[:, regions]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def take(self, index: np.ndarray) -> Series:
        """Choose participants.

        Parameters
        ----------
        index : (k,) array
            Positions.

        Returns
        -------
        Series
        """
        return Series([self._parts[row] for row in index], [self._regions[row] for row in index])

    def reorder(self, regions: np.ndarray) -> Series:
        """Choose and reorder regions.

        Parameters
        ----------
        regions : (k,) array
            Positions.

        Returns
        -------
        Series
        """
        return Series(self._parts, _reorder_each(self._regions, regions))

    @classmethod
    def concat(cls, many: Sequence[Series]) -> Series:
        """Join the participants of several cohorts one after another.

        Parameters
        ----------
        many : sequence of Series

        Returns
        -------
        Series
        """
        parts: list[np.ndarray] = []
        regions: list[np.ndarray | None] = []
        for series in many:
            parts += series._parts
            regions += series._regions
        return cls(parts, regions)


def _reorder_each(
    orders: Sequence[np.ndarray | None], regions: np.ndarray
) -> list[np.ndarray | None]:
    """Apply a choice of regions after those that each source already has."""
    return [regions if order is None else order[regions] for order in orders]


def release_pages(source: np.ndarray) -> None:
    """Let the system drop the pages of a large memory map that were read (they stay in its cache).

    Parameters
    ----------
    source : array
        An array that is no memory map is left alone.
    """
    mapped = getattr(source, "_mmap", None)
    if mapped is not None and hasattr(mapped, "madvise") and source.nbytes > MATERIALISE_BELOW:
        mapped.madvise(mmap.MADV_DONTNEED)
