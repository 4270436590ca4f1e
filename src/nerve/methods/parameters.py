"""Parameters of methods: what each may be, and the one place where they are checked.

A parameter's type in the signature of ``__init__`` says what is allowed, its line in the docstring
of the class says what it means. Options, YAML files and documents read both from there.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, get_type_hints

import numpy as np
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from nerve._utils.errors import NerveError, brief, did_you_mean, listed, problem
from nerve._utils.files import read_yaml

_LARGEST = 10**9  # of any number: larger ones overflow in torch or in waiting times

Count = Annotated[int, Field(ge=1, le=_LARGEST)]
Epochs = Annotated[int, Field(ge=0, le=_LARGEST)]  # 0 is a model without training, as a control
# participants per step of a method that normalises over the participants of a batch
BatchOfSeveral = Annotated[int, Field(ge=2, le=_LARGEST)]
Width = Annotated[int, Field(ge=1, le=65536)]
Layers = Annotated[int, Field(ge=1, le=1000)]
LayersOrNone = Annotated[int, Field(ge=0, le=1000)]
Positive = Annotated[float, Field(gt=0, le=_LARGEST)]
NotNegative = Annotated[float, Field(ge=0, le=_LARGEST)]
Share = Annotated[float, Field(ge=0, lt=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
Factor = Annotated[float, Field(gt=0, le=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
Widths = Annotated[tuple[Width, ...], Field(strict=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]

# torch's defaults of Adam, which most methods were published with; those of NERVE are others
TORCH_BETAS = (0.9, 0.999)
TORCH_EPS = 1e-8


def _known_device(name: str) -> str:
    """Check the name of a device; whether the machine has it shows when it is used."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name):
        raise ValueError("auto, cpu, cuda, cuda:1 or mps")
    return name


Device = Annotated[str, AfterValidator(_known_device)]
_STRICT = ConfigDict(
    extra="forbid", frozen=True, strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
)


def check_names(settings: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse names that do not exist; the error names the nearest that does.

    Parameters
    ----------
    settings : mapping
        Names and values.
    known : iterable of str
        The names that exist.
    where : str
        Where the names come from; the error begins with it.
    """
    known = list(known)
    for name in settings:
        if name not in known:
            expected = f"expected one of {listed(known, most=50)}.{did_you_mean(str(name), known)}"
            raise NerveError(f"{where}: there is no setting {brief(name)}, {expected}")


def checked_parameters(estimator: Any, where: str) -> dict[str, Any]:
    """Check the parameters of an estimator against the types in its signature.

    Parameters
    ----------
    estimator : estimator
        Of scikit-learn's kind, with annotated parameters.
    where : str
        Where the parameters come from; an error begins with it.

    Returns
    -------
    dict
        The parameters by name. NumPy's numbers are Python's, lists are tuples.
    """
    cls: Any = type(estimator)
    return dict(validated(_signature_model(cls), estimator.get_params(deep=False), where))


def validated(model: type[BaseModel], values: Mapping[str, Any], where: object) -> Any:
    """Make an object of a pydantic model; the first mistake becomes a `NerveError`.

    Parameters
    ----------
    model : type
        A pydantic model.
    values : mapping
        Of its fields.
    where : object
        Where the values come from; an error begins with it.

    Returns
    -------
    object of the model
    """
    try:
        return model(**{name: plain(value) for name, value in values.items()})
    except RecursionError:
        raise problem(where, "a setting holds itself", expected="plain values") from None
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "the settings"
        raise problem(
            where, f"{name} is {brief(values.get(name))}", expected=_expectation(first)
        ) from None


def parameter_descriptions(cls: type) -> dict[str, str]:
    """Read what each parameter means from the docstring of a class, in numpydoc's format.

    Parameters
    ----------
    cls : type
        A class with a section "Parameters" in its docstring.

    Returns
    -------
    dict of str to str
        Name to description, in the order of the docstring.

    Examples
    --------
    >>> from nerve.methods.nerve import NERVE
    >>> parameter_descriptions(NERVE)["mask_ratio"]
    'Share of the patches that is masked.'
    """
    docstring = inspect.getdoc(cls) or ""
    _, _, section = docstring.partition("Parameters\n----------\n")
    section = re.split(r"\n\n[A-Z][a-z]+\n-+\n", section)[0]
    descriptions: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
            descriptions |= dict.fromkeys(names, "")
            continue
        for name in names:
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions


def read_settings(path: str | os.PathLike[str]) -> tuple[str | None, dict[str, Any]]:
    """Read a YAML file of parameters.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    preset : str or None
        The preset that the file names, if any.
    settings : dict
        The other lines.
    """
    settings = {}
    for name, value in read_yaml(path).items():
        # YAML reads 1e-06 as a word, and only 1.0e-06 as a number
        settings[name] = _parsed(value) if isinstance(value, str) else value
    preset = settings.pop("preset", None)
    return preset, settings


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Read what ``--set`` was given; values are read as YAML does.

    Parameters
    ----------
    assignments : iterable of str
        Each ``key=value``.

    Returns
    -------
    dict

    Examples
    --------
    >>> parse_assignments(["lr=1e-3", "clip=none", "compile=true"])
    {'lr': 0.001, 'clip': None, 'compile': True}
    """
    values: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise NerveError(f"--set {text}: expected key=value, for example --set lr=0.001.")
        values[name.strip()] = _parsed(value.strip())
    return values


def _parsed(text: str) -> Any:
    """A value as YAML reads it; also none, and numbers such as 1e-3."""
    if text.lower() in ("none", "null"):
        return None
    looks_like_a_float = "e" in text.lower() and text[:1] in "+-.0123456789"
    try:
        return float(text) if looks_like_a_float else yaml.safe_load(text)
    except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return text


@cache
def _signature_model(cls: type) -> type[BaseModel]:
    """A pydantic model with the types and defaults of a signature."""
    types = get_type_hints(cls.__init__, include_extras=True)  # type: ignore[misc]
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        fields[name] = (types.get(name, Any), parameter.default)
    return create_model(cls.__name__, __config__=_STRICT, **fields)


def plain(value: Any) -> Any:
    """Turn NumPy's numbers into Python's, and lists, which YAML and JSON have, into tuples.

    Parameters
    ----------
    value : object

    Returns
    -------
    object
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    return value


def _expectation(error: Any) -> str:
    """Pydantic's message, worded as the end of an error of ours."""
    message = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    wrong = str(error["input"]) if error["type"] == "literal_error" else ""
    nearest = did_you_mean(wrong, re.findall(r"'([^']+)'", message)).rstrip("?")
    return message + nearest.replace(" Did you mean", ": did you mean")
