"""Probabilistic PCA of FC: the linear reference that also predicts masked patches."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nerve._utils.errors import NerveError, problem
from nerve._utils.linalg import principal_components
from nerve.core.patching import Patching
from nerve.data.cohort import Cohort
from nerve.data.named_patchings import patching_for
from nerve.data.parcellation import Parcellation
from nerve.methods.base import Reference
from nerve.methods.inputs import chunks
from nerve.methods.packing import PatchDataset
from nerve.methods.parameters import Width
from nerve.methods.pca import no_differences

_SMALLEST = 1e-12  # the squares of smaller values are 0 in float32


class PPCA(Reference):
    """Probabilistic PCA of packed FC (Tipping and Bishop, 1999).

    It shows how well a linear model can predict masked patches.

    x = μ + W z + ε with z ~ N(0, I), ε ~ N(0, σ² I). W and σ² are those of largest likelihood, from
    the principal components of the training participants. With W_v, x_v, μ_v the rows of the
    visible patches, scores are the posterior mean

        ẑ = (W_vᵀ W_v + σ² I)⁻¹ W_vᵀ (x_v - μ_v)

    and a masked patch is predicted as μ + W ẑ. Features are the scores with everything visible.

    Parameters
    ----------
    n_components : int
        At most as many as participants less two, so that the noise can be estimated.
    patching : str
        Which patches can be masked: as for NERVE.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> model = PPCA(n_components=3, patching="grid4").fit(fc)
    >>> model.transform(fc).shape, model.reconstruct(fc, np.zeros((12, 1), int)).shape
    ((12, 3), (12, 8, 8))
    """

    title: ClassVar[str] = "Probabilistic PCA"
    citation: ClassVar[str] = "reference row: probabilistic principal components of FC"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {"n_components": 32}}

    def __init__(self, n_components: Width = 200, patching: str = "networks") -> None:
        self.n_components = n_components
        self.patching = patching

    @property
    def patching_(self) -> Patching:
        """The patches that can be masked."""
        return patching_for(self.parcellation_, self.patching)

    def parameter_count(self, parcellation: Parcellation) -> int:
        """Nothing is trained; a patching that these regions cannot have is refused."""
        patching_for(parcellation, self.patching)
        return 0

    def learn(self, cohort: Cohort) -> dict[str, np.ndarray]:
        """Estimate μ, W and σ²."""
        if len(cohort) < 3:
            raise NerveError(
                f"There are {len(cohort)} participants, expected at least 3 for components and "
                "noise."
            )
        dataset = PatchDataset(cohort, self.patching_)
        packed = np.concatenate([dataset.packed(rows) for rows in chunks(len(cohort))])  # (n, S)
        largest = float(np.abs(packed).max())
        if 0 < largest < _SMALLEST:
            raise problem(
                f"Cohort {cohort.name!r}",
                f"no value of FC exceeds {largest:.0e}",
                expected=f"correlations, or at least {_SMALLEST:.0e} somewhere",
                remedy="Multiply the matrices.",
            )
        most = min(self.n_components, len(cohort) - 2)
        mean, components, variances = principal_components(packed, most)
        k = components.shape[1]  # may be fewer: copies of a participant add no component
        if k == 0:
            raise no_differences(cohort)
        noise = max(variances[k:].sum() / max(packed.shape[1] - k, 1), 1e-9 * variances[0])
        loadings = components * np.sqrt(np.maximum(variances[:k] - noise, 0)).astype(np.float32)
        return {"mean": mean, "loadings": loadings, "noise": np.array(noise, np.float32)}

    @property
    def n_features(self) -> int:
        """Components."""
        return self.arrays_["loadings"].shape[1]

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, components) scores."""
        return self._scores(cohort, None)

    def reconstruct(self, X: Any, masked: np.ndarray | None = None) -> np.ndarray:
        """FC as predicted from the visible patches.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        masked : (n, K) array of int, optional
            Patches to hide, for each participant; none by default.

        Returns
        -------
        (n, R, R) array, in the region order of `parcellation_`
        """
        scores = self._scores(self.align_to_fitted(X), masked)
        return self.patching_.unpack(self.arrays_["mean"] + scores @ self.arrays_["loadings"].T)

    def _scores(self, cohort: Cohort, masked: np.ndarray | None) -> np.ndarray:
        """(n, components): ẑ of each participant, from the patches that are not masked."""
        patching = self.patching_
        if masked is not None and len(masked) != len(cohort):
            expected = f"one for each of {len(cohort)} participants"
            raise problem("masked", f"{len(masked)} rows", expected=expected)
        mean = self.arrays_["mean"]
        loadings = self.arrays_["loadings"]
        parts = np.split(loadings, patching.offsets[1:-1])  # one per patch
        grams = np.stack([part.T @ part for part in parts]).astype(float)  # (patches, k, k)
        # W_vᵀ W_v is the sum over visible patches
        gram_of_all = grams.sum(axis=0)
        ridge = float(self.arrays_["noise"]) * np.eye(loadings.shape[1])
        scores = np.empty((len(cohort), loadings.shape[1]), np.float32)
        dataset = PatchDataset(cohort, patching)
        for rows in self.parts(cohort):
            for row, deviation in zip(rows, dataset.packed(rows) - mean, strict=True):
                hidden = np.zeros(0, int) if masked is None else np.asarray(masked[row])
                visible = ~np.isin(patching.patch_of, hidden)
                gram = gram_of_all - grams[hidden].sum(axis=0)  # (k, k)
                scores[row] = np.linalg.solve(gram + ridge, (deviation * visible) @ loadings)
        return scores

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        """One row per packed entry."""
        n_entries = self.patching_.n_entries
        return {"mean": (n_entries,), "loadings": (n_entries, None), "noise": ()}
