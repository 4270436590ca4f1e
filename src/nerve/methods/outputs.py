"""What leaves a method is looked at once more: embeddings are numbers, and differ between participants."""

from __future__ import annotations

import warnings

import numpy as np

from nerve.checks import NerveWarning, listed, problem
from nerve.cohort import Cohort

_CHUNK = 1024  # participants at a time: the tokens of a large cohort are gigabytes


def checked_embeddings(values: np.ndarray, cohort: Cohort) -> np.ndarray:
    """The embeddings (n, …) themselves; those without numbers are refused by id; a warning says if all are alike.

    Parameters
    ----------
    values : (n, …) array
    cohort : Cohort
        The same participants in the same order.
    """
    flat = values.reshape(len(values), -1)
    parts = [flat[start : start + _CHUNK] for start in range(0, len(flat), _CHUNK)]
    wrong = np.concatenate([np.zeros(0, bool), *(~np.isfinite(part).all(axis=1) for part in parts)])
    if wrong.any():
        raise problem(
            f"Cohort {cohort.name!r}",
            f"the embedding of {listed(cohort.participants['participant_id'][wrong], most=5)} is not finite",
            expected="numbers",
            remedy="`nerve check` lists participants whose FC holds missing or infinite values.",
        )
    if len(flat) > 1 and all((part == flat[0]).all() for part in parts):
        warnings.warn(
            f"Cohort {cohort.name!r}: all {len(flat)} participants have one embedding. Check that their FC differs "
            "(`nerve check`) and that its values are of the size that the model was trained on.",
            NerveWarning,
            stacklevel=3,
        )
    return values
