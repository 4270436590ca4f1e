"""What goes into methods and what comes out of them.

In: a cohort, several, or an (n, R, R) array, brought into one region order. Out: embeddings that are numbers and differ
between participants; with ``set_output(transform="pandas")`` as a table whose rows are participants, columns dim0 …
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import TransformerMixin

from nerve._utils.errors import MissingInput, NerveError, NerveWarning, listed, problem
from nerve.data.cohort import Cohort
from nerve.data.lazy_arrays import Series
from nerve.data.parcellation import Parcellation, load_parcellation

# FC of this size does not exist, and float32 has no room for its squares and their sums.
_LARGEST_INPUT = 1e12


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
    if pool := pool_of(data):
        cohort = pool[0] if len(pool) == 1 else Cohort.concat(pool)
        target = load_parcellation(cohort.parcellation if parcellation is None else parcellation)
        try:
            return cohort.align(target)
        except NerveError as error:
            absent = np.flatnonzero(cohort.parcellation.positions_of(target) < 0)
            lacking = listed(dict.fromkeys(target.networks[region] for region in absent), most=4)
            raise NerveError(
                f"Cohort {cohort.name!r} lacks regions of network {lacking}: {error}"
            ) from error
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


def pool_of(data: Any) -> list[Cohort]:
    """The cohorts that were given, one or several; none where it was an array."""
    given = list(data) if isinstance(data, Sequence) else [data]
    return given if all(isinstance(one, Cohort) for one in given) else []


def series_of(cohort: Cohort, needed: str, remedy: str) -> Series:
    """The time series of a cohort; one that has none is refused, with what needs them and what to do."""
    if cohort.timeseries is None:
        found = f"time series, and cohort {cohort.name!r} has only FC matrices."
        raise MissingInput(f"{needed} {found} {remedy}")
    return cohort.timeseries


class CohortDataset:
    """A cohort as the training loop reads it, one batch at a time.

    Parameters
    ----------
    cohort : Cohort
        The participants.
    inputs : str
        What is read of them, as in `Cohort.inputs`. FC gives a (batch, …) tensor; time series, whose
        lengths differ, a list of (volumes, R) tensors.
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
    """Refuse inputs that are not finite numbers of use, naming the first such participant.

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
        # no copy is made, as that of the absolute values would be
        largest = float(np.maximum(value.max(initial=0.0), -value.min(initial=0.0)))
        if largest < _LARGEST_INPUT:
            continue
        found = "missing values" if np.isnan(largest) else f"values of {largest:.0e}"
        participant = cohort.participants["participant_id"].iloc[int(row)]
        raise problem(
            f"Participant {participant} of {cohort.name}",
            f"the input holds {found}",
            expected=f"numbers below {_LARGEST_INPUT:.0e}",
            remedy="`nerve check` lists such participants and what can be done.",
        )


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
        raise NerveError(
            "The data are a sparse matrix, expected a Cohort or a dense (n, R, R) array."
        )
    try:
        stack = np.asarray(data)
    except ValueError as error:
        raise NerveError(
            f"The data are no array ({error}), expected a Cohort or an (n, R, R) array."
        ) from error
    if stack.ndim == 2 and (regions := _regions_of_triangle(stack.shape[1])):
        raise NerveError(
            f"The data are vectors of {stack.shape[1]} entries, the triangles of {regions} regions, expected a Cohort "
            "or matrices of shape (participants, regions, regions). Vectors do not say which triangle they are: make "
            "matrices of them (nilearn: `ConnectivityMeasure(vectorize=False)`, `vec_to_sym_matrix`), or read the "
            "file with `nerve ingest --unfolding`."
        )
    if (
        stack.dtype.kind not in "fiu"
        or stack.ndim != 3
        or stack.shape[1] != stack.shape[2]
        or not len(stack)
    ):
        raise NerveError(
            f"The data are a {stack.dtype} array of shape {stack.shape}, expected a Cohort or real FC matrices of "
            "shape (participants, regions, regions)."
        )
    for number, matrix in enumerate(stack, start=1):
        if not np.isfinite(matrix).all():
            remedy = "Leave the participant out or fill the regions."
            raise problem(f"Matrix {number}", "it holds NaN or infinity", remedy=remedy)
    return stack if stack.dtype.kind == "f" else stack.astype(np.float32)


def checked_embeddings(values: np.ndarray, cohort: Cohort) -> np.ndarray:
    """The embeddings (n, …) themselves; those without numbers are refused by id; a warning says if all are alike.

    Parameters
    ----------
    values : (n, …) array
    cohort : Cohort
        The same participants in the same order.
    """
    flat = values.reshape(len(values), -1)
    wrong = ~np.isfinite(
        flat.sum(axis=1, dtype=float)
    )  # no copy is made: tokens of a large cohort are gigabytes
    if wrong.any():
        found = f"the embedding of {listed(cohort.participants['participant_id'][wrong], most=5)} is not finite"
        remedy = "`nerve check` lists participants whose FC holds missing or infinite values."
        raise problem(f"Cohort {cohort.name!r}", found, expected="numbers", remedy=remedy)
    if len(flat) > 1 and (flat.min(axis=0) == flat.max(axis=0)).all():
        alike = f"Cohort {cohort.name!r}: all {len(flat)} participants have one embedding."
        what = "that their FC differs (`nerve check`) and that its values are of the size that the model was trained on"
        warnings.warn(f"{alike} Check {what}.", NerveWarning, stacklevel=3)
    return values


class Transformer(TransformerMixin):
    """scikit-learn's transformer; where data are a cohort, the rows of a table are its participant ids.

    A method provides `features`, and `n_features` where it has no `width`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(
            **options
        )  # scikit-learn makes tables of what `transform` returns
        if "transform" in vars(cls):
            cls.transform = _by_participant(vars(cls)["transform"])  # type: ignore[method-assign]

    def __sklearn_tags__(self) -> Any:
        """Features are float32, whatever comes in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def transform(self, X: Any) -> np.ndarray:
        """(n, width) features of the same participants in the same order."""
        cohort = self.fitted_cohort(X)  # type: ignore[attr-defined]
        return checked_embeddings(self.features(cohort), cohort)

    def features(self, cohort: Cohort) -> np.ndarray:
        """What `transform` returns, of a cohort in the region order of the method."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Numbers per participant; known after `fit`."""
        return self.width  # type: ignore[attr-defined, no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """dim0 … of the representation."""
        self.check_fitted()  # type: ignore[attr-defined]
        return np.array([f"dim{k}" for k in range(self.n_features)], object)


def _by_participant(transform: Callable[..., Any]) -> Callable[..., Any]:
    """A `transform` whose table, if it returns one, has participants as its index."""

    @wraps(transform)
    def by_participant(self: Any, X: Any, *arguments: Any, **options: Any) -> Any:
        found = transform(self, X, *arguments, **options)
        pool = pool_of(X)
        if isinstance(found, pd.DataFrame) and pool:
            ids = pd.concat([one.participants["participant_id"] for one in pool])
            found = found.set_axis(pd.Index(ids, name="participant_id"))
        return found

    return by_participant


Transformer.transform = _by_participant(Transformer.transform)  # type: ignore[method-assign]
