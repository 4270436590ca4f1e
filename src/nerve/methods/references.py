"""Methods without training by gradient, and three that every table needs: raw FC, its components, covariates alone.

A reference looks at the cohort once (``learn``, which returns named arrays) and has the manners of the others: fit,
transform, save, load. Beside what `base` asks for it provides ``learn(cohort)``, ``transform(X)``, and ``shapes()`` of
the arrays, with None for a length that is found in the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch

from nerve.checks import MissingInput, NerveError, known_columns, problem
from nerve.cohort import Cohort
from nerve.components import principal_components, turned
from nerve.evaluation.covariates import Design
from nerve.measures import MEASURES
from nerve.methods.base import Method, Role, cohort_counts
from nerve.methods.frames import Transformer
from nerve.methods.outputs import checked_embeddings
from nerve.methods.settings import Names, Width
from nerve.parcellation import Parcellation
from nerve.training.sources import check_numbers
from nerve.views import checked_arrays

_CHUNK = 64  # participants at a time


class Reference(Transformer, Method):
    """An encoder without gradient descent: `learn` looks at the cohort once."""

    role: ClassVar[Role] = "reference"
    measures: ClassVar[tuple[str, ...]] = tuple(MEASURES)
    arrays_: dict[str, np.ndarray]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a cohort, several cohorts, or an (n, R, R) array; `y` is ignored."""
        cohort = self.begin_fit(X)
        self.arrays_ = self.learn(cohort)
        self.data_ = {"fingerprint": cohort.fingerprint, "cohorts": cohort_counts(cohort)}
        return self

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Whatever has to be known before `transform`."""
        return {}

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The shapes of what `learn` returns, for the regions of `parcellation_`."""
        return {}

    def parameter_count(self, parcellation: Parcellation) -> int:
        """Nothing is trained."""
        return 0

    def tensors(self) -> dict[str, torch.Tensor]:
        """The arrays."""
        return {name: torch.from_numpy(np.array(array)) for name, array in self.arrays_.items()}

    def restore(self, tensors: dict[str, torch.Tensor], folder: Path) -> None:
        """The arrays, if they are those of this method."""
        fitting = checked_arrays(tensors, self.shapes(), folder)
        self.arrays_ = {name: tensor.numpy() for name, tensor in fitting.items()}


class RawFC(Reference):
    """The entries of FC above the diagonal, row by row: what a representation has to be better than.

    Nothing is learned: r_ij of the pairs i < j, R (R - 1) / 2 numbers, in the region order of the cohort that it was
    fitted on.

    Examples
    --------
    >>> RawFC().fit_transform(np.ones((2, 4, 4))).shape
    (2, 6)
    """

    title: ClassVar[str] = "Raw FC"
    kind: ClassVar[str] = "upper"
    paper: ClassVar[str] = "reference row: FC itself"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    @property
    def n_features(self) -> int:
        """Pairs of regions."""
        return self.n_features_in_ * (self.n_features_in_ - 1) // 2

    def transform(self, X: Any) -> np.ndarray:
        """(n, R (R - 1) / 2) correlations."""
        cohort = self.fitted_cohort(X)
        return checked_embeddings(cohort.inputs("upper"), cohort)


class PrincipalComponents(Reference):
    """Scores on the first principal components of vectorised FC: as wide as a learned representation, and linear.

    Scores are turned so that those of a participant sum to zero (`nerve.components.turned`): k components give k + 1
    numbers.

    Parameters
    ----------
    n_components : int
        At most; there are no more than participants less one.
    """

    title: ClassVar[str] = "PCA"
    kind: ClassVar[str] = "upper"
    paper: ClassVar[str] = "reference row: principal components of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {"n_components": 32}}

    def __init__(self, n_components: Width = 256) -> None:
        self.n_components = n_components

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Mean and components of the cohort."""
        if len(cohort) < 2:
            raise NerveError(f"There is {len(cohort)} participant, expected at least 2 for principal components.")
        entries = cohort.inputs("upper")  # (n, p)
        check_numbers(entries, cohort, np.arange(len(cohort)))
        mean, components, _ = principal_components(entries, self.n_components)
        if not components.shape[1]:
            raise everyone_alike(cohort)
        return {"mean": mean, "components": turned(components)}

    @property
    def n_features(self) -> int:
        """Components, and one for the turn."""
        return self.arrays_["components"].shape[1]

    def transform(self, X: Any) -> np.ndarray:
        """(n, components + 1) scores."""
        cohort = self.fitted_cohort(X)
        mean, components = self.arrays_["mean"], self.arrays_["components"]
        parts = [(cohort.inputs("upper", rows) - mean) @ components for rows in chunks(len(cohort))]
        return checked_embeddings(np.concatenate(parts), cohort)

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

    title: ClassVar[str] = "Covariates"
    kind: ClassVar[str] = "participants"
    paper: ClassVar[str] = "reference row: no brain data"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}
    design_: Design

    def __init__(self, columns: Names = ("age", "sex")) -> None:
        self.columns = columns

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Categories and averages."""
        self.design_ = Design().fit(self._table(cohort))
        return {"means": self.design_.means_}

    @property
    def n_features(self) -> int:
        """Numbers, and one per category of a column of words."""
        return len(self.arrays_["means"])

    def transform(self, X: Any) -> np.ndarray:
        """(n, columns) numbers."""
        table = self._table(self.fitted_cohort(X))
        return self.design_.transform(table).astype(np.float32)

    def _table(self, cohort: Cohort) -> pd.DataFrame:
        missing = [column for column in self.columns if column not in cohort.participants]
        if len(missing) == len(self.columns):
            raise MissingInput(f"Cohort {cohort.name!r} has none of the covariates {', '.join(missing)}.")
        known_columns(self.columns, cohort.participants.columns, f"participants of {cohort.name!r}")
        return cohort.participants[list(self.columns)]

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """One average per number."""
        return {"means": (None,)}

    def configuration(self) -> dict[str, Any]:
        """With the categories of each column, None for numbers."""
        return {**super().configuration(), "categories": self.design_.categories_}

    @classmethod
    def from_configuration(cls, config: dict[str, Any]) -> Self:
        """With the categories."""
        method = super().from_configuration(config)
        method.design_ = Design()
        method.design_.categories_ = dict(config["categories"])
        return method

    def restore(self, tensors: dict[str, torch.Tensor], folder: Path) -> None:
        """The averages, one per number or category."""
        super().restore(tensors, folder)
        self.design_.means_ = self.arrays_["means"]
        width = sum(1 if known is None else len(known) for known in self.design_.categories_.values())
        if len(self.design_.means_) != width:
            raise problem(
                folder, f"{len(self.design_.means_)} averages", expected=f"{width}, one per number or category"
            )


def chunks(n: int) -> list[np.ndarray]:
    """The rows 0 … n - 1, some at a time."""
    return [np.arange(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]


def everyone_alike(cohort: Cohort) -> NerveError:
    """The error of a method that learns how participants differ."""
    return problem(
        f"Cohort {cohort.name!r}",
        f"the FC of all {len(cohort)} participants is the same",
        expected="participants who differ, or there are no components",
        remedy="`nerve check` lists copies.",
    )
