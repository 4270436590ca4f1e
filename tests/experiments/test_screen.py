"""A log of an experiment says every few seconds what is under way, also while one run takes long."""

import time
from types import SimpleNamespace

import pytest

import nerve.progress
from nerve.experiments.screen import RunsProgress
from nerve.experiments.store import DONE, FAILED, RUNNING, UNAVAILABLE


@pytest.mark.slow
def test_a_long_run_is_named_until_it_ends(monkeypatch, capsys):
    monkeypatch.setattr(nerve.progress, "SECONDS_BETWEEN_LINES", 0.02)
    experiment = SimpleNamespace(counts={DONE: 1, UNAVAILABLE: 0, FAILED: 0, "waiting": 2})
    long, bad = SimpleNamespace(label="encode NERVE"), SimpleNamespace(label="probe \x1b[31mraw")
    with RunsProgress(experiment) as runs:
        runs(long, RUNNING)
        time.sleep(0.2)
        runs(long, DONE)
        runs(bad, FAILED)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 3 runs are already done"
    assert any(line.startswith("experiment: 1 of 3 runs, encode NERVE, ") for line in lines)
    assert [line.split("s  ", 1)[1] for line in lines if "/3" in line] == [
        "2/3  done: encode NERVE",
        r"3/3  failed: probe \x1b[31mraw",
    ]
