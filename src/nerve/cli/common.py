"""What the commands share: the application, options, how it speaks, how it refuses.

Options that several commands have, or that are many, come from tables: a default and a sentence each.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from nerve._utils.errors import NerveError, problem
from nerve._utils.privacy import printable
from nerve._utils.progress import above_bars
from nerve._utils.startup import lacks_memory
from nerve.evaluation.protocol import FIELDS, Protocol

Command = Callable[..., Any]
Table = Mapping[
    str, tuple[Any, str]
]  # name: default (a type where there is none, … where one is needed), sentence
MODEL = "A trained model: its folder, archive, or name in `nerve models list`"

app = typer.Typer(
    name="nerve",
    help="Representations of brain functional connectivity, and an honest test of what they predict.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def option(says: str, *names: str, **more: Any) -> Any:
    """An option of a command, with its sentence."""
    return typer.Option(*names, help=says, **more)


def argument(says: str) -> Any:
    """What a command is about, with its sentence."""
    return typer.Argument(help=says, callback=_not_empty)


def place(says: str) -> Any:
    """An option that names a file or a folder to write, with its sentence."""
    return option(says, callback=_not_empty)


def _not_empty(value: Any) -> Any:
    """Refuse an empty name: as a path it would be the current folder."""
    if isinstance(value, str) and not value.strip():
        raise typer.BadParameter("it is empty, expected a name or a path")
    return value


def with_protocol(**defaults: Any) -> Callable[[Command], Command]:
    """A command that takes one option per field of the protocol, and is given a `Protocol` as `protocol`.

    On the command line `--n-folds 5` becomes its field `n_folds`. `defaults` are those of the command where they are
    not the protocol's own.
    """
    return with_table(protocol_table(FIELDS, targets=..., **defaults), "protocol", Protocol)


def protocol_table(names: Iterable[str], **defaults: Any) -> Table:
    """Fields of the protocol as options; names and numbers are separated by commas."""
    table = {}
    for name in names:
        default = defaults.get(name, FIELDS[name].default)
        if isinstance(default, tuple):
            default = ",".join(
                f"{value:g}" if isinstance(value, float | int) else value for value in default
            )
        table[name] = str if default is None else default, FIELDS[name].metadata["help"]
    return table


def with_table(
    table: Table, parameter: str = "options", collect: Any = dict
) -> Callable[[Command], Command]:
    """A command that takes the options of a table, and is given what `collect` makes of them as one parameter."""
    options = [_option(name, default, says) for name, (default, says) in table.items()]

    def decorated(command: Command) -> Command:
        taken = inspect.signature(command, eval_str=True).parameters.values()
        own = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in taken
            if one.name != parameter
        ]

        def parsed(**values: Any) -> Any:
            given = {name: values.pop(name) for name in table}
            return command(**values, **{parameter: collect(**given)})

        needed_first = sorted(
            [*own, *options], key=lambda one: one.default is not inspect.Parameter.empty
        )
        parsed.__signature__ = inspect.Signature(needed_first)  # type: ignore[attr-defined]
        parsed.__annotations__ = {one.name: one.annotation for one in needed_first}
        parsed.__name__, parsed.__doc__ = command.__name__, command.__doc__
        return parsed

    return decorated


def _option(name: str, default: Any, says: str) -> inspect.Parameter:
    kind: Any = type(default)
    if isinstance(default, type):
        kind, default = default | None, None
    elif default is ...:
        kind, default = str, inspect.Parameter.empty
    flag = f"--{name.replace('_', '-')}"
    flag = option(says, f"{flag}/--no-{flag[2:]}" if kind is bool else flag)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, flag]
    )


def say(text: str) -> None:
    """Print one line for the user, on standard output."""
    with above_bars():
        typer.echo(printable(text))


def note(text: object, colour: str | None = None) -> None:
    """Print one line for the user, on standard error."""
    with above_bars():
        typer.secho(printable(text), fg=colour, err=True)


def draw_likeness(
    path: str | os.PathLike[str], like: Any, cohort: str, *, overwrite: bool = False
) -> None:
    """Draw how like a model's training cohort a cohort is; a file is replaced only when asked for."""
    from nerve._utils.files import atomic_file, check_may_write
    from nerve.report.figures import draw
    from nerve.report.report_data import ReportData

    ending = Path(path).suffix.lower()
    if ending not in (".svg", ".png", ".pdf"):
        raise problem(path, f"its ending is {ending!r}", expected=".svg, .png or .pdf")
    check_may_write(path, overwrite=overwrite)
    figure = draw("likeness", ReportData(likeness={("the model", cohort): like}))
    with atomic_file(path) as stream:
        figure.savefig(stream, format=ending[1:], facecolor="white")
    say(f"{path}: the cohort and the model's training cohort, compared")


@contextmanager
def refusing(program: str) -> Iterator[None]:
    """Inside, a `NerveError` becomes one sentence and exit code 1, never a traceback; warnings are notes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # what an ASCII locale, say, lacks is a question mark, not a failure
    warnings.showwarning = lambda message, *_, **__: note(f"note: {message}", typer.colors.YELLOW)
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (NerveError, MemoryError, RuntimeError, OSError, ImportError) as error:
        if not (sentence := _sentence(error)):
            raise
        note(f"{program}: {sentence}", typer.colors.RED)
        sys.exit(1)


def _sentence(error: Exception) -> str:
    """What a user is told of an error; nothing of one that is a fault of ours."""
    if isinstance(error, NerveError):
        return str(error)
    if isinstance(error, OSError) and not lacks_memory(error):
        # a disk that is full, say, where no folder of the user is named
        return f"{error.filename or _where_to()}: {error.strerror or error}."
    if str(error).startswith("Symlink loop"):  # as Python before 3.13 has it
        return f"{error}."
    return "there is not enough memory for what was asked for." if lacks_memory(error) else ""


def _where_to() -> str:
    """What is written without a name: standard output, into a file perhaps, and the temporary folder."""
    import tempfile

    try:
        stream = os.readlink("/proc/self/fd/1")
    except OSError:
        stream = "standard output"
    return f"{stream} or {tempfile.gettempdir()}"
