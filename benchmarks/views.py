"""The tangent view, against one decomposition after another: seconds and largest error."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.linalg

from nerve.core.views import TangentView

N_PARTICIPANTS = 128
N_REGIONS = 200
N_VOLUMES = 150


def run() -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(12, N_REGIONS))
    signal = rng.normal(size=(N_PARTICIPANTS, N_VOLUMES, 12)) @ mixing
    series = signal + 2 * rng.normal(size=(N_PARTICIPANTS, N_VOLUMES, N_REGIONS))
    fc = np.stack([np.corrcoef(one.T) for one in series])  # (participants, R, R)
    view = TangentView().fit(fc)
    expected, reference_seconds = _timed(lambda: _one_after_another(fc, view.arrays["whitening"]))
    found, seconds = _timed(lambda: view.apply(fc))
    error = np.abs(found - expected).max() / np.abs(expected).max()
    what = f"tangent view of {N_PARTICIPANTS} × {N_REGIONS} regions"
    return [
        {
            "name": f"{what} against one after another (s)",
            "value": seconds,
            "reference": reference_seconds,
            "ratio": seconds / reference_seconds,
        },
        {
            "name": f"{what}: largest error of float32, relative to the largest entry",
            "value": error,
            "target": "< 1e-6",
        },
    ]


def _one_after_another(fc: np.ndarray, whitening: np.ndarray) -> np.ndarray:
    """The same logarithms with scipy, (participants, R, R)."""
    logs = []
    for matrix in fc:
        shrunk = 0.5 * matrix + 0.5 * np.eye(N_REGIONS)
        values, vectors = scipy.linalg.eigh(whitening @ shrunk @ whitening)
        logs.append((vectors * np.log(values)) @ vectors.T)
    return np.stack(logs)


def _timed(function: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    began = time.perf_counter()
    value = function()
    return value, time.perf_counter() - began
