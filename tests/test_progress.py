"""Long work is never silent: a line every few seconds in a log or a notebook, a bar on a terminal."""

import multiprocessing
import os
import pty
import re
import subprocess
import sys
import threading
import time

import pytest

from nerve import progress
from nerve.progress import Progress, tracked


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.05)


@pytest.mark.slow
def test_a_log_gets_lines_even_while_one_step_takes_long(quick, capsys):
    with Progress("folding", 4, unit="folds") as work:
        work.update(1, "loss 2")
        time.sleep(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert re.fullmatch(r"folding: 1 of 4 folds, loss 2, \d+ s, about \d+ s left", lines[-1])


def test_short_work_says_nothing(capsys):
    assert list(tracked(range(3), "counting", 3)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_nothing_is_said_where_silence_is_asked_for(quick, capsys):
    with progress.silent(), Progress("hiding"):
        time.sleep(0.15)
    with progress.silent(False), Progress("showing"):
        time.sleep(0.15)
    assert set(re.findall(r"^\w+", capsys.readouterr().err, re.MULTILINE)) == {"showing"}


def _worker() -> None:
    with Progress("a worker"):
        time.sleep(0.2)


@pytest.mark.slow
def test_a_worker_leaves_the_word_to_the_process_that_started_it(quick, capfd):
    process = multiprocessing.get_context("fork").Process(target=_worker)
    with Progress("work of several", 2) as work:
        process.start()
        process.join()
        work.update(1)
    said = capfd.readouterr().err
    assert "work of several: 0%" in said
    assert "a worker" not in said


def test_it_ends_with_its_work_even_after_an_error(quick, capsys):
    with pytest.raises(ZeroDivisionError), Progress("failing") as work:
        work.update(1 / 0)
    time.sleep(0.15)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_work_within_other_work_is_told_of_beside_it_by_one_voice(quick, capsys):
    voices = []
    with Progress("experiment", 7, unit="runs") as runs:
        runs.update(3, "raw")
        with Progress("cross-validation", 4) as folds:
            folds.update(1)
            voices += [thread for thread in threading.enumerate() if thread.name == "says how far the work is"]
            time.sleep(0.4)
        within = capsys.readouterr().err.splitlines()[-1]
        time.sleep(0.4)
        after = capsys.readouterr().err.splitlines()[-1]
    assert len(voices) == 1
    outer = r"experiment: 3 of 7 runs, raw, \d+ s, about \d+ s left"
    assert re.fullmatch(rf"{outer}; cross-validation: 25%, \d+ s, about \d+ s left", within)
    assert re.fullmatch(outer, after)


@pytest.mark.slow
def test_a_terminal_gets_a_bar():
    parent, child = pty.openpty()
    code = """
from nerve import progress
import time
progress.LEAST_SECONDS = 0.1
for _ in progress.tracked("ab", "waiting", 2):
    for _ in progress.tracked("cd", "resting", 2):
        time.sleep(0.3)
"""
    subprocess.run([sys.executable, "-c", code], stderr=child, check=True, env=os.environ | {"TERM": "xterm"})
    os.close(child)
    shown = os.read(parent, 100_000)
    assert b"waiting" in shown
    assert b"resting" in shown
    os.close(parent)


@pytest.mark.slow
def test_pieces_of_work_that_follow_each_other_are_one_wait(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.4)
    monkeypatch.setattr(progress, "LEAST_SECONDS", 0.01)
    progress.Console().print("ready")
    for label in ("first", "second"):
        with Progress(label):
            time.sleep(0.3)
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["second"]


def test_a_command_that_says_nothing_is_not_silent(quick, capsys):
    with progress.never_silent():
        time.sleep(0.15)
    time.sleep(0.12)
    assert re.fullmatch(r"(working: \d+ s\n)+", capsys.readouterr().err)


@pytest.mark.slow
def test_where_something_is_said_or_shown_nothing_is_added(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.6)
    with progress.never_silent():
        for _ in range(4):
            progress.Console().print("ready")
            time.sleep(0.2)
        with Progress("folding", 4, unit="folds"):
            time.sleep(0.8)
    said = capsys.readouterr().err.splitlines()
    assert said
    assert not [line for line in said if not line.startswith("folding")]
