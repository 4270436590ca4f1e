"""What the commands share: the application, how it speaks, how it shows progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from nerve.checks import printable

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
    from nerve.report.figures.likeness import write_likeness

    ending = Path(path).suffix.lower()
    if ending not in (".svg", ".png", ".pdf"):
        raise problem(path, f"its ending is {ending!r}", expected=".svg, .png or .pdf")
    write_likeness(path, like, cohort)
    say(f"{path}: the cohort and the model's training cohort, compared")


@contextmanager
def shown_progress(label: str = "preparing") -> Iterator[Any]:
    """Progress on standard error, as a function of a label and the share done."""
    from nerve.progress import Progress

    with Progress(label, 1.0) as progress:
        yield lambda label, share: progress.update(share, label=label)
