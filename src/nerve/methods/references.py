"""Methods without training by gradient, and three that every table needs: raw FC, its components, covariates alone.

A reference looks at the cohort once (``learn``, which returns named arrays) and has the manners of the others: fit,
transform, save, load. Beside what `base` asks for it provides ``learn(cohort)``, ``features(cohort)``, and ``shapes()``
of the arrays, with None for a length that is found in the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch

from nerve._utils.errors import MissingInput, NerveError, known_columns, problem
from nerve._utils.linalg import principal_components, turned
from nerve._utils.progress import progress_bar
from nerve.core.views import check_array_shapes
from nerve.data.cohort import Cohort
from nerve.data.connectivity import MEASURES
from nerve.data.parcellation import Parcellation
from nerve.evaluation.covariates import Design, without_rare_levels
from nerve.methods.base import Method, Role, Saved
from nerve.methods.data import Transformer, check_numbers, chunks
from nerve.methods.settings import Names, Width


class Reference(Transformer, Method):
    """An encoder without gradient descent: `learn` looks at the cohort once."""

    role: ClassVar[Role] = "reference"
    measures: ClassVar[tuple[str, ...]] = tuple(MEASURES)
    arrays_: dict[str, np.ndarray]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a cohort, several cohorts, or an (n, R, R) array; `y` is ignored."""
        cohort = self.begin_fit(X)
        learned = self.learn(cohort)
        cohort.check_unchanged()  # the model says by its fingerprint what it was fitted on
        # in the order that they are loaded in, so that products with them have the same bits
        self.arrays_ = {name: np.array(one, order="C") for name, one in learned.items()}
        return self

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Whatever has to be known before `transform`."""
        return {}

    def parts(self, cohort: Cohort) -> Iterator[np.ndarray]:
        """The rows of a cohort, some at a time, with progress."""
        parts = chunks(len(cohort))
        return iter(progress_bar(parts, label=type(self).__name__, unit="batches"))

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shapes of what `learn` returns, for the regions of `parcellation_`."""
        return {}

    def parameter_count(self, parcellation: Parcellation) -> int:
        """Nothing is trained."""
        return 0

    def tensors(self) -> dict[str, torch.Tensor]:
        """The arrays."""
        return {name: torch.from_numpy(array) for name, array in self.arrays_.items()}

    def restore(self, saved: Saved) -> None:
        """The arrays, if they are those of this method."""
        fitting = saved.tensors
        check_array_shapes(fitting, self.shapes(), saved.folder)
        self.arrays_ = {name: np.array(tensor.numpy()) for name, tensor in fitting.items()}


class RawFC(Reference):
    """The entries of FC above the diagonal, row by row: what a representation has to be better than.

    Nothing is learned: r_ij of the pairs i < j, R (R - 1) / 2 numbers, in the region order of the cohort that it was
    fitted on.

    Examples
    --------
    >>> RawFC().fit_transform(np.ones((2, 4, 4))).shape
    (2, 6)
    """

    kind: ClassVar[str] = "upper"

    @property
    def n_features(self) -> int:
        """Pairs of regions."""
        return self.n_features_in_ * (self.n_features_in_ - 1) // 2

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, R (R - 1) / 2) correlations."""
        return cohort.inputs("upper")


class PrincipalComponents(Reference):
    """Scores on the first principal components of vectorised FC: as wide as a learned representation, and linear.

    Scores are turned so that those of a participant sum to zero (`nerve._utils.linalg.turned`): k components give k + 1
    numbers.

    Parameters
    ----------
    n_components : int
        At most; there are no more than participants less one.
    """

    kind: ClassVar[str] = "upper"

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
        mean, components = turned_components(entries, self.n_components, cohort)
        return {"mean": mean, "components": components}

    @property
    def n_features(self) -> int:
        """Components, and one for the turn."""
        return self.arrays_["components"].shape[1]

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, components + 1) scores."""
        mean, components = self.arrays_["mean"], self.arrays_["components"]
        return np.concatenate(
            [(cohort.inputs("upper", rows) - mean) @ components for rows in self.parts(cohort)]
        )

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """One row per entry above the diagonal."""
        n_entries = self.parcellation_.n_regions * (self.parcellation_.n_regions - 1) // 2
        return {"mean": (n_entries,), "components": (n_entries, None)}


class Covariates(Reference):
    """What is known of a participant besides the brain: columns of the participants table as numbers.

    Numbers are centred, words become one column each, a missing value counts as the average.

    Parameters
    ----------
    columns : tuple of str
        Of the participants table.
    """

    kind: ClassVar[str] = "participants"
    design_: Design

    def __init__(self, columns: Names = ("age", "sex")) -> None:
        self.columns = columns

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Categories and averages."""
        self.design_ = Design().fit(without_rare_levels(self._table(cohort)))
        return {"means": self.design_.means_}

    @property
    def n_features(self) -> int:
        """Numbers, and one per category of a column of words."""
        return len(self.arrays_["means"])

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, columns) numbers."""
        return self.design_.transform(self._table(cohort)).astype(np.float32)

    def _table(self, cohort: Cohort) -> pd.DataFrame:
        missing = [column for column in self.columns if column not in cohort.participants]
        if len(missing) == len(self.columns):
            raise MissingInput(
                f"Cohort {cohort.name!r} has none of the covariates {', '.join(missing)}."
            )
        known_columns(self.columns, cohort.participants.columns, f"participants of {cohort.name!r}")
        return cohort.participants[list(self.columns)]

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """One average per number or category."""
        return {
            "means": (
                sum(
                    1 if known is None else len(known)
                    for known in self.design_.categories_.values()
                ),
            )
        }

    def state(self) -> dict[str, Any]:
        """The categories of each column, None for numbers."""
        return {"categories": self.design_.categories_}

    def restore(self, saved: Saved) -> None:
        """Categories and averages."""
        self.design_ = Design()
        self.design_.categories_ = dict(saved.config["categories"])
        super().restore(saved)
        self.design_.means_ = self.arrays_["means"]


def turned_components(
    entries: np.ndarray, width: int, cohort: Cohort
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of (n, p) entries, and their principal components, turned (`nerve._utils.linalg.turned`)."""
    mean, components, _ = principal_components(entries, width)
    if not components.shape[1]:
        raise everyone_alike(cohort)
    return mean, turned(components)


def everyone_alike(cohort: Cohort) -> NerveError:
    """The error of a method that learns how participants differ."""
    found = f"the FC of all {len(cohort)} participants is the same"
    expected = "participants who differ, or there are no components"
    return problem(
        f"Cohort {cohort.name!r}", found, expected=expected, remedy="`nerve check` lists copies."
    )
