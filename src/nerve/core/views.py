"""Views: the matrix of a participant that is cut into patches, FC itself or something computed from it.

A view is fitted on training participants and saved with the model. To add one: a class here, and a line in `VIEWS`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from nerve._utils.errors import AboutPeople, NerveError, one_of, problem
from nerve._utils.linalg import principal_components
from nerve.data.connectivity import symmetric_log

_AT_A_TIME = 64  # participants whose matrices are in memory together
_LOOKED_AT = 2048  # participants, at most, from whom directions come
N_DIRECTIONS = 256
Shapes = dict[str, tuple[int | None, ...]]


class View:
    """FC as it is: what the paper cuts into patches."""

    name: ClassVar[str] = "fc"

    def __init__(self) -> None:
        #: What `fit` has learned, by name: saved with the model, and all that `apply` needs.
        self.arrays: dict[str, np.ndarray] = {}

    def fit(self, fc: Any) -> Self:
        """Learn from the FC of training participants, (n, R, R), in memory or on disk."""
        return self

    def apply(self, fc: np.ndarray) -> np.ndarray:
        """(n, R, R) FC → (n, R, R) matrices, in float32."""
        return np.asarray(fc, np.float32)

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """Map matrices of the view, (n, R, R), back to FC, (n, R, R)."""
        return np.asarray(matrices, float)

    def shapes(self, n_regions: int) -> Shapes:
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
            out[some] = symmetric_log(self._shrunk(fc[some]), whitening)
            if (bad := np.isnan(out[some, 0, 0])).any():
                raise AboutPeople(start + np.flatnonzero(bad), f"The FC of {{people}} {self._no_logarithm()}")
        return out

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """Undo `apply`: S = G^½ exp(T) G^½ with a diagonal of ones, then FC = (S - a I) / (1 - a) beside it.

        What was made by `apply` comes back exactly. For any other symmetric T, what comes back is the nearest that
        correlations can be: S is scaled to a diagonal of ones, and FC lies between -1 and 1.
        """
        colouring = np.linalg.inv(self.arrays["whitening"])  # G^½
        fc = np.empty(matrices.shape)
        for row, matrix in enumerate(np.asarray(matrices, float)):
            values, vectors = np.linalg.eigh(matrix)
            root = colouring @ (vectors * np.exp(values / 2))  # S = root rootᵀ
            root /= np.linalg.norm(root, axis=1, keepdims=True)
            fc[row] = np.clip(root @ root.T / (1 - self.shrinkage), -1, 1)
            np.fill_diagonal(fc[row], 1.0)
        return fc

    def shapes(self, n_regions: int) -> Shapes:
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


class ShrunkView(TangentView):
    """The tangent view of a participant, shrunk towards the group where participants hardly differ but by noise.

    With t the entries on and above the diagonal of the tangent view, less their mean over the training participants,
    and u_k, v_k the principal directions of t and their variances, it is

        Σ_k w_k u_k (u_kᵀ t),      w_k = max(0, 1 - floor / v_k),   floor the median of the v_k

    over the first `n_directions` directions. In tangent space noise has nearly the same variance everywhere, so that w
    is what a posterior mean would have (after Rahim et al. 2019). The group is at zero. No labels are used.
    """

    name: ClassVar[str] = "shrunk"

    def __init__(self, shrinkage: float = 0.5, n_directions: int = N_DIRECTIONS) -> None:
        super().__init__(shrinkage)
        self.n_directions = n_directions

    def fit(self, fc: Any) -> Self:
        """Find the group and the directions in which its participants differ."""
        super().fit(fc)
        rows = np.unique(np.linspace(0, len(fc) - 1, min(len(fc), _LOOKED_AT)).round().astype(int))
        parts = np.array_split(rows, -(-len(rows) // _AT_A_TIME))
        vectors = np.concatenate([self._vectors(fc[some]) for some in parts])
        mean, directions, variances = principal_components(vectors, self.n_directions)
        floor = np.median(variances[: max(1, min(len(rows) - 1, vectors.shape[1]))])
        weights = np.maximum(0.0, 1 - floor / variances[: directions.shape[1]])
        kept = weights > 0
        self.arrays |= {"mean": mean, "directions": directions[:, kept], "weights": weights[kept]}
        return self

    def apply(self, fc: np.ndarray) -> np.ndarray:
        """The shrunk matrix."""
        directions = self.arrays["directions"]
        scores = (self._vectors(fc) - self.arrays["mean"]) @ directions  # (n, k)
        rows, columns = np.triu_indices(fc.shape[-1])
        matrices = np.empty(fc.shape, np.float32)
        matrices[:, rows, columns] = matrices[:, columns, rows] = (scores * self.arrays["weights"]) @ directions.T
        return matrices

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """Map back what the view keeps: the group's mean is added again, what was shrunk away stays away."""
        rows, columns = np.triu_indices(matrices.shape[-1])
        mean = np.empty(matrices.shape[1:])
        mean[rows, columns] = mean[columns, rows] = self.arrays["mean"]
        return super().to_fc(np.asarray(matrices, float) + mean)

    def shapes(self, n_regions: int) -> Shapes:
        """One column of directions per weight."""
        n_entries = n_regions * (n_regions + 1) // 2
        return super().shapes(n_regions) | {"mean": (n_entries,), "directions": (n_entries, None), "weights": (None,)}

    def _vectors(self, fc: Any) -> np.ndarray:
        """(n, R (R + 1) / 2) entries of the tangent view."""
        rows, columns = np.triu_indices(fc.shape[-1])
        return super().apply(fc)[:, rows, columns]


VIEWS: dict[str, type[View]] = {view.name: view for view in (View, TangentView, ShrunkView)}


def make_view(name: str, n_directions: int = N_DIRECTIONS) -> View:
    """A view by its name, not fitted yet; only ``shrunk`` has directions."""
    view = VIEWS[one_of("view", name, list(VIEWS))]
    return ShrunkView(n_directions=n_directions) if view is ShrunkView else view()


def checked_arrays(arrays: dict[str, Any], expected: Shapes, where: object) -> dict[str, Any]:
    """Arrays of a file, if they have the names and shapes that are expected; None is any length."""
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    fits = found.keys() == expected.keys() and all(
        len(found[name]) == len(shape) and all(b in (None, a) for a, b in zip(found[name], shape, strict=True))
        for name, shape in expected.items()
    )
    if not fits:
        raise problem(where, f"its arrays are {found}", expected=str(expected), remedy="Fit the model again.")
    return arrays
