"""Probabilistic PCA of FC: the linear reference that embeds people and fills in masked patches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from nerve.checks import NerveError, problem
from nerve.cohort import Cohort
from nerve.methods.outputs import checked_embeddings
from nerve.methods.packing import PackingSource, patching_for
from nerve.methods.references import Reference, chunks, everyone_alike, holding
from nerve.models.principal import principal_components
from nerve.parcellation import Parcellation
from nerve.patching import Patching

SMALLEST = 1e-12  # of the largest value: the squares of less are nothing in float32


class PPCA(Reference):
    """Probabilistic PCA (Tipping and Bishop, 1999) of packed FC: what a linear model knows of masked patches.

    x = μ + W z + ε with z ~ N(0, I), ε ~ N(0, σ² I). W and σ² are those of largest likelihood, from the principal
    components of the training people. With W_v, x_v, μ_v the rows of the visible patches, a person's scores are the
    posterior mean

        ẑ = (W_vᵀ W_v + σ² I)⁻¹ W_vᵀ (x_v - μ_v)

    and a masked patch is predicted as μ + W ẑ. Features are the scores with everything visible.

    Parameters
    ----------
    n_components : int
        At most; there are no more than people less two, so that something is left for the noise.
    patching : str
        Which patches can be masked: as for NERVE.
    seed, device
        Not used; every method has them.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 8, 50))])
    >>> model = PPCA(n_components=3, patching="grid4").fit(fc)
    >>> model.transform(fc).shape, model.reconstruct(fc, np.zeros((12, 1), int)).shape
    ((12, 3), (12, 8, 8))
    """

    paper: ClassVar[str] = "reference row: probabilistic principal components of FC"
    patching_: Patching
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "small": {"n_components": 32}}

    def __init__(
        self, n_components: int = 200, patching: str = "networks", seed: int = 0, device: str = "auto"
    ) -> None:
        self.n_components = n_components
        self.patching = patching
        self.seed = seed
        self.device = device

    def learn(self, cohort: Cohort) -> None:
        """μ, W and σ² of the cohort."""
        if len(cohort) < 3:
            raise NerveError(f"There are {len(cohort)} people, expected at least 3 for components and noise.")
        self.patching_ = patching_for(cohort.parcellation, self.patching)
        source = PackingSource(cohort, self.patching_)
        packed = torch.cat([source.batch(rows) for rows in chunks(len(cohort))])  # (n, S)
        largest = float(packed.abs().max())
        if 0 < largest < SMALLEST:
            raise problem(
                f"Cohort {cohort.name!r}",
                f"no value of FC exceeds {largest:.0e}",
                expected=f"correlations, or at least {SMALLEST:.0e} somewhere",
                remedy="Multiply the matrices.",
            )
        k = min(self.n_components, len(cohort) - 2)
        mean, components, variances = principal_components(packed, k)
        k = int(components.any(0).sum())  # people who are copies of others add no component
        if k == 0:
            raise everyone_alike(cohort)
        noise = variances[k:].sum() / max(packed.shape[1] - k, 1)
        noise = noise.clamp_min(1e-9 * variances[0])
        loadings = components[:, :k] * (variances[:k] - noise).clamp_min(0).sqrt().float()
        self.module_ = holding(mean=mean, loadings=loadings, noise=noise.float())
        self.n_components_ = k

    def transform(self, X: Any) -> np.ndarray:
        """(n, components) scores."""
        source, scores = self._scores(X, None)
        return checked_embeddings(scores, source.cohort)

    def reconstruct(self, X: Any, masked: np.ndarray | None = None) -> np.ndarray:
        """FC as predicted from the visible patches.

        Parameters
        ----------
        X : Cohort or (n, R, R) array
        masked : (n, K) array of int, optional
            Patches to hide, for each person; none by default.

        Returns
        -------
        (n, R, R) array, in the region order of `parcellation_`
        """
        source, scores = self._scores(X, masked)
        mean, loadings, _ = self._weights()
        return source.patching.unpack(mean + scores @ loadings.T)

    def _scores(self, X: Any, masked: np.ndarray | None) -> tuple[PackingSource, np.ndarray]:
        source = PackingSource(self.fitted_cohort(X), self.patching_)
        if masked is not None and len(masked) != len(source):
            raise problem("masked", f"{len(masked)} rows", expected=f"one for each of {len(source)} people")
        mean, loadings, noise = self._weights()
        parts = np.split(loadings, self.patching_.offsets[1:-1])  # one a patch
        grams = np.stack([part.T @ part for part in parts]).astype(float)  # (patches, k, k)
        whole, ridge = grams.sum(axis=0), float(noise) * np.eye(loadings.shape[1])
        scores = np.empty((len(source), loadings.shape[1]), np.float32)
        for rows in chunks(len(source)):
            residual = source.batch(rows).numpy() - mean  # (people, S)
            for person, deviation in zip(rows, residual, strict=True):
                hidden = np.zeros(0, int) if masked is None else np.asarray(masked[person])
                seen = ~np.isin(self.patching_.patch_of, hidden)
                precision = whole - grams[hidden].sum(axis=0)
                right = (deviation * seen) @ loadings  # (k,)
                scores[person] = np.linalg.solve(precision + ridge, right)
        return source, scores

    def _weights(self) -> list[np.ndarray]:
        return [self.module_.get_buffer(name).cpu().numpy() for name in ("mean", "loadings", "noise")]

    def build(self, parcellation: Parcellation) -> torch.nn.Module:
        """Empty buffers of the right shapes, for `load` to fill."""
        self.patching_ = patching_for(parcellation, self.patching)
        n_entries, width = self.patching_.n_entries, getattr(self, "n_components_", self.n_components)
        return holding(mean=torch.zeros(n_entries), loadings=torch.zeros(n_entries, width), noise=torch.zeros(()))

    def _configuration(self) -> dict[str, Any]:
        return {**super()._configuration(), "n_components": self.n_components_}

    @classmethod
    def _from_configuration(cls, config: Any, folder: Path) -> Self:
        method = super()._from_configuration(config, folder)
        method.n_components_ = int(config.get("n_components", method.n_components))
        return method
