"""What a config.json may hold: one closed type per field.

Models are passed on, so a config.json may come from anywhere. No entry is used as a path or as the
name of code: words are compared with known words or printed, and are never opened or imported. The
values of ``parameters`` are checked once more, against the signature of the method.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nerve._utils.errors import problem
from nerve._utils.files import read_json

FORMAT_VERSION = 2
CONFIG = "config.json"

CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
# what the parameter of a method can be: a JSON value without nested dicts
_Scalar = bool | int | float | str | None
_Word = Annotated[str, Field(max_length=10_000)]
_Number = Annotated[int, Field(ge=0, le=10**12)]


class _Groups(BaseModel):
    """A patching of the user's own: one group per region."""

    model_config = CLOSED

    group_of: list[int]
    group_names: list[_Word]


class _Regions(BaseModel):
    """The table of a parcellation, column by column."""

    model_config = CLOSED

    label: list[_Word]
    network: list[_Word]
    hemisphere: list[_Word]
    x: list[float | None]
    y: list[float | None]
    z: list[float | None]


class _SavedParcellation(BaseModel):
    model_config = CLOSED

    name: _Word
    fingerprint: _Word
    regions: _Regions


class _TrainingData(BaseModel):
    """About the training participants: counts and fingerprints only."""

    model_config = CLOSED

    fingerprint: _Word = ""
    fc: list[_Word] = []
    cohorts: dict[_Word, _Number] = {}
    resampled: dict[_Word, _Word] = {}  # cohort → from which regions to which
    n_training: _Number = 0
    n_validation: _Number = 0
    masked_error: float | None = None


class _SignatureNumbers(BaseModel):
    model_config = CLOSED

    n: _Number
    spread: float
    negative: float
    largest: float


class _Target(BaseModel):
    """The scale of what a supervised method predicts."""

    model_config = CLOSED

    mean: float
    scale: float
    binary: bool
    labels: list[_Word] | None


class _Encoder(BaseModel):
    """The encoder that a fine-tuned model began with, as in the config.json of a NERVE."""

    model_config = CLOSED

    name: _Word
    weights: _Word
    parameters: dict[_Word, _Scalar | list[_Scalar] | _Groups]
    preset: _Word = ""
    data: _TrainingData = _TrainingData()
    adapted: _Word = ""
    signature: _SignatureNumbers | None = None
    sites: dict[_Word, _Number] = {}


class _Configuration(BaseModel):
    """Every field of a config.json, of any method."""

    model_config = CLOSED

    format_version: int
    nerve_version: _Word
    torch_version: _Word = ""
    method: _Word
    parameters: dict[_Word, _Scalar | list[_Scalar] | _Groups]
    preset: _Word = ""
    differences: dict[_Word, _Scalar | list[_Scalar]] = {}
    parcellation: _SavedParcellation
    data: _TrainingData = _TrainingData()
    adapted: _Word = ""
    # methods that are trained
    training: dict[_Word, _Scalar | list[_Scalar]] = {}
    best_step: _Number = 0
    target: _Target | None = None
    # fine-tuned NERVE
    encoder: _Encoder | None = None
    # NERVE, tangent
    signature: _SignatureNumbers | None = None
    sites: dict[_Word, _Number] = {}
    # covariates
    categories: dict[_Word, list[_Word] | None] = {}


def read_configuration(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the config.json of a saved method.

    Parameters
    ----------
    folder : path
        A folder that `Method.save` wrote; anything else is an error.

    Returns
    -------
    dict
        Plain JSON values, each of the type that its field has.
    """
    folder = Path(folder)
    path = folder / CONFIG
    if not path.is_file():
        cause = f"it holds no {CONFIG}" if folder.is_dir() else "there is no such folder"
        remedy = "A run that was stopped is finished with `nerve pretrain … --resume`."
        raise problem(folder, cause, expected="the folder of a trained model", remedy=remedy)
    content = read_json(path)
    version = content.get("format_version") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise problem(path, "it does not describe a model of this package")
    if version != FORMAT_VERSION:
        # other formats have other fields, which cannot be checked here
        written_by = str(content.get("nerve_version"))[:40]
        cause = f"it was written in format {version} by nerve {written_by}"
        remedy = "Fit the model again."
        if version > FORMAT_VERSION:
            remedy = "Update nerve to read it."
        raise problem(folder, cause, expected=f"format {FORMAT_VERSION}", remedy=remedy)
    try:
        configuration = _Configuration(**content)
    except (ValidationError, TypeError, RecursionError) as error:
        raise problem(
            path,
            _first_mistake(error),
            remedy="Copy the folder again from where it was made.",
        ) from None
    return configuration.model_dump(exclude_unset=True)


def _first_mistake(error: Exception) -> str:
    """Which field is wrong, and how; its value is not repeated."""
    if not isinstance(error, ValidationError):
        return "it does not describe a model of this package"
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"][:3])
    return f"its entry {place} is not one of a model ({first['msg']})"
