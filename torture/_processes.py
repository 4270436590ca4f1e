"""The command line in processes of its own, started without waiting for imports, and killed where we like.

Importing torch takes seconds, the tiny commands of a torture tenths of one: killed at a random moment, most would die
while importing, or while drawing the figures of a report. So a parent process imports everything once, and forks a
child for each command, which draws none. The child is otherwise what `nerve …` is: its own session, its own
arguments, `nerve.cli.main()` from the first line to the exit code. `cold` starts a command from nothing instead,
imports and all.
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
WATCHED = (
    "open",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "shutil.rmtree",
)  # audit events
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
        self.pid, self.log, self._wait = pid, log, wait
        self.began = time.perf_counter()

    def kill(self, whole_group: bool = True) -> None:
        """Kill -9, of the process and all it started or of the process alone."""
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.pid, signal.SIGKILL) if whole_group else os.kill(
                self.pid, signal.SIGKILL
            )

    def end(self) -> Ended:
        """Wait for the end; a command that hangs is killed and its code is that of the kill."""
        code, events = self._wait(self)
        seconds = time.perf_counter() - self.began
        return Ended(code, self.log.read_text(errors="replace"), seconds, events)


def cold(arguments: Sequence[str], log: Path) -> Running:
    """Start the command from nothing."""
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
    """The parent that has imported everything, forked from this process. A context manager."""

    def __enter__(self) -> "Warm":
        _import_everything()
        context: Any = multiprocessing.get_context("fork")
        self._pipe, there = context.Pipe()
        self._parent = context.Process(target=serve, args=(there,))
        self._parent.start()
        there.close()
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

        With `trace`, the names that files and folders took by a rename are written to the log's name + ``.renames``.
        With `stop_at_lock`, a pattern of paths, it stops itself (SIGSTOP) while it holds such a lock.
        """
        job = {
            "arguments": list(arguments),
            "log": str(log),
            "watch": str(watch or ""),
            "die_at": die_at,
        }
        job["trace"] = trace
        job["stop_at_lock"] = stop_at_lock
        self._pipe.send(job)
        return Running(self._pipe.recv(), log, lambda running: self._pipe.recv())

    def run(
        self, arguments: Sequence[str], log: Path, watch: Path | None = None, die_at: int = 0
    ) -> Ended:
        """Start a command and wait for its end."""
        return self.start(arguments, log, watch, die_at).end()


def serve(pipe: Any) -> None:
    """What the parent does: fork a child for each job that it is sent, until there is none."""
    os.environ |= {name: ENVIRONMENT[name] for name in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")}
    threadpool_limits(
        1
    )  # libraries that are loaded already: sums of two threads are not those of one, bit for bit
    while job := pipe.recv():
        pid = os.fork()
        if pid == 0:
            with without_figures():
                _be_the_command(job)
        pipe.send(pid)
        pipe.send((_code_of(pid), _counted(job)))


def _import_everything() -> None:
    from nerve.report.figures import FIGURES

    for module in FIGURES.values():
        import_module(module)
    for module in ("nerve.evaluation.protocol_text", "nerve.report.page"):
        import_module(module)


@contextmanager
def without_figures() -> Iterator[None]:
    """Reports of this process have no figures, which take most of the time of a small command."""
    from nerve.report import figures

    def nothing(name: str, results: object) -> None:
        raise figures.NothingToDraw("It was left out.")

    drawn = figures.draw_with_caption
    figures.draw_with_caption = nothing
    try:
        yield
    finally:
        figures.draw_with_caption = drawn


def _code_of(pid: int) -> int:
    deadline = time.monotonic() + WAIT
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.005)


def _be_the_command(job: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for new, old in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(new, old)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  pytest has its own
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
        counter.on = False
        Path(job["log"] + ".events").write_text(str(counter.count))
    os._exit(code if isinstance(code, int) else int(code is not None))


def _trace_renames(file: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename":
            os.write(descriptor, f"{os.fspath(arguments[1])}\n".encode())

    sys.addaudithook(note)


def _stop_at_lock(pattern: str) -> None:
    """Stop this process once, at its first file operation after it has written its name into such a lock."""
    stopped = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if (
            event in WATCHED
            and not stopped
            and any(os.path.getsize(name) for name in glob(pattern))
        ):
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(look)


class _Counter:
    """Counts file operations below a folder in this process, and ends it at the one that was asked for."""

    def __init__(self, folder: str, die_at: int) -> None:
        self.folder, self.die_at, self.count, self.on = folder, die_at, 0, True
        self.pid = os.getpid()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event not in WATCHED or os.getpid() != self.pid:
            return
        path = arguments[0] if arguments else ""
        if isinstance(path, int) or not os.fspath(path or "").startswith(self.folder):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        self.count += 1
        if self.count == self.die_at:
            os.killpg(0, signal.SIGKILL)


def _counted(job: dict[str, Any]) -> int:
    file = Path(job["log"] + ".events")
    if not file.is_file():
        return 0
    count = int(file.read_text())
    file.unlink()
    return count
