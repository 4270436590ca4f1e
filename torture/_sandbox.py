"""Run many `nerve` commands, each in a folder of its own, in forked processes that are watched.

A case passes when the command ends by itself within the time, says a sentence or succeeds, takes no more memory than
it may, and leaves nothing outside its output folder. Forked processes make this fast (everything is imported once)
and safe (a process that dies or hangs is replaced, and the case is blamed).
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
SECONDS = 300.0  # of the processor, that a command may take
KILLED_AFTER = (
    300.0  # by the clock, if it has hardly used the processor: it waits for what never comes
)
LOST_AFTER = 1200.0  # by the clock, whatever it does: it does not hear the alarm
EXTRA_BYTES = 500 * 2**20  # memory beyond twice the files
ADDRESS_SPACE = (
    6 * 2**30
)  # above what the process has: a runaway allocation fails instead of filling the machine
ENOUGH, ENOUGH_WAITING = (
    1.0,
    8.0,
)  # seconds of the processor, or by the clock, after which a case that may work for
# hours, itself or by processes that it has started, has shown that it works
ROOMS = ("in", "out", "cwd", "tmp", "home")


class Case(NamedTuple):
    """One command with its files.

    `prepare(folder)` writes the input into ``folder/in`` and returns the arguments; what the command writes belongs
    below ``folder/out``, and it runs in ``folder/cwd``.
    """

    name: str
    prepare: Callable[[Path], Sequence[str]]
    may_work: bool = False  # a size was asked for that takes long: to begin is enough
    check: Callable[[Path], str] = lambda folder: ""  # what is wrong with what was written


class Outcome(NamedTuple):
    """What became of a case: `fault` is empty if all was well."""

    case: int
    name: str
    command: str
    fault: str
    said: str
    seconds: float  # of the processor
    memory: int  # bytes above what the process had, less twice the files


Told = Callable[[Outcome], None]


def preload() -> None:
    """Import what the commands import, once for all processes; one thread, since a fork waits for its parent's."""
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


class _Watched:
    """Processes at work, each with its case and when it began."""

    def __init__(
        self, cases: Sequence[Case], numbers: Sequence[int], root: Path, told: Told
    ) -> None:
        self.cases, self.root, self.told = cases, root, told
        self.waiting = list(reversed(numbers))
        self.busy: dict[Any, tuple[Any, int, float]] = {}
        self.worked: dict[Any, float] = {}  # seconds of the processor before the case
        self.outcomes: list[Outcome] = []

    def start(self) -> None:
        """Another process, if there is work for it."""
        if not self.waiting:
            return
        context: Any = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, self.cases, self.root))
        gc.freeze()  # the child does not look at what the parent made: it would copy every page
        process.start()
        gc.unfreeze()
        there.close()
        self.give(here, process)

    def give(self, pipe: Any, process: Any) -> None:
        """The next case, or the word to end."""
        number = self.waiting.pop() if self.waiting else -1
        pipe.send(number)
        if number < 0:
            process.join()
        else:
            self.busy[pipe] = (process, number, time.monotonic())
            self.worked[pipe] = _worked(process.pid)

    def hear(self, pipe: Any) -> None:
        """An outcome, or the news that the process has died."""
        process, number, _ = self.busy.pop(pipe)
        try:
            outcome = pipe.recv()
        except EOFError:
            process.join()
            self.lost(number, f"the process ended with {process.exitcode}")
        else:
            self.keep(outcome)
            self.give(pipe, process)

    def end_late(self) -> None:
        """Kill what does not end: on a busy machine a process may be late without fault, but then it has worked."""
        for pipe, (process, number, began) in list(self.busy.items()):
            late = time.monotonic() - began
            if late > LOST_AFTER or (
                late > KILLED_AFTER and _worked(process.pid) - self.worked.get(pipe, 0.0) < 1.0
            ):
                process.kill()
                process.join()
                del self.busy[pipe]
                self.lost(number, f"it did not end: it was killed after {late:.0f} s")

    def lost(self, number: int, fault: str) -> None:
        """Blame the case, replace the process."""
        self.keep(Outcome(number, self.cases[number].name, "", fault, "", 0.0, 0))
        self.start()

    def keep(self, outcome: Outcome) -> None:
        """Note an outcome."""
        self.outcomes.append(outcome)
        self.told(outcome)


def run_cases(
    cases: Sequence[Case],
    numbers: Sequence[int],
    root: Path,
    jobs: int = 2,
    told: Told = lambda _: None,
) -> list[Outcome]:
    """Run the cases of these numbers, telling each outcome; `cases` may hold closures, since processes are forked."""
    watched = _Watched(cases, numbers, root, told)
    try:
        for _ in range(jobs):
            watched.start()
        while watched.busy:
            for pipe in wait(list(watched.busy), timeout=1.0):
                watched.hear(pipe)
            watched.end_late()
    finally:
        for (
            process,
            *_,
        ) in (
            watched.busy.values()
        ):  # when a test has run out of its time: Python would wait for them
            process.kill()
    return sorted(watched.outcomes, key=lambda outcome: outcome.case)


