"""The tangent view, against one eigendecomposition after another: seconds and largest error."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from benchmarks import row, timed
from nerve.core.views import TangentView

N_PARTICIPANTS = 128
N_REGIONS = 200
N_VOLUMES = 150


def run() -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, N_REGIONS))
    signal = rng.normal(size=(N_PARTICIPANTS, N_VOLUMES, 12)) @ mixing
    series = signal + 2 * rng.normal(size=(N_PARTICIPANTS, N_VOLUMES, N_REGIONS))
    fc = np.stack([np.corrcoef(scan.T) for scan in series])  # (participants, R, R)
    view = TangentView().fit(fc)
    expected, reference_seconds = timed(lambda: _one_after_another(fc, view.arrays["whitening"]))
    tangent, seconds = timed(lambda: view.apply(fc))
    error = np.abs(tangent - expected).max() / np.abs(expected).max()
    name = f"tangent view of {N_PARTICIPANTS} × {N_REGIONS} regions"
    return [
        row(
            f"{name} against one after another (s)",
            seconds,
            reference_seconds,
            seconds / reference_seconds,
        ),
        row(
            f"{name}: largest error of float32, relative to the largest entry",
            error,
            target="< 1e-6",
        ),
    ]


def _one_after_another(fc: np.ndarray, whitening: np.ndarray) -> np.ndarray:
    """The same logarithms with scipy, (participants, R, R)."""
    logs = []
    for matrix in fc:
        shrunk = 0.5 * matrix + 0.5 * np.eye(N_REGIONS)
        values, vectors = scipy.linalg.eigh(whitening @ shrunk @ whitening)
        logs.append((vectors * np.log(values)) @ vectors.T)
    return np.stack(logs)
