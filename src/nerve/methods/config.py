"""The configuration of NERVE: one flat list of settings, three presets, YAML files and `--set key=value`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from nerve.checks import NerveError, brief, did_you_mean, one_of, problem
from nerve.files import read_yaml
from nerve.models.tokenizers import TOKENIZERS
from nerve.training import TrainingSettings


class NerveConfig(TrainingSettings):
    """Everything that decides what a NERVE run does: the model's settings beside those of the training loop."""

    patching: str = Field(
        "networks", description="networks, grid16 (any size), permuted0 (any seed), or an atlas whose networks to use."
    )
    tokenizer: str = Field("bilinear", description="How patches become tokens: bilinear, shared or specific.")
    mask_ratio: float = Field(0.5, gt=0, lt=1, description="Share of the patches that is masked.")
    dim: int = Field(256, ge=1, le=65536, description="Width of the encoder, and of the embedding.")
    depth: int = Field(4, ge=0, le=1000, description="Layers of the encoder.")
    heads: int = Field(4, ge=1, le=65536, description="Attention heads of the encoder.")
    decoder_dim: int = Field(64, ge=1, le=65536, description="Width of the decoder.")
    decoder_depth: int = Field(1, ge=0, le=1000, description="Layers of the decoder.")
    decoder_heads: int = Field(2, ge=1, le=65536, description="Attention heads of the decoder.")
    loss: Literal["patch_mean", "sum"] = Field("patch_mean", description="Mean or sum over a patch's entries.")
    init: Literal["scaled", "released", "signs"] = Field("scaled", description="Start of the tokenizer.")
    center: bool = Field(False, description="Learn deviations from the training people's mean FC.")
    scale_tokens: bool = Field(False, description="Bring tokens to unit size, all patches together.")
    tokenizer_bias: bool = Field(False, description="Biases in shared and specific tokenizers, as released.")
    completion: int = Field(0, ge=0, description="Rank of the person's factors that complete patches first; 0: none.")

    def model_options(self) -> dict[str, Any]:
        """The arguments of `MaskedAutoencoder`."""
        own = set(type(self).model_fields) - set(TrainingSettings.model_fields) - {"patching"}
        return self.model_dump(include=own)

    def training_settings(self) -> TrainingSettings:
        """The part that the training loop reads."""
        return TrainingSettings(**self.model_dump(include=set(TrainingSettings.model_fields)))


# Small enough to read: what each preset sets, over the defaults above.
PRESETS: dict[str, dict[str, Any]] = {
    # the paper's text, and its released code where the text is silent
    "paper": {
        "epochs": 4000,
        "warmup_epochs": 400,
        "batch_size": 1024,
        "lr": 1e-2,
        "weight_decay": 1e-2,
        "betas": (0.9, 0.98),
        "eps": 1e-6,
        "clip": 1.0,
        "validation_fraction": 0.1,
        "init": "released",
        "tokenizer_bias": True,
    },
    # minutes on two CPU cores
    "small": {
        "epochs": 20,
        "warmup_epochs": 1,
        "batch_size": 16,
        "lr": 1e-3,
        "weight_decay": 0.0,
        "dim": 64,
        "depth": 2,
        "heads": 4,
        "completion": 32,
        "init": "signs",
        "scale_tokens": True,
    },
    # the recipe of docs/recipe.md
    "default": {
        "epochs": 10,
        "warmup_epochs": 0.5,
        "batch_size": 16,
        "lr": 1e-3,
        "weight_decay": 0.0,
        "depth": 2,
        "completion": 64,
        "init": "signs",
        "scale_tokens": True,
    },
}


def resolve(
    preset: str = "default", *layers: Mapping[str, Any], where: str | Sequence[str] = "The configuration"
) -> NerveConfig:
    """A preset with layers of settings over it, later ones winning; unknown names and bad values are refused.

    `where` names the place of the settings in errors: one for all layers, or one for each.

    Examples
    --------
    >>> resolve("paper").batch_size, resolve("paper", {"batch_size": 256}).batch_size
    (1024, 256)
    """
    values: dict[str, Any] = dict(PRESETS[one_of("preset", preset, list(PRESETS))])
    places = [where] * len(layers) if isinstance(where, str) else list(where)
    place_of: dict[str, str] = {}
    for layer, place in zip(layers, places, strict=True):
        for name, value in layer.items():
            if name not in NerveConfig.model_fields:
                raise NerveError(
                    f"{place}: there is no setting {name!r}.{did_you_mean(str(name), NerveConfig.model_fields)} "
                    "docs/howto/pretrain.md lists them all."
                )
            values[name] = value
            place_of[name] = place
    one_of("tokenizer", values.get("tokenizer", "bilinear"), list(TOKENIZERS))
    try:
        return NerveConfig(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        place = place_of.get(str(first["loc"][0]) if first["loc"] else "", places[-1] if places else preset)
        raise problem(place, f"{name} is {brief(first['input'])}", expected=_expectation(first["msg"])) from error


def read_config(path: str | os.PathLike[str]) -> tuple[str | None, dict[str, Any]]:
    """A YAML file of settings, and the preset that it names, if any."""
    settings = read_yaml(path)
    preset = settings.pop("preset", None)
    return preset, settings


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """``["lr=0.001", "clip=none"]`` as a dict; values are read as YAML does.

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
    if text.lower() in ("none", "null"):
        return None
    try:
        return float(text) if "e" in text.lower() and text[:1] in "+-.0123456789" else yaml.safe_load(text)
    except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError):  # as its parser has it
        return text


def _expectation(message: str) -> str:
    """Pydantic's sentence as the end of ours."""
    return message.removeprefix("Input should be ").removeprefix("Value error, ")
