"""Run many `nerve` commands, each in a folder of its own, in forked processes that are watched.

A case passes when the command ends by itself within the time, succeeds or explains itself, takes no
more memory than it may, and leaves nothing outside its output folder. Forked processes make this
fast (everything is imported once) and safe (a process that dies or hangs is replaced, and the case
that it ran is blamed).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from nerve._utils.files import MARK

# These end what hangs, and are minutes so that no slow or busy machine is taken for a fault.
SECONDS = 300.0  # processor time that a command may take
KILLED_AFTER = 300.0  # clock time for a command that hardly uses the processor: it waits in vain
LOST_AFTER = 1200.0  # clock time for any command: it does not react to the alarm
EXTRA_BYTES = 500 * 2**20  # memory that a command may take beyond twice the size of its files
# Beyond what the process has: a runaway allocation fails instead of filling the machine.
ADDRESS_SPACE = 6 * 2**30
# A case that may work for hours has shown that it works after so many seconds of processor time,
# or of clock time if it waits for processes that it has started.
ENOUGH = 1.0
ENOUGH_WAITING = 8.0
FOLDERS = ("in", "out", "cwd", "tmp", "home")


class Case(NamedTuple):
    """One command with its files.

    `prepare(folder)` writes the input into ``folder/in`` and returns the arguments. The command
    runs in ``folder/cwd`` and may write below ``folder/out`` only.
    """

    name: str
    prepare: Callable[[Path], Sequence[str]]
    may_work: bool = False  # it may take hours: it passes once it has worked for a while
    check: Callable[[Path], str] = lambda folder: ""  # what is wrong with the output


class Outcome(NamedTuple):
    """The outcome of a case: `fault` is empty if all was well."""

    case: int
    name: str
    command: str
    fault: str
    output: str  # the end of what the command printed
    seconds: float  # processor time
    memory: int  # bytes above what the process had, less twice the size of the files


OnOutcome = Callable[[Outcome], None]


def preload() -> None:
    """Import what the commands import, once for all processes.

    torch gets one thread, since a forked process waits for ever for threads of its parent.
    """
    import nilearn.maskers  # noqa: F401
    import scipy.io  # noqa: F401
    import torch

    import nerve.cli
    import nerve.data.readers.ingesting
    import nerve.interpret
    import nerve.methods.runs
    import nerve.report.page  # noqa: F401

    torch.set_num_threads(1)


class _OutOfTimeError(BaseException):
    """Raised by the alarm; no code that catches Exception swallows it."""


class _Watch:
    """The processes at work, each with its case and when it began."""

    def __init__(
        self, cases: Sequence[Case], numbers: Sequence[int], root: Path, on_outcome: OnOutcome
    ) -> None:
        self.cases = cases
        self.root = root
        self.on_outcome = on_outcome
        self.waiting = list(reversed(numbers))
        self.busy: dict[Any, tuple[Any, int, float]] = {}
        self.seconds_before: dict[Any, float] = {}  # processor time before the case
        self.outcomes: list[Outcome] = []

    def start_process(self) -> None:
        """Start another process, if there is work for it."""
        if not self.waiting:
            return
        context: Any = multiprocessing.get_context("fork")
        own_end, process_end = context.Pipe()
        process = context.Process(target=_work, args=(process_end, self.cases, self.root))
        # Otherwise the child's garbage collector would copy every page that the parent made.
        gc.freeze()
        process.start()
        gc.unfreeze()
        process_end.close()
        self.send_next_case(own_end, process)

    def send_next_case(self, pipe: Any, process: Any) -> None:
        """Send the number of the next case, or −1 to end the process."""
        number = self.waiting.pop() if self.waiting else -1
        pipe.send(number)
        if number < 0:
            process.join()
        else:
            self.busy[pipe] = (process, number, time.monotonic())
            self.seconds_before[pipe] = _processor_seconds(process.pid)

    def receive(self, pipe: Any) -> None:
        """Receive an outcome, or notice that the process has died."""
        process, number, _ = self.busy.pop(pipe)
        try:
            outcome = pipe.recv()
        except EOFError:
            process.join()
            self.blame_and_replace(number, f"the process ended with {process.exitcode}")
        else:
            self.add(outcome)
            self.send_next_case(pipe, process)

    def kill_hanging(self) -> None:
        """Kill what hangs. On a busy machine a process may be late without fault if it has worked."""
        for pipe, (process, number, began) in list(self.busy.items()):
            clock_seconds = time.monotonic() - began
            if clock_seconds <= KILLED_AFTER:
                continue
            seconds = _processor_seconds(process.pid) - self.seconds_before.get(pipe, 0.0)
            if seconds >= 1.0 and clock_seconds <= LOST_AFTER:
                continue
            process.kill()
            process.join()
            del self.busy[pipe]
            fault = f"it did not end: it was killed after {clock_seconds:.0f} s"
            self.blame_and_replace(number, fault)

    def blame_and_replace(self, number: int, fault: str) -> None:
        """Record the fault of a case whose process is gone, and start another process."""
        self.add(Outcome(number, self.cases[number].name, "", fault, "", 0.0, 0))
        self.start_process()

    def add(self, outcome: Outcome) -> None:
        """Record an outcome."""
        self.outcomes.append(outcome)
        self.on_outcome(outcome)


def run_cases(
    cases: Sequence[Case],
    numbers: Sequence[int],
    root: Path,
    jobs: int = 2,
    on_outcome: OnOutcome = lambda _: None,
) -> list[Outcome]:
    """Run the cases of these numbers and return their outcomes, in the order of the cases.

    `on_outcome` is called with each outcome when it comes. `cases` may hold closures, since
    processes are forked.
    """
    watch = _Watch(cases, numbers, root, on_outcome)
    try:
        for _ in range(jobs):
            watch.start_process()
        while watch.busy:
            for pipe in wait(list(watch.busy), timeout=1.0):
                watch.receive(pipe)
            watch.kill_hanging()
    finally:
        # When a test has run out of its time: otherwise Python would wait for these.
        for process, *_ in watch.busy.values():
            process.kill()
    return sorted(watch.outcomes, key=lambda outcome: outcome.case)


def _work(pipe: Connection, cases: Sequence[Case], root: Path) -> None:
    """Run the cases whose numbers come through the pipe, until −1 comes."""
    _end_with_parent()
    size = _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _stop_case)
    signal.signal(signal.SIGALRM, _stop_case)
    while (number := pipe.recv()) >= 0:
        pipe.send(run_case(cases[number], number, root))


def _end_with_parent() -> None:
    """Have Linux end this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _stop_case(*_: Any) -> None:
    """Kill what the command has started, and end the command by an exception."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    raise _OutOfTimeError


def run_case(case: Case, number: int, root: Path) -> Outcome:
    """Run one case in this process."""
    folder = root / f"case-{number}"
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    arguments = [str(word) for word in case.prepare(folder)]
    os.chdir(folder / "cwd")
    tempfile.tempdir = str(folder / "tmp")
    os.environ["HOME"] = str(folder / "home")
    input_size = _bytes_below(folder / "in")
    files_before = _files_outside_output(folder)
    _reset_peak()
    memory_before = _status("VmRSS")
    began = time.process_time()
    output, fault = _run(arguments, case.may_work, root / f"case-{number}.log")
    seconds = time.process_time() - began
    memory = _status("VmHWM") - memory_before - 2 * input_size
    os.chdir(root)
    tempfile.tempdir = None
    if not fault and memory > EXTRA_BYTES:
        fault = f"memory: {memory / 2**20:.0f} MB beyond twice the files"
    fault = fault or _fault_of_files(folder, files_before, root) or case.check(folder)
    if not fault:
        shutil.rmtree(folder, ignore_errors=True)
    command = "nerve " + " ".join(map(repr, arguments))
    return Outcome(number, case.name, command, fault, output, seconds, memory)


def _run(arguments: list[str], may_work: bool, log: Path) -> tuple[str, str]:
    """What the command printed on both streams, and what is wrong with how it ended."""
    from nerve.cli import main

    sys.argv = ["nerve", *arguments]
    code: Any = 0
    fault = ""
    with _streams_in_file(log):
        signal.setitimer(signal.ITIMER_PROF, ENOUGH if may_work else SECONDS)
        signal.setitimer(signal.ITIMER_REAL, ENOUGH_WAITING if may_work else 0)
        try:
            main()
        except SystemExit as end:
            code = end.code
        except _OutOfTimeError as error:
            if not may_work:
                place = _where(error.__traceback__)
                fault = f"it did not end within {SECONDS:.0f} s ({place})"
        except BaseException as error:
            fault = f"{type(error).__name__} at {_where(error.__traceback__)}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
    output = log.read_text("utf-8", "replace")
    log.unlink()
    if not fault and "Traceback (most recent" in output:
        fault = "a traceback was printed: " + output.strip().splitlines()[-1][:200]
    if not fault and code not in (0, None) and not output.strip():
        fault = f"it failed (exit {code}) and said nothing"
    return output[-2000:], fault


@contextlib.contextmanager
def _streams_in_file(log: Path) -> Iterator[None]:
    """Write both streams, those of libraries and child processes too, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved_descriptors = {number: os.dup(number) for number in (1, 2)}
    with open(log, "wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    # pytest has put other streams in the place of these.
    saved_stdout = sys.stdout
    saved_stderr = sys.stderr
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        for text in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, OSError):
                text.flush()
        sys.stdout = saved_stdout
        sys.stderr = saved_stderr
        for number, saved in saved_descriptors.items():
            os.dup2(saved, number)
            os.close(saved)


