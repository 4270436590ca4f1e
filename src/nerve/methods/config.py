"""The configuration of NERVE: one flat list of settings, three presets, YAML files and `--set key=value`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import PlainSerializer, PlainValidator

from nerve._utils.errors import NerveError, one_of, problem
from nerve._utils.files import read_yaml
from nerve.core.tokenizers import TOKENIZERS, Tokenizer
from nerve.core.views import N_DIRECTIONS
from nerve.methods.settings import SAID, STRICT, Device, Part, Width, check_names, said, validated
from nerve.methods.training_options import TrainingOptions


def checked_tokenizer(value: Any) -> str | type[Tokenizer]:
    """The name of a tokenizer, or a class of one's own."""
    if isinstance(value, type) and issubclass(value, Tokenizer):
        return next((name for name, known in TOKENIZERS.items() if value is known), value)
    if isinstance(value, str):
        return one_of("tokenizer", value, list(TOKENIZERS))
    raise ValueError(
        f"one of {', '.join(TOKENIZERS)}, or a class derived from nerve.core.Tokenizer"
    )


def tokenizer_name(value: str | type[Tokenizer]) -> str:
    """How a tokenizer is written down: its name, or where its class can be imported from (which nobody does for you).

    Examples
    --------
    >>> tokenizer_name("shared"), tokenizer_name(Tokenizer)
    ('shared', 'nerve.core.tokenizers:Tokenizer')
    """
    return value if isinstance(value, str) else f"{value.__module__}:{value.__qualname__}"


AnyTokenizer = Annotated[Any, PlainValidator(checked_tokenizer), PlainSerializer(tokenizer_name)]


class NerveConfig(TrainingOptions):
    """Everything that decides what a NERVE run does: the model's settings beside those of the training loop."""

    model_config = STRICT

    view: Literal["fc", "tangent", "shrunk"] = said(
        "fc", "The matrix that is cut into patches: fc (the paper), tangent or shrunk."
    )
    n_directions: Width = said(N_DIRECTIONS, "Directions that the view shrunk keeps, at most.")
    recentre: str | None = said(
        None, "Column of the site, whose mean is carried to the common one; tangent, shrunk."
    )
    patching: str = said(
        "networks",
        "networks, grid16 (any size), permuted0 (any seed), or an atlas for its networks.",
    )
    tokenizer: AnyTokenizer = said(
        "bilinear", "How patches become tokens: bilinear, shared or specific."
    )
    mask_ratio: Part = said(0.5, "Share of the patches that is masked.")
    dim: Width = said(256, "Width of the encoder.")
    depth: int = said(4, "Layers of the encoder.", ge=0, le=1000)
    heads: Width = said(4, "Attention heads of the encoder.")
    decoder_dim: Width = said(64, "Width of the decoder.")
    decoder_depth: int = said(1, "Layers of the decoder.", ge=0, le=1000)
    decoder_heads: Width = said(2, "Attention heads of the decoder.")
    loss: Literal["patch_mean", "sum"] = said("patch_mean", "Mean or sum over a patch's entries.")
    init: Literal["scaled", "released", "signs"] = said("scaled", "How weights are drawn.")
    standardise: bool = said(
        False, "Entries minus their training mean, brought to unit size together."
    )
    tokenizer_bias: bool = said(False, "Biases in shared and specific tokenizers, as released.")
    pooling: Literal["pca", "mean", "cls", "tokens"] = said(
        "pca",
        "The representation: components of the tokens, their mean, the CLS token, or all tokens.",
    )
    n_components: int = said(256, "Numbers of the pooling pca.", ge=2, le=65536)
    device: Device = said("auto", "auto, cpu, cuda, cuda:1, mps.")

    def model_options(self) -> dict[str, Any]:
        """The arguments of `MaskedAutoencoder`."""
        elsewhere = {"view", "n_directions", "recentre", "patching", "pooling"}
        own = set(type(self).model_fields) - set(TrainingOptions.model_fields) - elsewhere
        options = {name: getattr(self, name) for name in own}
        return options if self.pooling == "pca" else options | {"n_components": 0}


PRESETS: dict[str, dict[str, Any]] = SAID["NERVE"][
    "presets"
]  # what each sets, over the defaults above


def resolve(preset: str, given: Mapping[str, Any], where: str = "The configuration") -> NerveConfig:
    """A preset with the settings that are given over it; unknown names and bad values are refused.

    Examples
    --------
    >>> resolve("paper", {}).batch_size, resolve("paper", {"batch_size": 256}).batch_size
    (1024, 256)
    """
    check_names(given, NerveConfig.model_fields, where)
    config = validated(
        NerveConfig, {**PRESETS[one_of("preset", preset, list(PRESETS))], **given}, where
    )
    if config.recentre is not None and config.view == "fc":
        found, remedy = (
            f"recentre is {config.recentre!r} and view is fc",
            "Say view=tangent, or leave recentre out.",
        )
        raise problem(
            where,
            found,
            expected="the view tangent or shrunk: FC moved by its site is no FC",
            remedy=remedy,
        )
    return config


def read_config(path: str | os.PathLike[str]) -> tuple[str | None, dict[str, Any]]:
    """A YAML file of settings, and the preset that it names, if any."""
    settings = {
        name: _parsed(value) if isinstance(value, str) else value
        for name, value in read_yaml(path).items()
    }
    preset = settings.pop("preset", None)  # and 1e-06 is a number, which YAML would have as 1.0e-06
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
        return (
            float(text)
            if "e" in text.lower() and text[:1] in "+-.0123456789"
            else yaml.safe_load(text)
        )
    except (
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
    ):  # as its parser has it
        return text
