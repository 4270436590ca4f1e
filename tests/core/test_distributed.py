"""Real processes: stopped by signals, two that share one batch; `tests/torture` kills one and resumes it."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from torture._processes import Warm
from typer.testing import CliRunner

import nerve
from nerve.cli import app
from nerve.core.masked_autoencoder import MaskedAutoencoder

SETTINGS = ["--preset", "small", "--device", "cpu"] + [
    part
    for setting in (
        "dim=16",
        "depth=1",
        "epochs=8",
        "batch_size=10",
        "checkpoint_seconds=0",
        "lr=0.01",
    )
    for part in ("--set", setting)
]
MINUTES = 1200  # seconds until a process counts as hanging
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cohort(tmp_path_factory) -> Path:
    generator = np.random.default_rng(0)
    parcellation = nerve.Parcellation(
        tuple(f"r{i}" for i in range(12)), tuple("A" * 5 + "B" * 3 + "C" * 4), name="twelve"
    )
    fc = np.stack([np.corrcoef(x) for x in generator.normal(size=(45, 12, 30))]).astype(np.float32)
    people = pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(45)]})
    return nerve.Cohort(fc, people, parcellation).save(tmp_path_factory.mktemp("data") / "cohort")


def command(cohort: Path, out: Path, *more: str) -> list[str]:
    return ["pretrain", str(cohort), "--out", str(out), *SETTINGS, *more]


@pytest.fixture(scope="module")
def uninterrupted(cohort, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    done = CliRunner().invoke(app, command(cohort, out), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return out


def wait_for(path: Path, runs: Callable[[], bool]) -> None:
    """Wait until a run has written its first checkpoint."""
    while not path.exists() and runs():
        time.sleep(0.01)


@pytest.mark.slow
def test_signals_checkpoint_and_end_with_a_sentence(cohort, tmp_path):
    with Warm() as warm:
        for number in (signal.SIGTERM, signal.SIGINT):
            out = tmp_path / number.name
            running = warm.start(command(cohort, out, "--set", "epochs=100000"), tmp_path / "log")
            wait_for(
                out / "last.safetensors", lambda pid=running.pid: Path(f"/proc/{pid}").exists()
            )
            os.kill(running.pid, number)
            ended = running.wait()
            assert ended.code == 128 + number
            assert "--resume" in ended.output
            assert "Traceback" not in ended.output
            assert (out / "last.safetensors").is_file()


def die_in_training(at_call: int) -> None:
    """Have this process killed when it computes the loss of a batch for the so manieth time."""
    training_loss, calls = MaskedAutoencoder.training_loss, []

    def counted(*arguments: object, **options: object) -> object:
        calls.append(True)
        if len(calls) == at_call:
            os.kill(os.getpid(), signal.SIGKILL)
        return training_loss(*arguments, **options)

    MaskedAutoencoder.training_loss = counted


def be_worker(rank: int, port: int, arguments: list[str], said: Path) -> None:
    """One of two processes with what torchrun tells them; what it says goes into a file."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    if rank == 1:
        die_in_training(at_call=20)
    ended = CliRunner().invoke(app, arguments)
    said.write_text(f"{ended.output}{ended.exception}")
    os._exit(ended.exit_code)


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_draw_the_curve_of_one_and_survive_a_killed_worker(
    cohort, uninterrupted, tmp_path
):
    out, context = (
        tmp_path / "two",
        multiprocessing.get_context("fork"),
    )  # forked: torch is imported already
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [
        context.Process(
            target=be_worker, args=(rank, port, command(cohort, out), tmp_path / f"said{rank}")
        )
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    workers[1].join(MINUTES)
    assert workers[1].exitcode == -signal.SIGKILL
    workers[0].join(MINUTES)
    assert workers[0].exitcode == 1
    assert "Start it again with --resume" in (tmp_path / "said0").read_text()
    assert (out / "last.safetensors").exists()
    assert not (out / "model.safetensors").exists()
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "nerve",
    ]
    resumed = subprocess.run(
        torchrun + command(cohort, out, "--resume"),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=MINUTES,
    )
    assert resumed.returncode == 0, resumed.stderr
    one, two = (pd.read_csv(run / "history.tsv", sep="\t") for run in (uninterrupted, out))
    for curve in ("training_loss", "validation_loss"):
        np.testing.assert_allclose(
            two[curve], one[curve], atol=5e-4
        )  # sums in another order, over 12 steps
    assert (out / "model.safetensors").is_file()
