"""Covariates as features: a reference row without brain data.

How covariates are removed from a target is in evaluation/covariates.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd

from nerve._utils.errors import MissingInput, known_columns
from nerve.data.cohort import Cohort
from nerve.evaluation.covariates import Design, without_rare_levels
from nerve.methods.base import Reference, SavedModel
from nerve.methods.parameters import Names


class Covariates(Reference):
    """Columns of the participants table as features.

    Numbers are centred, each category becomes a column, a missing value counts as the average.

    Parameters
    ----------
    columns : tuple of str
        Of the participants table.
    """

    title: ClassVar[str] = "Covariates"
    citation: ClassVar[str] = "reference row: no brain data"
    inputs: ClassVar[str] = "participants"
    design_: Design

    def __init__(self, columns: Names = ("age", "sex")) -> None:
        self.columns = columns

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Categories and averages."""
        self.design_ = Design().fit(without_rare_levels(self._table(cohort)))
        return {"means": self.design_.means_}

    @property
    def n_features(self) -> int:
        """One per numeric column, one per category of the others."""
        return len(self.arrays_["means"])

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, columns) numbers."""
        return self.design_.transform(self._table(cohort)).astype(np.float32)

    def _table(self, cohort: Cohort) -> pd.DataFrame:
        """The columns of a cohort; a cohort with none of them lacks an input of this method."""
        missing = [column for column in self.columns if column not in cohort.participants]
        if len(missing) == len(self.columns):
            raise MissingInput(
                f"Cohort {cohort.name!r} has none of the covariates {', '.join(missing)}."
            )
        known_columns(self.columns, cohort.participants.columns, f"participants of {cohort.name!r}")
        return cohort.participants[list(self.columns)]

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """One average per number or category."""
        n_numbers = 0
        for categories in self.design_.categories_.values():
            n_numbers += 1 if categories is None else len(categories)
        return {"means": (n_numbers,)}

    def state(self) -> dict[str, Any]:
        """The categories of each column, None for numbers."""
        return {"categories": self.design_.categories_}

    def restore(self, saved: SavedModel) -> None:
        """Categories and averages."""
        self.design_ = Design()
        self.design_.categories_ = dict(saved.config["categories"])
        super().restore(saved)
        self.design_.means_ = self.arrays_["means"]
