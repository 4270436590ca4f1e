"""The process that watches commands notices every sort of misbehaviour."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from torture._sandbox import Case, run_cases

from nerve._utils.cores import reuse_freed_memory
from nerve._utils.errors import NerveError
from torture import _sandbox


def _ends(folder: Path) -> None:
    raise SystemExit(0)


def _refuses(folder: Path) -> None:
    os.write(2, b"nerve: one sentence.\n")
    raise SystemExit(1)


def _raises(folder: Path) -> None:
    raise KeyError("x")


def _raises_ours(folder: Path) -> None:
    raise NerveError("main did not catch it")


def _prints_a_traceback(folder: Path) -> None:
    os.write(2, b"Traceback (most recent call last):\nKeyError: 'x'\n")


def _is_silent(folder: Path) -> None:
    raise SystemExit(1)


def _computes(folder: Path) -> None:
    while True:
        pass


def _waits(folder: Path) -> None:
    signal.pause()


def _dies(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _takes_memory(folder: Path) -> None:
    np.ones(12_500_000).sum()  # 100 MB


def _writes(place: str):
    return lambda folder: (folder / place).write_text("x")


def _changes_input(folder: Path) -> None:
    (folder / "in/data").write_text("changed")


def _leaves_a_draft(folder: Path) -> None:
    (folder / "out/.cohort.abc.tmp").write_text("half")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (_ends, ""),
        (_refuses, ""),
        (_writes("out/result"), ""),
        (_raises, "KeyError at"),
        (_raises_ours, "NerveError at"),
        (_prints_a_traceback, "a traceback was printed: KeyError: 'x'"),
        (_is_silent, "said nothing"),
        (_computes, "did not end within"),
        pytest.param(_waits, "killed after", marks=pytest.mark.slow),
        (_dies, "the process ended with -9"),
        pytest.param(_takes_memory, "memory: ", marks=pytest.mark.slow),
        (_writes("cwd/here"), "outside the output folder"),
        (_writes("tmp/here"), "outside the output folder"),
        (_writes("in/here"), "outside the output folder"),
        (_writes("../escaped"), "outside the output folder"),
        (_changes_input, "outside the output folder"),
        (_leaves_a_draft, "an unfinished file was left"),
    ],
)
def test_misbehaviour_is_noticed(command, fault, tmp_path, monkeypatch):
    import nerve.cli

    monkeypatch.setattr(nerve.cli, "main", lambda: command(Path.cwd().parent))
    monkeypatch.setattr(_sandbox, "EXTRA_BYTES", 60 * 2**20)
    # neither ever ends by itself, so that short limits are met on any machine
    if command is _computes:
        monkeypatch.setattr(_sandbox, "SECONDS", 0.3)
    if command is _waits:
        monkeypatch.setattr(_sandbox, "KILLED_AFTER", 0.5)

    def prepare(folder: Path) -> list[str]:
        (folder / "in/data").write_text("data")
        return []

    # The second case also runs after the process of the first has been lost.
    cases = [Case("first", prepare), Case("second", prepare)]
    outcomes = run_cases(cases, [0, 1], tmp_path, jobs=1)
    assert [outcome.case for outcome in outcomes] == [0, 1]
    for outcome in outcomes:
        assert fault in outcome.fault if fault else not outcome.fault, outcome


@pytest.mark.slow
def test_memory_that_the_parent_freed_does_not_hide_what_a_case_takes(tmp_path, monkeypatch):
    reuse_freed_memory()
    arrays = [np.ones(3_125_000) for _ in range(8)]
    del arrays
    test_misbehaviour_is_noticed(_takes_memory, "memory: ", tmp_path, monkeypatch)
