"""Raw FC: the reference row that a representation has to be better than."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nerve.data.cohort import Cohort
from nerve.methods.base import Reference


class RawFC(Reference):
    """The entries of FC above the diagonal, row by row.

    Nothing is learned: r_ij of the pairs i < j, R (R - 1) / 2 numbers, in the region order of the
    cohort that it was fitted on.

    Examples
    --------
    >>> RawFC().fit_transform(np.ones((2, 4, 4))).shape
    (2, 6)
    """

    title: ClassVar[str] = "Raw FC"
    citation: ClassVar[str] = "reference row: FC itself"
    inputs: ClassVar[str] = "upper"

    @property
    def n_features(self) -> int:
        """Pairs of regions."""
        return self.n_features_in_ * (self.n_features_in_ - 1) // 2

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, R (R - 1) / 2) correlations."""
        return cohort.inputs("upper")
