"""Several NERVE models that differ only in how regions are grouped, trained together in one process.

The null of the paper's Table 3 is a hundred of them. The people are read once for all: a permutation is an index into
the matrices of a batch, never a copy of the cohort.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerve.checks import NerveError
from nerve.cohort import Cohort
from nerve.methods.base import described_data
from nerve.methods.nerve import NERVE
from nerve.methods.packing import PackingSource
from nerve.models.ensemble import Ensemble
from nerve.patching import Patching
from nerve.training import CohortSource, train


class SeveralPatchings:
    """The same people under several patchings: batches of (people, K, S)."""

    def __init__(self, cohort: Cohort, patchings: Sequence[Patching]) -> None:
        self.cohort, self.patchings = cohort, list(patchings)

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> torch.Tensor:
        """Read each person once, pack them K times."""
        fc = self.cohort.inputs("fc", rows)
        return torch.from_numpy(np.stack([patching.pack(fc) for patching in self.patchings], axis=1))


def fit_together(
    methods: Sequence[NERVE],
    data: Any,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
) -> list[NERVE]:
    """Fit models of the same settings and seed; each ends with the weights that it would have had alone.

    All keep their last weights (`keep` is "last"): the best epoch of one is not that of another.
    """
    first = methods[0]
    cohort = first.checked_cohort(data, first.target_parcellation(data))
    settings = first.training_settings().model_copy(update={"keep": "last"})
    if any(method.training_settings() != first.training_settings() for method in methods):
        raise NerveError("Models that are trained together must have the same settings and seed.")
    split = first.split(cohort, CohortSource(cohort), settings)
    for method in methods:
        method.parcellation_, method.n_features_in_ = cohort.parcellation, cohort.n_regions
        method.module_ = method.seeded_build(cohort.parcellation)
        method.start(method.module_, PackingSource(cohort, method.patching_), split[0])
    ensemble = Ensemble([method.module_ for method in methods])
    source = SeveralPatchings(cohort, [method.patching_ for method in methods])
    identity = {"data": cohort.fingerprint, "patchings": [method.patching_.fingerprint for method in methods]}
    folder = None if run_dir is None else Path(run_dir)
    result = train(
        ensemble, source, settings, run_dir=folder, split=split, resume=resume, identity=identity, progress=progress,
        label=f"{len(methods)} models",
    )  # fmt: skip
    for number, method in enumerate(methods):
        own = method.module_.state_dict()
        method.module_.load_state_dict({name: ensemble.state_of(number)[name] for name in own})
        method.module_.eval()
        method.summarise(method.module_, PackingSource(cohort, method.patching_))
        method.history_, method.best_step_ = result.history, result.best_step
        method.data_ = described_data(cohort, result)
    return list(methods)
