"""What a parameter of a method may be, written as its type in the signature, and the one place where it is checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from nerve._utils.errors import NerveError, brief, did_you_mean, listed, problem
from nerve._utils.files import read_yaml
from nerve.methods.training_options import Count, NotNegative, Positive, Share  # noqa: F401

Pairs = Annotated[
    int, Field(ge=2, le=10**9)
]  # of what is normalised over the participants of a batch
Epochs = Annotated[int, Field(ge=0, le=10**9)]  # none: an untrained encoder, as a control
Width = Annotated[int, Field(ge=1, le=65536)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Part = Annotated[float, Field(gt=0, lt=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
Widths = Annotated[tuple[Width, ...], Field(strict=False)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def known_device(name: str) -> str:
    """The name of a device; whether the machine has it is seen when it is used."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", name):
        raise ValueError("auto, cpu, cuda, cuda:1 or mps")
    return name


Device = Annotated[str, AfterValidator(known_device)]
STRICT = ConfigDict(
    extra="forbid", frozen=True, strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
)


def said(default: Any, meaning: str, **limits: Any) -> Any:
    """A setting with its default and what it means, in one sentence."""
    return Field(default, description=meaning, **limits)


def check_names(given: Mapping[str, Any], known: Any, where: str) -> None:
    """Refuse settings that do not exist, with the nearest that does."""
    for name in given:
        if name not in known:
            expected = f"expected one of {listed(known, most=50)}.{did_you_mean(str(name), known)}"
            raise NerveError(f"{where}: there is no setting {brief(name)}, {expected}")


def validated(model: type[BaseModel], given: Mapping[str, Any], where: object) -> Any:
    """Settings as an object of a pydantic model; the first mistake becomes a sentence."""
    try:
        return model(**{name: _plain(value) for name, value in given.items()})
    except RecursionError:
        raise problem(where, "a setting holds itself", expected="plain values") from None
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "the settings"
        raise problem(
            where, f"{name} is {brief(given.get(name))}", expected=_expectation(first)
        ) from None


@cache
def signature_model(cls: type) -> type[BaseModel]:
    """The parameters of a class, with the types and defaults of its signature, as a pydantic model."""
    hints = get_type_hints(cls if is_dataclass(cls) else cls.__init__, include_extras=True)  # type: ignore[misc]
    parameters = inspect.signature(cls).parameters.items()
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), parameter.default) for name, parameter in parameters
    }
    return create_model(cls.__name__, __config__=STRICT, **fields)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's, and lists, which YAML and JSON have, as tuples."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return tuple(_plain(item) for item in value) if isinstance(value, list) else value


def _expectation(error: Any) -> str:
    """Pydantic's sentence as the end of ours."""
    message = str(error["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    wrong = str(error["input"]) if error["type"] == "literal_error" else ""
    nearest = did_you_mean(wrong, re.findall(r"'([^']+)'", message)).rstrip("?")
    return message + nearest.replace(" Did you mean", ": did you mean")


# class of a method → what methods.yaml says of it
SAID: dict[str, dict[str, Any]] = _plain(read_yaml(Path(__file__).with_name("methods.yaml")))
