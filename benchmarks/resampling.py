"""Resampling, as a share of computing tangent space in the regions that matrices are carried to.

Both cost the same for every matrix, so that some participants stand for any number of them:
the share among 10,000 participants is theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from nerve.core.views import TangentView
from nerve.data.parcellation import load_parcellation
from nerve.data.resampling import Resampling

N_PARTICIPANTS = 64
N_VOLUMES = 300
PAIRS = (("schaefer500-17", "schaefer400-17"), ("schaefer400-17", "schaefer200-17"))


def run() -> list[dict[str, object]]:
    rows = []
    for source, target in PAIRS:
        fc = _random_fc(load_parcellation(source).n_regions)
        resampling = Resampling.between(source, target)
        carried, seconds = _timed(lambda: resampling.carry(fc))  # noqa: B023
        view = TangentView().fit(carried)
        _, tangent_seconds = _timed(lambda: view.apply(carried))  # noqa: B023
        per_matrix = 1000 / N_PARTICIPANTS
        rows.append(
            {
                "name": f"{source} → {target}, {N_PARTICIPANTS} participants: resampling against "
                "tangent space there (CPU ms per participant)",
                "value": seconds * per_matrix,
                "reference": tangent_seconds * per_matrix,
                "ratio": seconds / tangent_seconds,
                "target": "stated",
            }
        )
    return rows


def _random_fc(n_regions: int) -> np.ndarray:
    """(participants, R, R) float32 correlations of random series."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, n_regions))
    fc = np.empty((N_PARTICIPANTS, n_regions, n_regions), np.float32)
    for row in range(N_PARTICIPANTS):
        series = rng.normal(size=(N_VOLUMES, 12)) @ mixing
        series += 2 * rng.normal(size=series.shape)
        fc[row] = np.corrcoef(series.T)
    return fc


def _timed(function: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """Processor time, which other programs on this machine change little."""
    began = time.process_time()
    value = function()
    return value, time.process_time() - began
