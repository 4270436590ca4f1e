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
        One map per seed. Entries that are missing in any of them are left out. A map that does not
        vary has a correlation of 0 with every other.

    Returns
    -------
    float
        1 when all seeds agree, about 0 when they have nothing in common, NaN for fewer than two
        maps.

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
    length = np.linalg.norm(centred, axis=1, keepdims=True)  # (seeds, 1)
    # Below this, what is left after centring is rounding error: the map does not vary.
    smallest = 1e-12 * np.maximum(1.0, np.abs(rows).max(axis=1, keepdims=True))
    unit = np.where(length > smallest, centred / np.maximum(length, smallest), 0.0)
    correlations = [a @ b for a, b in combinations(unit, 2)]
    return float(np.mean(correlations))


def as_encoders(encoders: Any) -> list[Any]:
    """Make a list of one encoder or several, and check that their maps can be compared.

    Parameters
    ----------
    encoders : fitted encoder, or several
        Trained with different seeds on the same regions and patches.

    Returns
    -------
    list
        The encoders.
    """
    encoder_list = list(encoders) if isinstance(encoders, Sequence) else [encoders]
    if not encoder_list:
        raise NerveError("There is no encoder to interpret, expected at least one that is fitted.")
    for encoder in encoder_list:
        if not hasattr(encoder, "module_"):
            name = type(encoder).__name__
            raise NotFitted(f"This {name} is not fitted. Call fit first, or load a saved one.")
    parcellations = [encoder.parcellation_ for encoder in encoder_list]
    patchings = [getattr(encoder, "patching_", None) for encoder in encoder_list]
    same_regions = all(parcellation == parcellations[0] for parcellation in parcellations)
    same_patches = all(patching == patchings[0] for patching in patchings)
    if not (same_regions and same_patches):
        names = listed(parcellation.name for parcellation in parcellations)
        raise problem(
            "The encoders to compare",
            f"their regions or patches differ ({names})",
            expected="runs that differ only in the seed",
        )
    return encoder_list
