"""Views: the matrix of a participant that is cut into patches (Methods, "Input").

The paper cuts FC itself (``fc``). A view may instead be something computed from FC. It is fitted
on training participants and saved with the model. To add one: a class here, and a line in `VIEWS`.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from nerve._utils.errors import NerveError, ParticipantError, one_of, problem
from nerve._utils.linalg import principal_components, symmetric_log

# Participants whose matrices are in memory together.
_BATCH = 64
# Participants, at most, from whom the principal directions of `ShrunkView` come.
_MAX_FOR_DIRECTIONS = 2048
N_DIRECTIONS = 256
# Of arrays that are saved with a model.
_SAVED_TYPES = ("float32", "float64")
Shapes = dict[str, tuple[int | None, ...]]


class OwnWhitenings(NamedTuple):
    """Whitening of each row by the mean of its own group (cohort or site), not the common one.

    `matrices` is (groups, R, R), `group_of` the group of each row.
    """

    matrices: np.ndarray
    group_of: np.ndarray

    def take(self, rows: Any) -> OwnWhitenings:
        """The same for some of the rows."""
        return OwnWhitenings(self.matrices, self.group_of[rows])


class View:
    """Base class. A view provides `name`, and `fit`, `apply` and `shapes` where they do something.

    Attributes
    ----------
    arrays : dict of str to array
        What `fit` has learned, by name: saved with the model, and all that `apply` needs.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def fit(self, fc: Any, own: OwnWhitenings | None = None) -> Self:
        """Learn from the FC of training participants.

        Parameters
        ----------
        fc : (n, R, R) array
            In memory or on disk.
        own : OwnWhitenings, optional
            For views that whiten: each participant by the mean of their own group.

        Returns
        -------
        View
            Itself.
        """
        return self

    def apply(self, fc: np.ndarray, own: OwnWhitenings | None = None) -> np.ndarray:
        """The matrices that are cut into patches.

        Parameters
        ----------
        fc : (n, R, R) array
            FC of any participants.
        own : OwnWhitenings, optional
            As in `fit`.

        Returns
        -------
        (n, R, R) array of float32
        """
        raise NotImplementedError

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """Map matrices of the view back to FC.

        Parameters
        ----------
        matrices : (n, R, R) array
            As `apply` gives them, or as a model reconstructs them.

        Returns
        -------
        (n, R, R) array
        """
        raise NotImplementedError

    def shapes(self, n_regions: int) -> Shapes:
        """The shapes that `arrays` have for so many regions; None stands for any length."""
        return {}


class FCView(View):
    """FC as it is: what the paper cuts into patches."""

    name: ClassVar[str] = "fc"

    def apply(self, fc: np.ndarray, own: OwnWhitenings | None = None) -> np.ndarray:
        """FC itself, in float32."""
        return np.asarray(fc, np.float32)

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """FC itself."""
        return np.asarray(matrices, float)


