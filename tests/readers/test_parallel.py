"""Reading in several processes: in order, and never waiting for a process that has died."""

import subprocess
import sys

import pytest

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
    for _ in in_order(read, range(4000), 4000, jobs=2):
        pass
except NerveError as error:
    print(error)
"""


def test_results_come_in_order():
    assert list(in_order(abs, range(-20, 0), 20, jobs=2)) == list(range(20, 0, -1))


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="workers inherit handlers only where they are forked")
def test_a_worker_that_is_killed_ends_the_work_in_a_sentence():
    done = subprocess.run([sys.executable, "-c", VICTIMS], capture_output=True, text=True, timeout=60, check=False)
    assert "A reading process was ended from outside" in done.stdout
