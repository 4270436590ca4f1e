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
from nerve.cli.common import app, say

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

    warnings.showwarning = _show_warning
    try:
        app()
    except NerveError as error:
        typer.secho(f"nerve: {error}", fg=typer.colors.RED, err=True)
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
        typer.secho(f"nerve: {said}", fg=typer.colors.RED, err=True)
        sys.exit(1)
    except OSError as error:  # a disk that is full, say, where no folder of the user's is named
        where = "" if error.filename is None else f"{error.filename}: "
        typer.secho(f"nerve: {where}{error.strerror or error}.", fg=typer.colors.RED, err=True)
        sys.exit(1)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    typer.secho(f"note: {message}", fg=typer.colors.YELLOW, err=True)
