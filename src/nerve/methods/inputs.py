"""What methods accept: a cohort, several, or an (n, R, R) array, brought into one region order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.cohort import Cohort
from nerve.measures import in_words
from nerve.parcellation import Parcellation, load_parcellation


def as_cohort(data: Any, parcellation: Parcellation | str | None = None) -> Cohort:
    """A cohort from a cohort, several of them, or an (n, R, R) array.

    Parameters
    ----------
    data : Cohort, sequence of Cohorts, or (n, R, R) array
        Several cohorts are pooled in the region order of the first.
    parcellation : Parcellation or str, optional
        The regions to have, in this order. A cohort is brought into it by label; an array must already be in it.
        Without one, an array's regions are called region1 …, all of one network.
    """
    target = None if parcellation is None else load_parcellation(parcellation)
    if isinstance(data, Sequence) and len(data) and all(isinstance(item, Cohort) for item in data):
        data = data[0] if len(data) == 1 else Cohort.concat(data)
    if isinstance(data, Cohort):
        return data if target is None else in_order_of(data, target)
    stack = _checked_stack(data)
    if target is None:
        labels = tuple(f"region{i + 1}" for i in range(stack.shape[1]))
        target = Parcellation(labels, ("all",) * len(labels), name="unnamed")
    if target.n_regions != stack.shape[1]:
        raise NerveError(
            f"The matrices have {stack.shape[1]} regions, expected the {target.n_regions} of {target.name}. "
            "An array is taken to be in the order of the parcellation; a Cohort is matched by label."
        )
    people = pd.DataFrame({"participant_id": [str(i + 1) for i in range(len(stack))]})
    return Cohort(stack, people, target, name="array")


def of_measure(cohort: Cohort, measures: Sequence[str], who: str) -> Cohort:
    """The cohort, if its matrices hold one of the measures that a method (`who`) can work with."""
    if cohort.measure in measures:
        return cohort
    remedy = "Ingest it again with --values z, which makes r of it." if cohort.measure == "fisher_z" else ""
    raise NerveError(
        f"Cohort {cohort.name!r} holds {in_words(cohort.measure)}, and {who} needs "
        f"{' or '.join(map(in_words, measures))}. {remedy or 'The feature sets raw and pca take any measure.'}"
    )


def in_order_of(cohort: Cohort, target: Parcellation) -> Cohort:
    """The cohort with its regions in the target's order; networks that it lacks, wholly or in part, are named."""
    try:
        return cohort.align(target)
    except NerveError as error:
        networks = np.array(target.networks)
        lacking = [
            name for name in target.network_names if not _has(cohort, target.subset(np.flatnonzero(networks == name)))
        ]
        raise NerveError(
            f"Cohort {cohort.name!r} lacks regions of network {listed(lacking, most=4)}: {error}"
        ) from error


def _has(cohort: Cohort, regions: Parcellation) -> bool:
    try:
        cohort.parcellation.reordering_to(regions)
    except NerveError:
        return False
    return True


def _checked_stack(data: Any) -> np.ndarray:
    """An (n, R, R) array of finite real numbers."""
    if hasattr(data, "toarray"):
        raise NerveError("The data are a sparse matrix, expected a Cohort or a dense (n, R, R) array.")
    try:
        stack = np.asarray(data)
    except ValueError as error:
        raise NerveError(f"The data are no array ({error}), expected a Cohort or an (n, R, R) array.") from error
    if stack.dtype.kind not in "fiu" or stack.ndim != 3 or stack.shape[1] != stack.shape[2] or not len(stack):
        raise NerveError(
            f"The data are a {stack.dtype} array of shape {stack.shape}, expected a Cohort or real FC matrices of "
            "shape (participants, regions, regions)."
        )
    if not all(np.isfinite(matrix).all() for matrix in stack):
        person = next(i for i, matrix in enumerate(stack) if not np.isfinite(matrix).all())
        raise problem(
            f"Matrix {person + 1}", "it holds NaN or infinity", remedy="Leave the participant out or fill the regions."
        )
    return stack if stack.dtype.kind == "f" else stack.astype(np.float32)
