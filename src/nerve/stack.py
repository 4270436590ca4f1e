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
    """

    def __init__(
        self,
        sources: Sequence[np.ndarray],
        source_of: np.ndarray | None = None,
        row_of: np.ndarray | None = None,
        regions: Sequence[np.ndarray | None] | None = None,
    ) -> None:
        self._sources = list(sources)
        counts = [len(source) for source in self._sources]
        self._source_of = np.repeat(np.arange(len(counts)), counts) if source_of is None else source_of
        self._row_of = np.concatenate([np.arange(n) for n in counts]) if row_of is None else row_of
        self._regions: list[np.ndarray | None] = [None] * len(counts) if regions is None else list(regions)

    @classmethod
    def of(cls, array: Any) -> Stack:
        """The array as a stack; a stack is returned as it is."""
        return array if isinstance(array, Stack) else cls([array])

    @classmethod
    def concat(cls, stacks: Sequence[Stack]) -> Stack:
        """Stacks one after another."""
        shift = np.cumsum([0] + [len(stack._sources) for stack in stacks])
        return cls(
            [source for stack in stacks for source in stack._sources],
            np.concatenate([stack._source_of + k for stack, k in zip(stacks, shift[:-1], strict=True)]),
            np.concatenate([stack._row_of for stack in stacks]),
            [regions for stack in stacks for regions in stack._regions],
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(participants, regions, regions)."""
        regions = self._regions[0]
        n_regions = self._sources[0].shape[-1] if regions is None else len(regions)
        return len(self._source_of), n_regions, n_regions

    @property
    def dtype(self) -> np.dtype:
        """The common type of the sources."""
        return np.result_type(*self._sources)

    @property
    def nbytes(self) -> int:
        """Size if it were all read."""
        n, r, _ = self.shape
        return n * r * r * self.dtype.itemsize

    ndim = 3

    def __len__(self) -> int:
        return len(self._source_of)

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        index = np.arange(len(self))[rows]
        picked = self._read(np.atleast_1d(index))
        if index.ndim == 0:
            return picked[0][rest] if rest else picked[0]
        return picked[(slice(None), *rest)] if rest else picked

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = self._read(np.arange(len(self)))
        return whole if dtype is None else whole.astype(dtype)

    def row_of_region(self, region: int) -> np.ndarray:
        """One row of every matrix, (n, R); little is read."""
        out = np.empty(self.shape[:2], self.dtype)
        for number, source in enumerate(self._sources):
            here = np.flatnonzero(self._source_of == number)
            order = self._regions[number]
            for chunk in np.array_split(here, max(1, len(here) // 512)):  # pages around a row come with it
                block = source[self._row_of[chunk], region if order is None else order[region]]
                out[chunk] = block if order is None else block[:, order]
                _give_back(source)
        return out

    def take(self, index: np.ndarray) -> Stack:
        """Another choice of participants."""
        return Stack(self._sources, self._source_of[index], self._row_of[index], self._regions)

    def reordered(self, regions: np.ndarray) -> Stack:
        """Another choice and order of regions."""
        chained = [regions if old is None else old[regions] for old in self._regions]
        return Stack(self._sources, self._source_of, self._row_of, chained)

    def settled(self) -> np.ndarray | Stack:
        """A plain array if that is small, otherwise this stack; an untouched source is returned as it is."""
        if len(self._sources) == 1 and self._regions[0] is None and len(self) == len(self._sources[0]):
            source = self._sources[0]
            in_order = np.array_equal(self._row_of, np.arange(len(source)))
            if in_order and (not isinstance(source, np.memmap) or self.nbytes <= MATERIALISE_BELOW):
                return source
        return self[:] if self.nbytes <= MATERIALISE_BELOW else self

    def _read(self, index: np.ndarray) -> np.ndarray:
        out = np.empty((len(index), *self.shape[1:]), self.dtype)
        for number, source in enumerate(self._sources):
            here = np.flatnonzero(self._source_of[index] == number)
            regions = self._regions[number]
            for chunk in np.array_split(here, max(1, len(here) // 64)):
                block = source[self._row_of[index[chunk]]]
                out[chunk] = block if regions is None else block[:, regions[:, None], regions]
                _give_back(source)
        return out


class Series:
    """Time series of many participants, (volumes, regions) each, of any length."""

    def __init__(self, parts: Sequence[np.ndarray], regions: Sequence[np.ndarray | None] | None = None) -> None:
        self._parts = list(parts)
        self._regions: list[np.ndarray | None] = [None] * len(self._parts) if regions is None else list(regions)

    @classmethod
    def split(cls, joined: np.ndarray, lengths: np.ndarray) -> Series:
        """Participants one after another in a (total volumes, regions) array → one part per participant."""
        ends = np.cumsum(lengths)
        return cls([joined[end - length : end] for end, length in zip(ends, lengths, strict=True)])

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
        return Series(self._parts, [regions if old is None else old[regions] for old in self._regions])

    @classmethod
    def concat(cls, many: Sequence[Series]) -> Series:
        """Participants of several cohorts one after another."""
        return cls(
            [part for series in many for part in series._parts],
            [regions for series in many for regions in series._regions],
        )


def _give_back(source: np.ndarray) -> None:
    """Let the system drop the pages of a memory map that were just read (they stay in its cache)."""
    mapped = getattr(source, "_mmap", None)
    if mapped is not None and hasattr(mapped, "madvise") and source.nbytes > MATERIALISE_BELOW:
        mapped.madvise(mmap.MADV_DONTNEED)
