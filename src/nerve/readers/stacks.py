"""One array of all participants: along which axis they lie, and who they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import problem
from nerve.readers.base import Options, Scan
from nerve.readers.matrices import TOLERANCE
from nerve.readers.regions import N_ASEG
from nerve.readers.unfolding import unfoldings


def people_of(path: Path, n_people: int, options: Options, *, task: str = "", **extra: Any) -> list[Scan]:
    """A scan per participant of one file, named by `--ids` or by the rows of the participants table."""
    ids = options.ids
    if ids is None or len(ids) != n_people:
        found = "no ids are known" if ids is None else f"there are {len(ids)} ids"
        raise problem(
            path,
            f"it holds {n_people} participants and {found}",
            remedy="Give the ids in the order of the file: --ids FILE, one per line, or --participants FILE with as "
            "many rows.",
        )
    return [Scan(person, path, task=task, key=i, extra=extra) for i, person in enumerate(ids)]


def axis_of_people(shape: tuple[int, ...], options: Options, take: Callable[[int, int], np.ndarray]) -> int | None:
    """The axis along which participants lie; None for the array of one participant.

    Parameters
    ----------
    shape : tuple of int
        Of the array.
    take : callable
        ``take(index, axis)`` gives one slice, to see whether it is a matrix.
    """
    n_ids = len(options.ids or ())
    if len(shape) == 3:
        square = [axis for axis in (0, 2) if len({*shape[:axis], *shape[axis + 1 :]}) == 1]
        matrices = [axis for axis in square if _is_symmetric(take(0, axis))]
        fitting = [axis for axis in matrices if shape[axis] == n_ids] or matrices
        if fitting:
            return fitting[0]
        return next((axis for axis in (0, 2) if shape[axis] == n_ids), 0)  # time series
    if len(shape) != 2 or expected_sizes(options) & set(shape):
        return None
    vectors = [axis for axis in (0, 1) if _are_vectors(shape[1 - axis], options)]
    if shape[0] == shape[1] and n_ids != shape[0]:
        return None
    fitting = [axis for axis in vectors if shape[axis] == n_ids] or vectors
    return fitting[0] if fitting else None


def expected_sizes(options: Options) -> set[int]:
    """Numbers of regions that would fit what the user said."""
    order = options.rows
    return set() if order is None else {order.n_regions, order.n_regions + N_ASEG}


def _are_vectors(n_values: int, options: Options) -> bool:
    sizes = expected_sizes(options)
    return any(sizes or way.order != "square" for way in unfoldings(n_values, sizes))


def _is_symmetric(slice_: np.ndarray) -> bool:
    slice_ = np.nan_to_num(np.asarray(slice_, np.float64), posinf=1.0, neginf=-1.0)
    return bool(np.allclose(slice_, slice_.T, atol=TOLERANCE))