def _work(pipe: Connection, cases: Sequence[Case], root: Path) -> None:
    """Run the cases whose numbers come through the pipe, until −1 comes."""
    _end_with_parent()
    size = _status("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _ring)
    signal.signal(signal.SIGALRM, _ring)
    while (number := pipe.recv()) >= 0:
        pipe.send(run_case(cases[number], number, root))


def _end_with_parent() -> None:
    """Have Linux end this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _ring(*_: Any) -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    raise _OutOfTimeError


def run_case(case: Case, number: int, root: Path) -> Outcome:
    """Run one case in this process."""
    folder = root / f"case-{number}"
    for name in ROOMS:
        (folder / name).mkdir(parents=True)
    arguments = [str(word) for word in case.prepare(folder)]
    os.chdir(folder / "cwd")
    tempfile.tempdir = str(folder / "tmp")
    os.environ["HOME"] = str(folder / "home")
    size, before = _bytes_below(folder / "in"), _tree(folder)
    _reset_peak()
    resident, began = _status("VmRSS"), time.process_time()
    said, fault = _run(arguments, case.may_work, root / f"case-{number}.said")
    seconds, memory = time.process_time() - began, _status("VmHWM") - resident - 2 * size
    os.chdir(root)
    tempfile.tempdir = None
    if not fault and memory > EXTRA_BYTES:
        fault = f"memory: {memory / 2**20:.0f} MB beyond twice the files"
    fault = fault or _written_elsewhere(folder, before, root) or case.check(folder)
    if not fault:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        number, case.name, "nerve " + " ".join(map(repr, arguments)), fault, said, seconds, memory
    )


def _run(arguments: list[str], may_work: bool, log: Path) -> tuple[str, str]:
    """What the command said on both streams, and what is wrong with how it ended."""
    from nerve.cli import main

    sys.argv = ["nerve", *arguments]
    code: Any = 0
    fault = ""
    with _spoken_to(log):
        signal.setitimer(signal.ITIMER_PROF, ENOUGH if may_work else SECONDS)
        signal.setitimer(signal.ITIMER_REAL, ENOUGH_WAITING if may_work else 0)
        try:
            main()
        except SystemExit as end:
            code = end.code
        except _OutOfTimeError as error:
            fault = (
                ""
                if may_work
                else f"it did not end within {SECONDS:.0f} s ({_where(error.__traceback__)})"
            )
        except BaseException as error:
            fault = f"{type(error).__name__} at {_where(error.__traceback__)}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
    said = log.read_text("utf-8", "replace")
    log.unlink()
    if not fault and "Traceback (most recent" in said:
        fault = "a traceback was printed: " + said.strip().splitlines()[-1][:200]
    if not fault and code not in (0, None) and not said.strip():
        fault = f"it failed (exit {code}) and said nothing"
    return said[-2000:], fault


@contextlib.contextmanager
def _spoken_to(log: Path) -> Iterator[None]:
    """Both streams, those of libraries and child processes too, in a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with open(log, "wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    streams = sys.stdout, sys.stderr  # pytest has put others in their place
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    try:
        yield
    finally:
        for text in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, OSError):
                text.flush()
        sys.stdout, sys.stderr = streams
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)


def _where(trace: Any) -> str:
    """The innermost line of this package in a traceback, and the innermost of all."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if "/nerve/" in frame.filename]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in (own[-1:] + frames[-1:])]
    return " > ".join(dict.fromkeys(places))


def _tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder except its output, with size and time of change."""
    found = {}
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders.remove("out")
        for name in folders:
            found[os.path.relpath(os.path.join(place, name), folder)] = (0, 0)
        for name in files:
            about = os.lstat(os.path.join(place, name))
            found[os.path.relpath(os.path.join(place, name), folder)] = (
                about.st_size,
                about.st_mtime_ns,
            )
    return found


def _written_elsewhere(folder: Path, before: dict[str, tuple[int, int]], root: Path) -> str:
    if not all((folder / name).is_dir() for name in ROOMS):
        return "a folder that was not its own was removed"
    after = _tree(folder)
    changed = sorted(
        name for name in after.keys() | before.keys() if after.get(name) != before.get(name)
    )
    if changed:
        return f"files outside the output folder were made, changed or removed: {', '.join(changed[:5])}"
    strange = [name for name in os.listdir(root) if not name.startswith("case-")]
    strange += [name for name in os.listdir(folder) if name not in ROOMS]
    if strange:
        return f"files outside the output folder were made: {', '.join(strange[:5])}"
    drafts = [
        path for path in (folder / "out").rglob(".*") if not path.name.endswith((".lock", MARK))
    ]
    return f"an unfinished file was left: {drafts[0].name}" if drafts else ""


def _bytes_below(folder: Path) -> int:
    return sum(
        path.lstat().st_size
        for path in folder.rglob("*")
        if not path.is_symlink() and path.is_file()
    )


def _worked(process: int) -> float:
    """Seconds of the processor that a process and those that it has started have had."""
    try:
        parent = psutil.Process(process)
        times = [one.cpu_times() for one in (parent, *parent.children(recursive=True))]
    except psutil.Error:
        return 0.0
    return sum(one.user + one.system for one in times)


def _reset_peak() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(
        0
    )  # free memory that is still resident would hide what a case takes
    with open("/proc/self/clear_refs", "w") as stream:
        stream.write("5")  # VmHWM starts again from VmRSS


def _status(name: str) -> int:
    """A figure of /proc/self/status, in bytes."""
    with open("/proc/self/status") as stream:
        return next(int(line.split()[1]) * 1024 for line in stream if line.startswith(name + ":"))
