"""Who is trained on, and who is kept to see how well it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nerve.training.settings import TrainingSettings


def split_rows(
    n_samples: int, groups: Sequence[Any] | np.ndarray | None, settings: TrainingSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Training and validation rows; every group gives its share to validation, at least one of two or more.

    Examples
    --------
    >>> training, validation = split_rows(30, ["a"] * 10 + ["b"] * 20, TrainingSettings())
    >>> len(training), (validation < 10).sum(), (validation >= 10).sum()
    (27, np.int64(1), np.int64(2))
    """
    labels = np.zeros(n_samples, int) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    held_out: list[np.ndarray] = []
    for group in np.unique(labels):
        rows = np.flatnonzero(labels == group)
        count = round(settings.validation_fraction * len(rows))
        if settings.validation_fraction > 0 and len(rows) > 1:
            count = max(count, 1)
        generator = np.random.default_rng([settings.seed, 1, int(group)])
        held_out.append(generator.permutation(rows)[:count])
    validation = np.sort(np.concatenate(held_out)) if held_out else np.zeros(0, int)
    return np.setdiff1d(np.arange(n_samples), validation), validation
