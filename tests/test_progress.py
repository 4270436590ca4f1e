"""Long work is never silent: a line every few seconds in a log or a notebook, a bar on a terminal."""

import os
import pty
import re
import subprocess
import sys
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


def test_work_that_is_not_shown_says_nothing(quick, capsys):
    with Progress("hiding", shown=False):
        time.sleep(0.15)
    assert capsys.readouterr().err == ""


def test_it_ends_with_its_work_even_after_an_error(quick, capsys):
    with pytest.raises(ZeroDivisionError), Progress("failing") as work:
        work.update(1 / 0)
    time.sleep(0.15)
    assert capsys.readouterr().err == ""


def test_another_label_is_another_piece_of_work(quick, capsys):
    with Progress("raw", 1.0) as work:
        work.update(0.9)
        work.update(0.25, label="pca")
        time.sleep(0.15)
    assert "pca: 25%" in capsys.readouterr().err


def test_after_so_many_runs_another_piece_of_work_is_a_share():
    work = Progress("experiment", 7, unit="runs", shown=False)
    work.update(7)
    work.update(0.5, label="attention")
    assert work.line().startswith("attention: 50%, ")


@pytest.mark.slow
def test_a_terminal_gets_a_bar():
    parent, child = pty.openpty()
    code = "from nerve.progress import tracked; import time; [time.sleep(0.3) for _ in tracked('ab', 'waiting', 2)]"
    subprocess.run([sys.executable, "-c", code], stderr=child, check=True, env=os.environ | {"TERM": "xterm"})
    os.close(child)
    assert b"waiting" in os.read(parent, 100_000)
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
