"""What users type. Each command parses, calls one function of the package and says what was written where.

Heavy imports (torch, pandas) happen inside the commands, so that `nerve --help` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from nerve.cli import cohorts, models, results  # noqa: F401 - they register their commands
from nerve.cli.common import app, note, say

__all__ = ["app", "main"]


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        say(f"nerve {installed('nerve-fc')}")
        raise typer.Exit


def main() -> None:
    """Run the command line: a `NerveError` becomes one sentence and exit code 1, never a traceback."""
    from nerve.checks import NerveError

    _speak_any_encoding()
    warnings.showwarning = _show_warning
    try:
        app()
    except NerveError as error:
        note(f"nerve: {error}", typer.colors.RED)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:  # torch has no error of its own for a CPU's memory
        said = "there is not enough memory for what was asked for."
        if str(error).startswith("Symlink loop"):  # as Python before 3.13 has it
            said = f"{error}."
        elif isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        note(f"nerve: {said}", typer.colors.RED)
        sys.exit(1)
    except OSError as error:  # a disk that is full, say, where no folder of the user's is named
        where = f"{error.filename or _where_to()}: "
        note(f"nerve: {where}{error.strerror or error}.", typer.colors.RED)
        sys.exit(1)


def _speak_any_encoding() -> None:
    """Let streams show what their encoding lacks (an ASCII locale, say) as question marks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _where_to() -> str:
    """What is written without a name: standard output, into a file perhaps, and the temporary folder."""
    import tempfile

    try:
        return f"{os.readlink('/proc/self/fd/1')} or {tempfile.gettempdir()}"
    except OSError:
        return f"standard output or {tempfile.gettempdir()}"


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    note(f"note: {message}", typer.colors.YELLOW)
