"""Waits: `nerve --help`, tangent view, a large report, the demo, and silence; beside references."""

from __future__ import annotations

import os
import pty
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

N_PEOPLE, N_REGIONS, ROUNDS = 128, 200, 3
CELL = """
import nerve
cohort = nerve.simulate_cohort(600, "schaefer200-17", 300, keep_timeseries=False)
encoder = nerve.NERVE.from_preset("default", epochs=1, device="cpu").fit(cohort)
nerve.evaluate({"NERVE": encoder.transform(cohort), "shrunk": "shrunk"}, cohort, "age")
"""
HELP = [sys.executable, "-m", "nerve", "--help"]
LIBRARIES = [sys.executable, "-c", "import typer, typer.rich_utils"]


def run() -> list[dict[str, object]]:
    return [help_row(), *tangent_rows(), *report_rows(), *demo_rows(), *silence_rows()]


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


def report_rows() -> list[dict[str, object]]:
    """The report of many methods and targets, beside one of a single method and target."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
    from folders import Made, line, write_folder

    from nerve.report.load import load_results
    from nerve.report.page import page

    def seconds(n_methods: int, n_targets: int) -> tuple[str, float]:
        rows = [row for i in range(n_methods) for row in line(f"m{i}", "nerve", f"Method {i}", "self-supervised")]
        targets = [f"t{i}" for i in range(n_targets)]
        made = Made(cohorts={"alpha": 12}, targets=targets, rows=rows, interpretation=False, n_permutations=9)
        with tempfile.TemporaryDirectory() as folder:
            results = load_results(write_folder(Path(folder), made))
            return _timed(lambda: page(results))

    (many, ours), (_, one) = seconds(60, 30), seconds(1, 1)
    what = "report of 60 methods × 30 targets"
    return [
        {"name": f"{what} against 1 × 1 (s)", "value": ours, "reference": one, "ratio": ours / one},
        {"name": f"{what}: MB", "value": len(many.encode()) / 1e6, "target": "< 5"},
    ]


def demo_rows() -> list[dict[str, object]]:
    """The whole demo by the clock, with the machine's own matrix product as the yardstick, and its longest silence."""
    square = np.random.default_rng(0).normal(size=(2048, 2048)).astype(np.float32)
    _, product = _timed(lambda: [square @ square for _ in range(10)])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "nerve", "demo", str(Path(folder) / "demo")]
        silence, seconds = _timed(lambda: longest_silence(command))
    name = "nerve demo against ten products of 2048 × 2048 (s)"
    return [
        {"name": name, "value": seconds, "reference": product, "ratio": seconds / product, "target": "< 90 s"},
        {"name": "nerve demo: longest silence in a log (s)", "value": silence, "target": "< 5"},
    ]


def silence_rows() -> list[dict[str, object]]:
    """The longest silence of lines of Python that train and evaluate; that of a log is the demo's."""
    what = "simulate, fit and evaluate 600 × 200 regions in Python: longest silence"
    longest = {"on a terminal": silence_on_a_terminal, "in a notebook": silence_in_a_notebook}
    return [
        {"name": f"{what} {where} (s)", "value": measure(CELL), "target": "< 5"} for where, measure in longest.items()
    ]


def silence_on_a_terminal(code: str) -> float:
    """Most seconds for which nothing that a bar on a terminal shows changes."""
    screen, child = pty.openpty()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=child, stderr=child, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(child)
        longest = _longest_gap(_read(screen))
    os.close(screen)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return longest


def _read(screen: int) -> Iterator[bytes]:
    """What is written on a terminal, until the last program there has ended."""
    last = b""
    with suppress(OSError):
        while shown := os.read(screen, 100_000):
            if shown != last:
                yield shown
            last = shown


def silence_in_a_notebook(code: str) -> float:
    """Most seconds between two messages that a cell shows, in a Jupyter kernel."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    try:
        client.execute(code)
        return _longest_gap(_messages(client))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _messages(client: Any) -> Iterator[object]:
    """What a kernel says to those who look on, until the cell has ended."""
    while True:
        message = client.get_iopub_msg(timeout=600)
        if message["msg_type"] == "error":
            raise RuntimeError("\n".join(message["content"]["traceback"]))
        if message["msg_type"] == "stream":
            yield message
        if message["content"].get("execution_state") == "idle":
            return


def longest_silence(command: list[str]) -> float:
    """Most seconds between two lines that a command prints, from its start to its end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        longest = _longest_gap(process.stdout or ())
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return longest


def _longest_gap(events: Iterable[object]) -> float:
    """Most seconds between two events, from now to the end of them."""
    longest, last = 0.0, time.perf_counter()
    for _ in events:
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    return max(longest, time.perf_counter() - last)


def _timed(function: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    return function(), time.perf_counter() - began
