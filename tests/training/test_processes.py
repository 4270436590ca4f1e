"""Real processes: killed at random moments and resumed, stopped by signals, two that share one batch."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nerve

SETTINGS = ["--preset", "small", "--device", "cpu"] + [
    part
    for setting in ("dim=16", "depth=1", "epochs=12", "batch_size=10", "checkpoint_seconds=0", "lr=0.01")
    for part in ("--set", setting)
]
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
    return [sys.executable, "-m", "nerve", "pretrain", str(cohort), "--out", str(out), *SETTINGS, *more]


def finish(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, timeout=240)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def uninterrupted(cohort, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    finish(command(cohort, out))
    return out


def wait_for(path: Path, process: subprocess.Popen[str], more: float = 0.0) -> None:
    """Wait until the run has written its first checkpoint, then a little longer."""
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(more)


@pytest.mark.slow
def test_kill_at_random_moments_then_resume_gives_identical_weights(cohort, uninterrupted, tmp_path):
    moments = random.Random(1)
    out = tmp_path / "killed"
    kills = 0
    for _ in range(3):
        process = subprocess.Popen(
            command(cohort, out, "--resume"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        wait_for(out / "last.safetensors", process, moments.uniform(0.0, 0.3))
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finish(command(cohort, out, "--resume"))
    assert kills >= 1
    for name in ("model.safetensors", "best.safetensors"):
        assert (out / name).read_bytes() == (uninterrupted / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_checkpoint_and_end_with_a_sentence(cohort, uninterrupted, tmp_path, number):
    out = tmp_path / "stopped"
    arguments = command(cohort, out, "--set", "epochs=100000")
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    wait_for(out / "last.safetensors", process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert (out / "last.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_draw_the_curve_of_one_and_survive_a_killed_worker(cohort, uninterrupted, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def together(out: Path, *more: str) -> list[str]:
        return torchrun + command(cohort, out, *more)[1:]

    out = tmp_path / "two"
    finish(together(out))
    one, two = (pd.read_csv(run / "history.tsv", sep="\t") for run in (uninterrupted, out))
    for curve in ("training_loss", "validation_loss"):
        np.testing.assert_allclose(two[curve], one[curve], atol=1e-4)

    cut = tmp_path / "cut"
    process = subprocess.Popen(
        together(cut),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    wait_for(cut / "last.safetensors", process)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    if children:
        os.kill(int(children[-1]), signal.SIGKILL)
    process.communicate(timeout=120)
    finish(together(cut, "--resume"))
    three = pd.read_csv(cut / "history.tsv", sep="\t")
    np.testing.assert_allclose(three["training_loss"], one["training_loss"], atol=1e-4)
    assert (cut / "model.safetensors").is_file()
