"""The rows that every table needs beside the methods: raw FC, its principal components, and covariates alone.

Nothing here is trained by gradient; the estimators have the manners of the others (fit, transform, save, load), so
that they stand in the same tables. In cross-validation `nerve.evaluate` computes the same rows inside each fold.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from scipy import linalg

from nerve.checks import MissingInput, NerveError, known_columns, problem
from nerve.cohort import Cohort
from nerve.evaluation.covariates import Design
from nerve.measures import MEASURES
from nerve.methods.base import Encoder
from nerve.methods.outputs import checked_embeddings
from nerve.parcellation import Parcellation
from nerve.training import TrainingSettings
from nerve.training.sources import check_numbers

_CHUNK = 64  # people at a time


class Reference(Encoder):
    """An encoder without gradient descent: `learn` looks at the cohort once."""

    measures: ClassVar[tuple[str, ...]] = tuple(MEASURES)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
        progress: bool = False,
    ) -> Self:
        """Learn from a cohort, several cohorts, or an (n, R, R) array; the other arguments are not needed."""
        cohort = self.checked_cohort(X)
        self.parcellation_ = cohort.parcellation
        self.n_features_in_ = cohort.n_regions
        self.module_ = torch.nn.Module()
        self.history_ = pd.DataFrame(columns=["epoch", "step", "training_loss"])
        self.best_step_ = 0
        self.data_ = {"cohorts": {cohort.name: len(cohort)}, "n_training": len(cohort), "n_validation": 0}
        self.learn(cohort)
        return self

    def learn(self, cohort: Cohort) -> None:
        """Whatever has to be known before `transform`; kept in `module_` as buffers."""

    def build(self, parcellation: Parcellation) -> torch.nn.Module:
        """An empty module: there is nothing to train."""
        return torch.nn.Module()

    def training_settings(self) -> TrainingSettings:
        """Those of no training at all."""
        return TrainingSettings(epochs=1, validation_fraction=0.0, seed=self.seed, device=self.device)

    def _configuration(self) -> dict[str, Any]:
        return {**super()._configuration(), "training": {}}


class RawFC(Reference):
    """The entries of FC above the diagonal, row by row: what a representation has to be better than.

    Parameters
    ----------
    seed, device
        Not used; every method has them.

    Examples
    --------
    >>> RawFC().fit_transform(np.ones((2, 4, 4))).shape
    (2, 6)
    """

    kind: ClassVar[str] = "upper"
    paper: ClassVar[str] = "reference row: FC itself"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    def __init__(self, seed: int = 0, device: str = "auto") -> None:
        self.seed = seed
        self.device = device

    def transform(self, X: Any) -> np.ndarray:
        """(n, R (R - 1) / 2) correlations."""
        cohort = self.fitted_cohort(X)
        return checked_embeddings(cohort.inputs("upper"), cohort)


class PrincipalComponents(Reference):
    """Scores on the first principal components of vectorised FC: as wide as a learned representation, and linear.

    Components come from the people's own Gram matrix: with X centred, X Xᵀ = V diag(λ) Vᵀ, and component k is
    Xᵀ v_k / √λ_k. Signs are fixed so that a component's largest loading is positive.

    Parameters
    ----------
    n_components : int
        At most; there are no more than people less one.
    seed, device
        Not used; every method has them.
    """

    kind: ClassVar[str] = "upper"
    paper: ClassVar[str] = "reference row: principal components of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {"n_components": 32}}

    def __init__(self, n_components: int = 256, seed: int = 0, device: str = "auto") -> None:
        self.n_components = n_components
        self.seed = seed
        self.device = device

    def learn(self, cohort: Cohort) -> None:
        """Mean and components of the cohort."""
        if len(cohort) < 2:
            raise NerveError(f"There is {len(cohort)} person, expected at least 2 for principal components.")
        entries = cohort.inputs("upper")  # (n, p), a copy of our own
        check_numbers(entries, cohort, np.arange(len(cohort)))
        mean = entries.mean(axis=0, dtype=float).astype(np.float32)
        entries -= mean
        entries /= np.abs(entries).max(initial=0.0) or 1.0  # components have no units; squares have limits
        gram = (entries @ entries.T).astype(float)  # (n, n)
        k = min(self.n_components, len(cohort) - 1)
        values, vectors = linalg.eigh(gram, subset_by_index=[len(gram) - k, len(gram) - 1])
        if values[-1] <= 0:
            raise everyone_alike(cohort)
        kept = values > values[-1] * 1e-7  # what float32 can tell from nothing
        values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]  # largest first
        components = entries.T @ (vectors / np.sqrt(values)).astype(np.float32)  # (p, k)
        largest = components[np.abs(components).argmax(axis=0), np.arange(components.shape[1])]
        self.module_ = holding(mean=mean, components=components * np.sign(largest))
        self.n_components_ = components.shape[1]

    def transform(self, X: Any) -> np.ndarray:
        """(n, components) scores."""
        cohort = self.fitted_cohort(X)
        mean, components = (self.module_.get_buffer(name).cpu().numpy() for name in ("mean", "components"))
        parts = [(cohort.inputs("upper", rows) - mean) @ components for rows in chunks(len(cohort))]
        return checked_embeddings(np.concatenate(parts), cohort)

    def build(self, parcellation: Parcellation) -> torch.nn.Module:
        """Empty buffers of the right shapes, for `load` to fill."""
        n_entries = parcellation.n_regions * (parcellation.n_regions - 1) // 2
        width = getattr(self, "n_components_", self.n_components)
        return holding(mean=torch.zeros(n_entries), components=torch.zeros(n_entries, width))

    def _configuration(self) -> dict[str, Any]:
        return {**super()._configuration(), "n_components": self.n_components_}

    @classmethod
    def _from_configuration(cls, config: Any, folder: Path) -> Self:
        method = super()._from_configuration(config, folder)
        method.n_components_ = int(config.get("n_components", method.n_components))
        return method


class Covariates(Reference):
    """What is known of a person besides the brain: columns of the participants table as numbers.

    Numbers are centred, words become one column each, a missing value counts as the average.

    Parameters
    ----------
    columns : tuple of str
        Of the participants table.
    seed, device
        Not used; every method has them.
    """

    kind: ClassVar[str] = "participants"
    paper: ClassVar[str] = "reference row: no brain data"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {}}

    def __init__(self, columns: tuple[str, ...] = ("age", "sex"), seed: int = 0, device: str = "auto") -> None:
        self.columns = columns
        self.seed = seed
        self.device = device

    def learn(self, cohort: Cohort) -> None:
        """Categories and averages."""
        self.design_ = Design().fit(self._table(cohort))

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

    def _configuration(self) -> dict[str, Any]:
        design = {"categories": self.design_.categories_, "means": self.design_.means_.tolist()}
        return {**super()._configuration(), "design": json.loads(json.dumps(design))}

    @classmethod
    def _from_configuration(cls, config: Any, folder: Path) -> Self:
        method = super()._from_configuration(config, folder)
        method.design_ = Design()
        method.design_.categories_ = config["design"]["categories"]
        method.design_.means_ = np.array(config["design"]["means"])
        return method


def chunks(n: int) -> list[np.ndarray]:
    """The rows 0 … n - 1, some at a time."""
    return [np.arange(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]


def everyone_alike(cohort: Cohort) -> NerveError:
    """The error of a method that learns how people differ."""
    return problem(
        f"Cohort {cohort.name!r}",
        f"the FC of all {len(cohort)} people is the same",
        expected="people who differ, or there are no components",
        remedy="`nerve check` lists copies.",
    )


def holding(**arrays: Any) -> torch.nn.Module:
    """A module that only holds arrays, so that they are saved as every other weight."""
    module = torch.nn.Module()
    for name, array in arrays.items():
        module.register_buffer(name, torch.as_tensor(array))
    return module
