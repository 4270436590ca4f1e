"""What the commands share: the application, how it speaks, how it refuses."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from nerve.checks import NerveError, printable

app = typer.Typer(
    name="nerve",
    help="Representations of brain functional connectivity, and an honest test of what they predict.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
atlas = typer.Typer(help="The built-in parcellations.", no_args_is_help=True)
app.add_typer(atlas, name="atlas")
models = typer.Typer(help="Trained models, by name, folder or archive.", no_args_is_help=True)
app.add_typer(models, name="models")


def option(says: str, *names: str, **more: Any) -> Any:
    """An option of a command, with its sentence."""
    return typer.Option(*names, help=says, **more)


def argument(says: str, **more: Any) -> Any:
    """What a command is about, with its sentence."""
    return typer.Argument(help=says, **more)


def named(value: str | None) -> str | None:
    """Refuse an empty name of a place to write to: it would be the current folder."""
    if value is not None and not value.strip():
        raise typer.BadParameter("it is empty, expected a path")
    return value


def say(text: str) -> None:
    """Print one line for the user, on standard output."""
    typer.echo(printable(text))


def note(text: object, colour: str | None = None) -> None:
    """Print one line for the user, on standard error."""
    typer.secho(printable(text), fg=colour, err=True)


def draw_likeness(path: str | os.PathLike[str], like: Any, cohort: str) -> None:
    """Draw how like a model's training cohort a cohort is; no file that is not a figure is replaced."""
    from nerve.checks import problem
    from nerve.files import atomic_file
    from nerve.report.figures import draw
    from nerve.report.results import Results

    ending = Path(path).suffix.lower()
    if ending not in (".svg", ".png", ".pdf"):
        raise problem(path, f"its ending is {ending!r}", expected=".svg, .png or .pdf")
    figure = draw("likeness", Results(likeness={("the model", cohort): like}))
    with atomic_file(path) as stream:
        figure.savefig(stream, format=ending[1:], facecolor="white")
    say(f"{path}: the cohort and the model's training cohort, compared")


@contextmanager
def refusing(program: str) -> Iterator[None]:
    """Inside, a `NerveError` becomes one sentence and exit code 1, never a traceback; warnings are notes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # what an ASCII locale, say, lacks is a question mark, not a failure
    warnings.showwarning = lambda message, *_, **__: note(f"note: {message}", typer.colors.YELLOW)
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (NerveError, MemoryError, RuntimeError, OSError) as error:
        if not (sentence := _sentence(error)):
            raise
        note(f"{program}: {sentence}", typer.colors.RED)
        sys.exit(1)


def _sentence(error: Exception) -> str:
    """What a user is told of an error; nothing of one that is a fault of ours."""
    if isinstance(error, NerveError):
        return str(error)
    if isinstance(error, OSError):  # a disk that is full, say, where no folder of the user's is named
        return f"{error.filename or _where_to()}: {error.strerror or error}."
    if str(error).startswith("Symlink loop"):  # as Python before 3.13 has it
        return f"{error}."
    # torch has no error of its own for a CPU's memory
    lacking = isinstance(error, MemoryError) or "allocate" in str(error)
    return "there is not enough memory for what was asked for." if lacking else ""


def _where_to() -> str:
    """What is written without a name: standard output, into a file perhaps, and the temporary folder."""
    import tempfile

    try:
        stream = os.readlink("/proc/self/fd/1")
    except OSError:
        stream = "standard output"
    return f"{stream} or {tempfile.gettempdir()}"
