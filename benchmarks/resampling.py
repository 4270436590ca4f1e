"""Resampling, as a share of computing tangent space in the new regions.

Both cost the same for every matrix, so that a few participants stand for any number of them: the
share among 10,000 participants is theirs.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks import row, timed
from nerve.core.views import TangentView
from nerve.data.parcellation import load_parcellation
from nerve.data.resampling import Resampling

N_PARTICIPANTS = 64
N_VOLUMES = 300
PAIRS = (("schaefer500-17", "schaefer400-17"), ("schaefer400-17", "schaefer200-17"))


def run() -> list[dict[str, Any]]:
    rows = []
    for old_atlas, new_atlas in PAIRS:
        fc = _random_fc(load_parcellation(old_atlas).n_regions)
        resampling = Resampling.between(old_atlas, new_atlas)
        # Processor time, which other programs on this machine change little.
        resampled, seconds = timed(lambda: resampling.carry(fc), time.process_time)  # noqa: B023
        view = TangentView().fit(resampled)
        _, tangent_seconds = timed(lambda: view.apply(resampled), time.process_time)  # noqa: B023
        per_matrix = 1000 / N_PARTICIPANTS
        rows.append(
            row(
                f"{old_atlas} → {new_atlas}, {N_PARTICIPANTS} participants: resampling against "
                "tangent space there (CPU ms per participant)",
                seconds * per_matrix,
                tangent_seconds * per_matrix,
                seconds / tangent_seconds,
                "stated",
            )
        )
    return rows


def _random_fc(n_regions: int) -> np.ndarray:
    """(participants, R, R) float32 correlations of random series."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, n_regions))
    fc = np.empty((N_PARTICIPANTS, n_regions, n_regions), np.float32)
    for participant in range(N_PARTICIPANTS):
        series = rng.normal(size=(N_VOLUMES, 12)) @ mixing
        series += 2 * rng.normal(size=series.shape)
        fc[participant] = np.corrcoef(series.T)
    return fc
