"""Reading in several processes: in order, and never waiting for a process that has died."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_info

from nerve._utils.errors import NerveError
from nerve.data.readers.parallel import ITEMS_PER_PROCESS, in_order

MINUTES = 600  # until a process counts as hanging
# Workers say that they are at work and then wait for ever, as `nerve ingest` waits for a dead network disk.
WAITING = """
import os, signal, sys, time
from pathlib import Path
from nerve.cli.common import app
from nerve.data.readers.parallel import in_order

def wait_for_ever(item):
    Path(sys.argv[1], str(os.getpid())).touch()
    while True:
        time.sleep(60)

@app.command()
def wait(folder: str):
    list(in_order(wait_for_ever, range(100), jobs=2))

app(["wait", sys.argv[1]])
"""


def killed_at_70(item):
    if item == 70:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.full(100_000, item)  # more than a pipe holds


def blas_threads(item):
    np.eye(2) @ np.eye(2)
    return [library["num_threads"] for library in threadpool_info()]


def test_results_come_in_order():
    assert list(in_order(abs, range(-100, 0), jobs=2)) == list(range(100, 0, -1))


def test_no_worker_is_left_when_all_is_read_or_reading_is_given_up():
    before = set(psutil.Process().children())
    list(in_order(abs, range(100), jobs=2))
    results = in_order(abs, range(100), jobs=2)
    next(results)
    results.close()
    new = set(psutil.Process().children()) - before
    assert not [process for process in new if "LokyProcess" in " ".join(process.cmdline())]


def test_few_results_wait_in_memory_however_slowly_they_are_taken():
    handed_out = []

    class Items(list):
        def __getitem__(self, piece):
            handed_out.append(piece.stop)
            return super().__getitem__(piece)

    for i, result in enumerate(in_order(abs, Items(range(200)), jobs=2)):
        assert result == i
        assert handed_out[-1] <= i + 2 * ITEMS_PER_PROCESS


def test_workers_that_use_every_core_use_one_thread_each():
    assert {
        threads for found in in_order(blas_threads, range(40), jobs=2) for threads in found
    } == {1}


def test_a_worker_that_is_killed_ends_the_work_in_a_sentence():
    results = in_order(killed_at_70, range(200), jobs=2)
    assert [next(results)[0] for _ in range(10)] == list(range(10))
    with pytest.raises(NerveError, match=r"A reading process was ended from outside.*--jobs"):
        list(results)
    assert list(in_order(abs, range(100), jobs=2)) == list(
        range(100)
    )  # the next command is not harmed


def test_what_a_worker_raises_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        list(in_order(int, ["1"] * 50 + ["x"], jobs=2))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_command(tmp_path, how):
    """Ctrl-C reaches all processes of a command at once; a kill only the first."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, str(tmp_path)], stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell's jobs ignore it
    ) as process:  # fmt: skip
        try:
            while process.poll() is None and len(os.listdir(tmp_path)) < 2:
                time.sleep(0.01)
            workers = [psutil.Process(int(name)) for name in os.listdir(tmp_path)]
            if how == signal.SIGINT:
                os.killpg(process.pid, how)
            else:
                process.kill()
            errors = process.communicate(timeout=MINUTES)[1]
        finally:
            process.kill()
    _, alive = psutil.wait_procs(workers, timeout=MINUTES)
    assert len(workers) == 2
    assert not alive
    assert "Traceback" not in errors
