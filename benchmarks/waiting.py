"""Short waits: `nerve --help` against the libraries that draw it, the tangent view against a plain loop."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

N_PEOPLE, N_REGIONS, ROUNDS = 128, 200, 3
HELP = [sys.executable, "-m", "nerve", "--help"]
LIBRARIES = [sys.executable, "-c", "import typer, typer.rich_utils"]


def run() -> list[dict[str, object]]:
    return [help_row(), *tangent_rows()]


def help_row() -> dict[str, object]:
    ours, theirs = (min(_child(command) for _ in range(ROUNDS)) for command in (HELP, LIBRARIES))
    name = "nerve --help against the import of typer and rich (processor s)"
    return {"name": name, "value": ours, "reference": theirs, "ratio": ours / theirs, "target": "< 0.5 s"}


def _child(command: list[str]) -> float:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    subprocess.run(command, check=True, capture_output=True)
    return used() - before


def tangent_rows() -> list[dict[str, object]]:
    import scipy.linalg

    from nerve.views import TangentView

    rng = np.random.default_rng(0)
    series = rng.normal(size=(N_PEOPLE, 150, 12)) @ rng.normal(size=(12, N_REGIONS)) + 2 * rng.normal(
        size=(N_PEOPLE, 150, N_REGIONS)
    )
    fc = np.stack([np.corrcoef(one.T) for one in series])
    view = TangentView().fit(fc)
    whitening = view.arrays["whitening"]

    def plain() -> np.ndarray:
        logs = []
        for one in fc:
            values, vectors = scipy.linalg.eigh(whitening @ (0.5 * one + 0.5 * np.eye(N_REGIONS)) @ whitening)
            logs.append((vectors * np.log(values)) @ vectors.T)
        return np.stack(logs)

    expected, theirs = _timed(plain)
    found, ours = _timed(lambda: view.apply(fc))
    what = f"tangent view of {N_PEOPLE} × {N_REGIONS} regions"
    error = np.abs(found - expected).max() / np.abs(expected).max()
    return [
        {"name": f"{what} against one after another (s)", "value": ours, "reference": theirs, "ratio": ours / theirs},
        {
            "name": f"{what}: largest error of float32, relative to the largest entry",
            "value": error,
            "target": "< 1e-6",
        },
    ]


def _timed(function: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return function(), time.perf_counter() - began
