"""`nerve` commands in processes of their own, started without waiting for imports, and killed.

Importing torch takes seconds, the tiny commands of a torture tenths of one: killed at a random
moment, most would die while importing, or while drawing the figures of a report. So a parent
process imports everything once and forks a child for each command, which draws no figures. The
child is otherwise what `nerve …` is: its own session, its own arguments, `nerve.cli.main()` from
the first line to the exit code. `start_cold` starts a command from nothing instead, imports and all.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
# Audit events of Python that count as file operations.
WATCHED = (
    "open",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "shutil.rmtree",
)
COLD = """
from torture._processes import without_figures
from nerve.cli import main
with without_figures():
    main()
"""
WAIT = 1200.0  # seconds after which a command counts as hanging


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # negative: the signal that ended it
    output: str
    seconds: float
    events: int  # file operations below the watched folder; 0 if they were not counted


class Running:
    """A command that runs in a session of its own."""

    def __init__(self, pid: int, log: Path, wait: Any) -> None:
        self.pid = pid
        self.log = log
        self._wait = wait
        self.began = time.perf_counter()

    def kill(self, whole_group: bool = True) -> None:
        """Kill -9: the process and all that it started, or the process alone."""
        with suppress(ProcessLookupError):  # it has ended by itself
            if whole_group:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for the end. A command that hangs is killed, and its code is that of the kill."""
        code, events = self._wait(self)
        seconds = time.perf_counter() - self.began
        return Ended(code, self.log.read_text(errors="replace"), seconds, events)


def start_cold(arguments: Sequence[str], log: Path) -> Running:
    """Start the command from nothing, imports and all."""
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with open(log, "wb") as stream:
        command = [sys.executable, "-c", COLD, *arguments]
        process = subprocess.Popen(
            command, stdout=stream, stderr=stream, env=environment, start_new_session=True
        )

    def wait(running: Running) -> tuple[int, int]:
        try:
            return process.wait(WAIT), 0
        except subprocess.TimeoutExpired:
            running.kill()
            return process.wait(), 0

    return Running(process.pid, log, wait)


class Warm:
    """A parent process that has imported everything, forked from this one; a context manager."""

    def __enter__(self) -> "Warm":
        _import_everything()
        context: Any = multiprocessing.get_context("fork")
        self._pipe, parent_end = context.Pipe()
        self._parent = context.Process(target=serve, args=(parent_end,))
        self._parent.start()
        parent_end.close()
        return self

    def __exit__(self, *_: Any) -> None:
        self._pipe.send(None)
        self._parent.join()

    def start(
        self,
        arguments: Sequence[str],
        log: Path,
        watch: Path | None = None,
        die_at: int = 0,
        trace: bool = False,
        stop_at_lock: str = "",
    ) -> Running:
        """Start a command; with `die_at` it kills its whole group at that file operation below `watch`.

        With `trace`, the names that files and folders took by a rename are written to the log's
        name + ``.renames``. With `stop_at_lock`, a pattern of paths, it stops itself (SIGSTOP)
        while it holds such a lock.
        """
        job = {
            "arguments": list(arguments),
            "log": str(log),
            "watch": str(watch or ""),
            "die_at": die_at,
            "trace": trace,
            "stop_at_lock": stop_at_lock,
        }
        self._pipe.send(job)
        return Running(self._pipe.recv(), log, lambda running: self._pipe.recv())

    def run(
        self, arguments: Sequence[str], log: Path, watch: Path | None = None, die_at: int = 0
    ) -> Ended:
        """Start a command and wait for its end."""
        return self.start(arguments, log, watch, die_at).wait()


def serve(pipe: Any) -> None:
    """Fork a child for each job that comes through the pipe, until None comes (in the parent)."""
    os.environ |= {name: ENVIRONMENT[name] for name in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")}
    # Libraries are loaded already, and sums of two threads are not those of one, bit for bit.
    threadpool_limits(1)
    while job := pipe.recv():
        pid = os.fork()
        if pid == 0:
            with without_figures():
                _run_command(job)
        pipe.send(pid)
        pipe.send((_exit_code(pid), _read_count(job)))


def _import_everything() -> None:
    from nerve.report.figures import FIGURES

    for module in FIGURES.values():
        import_module(module)
    for module in ("nerve.evaluation.protocol_text", "nerve.report.page"):
        import_module(module)


@contextmanager
def without_figures() -> Iterator[None]:
    """Leave the figures out of reports: they take most of the time of a small command."""
    from nerve.report import figures

    def draw_nothing(name: str, results: object) -> None:
        raise figures.NothingToDraw("It was left out.")

    draw_with_caption = figures.draw_with_caption
    figures.draw_with_caption = draw_nothing
    try:
        yield
    finally:
        figures.draw_with_caption = draw_with_caption


def _exit_code(pid: int) -> int:
    """Wait for a child; one that hangs is killed."""
    deadline = time.monotonic() + WAIT
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.005)


def _run_command(job: dict[str, Any]) -> None:
    """Turn this forked process into the command, and end it with the command's exit code."""
    os.setsid()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    empty_input = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty_input, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # pytest has put other streams in the place of these.
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout = open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w")  # noqa: SIM115
    sys.argv = ["nerve", *job["arguments"]]
    counter = _Counter(job["watch"], job["die_at"])
    if job["watch"]:
        sys.addaudithook(counter)
    if job["trace"]:
        _trace_renames(job["log"] + ".renames")
    if job["stop_at_lock"]:
        _stop_at_lock(job["stop_at_lock"])
    code: Any = 0
    try:
        import nerve.cli

        nerve.cli.main()
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if job["watch"]:
        counter.is_on = False
        Path(job["log"] + ".events").write_text(str(counter.count))
    os._exit(code if isinstance(code, int) else int(code is not None))


def _trace_renames(file: str) -> None:
    """Write the new name of everything that this process renames into a file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            os.write(descriptor, f"{os.fspath(arguments[1])}\n".encode())

    sys.addaudithook(note)


def _stop_at_lock(pattern: str) -> None:
    """Stop this process once, at its first file operation while such a lock has a text."""
    has_stopped = False

    def stop_if_locked(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal has_stopped
        if event not in WATCHED or has_stopped:
            return
        if any(os.path.getsize(name) for name in glob(pattern)):
            has_stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(stop_if_locked)


class _Counter:
    """Counts the file operations below a folder in this process, and kills it at one of them."""

    def __init__(self, folder: str, die_at: int) -> None:
        self.folder = folder
        self.die_at = die_at
        self.count = 0
        self.is_on = True
        self.pid = os.getpid()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on or event not in WATCHED or os.getpid() != self.pid:
            return
        path = arguments[0] if arguments else ""
        if isinstance(path, int) or not os.fspath(path or "").startswith(self.folder):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        self.count += 1
        if self.count == self.die_at:
            os.killpg(0, signal.SIGKILL)


def _read_count(job: dict[str, Any]) -> int:
    """The number of file operations that the child has left in a file, 0 if it has left none."""
    file = Path(job["log"] + ".events")
    if not file.is_file():
        return 0
    count = int(file.read_text())
    file.unlink()
    return count
