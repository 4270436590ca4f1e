"""Many matrices or series seen as one, read from disk only where they are asked for.

A cohort of 40,000 participants at 400 regions is 13 GB even in float16. `Stack` and `Series` hold indices into
memory maps; reordering regions, choosing participants and joining cohorts change the indices and copy nothing.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

MATERIALISE_BELOW = 2**30  # bytes: a smaller result is given as a plain array


class Stack:
    """Square matrices from one or more (n, R, R) arrays, chosen and reordered by index.

    ``stack[rows]`` reads those rows into an array. Pages of memory maps are given back to the system after each
    read, so that resident memory stays that of one batch.

    Parameters
    ----------
    sources : list of (n, R, R) arrays
    places : (n, 2) array
        The source of each matrix, and its row in there.
    regions : list
        Positions of the regions that are taken from each source; None is all.
    """

    def __init__(
        self, sources: list[Any], places: np.ndarray, regions: list[np.ndarray | None]
    ) -> None:
        self._sources, self._places, self._regions = sources, places, regions
        n_regions = sources[0].shape[-1] if regions[0] is None else len(regions[0])
        self.shape = (len(places), n_regions, n_regions)  #: (participants, regions, regions).
        self.dtype = np.result_type(*sources)  #: The common type of the sources.
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize  #: Size if it were all read.

    @classmethod
    def of(cls, array: Any) -> Stack:
        """The array as a stack; a stack is returned as it is."""
        if isinstance(array, Stack):
            return array
        rows = np.arange(len(array))
        return cls([array], np.stack([np.zeros_like(rows), rows], axis=1), [None])

    @classmethod
    def concat(cls, stacks: Sequence[Stack]) -> Stack:
        """Stacks one after another."""
        firsts = np.cumsum([0, *(len(stack._sources) for stack in stacks[:-1])])
        places = [stack._places + [first, 0] for stack, first in zip(stacks, firsts, strict=True)]
        sources = [source for stack in stacks for source in stack._sources]
        return cls(
            sources,
            np.concatenate(places),
            [regions for stack in stacks for regions in stack._regions],
        )

    ndim = 3

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, *rest = key if isinstance(key, tuple) else (key,)
        index = np.arange(len(self))[rows]
        picked = self._read(np.atleast_1d(index))
        return picked[(slice(None) if index.ndim else 0, *rest)]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = self._read(np.arange(len(self)))
        return whole if dtype is None else whole.astype(dtype)

    def row_of_region(self, region: int) -> np.ndarray:
        """One row of every matrix, (n, R); little is read."""
        return self._read(np.arange(len(self)), region)

    def take(self, index: np.ndarray) -> Stack:
        """Another choice of participants."""
        return Stack(self._sources, self._places[index], self._regions)

    def reordered(self, regions: np.ndarray) -> Stack:
        """Another choice and order of regions."""
        return Stack(
            self._sources,
            self._places,
            [regions if old is None else old[regions] for old in self._regions],
        )

    def settled(self) -> np.ndarray | Stack:
        """A plain array if that is small, otherwise this stack; an untouched source is returned as it is."""
        first, small = self._sources[0], self.nbytes <= MATERIALISE_BELOW
        untouched = len(self._sources) == 1 and self._regions[0] is None
        if untouched and np.array_equal(self._places[:, 1], np.arange(len(first))):
            return first if small or not isinstance(first, np.memmap) else self
        return self[:] if small else self

    def _read(self, index: np.ndarray, region: int | None = None) -> np.ndarray:
        """The matrices at these positions, or one row of each."""
        out = np.empty((len(index), *self.shape[1 if region is None else 2 :]), self.dtype)
        at_a_time = 64 if region is None else 512  # pages around a row come with it
        for number, source in enumerate(self._sources):
            here = np.flatnonzero(self._places[index, 0] == number)
            order = self._regions[number]
            for chunk in np.array_split(here, max(1, len(here) // at_a_time)):
                rows = self._places[index[chunk], 1]
                block = (
                    source[rows]
                    if region is None
                    else source[rows, region if order is None else order[region]]
                )
                if order is not None:
                    block = (
                        block[:, order] if region is not None else block[:, order[:, None], order]
                    )
                out[chunk] = block
                give_back(source)
        return out


class Series:
    """Time series of many participants, (volumes, regions) each, of any length."""

    def __init__(
        self, parts: Sequence[np.ndarray], regions: Sequence[np.ndarray | None] | None = None
    ) -> None:
        self._parts = list(parts)
        self._regions: list[np.ndarray | None] = (
            [None] * len(self._parts) if regions is None else list(regions)
        )

    @property
    def lengths(self) -> np.ndarray:
        """Volumes of each participant."""
        return np.array([len(part) for part in self._parts], int)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, person: int) -> np.ndarray:
        part, regions = self._parts[person], self._regions[person]
        return np.asarray(part) if regions is None else np.asarray(part)[:, regions]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def take(self, index: np.ndarray) -> Series:
        """Another choice of participants."""
        return Series([self._parts[i] for i in index], [self._regions[i] for i in index])

    def reordered(self, regions: np.ndarray) -> Series:
        """Another choice and order of regions."""
        return Series(
            self._parts, [regions if old is None else old[regions] for old in self._regions]
        )

    @classmethod
    def concat(cls, many: Sequence[Series]) -> Series:
        """Participants of several cohorts one after another."""
        parts = [part for series in many for part in series._parts]
        return cls(parts, [regions for series in many for regions in series._regions])


def give_back(source: np.ndarray) -> None:
    """Let the system drop the pages of a memory map that were just read (they stay in its cache)."""
    mapped = getattr(source, "_mmap", None)
    if mapped is not None and hasattr(mapped, "madvise") and source.nbytes > MATERIALISE_BELOW:
        mapped.madvise(mmap.MADV_DONTNEED)