def _where(trace: Any) -> str:
    """The innermost line of this package in a traceback, and the innermost of all."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if "/nerve/" in frame.filename]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (own[-1:] + frames[-1:])]
    return " > ".join(dict.fromkeys(places))


def _files_outside_output(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder except its output: path → size and time of change."""
    entries = {}
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders.remove("out")
        for name in folders:
            entries[os.path.relpath(os.path.join(place, name), folder)] = (0, 0)
        for name in files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            entries[os.path.relpath(path, folder)] = (status.st_size, status.st_mtime_ns)
    return entries


def _fault_of_files(folder: Path, before: dict[str, tuple[int, int]], root: Path) -> str:
    """What is wrong with the files after a case: changes outside the output folder, or drafts."""
    if not all((folder / name).is_dir() for name in FOLDERS):
        return "a folder that was not its own was removed"
    after = _files_outside_output(folder)
    names = sorted(after.keys() | before.keys())
    changed = [name for name in names if after.get(name) != before.get(name)]
    if changed:
        return f"files outside the output folder were made, changed or removed: {', '.join(changed[:5])}"
    strange = [name for name in os.listdir(root) if not name.startswith("case-")]
    strange += [name for name in os.listdir(folder) if name not in FOLDERS]
    if strange:
        return f"files outside the output folder were made: {', '.join(strange[:5])}"
    hidden = (folder / "out").rglob(".*")
    drafts = [path for path in hidden if not path.name.endswith((".lock", MARK))]
    return f"an unfinished file was left: {drafts[0].name}" if drafts else ""


def _bytes_below(folder: Path) -> int:
    return sum(
        path.lstat().st_size
        for path in folder.rglob("*")
        if not path.is_symlink() and path.is_file()
    )


def _processor_seconds(pid: int) -> float:
    """Processor time that a process and those that it has started have used."""
    try:
        parent = psutil.Process(pid)
        processes = [parent, *parent.children(recursive=True)]
        times = [process.cpu_times() for process in processes]
    except psutil.Error:
        return 0.0
    return sum(used.user + used.system for used in times)


def _reset_peak() -> None:
    """Let the peak of resident memory (VmHWM) start again from what is resident now (VmRSS)."""
    gc.collect()
    # Free memory that is still resident would hide what a case takes.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")


def _status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith(name + ":"))
