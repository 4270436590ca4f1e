"""What methods accept: a cohort, several, or an (n, R, R) array, brought into one region order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import MissingInput, NerveError, listed, problem
from nerve.cohort import Cohort
from nerve.parcellation import Parcellation, load_parcellation
from nerve.stack import Series


def as_cohort(data: Any, parcellation: Parcellation | str | None = None) -> Cohort:
    """A cohort from a cohort, several of them, or an (n, R, R) array.

    Parameters
    ----------
    data : Cohort, sequence of Cohorts, or (n, R, R) array
        Several cohorts are pooled in the region order of the first.
    parcellation : Parcellation or str, optional
        The regions to have, in this order. A cohort is brought into it by label, and networks of which it lacks
        regions are named; an array must already be in it.
        Without one, an array's regions are called region1 …, all of one network.
    """
    if isinstance(data, Sequence) and len(data) and all(isinstance(item, Cohort) for item in data):
        data = data[0] if len(data) == 1 else Cohort.concat(data)
    if isinstance(data, Cohort):
        target = load_parcellation(data.parcellation if parcellation is None else parcellation)
        try:
            return data.align(target)
        except NerveError as error:
            absent = np.flatnonzero(data.parcellation.positions_of(target) < 0)
            lacking = listed(dict.fromkeys(target.networks[region] for region in absent), most=4)
            raise NerveError(f"Cohort {data.name!r} lacks regions of network {lacking}: {error}") from error
    stack = _checked_stack(data)
    labels = tuple(f"region{i + 1}" for i in range(stack.shape[1]))
    unnamed = Parcellation(labels, ("all",) * len(labels), name="unnamed")
    target = unnamed if parcellation is None else load_parcellation(parcellation)
    if target.n_regions != stack.shape[1]:
        raise NerveError(
            f"The matrices have {stack.shape[1]} regions, expected the {target.n_regions} of {target.name}. "
            "An array is taken to be in the order of the parcellation; a Cohort is matched by label."
        )
    people = pd.DataFrame({"participant_id": [str(i + 1) for i in range(len(stack))]})
    return Cohort(stack, people, target, name="array")


def series_of(cohort: Cohort, needed: str, remedy: str) -> Series:
    """The time series of a cohort; one that has none is refused, with what needs them and what to do."""
    if cohort.timeseries is None:
        found = f"time series, and cohort {cohort.name!r} has only FC matrices."
        raise MissingInput(f"{needed} {found} {remedy}")
    return cohort.timeseries


def chunks(n: int, size: int = 64) -> list[np.ndarray]:
    """The rows 0 … n - 1, some at a time."""
    return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]


def _regions_of_triangle(n_entries: int) -> int:
    """R of a triangle with R (R - 1) / 2 entries; 0 for fewer than three regions, or if there is none.

    Examples
    --------
    >>> _regions_of_triangle(79800), _regions_of_triangle(4)
    (400, 0)
    """
    regions = (1 + math.isqrt(1 + 8 * n_entries)) // 2
    return regions if regions >= 3 and regions * (regions - 1) // 2 == n_entries else 0


def _checked_stack(data: Any) -> np.ndarray:
    """An (n, R, R) array of finite real numbers."""
    if hasattr(data, "toarray"):
        raise NerveError("The data are a sparse matrix, expected a Cohort or a dense (n, R, R) array.")
    try:
        stack = np.asarray(data)
    except ValueError as error:
        raise NerveError(f"The data are no array ({error}), expected a Cohort or an (n, R, R) array.") from error
    if stack.ndim == 2 and (regions := _regions_of_triangle(stack.shape[1])):
        raise NerveError(
            f"The data are vectors of {stack.shape[1]} entries, the triangles of {regions} regions, expected a Cohort "
            "or matrices of shape (participants, regions, regions). Vectors do not say which triangle they are: make "
            "matrices of them (nilearn: `ConnectivityMeasure(vectorize=False)`, `vec_to_sym_matrix`), or read the "
            "file with `nerve ingest --unfolding`."
        )
    if stack.dtype.kind not in "fiu" or stack.ndim != 3 or stack.shape[1] != stack.shape[2] or not len(stack):
        raise NerveError(
            f"The data are a {stack.dtype} array of shape {stack.shape}, expected a Cohort or real FC matrices of "
            "shape (participants, regions, regions)."
        )
    for number, matrix in enumerate(stack, start=1):
        if not np.isfinite(matrix).all():
            remedy = "Leave the participant out or fill the regions."
            raise problem(f"Matrix {number}", "it holds NaN or infinity", remedy=remedy)
    return stack if stack.dtype.kind == "f" else stack.astype(np.float32)