class TangentView(View):
    """How a participant's FC departs from the group's, in the tangent space of positive matrices.

    With S = (1 - a) FC + a I of a participant and G the mean of S over the training participants,
    the view is

        log(G^-½ S G^-½)

    (Varoquaux et al. 2010). Whitening by the group gives every direction in which participants may
    differ the same weight, and makes the sampling noise of a correlation matrix nearly the same
    everywhere.

    Parameters
    ----------
    shrinkage : float
        a, at least 0 and less than 1. FC does not have full rank where there are fewer volumes
        than regions; 0.5 is safe.

    Examples
    --------
    >>> series = np.random.default_rng(0).normal(size=(12, 8, 50))
    >>> fc = np.stack([np.corrcoef(x) for x in series])
    >>> bool(np.abs(TangentView().fit(fc).apply(fc).mean(axis=0)).max() < 0.05)
    True
    """

    name: ClassVar[str] = "tangent"

    def __init__(self, shrinkage: float = 0.5) -> None:
        super().__init__()
        if not 0 <= shrinkage < 1:
            raise problem("shrinkage", str(shrinkage), expected="at least 0 and less than 1")
        self.shrinkage = shrinkage

    def fit(self, fc: Any, own: OwnWhitenings | None = None) -> Self:
        """Find G^-½ of the training participants."""
        self.arrays = {"whitening": self.whitening_of(fc)}
        return self

    def whitening_of(self, fc: Any) -> np.ndarray:
        """G^-½ of these participants.

        Parameters
        ----------
        fc : (n, R, R) array
            In memory or on disk.

        Returns
        -------
        (R, R) array
        """
        total = np.zeros(fc.shape[1:])
        for start in range(0, len(fc), _BATCH):
            total += self._shrunk_to_identity(fc[start : start + _BATCH]).sum(axis=0)
        values, vectors = np.linalg.eigh(total / len(fc))
        if not values[0] > 0:
            raise NerveError(f"The mean FC {self._why_no_logarithm()}")
        return (vectors / np.sqrt(values)) @ vectors.T

    def apply(self, fc: np.ndarray, own: OwnWhitenings | None = None) -> np.ndarray:
        """The logarithm of whitened FC."""
        if own is None:
            common = np.zeros(len(fc), int)
            own = OwnWhitenings(self.arrays["whitening"][None], common)
        logarithms = np.empty(fc.shape, np.float32)
        for group in np.unique(own.group_of):
            whitening = own.matrices[group]
            members = np.flatnonzero(own.group_of == group)
            for start in range(0, len(members), _BATCH):
                rows = members[start : start + _BATCH]
                logarithms[rows] = symmetric_log(self._shrunk_to_identity(fc[rows]), whitening)
        for start in range(0, len(fc), _BATCH):
            undefined = np.isnan(logarithms[start : start + _BATCH, 0, 0])
            if undefined.any():
                rows = start + np.flatnonzero(undefined)
                raise ParticipantError(rows, f"The FC of {{people}} {self._why_no_logarithm()}")
        return logarithms

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """Undo `apply`: S = G^½ exp(T) G^½ with a diagonal of ones, FC = (S - a I) / (1 - a).

        What was made by `apply` comes back exactly. For any other symmetric T, what comes back is
        the nearest that correlations can be: S is scaled to a diagonal of ones, and FC lies
        between -1 and 1.

        Parameters
        ----------
        matrices : (n, R, R) array
            T, symmetric.

        Returns
        -------
        (n, R, R) array
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

    def _shrunk_to_identity(self, fc: Any) -> np.ndarray:
        """(n, R, R): S, with a diagonal of ones whatever that of FC is."""
        shrunk = (1 - self.shrinkage) * np.asarray(fc, float)
        diagonal = np.arange(shrunk.shape[-1])
        shrunk[:, diagonal, diagonal] = 1.0
        return shrunk

    def _why_no_logarithm(self) -> str:
        return (
            f"is not positive definite with a shrinkage of {self.shrinkage}, expected correlations "
            "(not Fisher-transformed). The view `fc` reads any matrix; a larger `shrinkage` helps "
            "`tangent` alone."
        )


class ShrunkView(TangentView):
    """The tangent view, shrunk towards the group where participants differ by little but noise.

    With t the entries on and above the diagonal of the tangent view, less their mean over the
    training participants, and u_k, v_k the principal directions of t and their variances, it is

        Σ_k w_k u_k (u_kᵀ t),      w_k = max(0, 1 - floor / v_k),   floor the median of the v_k

    over the first `n_directions` directions. In tangent space noise has nearly the same variance
    everywhere, so that w is what a posterior mean would have (after Rahim et al. 2019). The group
    is at zero. No labels are used.

    Parameters
    ----------
    shrinkage : float
        As of `TangentView`.
    n_directions : int
        Principal directions that are kept, at most.
    """

    name: ClassVar[str] = "shrunk"

    def __init__(self, shrinkage: float = 0.5, n_directions: int = N_DIRECTIONS) -> None:
        super().__init__(shrinkage)
        self.n_directions = n_directions

    def fit(self, fc: Any, own: OwnWhitenings | None = None) -> Self:
        """Find the group and the directions in which its participants differ."""
        super().fit(fc, own)
        n_rows = min(len(fc), _MAX_FOR_DIRECTIONS)
        rows = np.unique(np.linspace(0, len(fc) - 1, n_rows).round().astype(int))
        batches = np.array_split(rows, -(-len(rows) // _BATCH))
        parts = []
        for batch in batches:
            own_of_batch = None if own is None else own.take(batch)
            parts.append(self._tangent_vectors(fc[batch], own_of_batch))
        vectors = np.concatenate(parts)
        mean, directions, variances = principal_components(vectors, self.n_directions)
        n_variances = max(1, min(len(rows) - 1, vectors.shape[1]))
        floor = np.median(variances[:n_variances])
        weights = np.maximum(0.0, 1 - floor / variances[: directions.shape[1]])
        kept = weights > 0
        self.arrays["mean"] = mean
        self.arrays["directions"] = directions[:, kept]
        self.arrays["weights"] = weights[kept]
        return self

    def apply(self, fc: np.ndarray, own: OwnWhitenings | None = None) -> np.ndarray:
        """The shrunk matrix."""
        directions = self.arrays["directions"]
        departures = self._tangent_vectors(fc, own) - self.arrays["mean"]
        scores = departures @ directions  # (n, directions)
        vectors = (scores * self.arrays["weights"]) @ directions.T  # (n, R (R + 1) / 2)
        rows, columns = np.triu_indices(fc.shape[-1])
        matrices = np.empty(fc.shape, np.float32)
        matrices[:, rows, columns] = vectors
        matrices[:, columns, rows] = vectors
        return matrices

    def to_fc(self, matrices: np.ndarray) -> np.ndarray:
        """Map back what the view keeps; what was shrunk away stays away."""
        rows, columns = np.triu_indices(matrices.shape[-1])
        mean = np.empty(matrices.shape[1:])
        mean[rows, columns] = self.arrays["mean"]
        mean[columns, rows] = self.arrays["mean"]
        return super().to_fc(np.asarray(matrices, float) + mean)

    def shapes(self, n_regions: int) -> Shapes:
        """One column of directions per weight."""
        n_entries = n_regions * (n_regions + 1) // 2
        own = {"mean": (n_entries,), "directions": (n_entries, None), "weights": (None,)}
        return {**super().shapes(n_regions), **own}

    def _tangent_vectors(self, fc: Any, own: OwnWhitenings | None = None) -> np.ndarray:
        """(n, R (R + 1) / 2): entries of the tangent view on and above the diagonal."""
        rows, columns = np.triu_indices(fc.shape[-1])
        return super().apply(fc, own)[:, rows, columns]


VIEWS: dict[str, type[View]] = {"fc": FCView, "tangent": TangentView, "shrunk": ShrunkView}


def make_view(name: str, n_directions: int = N_DIRECTIONS) -> View:
    """A view by its name, not fitted yet.

    Parameters
    ----------
    name : str
        A name of `VIEWS`.
    n_directions : int
        Only ``shrunk`` has directions.

    Returns
    -------
    View
    """
    one_of("view", name, list(VIEWS))
    if name == "shrunk":
        return ShrunkView(n_directions=n_directions)
    return VIEWS[name]()


def check_arrays(arrays: dict[str, Any], expected: Shapes, where: object) -> None:
    """Refuse arrays of a file that are not what is expected, by name, shape or type.

    Parameters
    ----------
    arrays : dict of str to array or tensor
        What the file holds.
    expected : dict of str to shape
        As `View.shapes` gives it; None stands for any length. Every array holds numbers of 32 or
        64 bits, none of them infinite or missing.
    where : object
        Named in the error.
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    fits = shapes.keys() == expected.keys()
    for name, shape in expected.items():
        fits = fits and _shape_fits(shapes[name], shape)
    if not fits:
        cause = f"its arrays are {shapes}"
        raise problem(where, cause, expected=str(expected), remedy="Fit the model again.")
    for name, array in arrays.items():
        dtype = str(array.dtype).removeprefix("torch.")
        if dtype not in _SAVED_TYPES:
            raise problem(
                where,
                f"its array {name} is of type {dtype}",
                expected=" or ".join(_SAVED_TYPES),
                remedy="Fit the model again.",
            )
        if not np.isfinite(np.asarray(array)).all():
            cause = f"its array {name} holds values that are not numbers"
            raise problem(where, cause, remedy="Fit the model again.")


def _shape_fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    if len(shape) != len(expected):
        return False
    return all(wanted in (None, n) for n, wanted in zip(shape, expected, strict=True))
