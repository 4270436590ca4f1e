"""An experiment shows which runs have ended: a line each in a log, a bar on a terminal."""

import io
from contextlib import redirect_stderr
from types import SimpleNamespace

import pytest

from nerve._utils.progress import silent
from nerve.experiments.run_store import DONE, FAILED, RUNNING, UNAVAILABLE
from nerve.experiments.terminal import RunsProgress

GOOD = SimpleNamespace(label="encode NERVE")
BAD = SimpleNamespace(label="predict \x1b[31mraw")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def experiment():
    return SimpleNamespace(counts={DONE: 1, UNAVAILABLE: 0, FAILED: 0, "waiting": 2})


def run_both(experiment):
    with RunsProgress(experiment) as runs:
        runs(GOOD, RUNNING)
        runs(GOOD, DONE)
        runs(BAD, RUNNING)
        runs(BAD, FAILED)


def test_a_log_has_one_line_per_run_that_ended(experiment, capsys):
    run_both(experiment)
    log = capsys.readouterr().err
    assert "\r" not in log
    assert "\x1b" not in log
    first, *ended = log.splitlines()
    assert first == "1 of 3 runs are already done"
    assert [line.partition(",")[0] for line in ended] == ["[2/3", "[3/3"]
    assert [line.partition("] ")[2] for line in ended] == [
        "done: encode NERVE",
        r"failed: predict \x1b[31mraw",
    ]


def test_a_terminal_has_a_bar_with_failures_above_it(experiment, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stderr(Terminal()) as terminal:
        run_both(experiment)
    shown = terminal.getvalue()
    assert "experiment:  33%" in shown
    assert "1/3 runs" in shown
    assert "\x1b[31m" not in shown
    lines_that_stay = [line.rsplit("\r", 1)[-1] for line in shown.split("\n")]
    assert [line for line in lines_that_stay if line.strip()] == [
        "1 of 3 runs are already done",
        next(line for line in lines_that_stay if line.endswith(r"] failed: predict \x1b[31mraw")),
    ]


def test_nothing_is_written_inside_silent(experiment, capsys):
    with silent():
        run_both(experiment)
    assert capsys.readouterr().err == ""
