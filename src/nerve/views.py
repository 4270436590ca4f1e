"""Views: the matrix of a participant that is cut into patches, FC itself or something computed from it.

A view is fitted on training participants and saved with the model. To add one: a class here, and a line in `VIEWS`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from nerve.checks import AboutPeople, NerveError, one_of, problem

_AT_A_TIME = 64  # participants whose matrices are in memory together


class View:
    """FC as it is: what the paper cuts into patches."""

    name: ClassVar[str] = "fc"
    arrays: dict[str, np.ndarray]
    """What `fit` has learned, by name: saved with the model, and all that `apply` needs."""

    def __init__(self) -> None:
        self.arrays = {}

    def fit(self, fc: Any) -> Self:
        """Learn from the FC of training participants, (n, R, R), in memory or on disk."""
        return self

    def apply(self, fc: np.ndarray) -> np.ndarray:
        """(n, R, R) FC → (n, R, R) matrices, in float32."""
        return np.asarray(fc, np.float32)

    def shapes(self, n_regions: int) -> dict[str, tuple[int, ...]]:
        """The shapes that `arrays` have for so many regions."""
        return {}


class TangentView(View):
    """How a participant's FC departs from the group's, measured along the manifold of positive matrices.

    With S = (1 - a) FC + a I of a participant and G the mean of S over the training participants, it is

        log(G^-½ S G^-½)

    (Varoquaux et al. 2010). Whitening by the group gives every direction in which participants may differ the same
    weight, and makes the sampling noise of a correlation matrix nearly the same everywhere.

    Parameters
    ----------
    shrinkage : float
        a, at least 0 and less than 1. FC has no full rank where there are fewer volumes than regions; 0.5 is safe.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> bool(np.abs(TangentView().fit(fc).apply(fc).mean(axis=0)).max() < 0.05)
    True
    """

    name: ClassVar[str] = "tangent"

    def __init__(self, shrinkage: float = 0.5) -> None:
        super().__init__()
        if not 0 <= shrinkage < 1:
            raise problem("shrinkage", str(shrinkage), expected="at least 0 and less than 1")
        self.shrinkage = shrinkage

    def fit(self, fc: Any) -> Self:
        """Find G^-½ of the training participants."""
        total = np.zeros(fc.shape[1:])
        for start in range(0, len(fc), _AT_A_TIME):
            total += self._shrunk(fc[start : start + _AT_A_TIME]).sum(axis=0)
        values, vectors = np.linalg.eigh(total / len(fc))
        if not values[0] > 0:
            raise NerveError(f"The mean FC {self._no_logarithm()}")
        self.arrays = {"whitening": (vectors / np.sqrt(values)) @ vectors.T}
        return self

    def apply(self, fc: np.ndarray) -> np.ndarray:
        """The logarithm of whitened FC."""
        whitening, out = self.arrays["whitening"], np.empty(fc.shape, np.float32)
        for start in range(0, len(fc), _AT_A_TIME):
            some = slice(start, start + _AT_A_TIME)
            values, vectors = np.linalg.eigh(whitening @ self._shrunk(fc[some]) @ whitening)
            if (bad := ~(values[:, 0] > 0)).any():
                raise AboutPeople(start + np.flatnonzero(bad), f"The FC of {{people}} {self._no_logarithm()}")
            out[some] = (vectors * np.log(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
        return out

    def shapes(self, n_regions: int) -> dict[str, tuple[int, ...]]:
        """One matrix."""
        return {"whitening": (n_regions, n_regions)}

    def _shrunk(self, fc: Any) -> np.ndarray:
        """(n, R, R): S, with a diagonal of ones whatever that of FC is."""
        shrunk = (1 - self.shrinkage) * np.asarray(fc, float)
        diagonal = np.arange(shrunk.shape[-1])
        shrunk[:, diagonal, diagonal] = 1.0
        return shrunk

    def _no_logarithm(self) -> str:
        return (
            f"is not positive definite with a shrinkage of {self.shrinkage}, expected correlations (not "
            "Fisher-transformed). The view `fc` reads any matrix; a larger `shrinkage` helps `tangent` alone."
        )


VIEWS: dict[str, type[View]] = {"fc": View, "tangent": TangentView}


def restored(view: View, arrays: dict[str, np.ndarray], n_regions: int, where: object) -> View:
    """A view with the arrays that a file holds; others than it has are refused."""
    expected = view.shapes(n_regions)
    found = {name: array.shape for name, array in arrays.items()}
    if found != expected:
        raise problem(where, f"the view {view.name!r} has arrays {found}", expected=str(expected))
    view.arrays = {name: np.asarray(array, float) for name, array in arrays.items()}
    return view


def make_view(name: str) -> View:
    """A view by its name, not fitted yet."""
    return VIEWS[one_of("view", name, list(VIEWS))]()
