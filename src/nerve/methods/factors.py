"""Person factors: a participant's FC completed by low-rank factors found from its visible patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nerve.core.training import Dataset
from nerve.data.cohort import Cohort
from nerve.data.named_patchings import patching_for
from nerve.data.parcellation import Parcellation
from nerve.methods.base import Role
from nerve.methods.packing import PackingSource
from nerve.methods.settings import Count, Epochs, NotNegative, Part, Positive, Width
from nerve.methods.trained import Encoder, mean_sample
from nerve.models.person_factors import PersonFactors


@dataclass(kw_only=True, eq=False, repr=False)
class Factors(Encoder):
    """Factors of each participant, found from the visible patches by a few learned steps from the group's.

    A correlation matrix is positive and nearly of low rank, so that a masked patch follows from the visible ones once
    the factors F of this participant are known: x̂ = F Fᵀ + C. They are found by descent from the group's factors D (see
    `nerve.models.person_factors`). D, C, step sizes and momenta are trained by the loss of masked patches. The
    representation is F - D with nothing masked, on principal components of everyone given to `fit`; the group is the
    origin.

    Ours: it is in no paper. Masked error says that a correlation matrix is redundant, not that networks are right.

    Parameters
    ----------
    rank : int
        Columns of the factors; at most one per region.
    n_components : int
        Numbers of the representation.
    mask_ratio : float
        Share of the patches that is masked in training.
    patching : str
        The patches, as for NERVE.
    epochs, batch_size, lr, warmup_epochs, seed, device
        Of the training loop.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(x) for x in np.random.default_rng(0).normal(size=(12, 16, 50))])
    >>> model = Factors(rank=2, n_components=8, patching="grid4", epochs=1, device="cpu").fit(fc)
    >>> model.transform(fc).shape, model.reconstruct(fc, np.zeros((12, 1), int)).shape
    ((12, 8), (12, 16, 16))
    """

    role: ClassVar[Role] = "reference"
    batch_size_apply: ClassVar[int] = 64  # participants whose factors are found together

    rank: Width = 64
    n_components: Width = 256
    mask_ratio: Part = 0.5
    patching: str = "networks"
    epochs: Epochs = 10
    batch_size: Count = 16
    lr: Positive = 1e-3
    warmup_epochs: NotNegative = 0.5

    def build(self, parcellation: Parcellation) -> PersonFactors:
        """The untrained module."""
        self.patching_ = patching_for(parcellation, self.patching)
        return PersonFactors(self.patching_, self.rank, self.mask_ratio, self.n_components)

    @property
    def n_features(self) -> int:
        """Components."""
        return self.n_components

    def source(self, cohort: Cohort) -> Dataset:
        """Packed FC."""
        return PackingSource(cohort, self.patching_)

    def prepare(self, module: Any, source: Dataset, rows: np.ndarray) -> None:
        """The group's factors, from the mean of the training participants."""
        module.fit_mean(mean_sample(source, rows))

    def finish(self, module: Any, source: Dataset) -> None:
        """Components of F - D."""
        self.set_components(module, module.features, source)

    def reconstruct(self, X: Any, masked: np.ndarray | None = None) -> np.ndarray:
        """FC as predicted from the visible patches; `masked` as in `NERVE.reconstruct`."""
        source = PackingSource(self.fitted_cohort(X), self.patching_)
        return self.patching_.unpack(self.apply(self.module_.reconstruct, source, masked))
