"""The data that methods accept: one cohort, several that are pooled, or an (n, R, R) array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from nerve._utils.errors import MissingInput, NerveError, problem
from nerve.data.cohort import Cohort
from nerve.data.lazy_arrays import Series
from nerve.data.parcellation import Parcellation, load_parcellation

# FC of this size does not exist, and float32 has no room for its squares and their sums.
_LARGEST_INPUT = 1e12


def as_cohort(data: Any, parcellation: Parcellation | str | None = None) -> Cohort:
    """Make one cohort of a cohort, of several, or of an (n, R, R) array.

    Parameters
    ----------
    data : Cohort, sequence of Cohorts, or (n, R, R) array
        Several cohorts are pooled, in the region order of the first.
    parcellation : Parcellation or str, optional
        The regions of an array, which must be in this order already; without one they are called
        region1 …, all of one network. Cohorts know their regions.

    Returns
    -------
    Cohort
    """
    pool = cohorts_in(data)
    if pool:
        return pool[0] if len(pool) == 1 else Cohort.concat(pool)
    stack = _checked_stack(data)
    labels = tuple(f"region{i + 1}" for i in range(stack.shape[1]))
    unnamed = Parcellation(labels, ("all",) * len(labels), name="unnamed")
    target = unnamed if parcellation is None else load_parcellation(parcellation)
    if target.n_regions != stack.shape[1]:
        raise NerveError(
            f"The matrices have {stack.shape[1]} regions, expected the {target.n_regions} of "
            f"{target.name}. An array is taken to be in the order of the parcellation; a Cohort is "
            "matched by label."
        )
    participants = pd.DataFrame({"participant_id": [str(i + 1) for i in range(len(stack))]})
    return Cohort(stack, participants, target, name="array")


def cohorts_in(data: Any) -> list[Cohort]:
    """The cohorts that the data consist of.

    Parameters
    ----------
    data : Cohort, sequence of Cohorts, or array

    Returns
    -------
    list of Cohort
        Empty if the data are an array.
    """
    items = list(data) if isinstance(data, Sequence) else [data]
    return items if all(isinstance(item, Cohort) for item in items) else []


def required_timeseries(cohort: Cohort, reader: str, remedy: str) -> Series:
    """The time series of a cohort; a cohort without them is refused.

    Parameters
    ----------
    cohort : Cohort
    reader : str
        What needs them, as the beginning of a sentence: "GATE reads windows of".
    remedy : str
        What to do instead.

    Returns
    -------
    Series
    """
    if cohort.timeseries is None:
        raise MissingInput(
            f"{reader} time series, and cohort {cohort.name!r} has only FC matrices. {remedy}"
        )
    return cohort.timeseries


class CohortDataset:
    """A cohort as the training loop reads it, one batch at a time.

    Parameters
    ----------
    cohort : Cohort
        The participants.
    inputs : str
        What is read of them, as in `Cohort.inputs`. FC gives a (batch, …) tensor; time series,
        whose lengths differ, a list of (volumes, R) tensors.
    """

    def __init__(self, cohort: Cohort, inputs: str = "fc") -> None:
        self.cohort = cohort
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> Any:
        """The participants at these positions."""
        values = self.cohort.inputs(self.inputs, rows)
        check_numbers(values, self.cohort, rows)
        if self.inputs == "timeseries":
            return [torch.from_numpy(series) for series in values]
        return torch.from_numpy(values)


def check_numbers(values: Any, cohort: Cohort, rows: np.ndarray) -> None:
    """Refuse inputs that are missing, infinite or absurdly large, naming the first participant.

    Parameters
    ----------
    values : sequence of arrays
        One per participant.
    cohort : Cohort
        Whose they are.
    rows : array of int
        Positions of the participants in the cohort.
    """
    for row, value in zip(rows, values, strict=True):
        # the largest absolute value, without a copy of the array
        largest = float(np.maximum(value.max(initial=0.0), -value.min(initial=0.0)))
        if largest < _LARGEST_INPUT:
            continue
        problem_of_values = "missing values" if np.isnan(largest) else f"values of {largest:.0e}"
        participant = cohort.participants["participant_id"].iloc[int(row)]
        raise problem(
            f"Participant {participant} of {cohort.name}",
            f"the input holds {problem_of_values}",
            expected=f"numbers below {_LARGEST_INPUT:.0e}",
            remedy="`nerve check` lists such participants and what can be done.",
        )


def chunks(n: int, size: int = 64) -> list[np.ndarray]:
    """The rows 0 … n - 1, `size` at a time, in order."""
    return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]


def _regions_of_triangle(n_entries: int) -> int:
    """R if R (R - 1) / 2 is this number of entries; 0 if no R of at least 3 fits.

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
        raise NerveError(
            "The data are a sparse matrix, expected a Cohort or a dense (n, R, R) array."
        )
    try:
        stack = np.asarray(data)
    except ValueError as error:
        raise NerveError(
            f"The data are not an array ({error}), expected a Cohort or an (n, R, R) array."
        ) from error
    regions = _regions_of_triangle(stack.shape[1]) if stack.ndim == 2 else 0
    if regions:
        raise NerveError(
            f"The data are vectors of {stack.shape[1]} entries, the triangles of {regions} "
            "regions, expected a Cohort or matrices of shape (participants, regions, regions). "
            "Vectors do not say which triangle they are: make matrices of them (nilearn: "
            "`ConnectivityMeasure(vectorize=False)`, `vec_to_sym_matrix`), or read the "
            "file with `nerve ingest --unfolding`."
        )
    if (
        stack.dtype.kind not in "fiu"
        or stack.ndim != 3
        or stack.shape[1] != stack.shape[2]
        or not len(stack)
    ):
        raise NerveError(
            f"The data are a {stack.dtype} array of shape {stack.shape}, expected a Cohort or real "
            "FC matrices of shape (participants, regions, regions)."
        )
    for number, matrix in enumerate(stack, start=1):
        if not np.isfinite(matrix).all():
            remedy = "Leave the participant out or fill the regions."
            raise problem(f"Matrix {number}", "it holds NaN or infinity", remedy=remedy)
    return stack if stack.dtype.kind == "f" else stack.astype(np.float32)
