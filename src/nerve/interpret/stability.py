"""How well maps agree over seeds: a map that changes with the seed says nothing about the brain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from nerve._utils.errors import NerveError, NotFitted, listed, problem


def stability(maps: Any) -> float:
    """Mean Pearson correlation of every two maps.

    Parameters
    ----------
    maps : (seeds, …) array
        One map a seed. Entries that are missing in any of them are left out; a map that does not vary agrees with none
        (0).

    Returns
    -------
    float
        1 when all seeds agree, about 0 when they have nothing in common, NaN for fewer than two maps.

    Examples
    --------
    >>> round(stability([[1, 2, 3], [2, 4, 6.5]]), 2)
    1.0
    """
    rows = np.asarray(maps, float)
    rows = rows.reshape(len(rows), -1)  # (seeds, entries)
    rows = rows[:, np.isfinite(rows).all(axis=0)]
    if len(rows) < 2 or rows.shape[1] < 2:
        return float("nan")
    centred = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    small = 1e-12 * np.maximum(1.0, np.abs(rows).max(axis=1, keepdims=True))
    unit = np.where(length > small, centred / np.maximum(length, small), 0.0)
    return float(np.mean([unit[a] @ unit[b] for a, b in combinations(range(len(unit)), 2)]))


def as_encoders(encoders: Any) -> list[Any]:
    """One encoder, or several that were trained with different seeds on the same regions and patches, as a list."""
    several = list(encoders) if isinstance(encoders, Sequence) else [encoders]
    if not several:
        raise NerveError("There is no encoder to interpret, expected at least one that is fitted.")
    for one in several:
        if not hasattr(one, "module_"):
            raise NotFitted(
                f"This {type(one).__name__} is not fitted. Call fit first, or load a saved one."
            )
    made_of = [(one.parcellation_, getattr(one, "patching_", None)) for one in several]
    if any(parts != made_of[0] for parts in made_of):
        names, expected = (
            listed(regions.name for regions, _ in made_of),
            "runs that differ only in the seed",
        )
        raise problem(
            "The encoders to compare",
            f"their regions or patches differ ({names})",
            expected=expected,
        )
    return several
