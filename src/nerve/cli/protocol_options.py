"""Options of the command line from the fields of the protocol: the same names, said once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from nerve.protocol import FIELDS, Protocol


def with_protocol(command: Callable[..., Any], **defaults: Any) -> Callable[..., Any]:
    """A command that takes one option per field of the protocol, and is given a `Protocol`.

    The decorated function has a parameter `protocol`; on the command line `--n-folds 5` becomes its field `n_folds`.
    `defaults` are those of the command where they are not the protocol's own.
    """
    own = [one for one in inspect.signature(command).parameters.values() if one.name != "protocol"]
    hints = get_type_hints(command, include_extras=True)

    def parsed(**values: Any) -> Any:
        given = {name: values.pop(name) for name in FIELDS}
        return command(**values, protocol=Protocol(**given))

    options = [_option(name, defaults.get(name, field.default)) for name, field in FIELDS.items()]
    own = [one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    required = [one for one in (*own, *options) if one.default is inspect.Parameter.empty]
    others = [one for one in (*own, *options) if one.default is not inspect.Parameter.empty]
    parsed.__signature__ = inspect.Signature([*required, *others])  # type: ignore[attr-defined]
    parsed.__annotations__ = {one.name: one.annotation for one in (*required, *others)}
    parsed.__name__, parsed.__doc__ = command.__name__, command.__doc__
    return parsed


def _option(name: str, default: Any) -> inspect.Parameter:
    kind, says = get_type_hints(Protocol)[name], FIELDS[name].metadata["help"]
    if isinstance(default, tuple):  # names or numbers, separated by commas
        kind, default = str, ",".join(f"{value:g}" if isinstance(value, float | int) else value for value in default)
    flag = f"--{name.replace('_', '-')}"
    option = typer.Option(f"{flag}/--no-{flag[2:]}" if kind is bool else flag, help=says)
    default = inspect.Parameter.empty if name == "targets" else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
