"""What the commands share: the application, its options, its messages and its errors.

Options that several commands share, and long lists of options, are tables: for each option a
default and a sentence.
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
# Name of an option → its default and its sentence. In place of a default stands the type of an
# option that may be left out, or `...` for one that is required.
OptionTable = Mapping[str, tuple[Any, str]]
MODEL = "A trained model: its folder, archive, or name in `nerve models list`"

app = typer.Typer(
    name="nerve",
    help="Representations of brain functional connectivity, and an honest test of what they "
    "predict.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def option(sentence: str, *flags: str, **details: Any) -> Any:
    """An option of a command, with its sentence."""
    return typer.Option(*flags, help=sentence, **details)


def argument(sentence: str) -> Any:
    """A positional argument of a command, with its sentence."""
    return typer.Argument(help=sentence, callback=_refuse_empty)


def output(sentence: str) -> Any:
    """An option that names a file or a folder to write, with its sentence."""
    return option(sentence, callback=_refuse_empty)


def _refuse_empty(value: Any) -> Any:
    """Refuse an empty name: as a path it would be the current folder."""
    if isinstance(value, str) and not value.strip():
        raise typer.BadParameter("it is empty, expected a name or a path")
    return value


def with_protocol(**defaults: Any) -> Callable[[Command], Command]:
    """Give a command one option per field of the protocol; it receives them as one `Protocol`.

    On the command line `--n-folds 5` becomes its field `n_folds`.

    Parameters
    ----------
    **defaults
        Defaults of the command that differ from those of the protocol.

    Returns
    -------
    callable
        A decorator of commands that have a parameter `protocol`.
    """
    return with_table(protocol_table(FIELDS, targets=..., **defaults), "protocol", Protocol)


def protocol_table(names: Iterable[str], **defaults: Any) -> OptionTable:
    """Fields of the protocol as options; names and numbers are separated by commas.

    Parameters
    ----------
    names : iterable of str
        Which fields.
    **defaults
        Defaults of the command that differ from those of the protocol.

    Returns
    -------
    mapping
        A table for `with_table`.
    """
    table = {}
    for name in names:
        default = defaults.get(name, FIELDS[name].default)
        if isinstance(default, tuple):
            words = [f"{value:g}" if isinstance(value, float | int) else value for value in default]
            default = ",".join(words)
        table[name] = (str if default is None else default, FIELDS[name].metadata["help"])
    return table


def with_table(
    table: OptionTable, parameter: str = "options", collect: Callable[..., Any] = dict
) -> Callable[[Command], Command]:
    """Give a command the options of a table; it receives them as one parameter.

    Parameters
    ----------
    table : mapping
        The options.
    parameter : str
        The name of the parameter of the command.
    collect : callable
        Makes the value of that parameter; it is called with the options as keywords.

    Returns
    -------
    callable
        A decorator of commands.
    """
    options = [_parameter(name, default, sentence) for name, (default, sentence) in table.items()]

    def decorate(command: Command) -> Command:
        # typer shows options in this order: first those that are required
        required = []
        optional = []
        own = inspect.signature(command, eval_str=True).parameters.values()
        for entry in (*own, *options):
            if entry.name == parameter:
                continue
            entry = entry.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            if entry.default is inspect.Parameter.empty:
                required.append(entry)
            else:
                optional.append(entry)
        parameters = required + optional

        def with_options(**values: Any) -> Any:
            chosen = {name: values.pop(name) for name in table}
            try:
                collected = collect(**chosen)
            except NerveError as error:
                raise NerveError(_naming_option(str(error), table)) from error
            return command(**values, **{parameter: collected})

        # typer reads the options from the signature
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {entry.name: entry.annotation for entry in parameters}
        with_options.__name__ = command.__name__
        with_options.__doc__ = command.__doc__
        return with_options

    return decorate


def _naming_option(sentence: str, names: Iterable[str]) -> str:
    """An error message that begins with the name of a parameter, with its option instead."""
    first, blank, rest = sentence.partition(" ")
    if first not in names:
        return sentence
    return f"--{first.replace('_', '-')}{blank}{rest}"


def _parameter(name: str, default: Any, sentence: str) -> inspect.Parameter:
    """One row of a table as a parameter that typer understands."""
    value_type: Any = type(default)
    if isinstance(default, type):
        value_type = default | None
        default = None
    elif default is ...:
        value_type = str
        default = inspect.Parameter.empty
    flag = name.replace("_", "-")
    flags = f"--{flag}/--no-{flag}" if value_type is bool else f"--{flag}"
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[value_type, option(sentence, flags)],
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
    path: str | os.PathLike[str], likeness: Any, cohort: str, *, overwrite: bool = False
) -> None:
    """Draw how a cohort compares with the training cohort of a model.

    Parameters
    ----------
    path : path
        A .svg, .png or .pdf.
    likeness : Likeness
        What `NERVE.likeness` gives.
    cohort : str
        The name of the cohort.
    overwrite : bool
        Replace a file that exists.
    """
    from nerve.report.report_data import ReportData

    data = ReportData(likeness={("the model", cohort): likeness})
    _draw_to(path, "likeness", data, overwrite)
    say(f"{path}: the cohort and the model's training cohort, compared")


def draw_common_space(path: str | os.PathLike[str], pair: Any, *, overwrite: bool = False) -> None:
    """Draw the group means before and after a resampling, and its weights.

    Parameters
    ----------
    path : path
        A .svg, .png or .pdf.
    pair : MeanPair
        What `nerve.data.common_space` gives.
    overwrite : bool
        Replace a file that exists.
    """
    from nerve.report.report_data import ReportData

    _draw_to(path, "common_space", ReportData(mean_pairs=[pair]), overwrite)
    say(f"{path}: group means before and after, and the weights")


def _draw_to(path: str | os.PathLike[str], name: str, data: Any, overwrite: bool) -> None:
    """Draw a figure of the report into a file."""
    from nerve._utils.files import atomic_file, check_may_write
    from nerve.report.figures import draw

    ending = Path(path).suffix.lower()
    if ending not in (".svg", ".png", ".pdf"):
        raise problem(path, f"its ending is {ending!r}", expected=".svg, .png or .pdf")
    check_may_write(path, overwrite=overwrite)
    figure = draw(name, data)
    with atomic_file(path) as stream:
        figure.savefig(stream, format=ending[1:], facecolor="white")


@contextmanager
def errors_as_sentences(program: str) -> Iterator[None]:
    """Turn errors inside into one sentence and exit code 1, and warnings into notes.

    Parameters
    ----------
    program : str
        What the sentence begins with.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a character that, say, an ASCII locale lacks is a question mark, not a failure
            stream.reconfigure(errors="replace")
    warnings.showwarning = lambda message, *_, **__: note(f"note: {message}", typer.colors.YELLOW)
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (NerveError, MemoryError, RuntimeError, OSError, ImportError) as error:
        sentence = _sentence(error)
        if not sentence:
            raise
        note(f"{program}: {sentence}", typer.colors.RED)
        sys.exit(1)


def _sentence(error: Exception) -> str:
    """The message for the user; empty for an error that is a fault of this package."""
    if isinstance(error, NerveError):
        return str(error)
    if isinstance(error, OSError) and not lacks_memory(error):
        return f"{error.filename or _unnamed_outputs()}: {error.strerror or error}."
    if str(error).startswith("Symlink loop"):  # a RuntimeError before Python 3.13
        return f"{error}."
    if lacks_memory(error):
        return "there is not enough memory for what was asked for."
    return ""


def _unnamed_outputs() -> str:
    """Where an error without a file name may have happened: a full disk, for example."""
    import tempfile

    try:
        stream = os.readlink("/proc/self/fd/1")
    except OSError:
        stream = "standard output"
    return f"{stream} or {tempfile.gettempdir()}"
