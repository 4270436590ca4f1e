"""Principal components of FC; `rotated_components` serves tangent space too."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve._utils.linalg import principal_components, rotate_to_zero_sum
from nerve.data.cohort import Cohort
from nerve.methods.base import Reference
from nerve.methods.inputs import check_numbers
from nerve.methods.parameters import Width


class PrincipalComponents(Reference):
    """Scores on the first principal components of FC: as wide as a learned representation.

    Scores are rotated so that those of a participant sum to zero
    (`nerve._utils.linalg.rotate_to_zero_sum`): k components give k + 1 numbers.

    Parameters
    ----------
    n_components : int
        At most as many as participants less one.
    """

    title: ClassVar[str] = "PCA"
    citation: ClassVar[str] = "reference row: principal components of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {"n_components": 32}}
    inputs: ClassVar[str] = "upper"

    def __init__(self, n_components: Width = 256) -> None:
        self.n_components = n_components

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Mean and components of the cohort."""
        if len(cohort) < 2:
            raise NerveError(
                f"There is {len(cohort)} participant, expected at least 2 for principal components."
            )
        entries = cohort.inputs("upper")  # (n, p)
        check_numbers(entries, cohort, np.arange(len(cohort)))
        mean, components = rotated_components(entries, self.n_components, cohort)
        return {"mean": mean, "components": components}

    @property
    def n_features(self) -> int:
        """Components, and one more because scores are rotated."""
        return self.arrays_["components"].shape[1]

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, components + 1) scores."""
        mean = self.arrays_["mean"]
        components = self.arrays_["components"]
        scores = [(cohort.inputs("upper", rows) - mean) @ components for rows in self.parts(cohort)]
        return np.concatenate(scores)

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """One row per entry above the diagonal."""
        n_entries = self.parcellation_.n_regions * (self.parcellation_.n_regions - 1) // 2
        return {"mean": (n_entries,), "components": (n_entries, None)}


def rotated_components(
    entries: np.ndarray, width: int, cohort: Cohort
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and principal components of entries, rotated (`nerve._utils.linalg.rotate_to_zero_sum`).

    Parameters
    ----------
    entries : (n, p) array
    width : int
        Components, at most.
    cohort : Cohort
        The same participants, for the error if all have the same FC.

    Returns
    -------
    mean : (p,) array
    components : (p, width + 1) array
    """
    mean, components, _ = principal_components(entries, width)
    if not components.shape[1]:
        raise no_differences(cohort)
    return mean, rotate_to_zero_sum(components)


def no_differences(cohort: Cohort) -> NerveError:
    """The error of a method that learns how participants differ, if they do not."""
    return problem(
        f"Cohort {cohort.name!r}",
        f"the FC of all {len(cohort)} participants is the same",
        expected="participants who differ, or there are no components",
        remedy="`nerve check` lists copies.",
    )
