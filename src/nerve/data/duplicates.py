"""Which participants have the same FC? Probably they are one participant under several ids.

Two FC vectors (the entries above the diagonal) are the same if their correlation is above `SAME`:
copies that were rounded to float16 or carry a little noise are found too. All pairs of N
participants are compared by a sketch of some hundred entries, a block of participants at a time;
only pairs whose sketches nearly agree are read and compared in full. Memory is N × entries of the
sketch, never N × N nor N × R × R.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nerve.data.lazy_arrays import Stack

SAME = 0.9999  # correlation of two FC vectors above which they are the same
_NEARLY_SAME = 0.9995  # correlation of two sketches above which FC is compared in full
_FEWEST_ENTRIES = 10  # of FC vectors that are correlated: with fewer, strangers are alike by chance
_SKETCH_REGIONS = (
    8  # rows of each matrix that the sketch is taken from: little is read of a large file
)
_SKETCH_PARTNERS = 64  # entries of each of these rows
_BLOCK = 256  # participants compared with all others at a time

Read = Callable[[np.ndarray], np.ndarray]  # positions of k participants → (k, entries) FC vectors


def same_fc(connectivity: np.ndarray | Stack, read: Read) -> list[np.ndarray]:
    """Groups of participants who have the same FC.

    Being the same is passed on: if a is the same as b, and b as c, all three are one group.

    Parameters
    ----------
    connectivity : (n, R, R) array or Stack
        From which sketches are taken.
    read : callable
        From positions to FC vectors, for comparisons in full.

    Returns
    -------
    list of arrays
        Positions of the participants of each group of two or more, ascending.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(rng.normal(size=(6, 50))) for _ in range(4)])
    >>> fc[3] = fc[1] + 1e-6
    >>> upper = np.triu_indices(6, 1)
    >>> [rows.tolist() for rows in same_fc(fc, lambda rows: fc[rows][:, upper[0], upper[1]])]
    [[1, 3]]
    """
    n, n_regions, _ = connectivity.shape
    if n_regions * (n_regions - 1) // 2 < _FEWEST_ENTRIES:
        _, group = np.unique(read(np.arange(n)), axis=0, return_inverse=True)
        return _members(group.reshape(-1))
    sketches = _unit_rows(_sketches(Stack.of(connectivity)))  # (n, entries of a sketch)
    group = np.arange(n)  # of each participant: the first participant of their group
    for start in range(0, n, _BLOCK):
        block = np.arange(start, min(start + _BLOCK, n))
        earlier = sketches[: block[-1] + 1]
        nearly_same = sketches[block] @ earlier.T > _NEARLY_SAME  # (block, participants so far)
        for row in block:
            candidates = np.flatnonzero(nearly_same[row - start, :row])
            while len(candidates) > 0:
                pair = _unit_rows(np.asarray(read(np.array([row, candidates[0]])), float))
                if pair[0] @ pair[1] > SAME:
                    first, second = sorted((group[row], group[candidates[0]]))
                    group[group == second] = first
                candidates = candidates[1:]
                # one comparison is enough to join a group: its other members need not be read
                candidates = candidates[group[candidates] != group[row]]
    return _members(group)


def _sketches(stack: Stack) -> np.ndarray:
    """Entries of a few random regions with some of the others, (n, entries).

    The same entries of every participant.
    """
    n_regions = stack.shape[1]
    rng = np.random.default_rng(0)
    parts = []
    for region in rng.permutation(n_regions)[:_SKETCH_REGIONS]:
        partners = rng.permutation(np.delete(np.arange(n_regions), region))[:_SKETCH_PARTNERS]
        parts.append(stack.row_of_region(int(region))[:, partners].astype(np.float32))
    return np.concatenate(parts, axis=1)


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows centred and scaled to unit length, so that products of two are correlations.

    Missing entries count as 0. Rows that do not vary become one constant row: they are the same as
    one another, and as nothing else.
    """
    vectors = np.nan_to_num(vectors, posinf=0.0, neginf=0.0)
    size = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    # in units in which squares neither overflow nor vanish
    centred = vectors / np.where(size > 0, size, 1.0)
    centred -= centred.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    rounding = 1e-6 * np.sqrt(vectors.shape[1])
    constant = np.full_like(centred, vectors.shape[1] ** -0.5)
    return np.where(length > rounding, centred / np.where(length > 0, length, 1.0), constant)


def _members(group: np.ndarray) -> list[np.ndarray]:
    """Positions of the members of each group of two or more."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order])) + 1
    return [rows for rows in np.split(order, starts) if len(rows) > 1]
