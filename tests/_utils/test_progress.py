"""Progress is tqdm's: a bar on a terminal, lines in a log, nothing where it is silent or in workers."""

import io
import multiprocessing
import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import redirect_stderr

import joblib
import pytest

from nerve._utils import progress
from nerve._utils.progress import progress_bar, silent


@pytest.fixture
def at_once(monkeypatch):
    """Whatever can be shown is shown, however short the work is."""
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", 0)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_all_items_are_given(at_once, capsys):
    assert list(progress_bar("abc", label="reading", unit="letters")) == ["a", "b", "c"]
    letters = (letter for letter in "abc")
    assert list(progress_bar(letters, label="reading", total=3, unit="letters")) == ["a", "b", "c"]


def test_a_log_gets_whole_lines_without_codes_of_a_terminal(at_once, capsys):
    with progress_bar(label="training", total=4, initial=1, unit="steps") as bar:
        bar.set_postfix_str("loss 2", refresh=False)
        bar.update(2)
    log = capsys.readouterr().err
    assert "\r" not in log
    assert "\x1b" not in log
    assert log.endswith("\n")
    last = log.splitlines()[-1]
    assert re.fullmatch(r"training: 3 of 4 steps, \S+ elapsed, \S+ left, loss 2", last)


def test_nested_work_does_not_flood_a_log(monkeypatch, capsys):
    """The clock is the test's: items of the inner work take an hour, and lines are ten hours apart."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 10 * 3600)
    clock = [0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    for _ in progress_bar(range(5), label="outer", unit="runs"):
        for _ in progress_bar(range(6), label="inner", unit="folds"):
            clock[0] += 3600
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "outer: 2 of 5 runs",
        "outer: 4 of 5 runs",
    ]


def test_short_work_writes_nothing_into_a_log(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 1e9)
    list(progress_bar("abc", label="reading", unit="letters"))
    assert capsys.readouterr().err == ""


def test_short_work_draws_nothing_on_a_terminal(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", 1e9)
    with redirect_stderr(Terminal()) as terminal:
        for _ in progress_bar("ab", label="reading", unit="letters"):
            with progress.above_bars():
                terminal.write("note")
    assert re.sub(r"[\r ]", "", terminal.getvalue()) == "notenote"


def test_a_bar_is_cleared_when_its_work_ends(at_once):
    with redirect_stderr(Terminal()) as terminal:
        list(progress_bar("abc", label="reading", unit="letters"))
    *drawn, cleared, rest = terminal.getvalue().split("\r")
    assert "reading" in "".join(drawn)
    assert cleared.strip() == ""
    assert rest == ""


def test_a_note_stands_on_a_line_of_its_own_above_the_bar(at_once):
    with (
        redirect_stderr(Terminal()) as terminal,
        progress_bar(label="reading", total=3, unit="letters"),
        progress.above_bars(),
    ):
        terminal.write("a note\n")
    before, after = terminal.getvalue().split("a note\n")
    assert before.split("\r")[-2].strip() == ""  # the bar was overwritten by spaces
    assert "reading" in after


def test_a_real_terminal_gets_a_bar():
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    code = """
from nerve._utils import progress
progress.SECONDS_BEFORE_BAR = 0
list(progress.progress_bar("ab", label="reading", unit="letters"))
"""
    subprocess.run([sys.executable, "-c", code], stderr=child, check=True)
    os.close(child)
    shown = os.read(parent, 100_000)
    os.close(parent)
    assert b"reading" in shown


def test_nothing_is_shown_inside_silent(at_once, capsys):
    with silent():
        list(progress_bar("abc", label="hidden", unit="letters"))
        with silent(), progress_bar(label="hidden", total=2, unit="letters") as bar:
            bar.update()
        list(progress_bar("abc", label="hidden", unit="letters"))
    with silent(False):
        list(progress_bar("abc", label="shown", unit="letters"))
    log = capsys.readouterr().err
    assert "hidden" not in log
    assert "shown" in log


def test_progress_is_shown_again_after_an_error_inside_silent(at_once, capsys):
    with pytest.raises(ZeroDivisionError), silent():
        raise ZeroDivisionError
    list(progress_bar("abc", label="shown", unit="letters"))
    assert "shown" in capsys.readouterr().err


def _work(label):
    progress.SECONDS_BEFORE_BAR = 0
    progress.SECONDS_BETWEEN_LINES = 0
    return list(progress_bar("ab", label=label, unit="letters"))


def test_workers_print_no_progress(at_once, capfd):
    process = multiprocessing.get_context("fork").Process(target=_work, args=("in a worker",))
    process.start()
    process.join()
    assert process.exitcode == 0
    _work("in the main process")
    log = capfd.readouterr().err
    assert "in a worker" not in log
    assert "in the main process" in log


@pytest.mark.slow
def test_workers_of_joblib_print_no_progress(capfd):
    parallel = joblib.Parallel(n_jobs=2)
    results = parallel(joblib.delayed(_work)("in a worker") for _ in range(2))
    assert results == [["a", "b"], ["a", "b"]]
    assert "in a worker" not in capfd.readouterr().err


KILLED_WORKER = """
import multiprocessing
from nerve._utils.progress import progress_bar

def work(pipe):
    list(progress_bar("ab", label="reading", unit="letters"))
    pipe.send("ready to be killed")
    pipe.recv()

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=work, args=(theirs,))
    worker.start()
    ours.recv()
    worker.kill()
    worker.join()
"""


@pytest.mark.slow
def test_a_killed_worker_leaves_no_semaphore_behind(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED_WORKER)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_the_bar_ends_with_its_work_even_after_an_error(at_once, capsys):
    with (
        pytest.raises(ZeroDivisionError),
        progress_bar(label="failing", total=2, unit="steps") as bar,
    ):
        bar.update(1 / 0)
    assert bar.disable  # tqdm's word for a bar that was closed


def test_a_label_is_free_of_control_characters(at_once, capsys):
    list(progress_bar("abc", label="\x1b[31mred", unit="letters"))
    log = capsys.readouterr().err
    assert "\x1b" not in log
    assert r"\x1b[31mred" in log
