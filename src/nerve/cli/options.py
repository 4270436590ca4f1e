"""Options of the command line from tables, a default and a sentence each: said once, whichever command has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_type_hints

import typer

from nerve.protocol import FIELDS, Protocol

Command = Callable[..., Any]
Table = Mapping[str, tuple[Any, str]]  # name: default (a type where there is none, … where one is needed), sentence


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
            default = ",".join(f"{value:g}" if isinstance(value, float | int) else value for value in default)
        table[name] = str if default is None else default, FIELDS[name].metadata["help"]
    return table


def with_table(table: Table, parameter: str = "options", collect: Any = dict) -> Callable[[Command], Command]:
    """A command that takes the options of a table, and is given what `collect` makes of them as one parameter."""
    options = [_option(name, default, says) for name, (default, says) in table.items()]

    def decorated(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        own = [
            one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for one in inspect.signature(command).parameters.values()
            if one.name != parameter
        ]

        def parsed(**values: Any) -> Any:
            given = {name: values.pop(name) for name in table}
            return command(**values, **{parameter: collect(**given)})

        needed_first = sorted([*own, *options], key=lambda one: one.default is not inspect.Parameter.empty)
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
    option = typer.Option(f"{flag}/--no-{flag[2:]}" if kind is bool else flag, help=says)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
