"""Reading in several processes: in order, and never waiting for a process that has died."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from nerve.checks import NerveError
from nerve.readers.parallel import in_order

# As `nerve ingest` does, with a handler that turns SIGTERM into an exception; one worker is killed at work.
VICTIMS = """
import os, signal, threading, time
import numpy as np
import psutil
from nerve.checks import NerveError
from nerve.readers.parallel import in_order

def end(*_):
    raise SystemExit(143)

def read(item):
    for _ in range(10):
        np.random.rand(300,300) @ np.random.rand(300,300)
    return np.zeros((400, 400))

def kill_one():
    time.sleep(0.7)
    os.kill(psutil.Process().children()[0].pid, signal.SIGKILL)

signal.signal(signal.SIGTERM, end)
threading.Thread(target=kill_one, daemon=True).start()
try:
    for _ in in_order(read, range(4000), jobs=2):
        pass
except NerveError as error:
    print(error)
"""


def _children() -> set[psutil.Process]:
    """Processes of this one. Those of earlier tests may still end, so they are compared as sets."""
    return set(psutil.Process().children())


def test_results_come_in_order():
    assert list(in_order(abs, range(-20, 0), jobs=2)) == list(range(20, 0, -1))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers inherit handlers only where they are forked")
def test_a_worker_that_is_killed_ends_the_work_in_a_sentence():
    done = subprocess.run([sys.executable, "-c", VICTIMS], capture_output=True, text=True, timeout=60, check=False)
    assert "A reading process was ended from outside" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="finds the process by the fork of this one")
def test_a_worker_that_is_killed_in_the_middle_of_its_answer_is_not_waited_for():
    before = _children()
    answers = in_order(bytes, [4_000_000] * 20, jobs=2)  # more than a pipe holds
    assert len(next(answers)) == 4_000_000
    time.sleep(0.3)  # both workers are in the middle of an answer that nobody takes
    (_children() - before).pop().kill()
    with pytest.raises(NerveError, match="A reading process was ended from outside"):
        list(answers)
    assert _children() <= before


def test_what_a_worker_raises_is_raised_here_and_leaves_no_process():
    before = _children()
    with pytest.raises(ValueError, match="invalid literal"):
        list(in_order(int, ["1"] * 9 + ["x"], jobs=2))
    assert _children() <= before
