"""What users type. Each command parses, calls a function of the package and prints where it wrote.

Torch, and what needs it, is imported inside the commands, so that `nerve --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

import nerve
from nerve.cli import cohorts, models, predictions  # noqa: F401 - they register their commands
from nerve.cli.common import app, errors_as_sentences, option, say

__all__ = ["app", "main"]


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, option("Print the version and stop.", "--version")] = False,
) -> None:
    if version:
        say(f"nerve {nerve.__version__}")
        raise typer.Exit


def main() -> None:
    """Run `nerve`: a `NerveError` becomes one sentence and exit code 1, never a traceback."""
    with errors_as_sentences("nerve"):
        app()
