"""What an experiment file may say: cohorts, methods and variants, protocol, seeds, launcher.

Any setting of a method may be a list: each value becomes a variant, and a row of the table says which.
"""

from __future__ import annotations

import itertools
import os
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from nerve._utils.errors import NerveError, brief, did_you_mean, listed
from nerve._utils.files import read_yaml
from nerve.data.parcellation import Parcellation
from nerve.evaluation.protocol import FIELDS, NONE, Protocol, known_fields
from nerve.methods import make_method
from nerve.methods.parameters import Device, Seed

Model = TypeVar("Model")
# what an experiment file does unless it says otherwise: as the paper; `nerve evaluate` has the protocol's own defaults
PAPER_PROTOCOL: dict[str, Any] = {
    "covariates": ("age", "sex"),
    "motion": NONE,
    "pretrain_scope": "all",
}


def said(default: Any, meaning: str, **limits: Any) -> Any:
    """A setting with its default and what it means, in one sentence."""
    return Field(default, description=meaning, **limits)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CohortConfig(_Strict):
    """One cohort: a folder made by `nerve ingest`, or arguments of the simulation.

    Any field of the protocol (targets, covariates, groups, site …) may stand here too, and then holds for this cohort.
    """

    path: str | None = said(
        None, "Folder of a cohort; looked for beside the config file, then in the current folder."
    )
    simulate: dict[str, Any] | None = said(
        None, "Arguments of `simulate_cohort` instead of a path."
    )
    label: str | None = said(None, "What tables call it.")
    target_labels: dict[str, str] = said({}, "What tables call the targets.")
    columns: dict[str, str] = said({}, "our name: name in the participants table.")
    train_on: str | None = said(
        None, "Another cohort of the file: all is fitted on that one and predicts this one."
    )
    pretrain: bool = said(True, "Train encoders on it; false: out of domain.")
    timeseries: bool = said(True, "Use its time series where a method needs them.")
    protocol: dict[str, Any] = said({}, "Fields of the protocol for this cohort.")

    @model_validator(mode="before")
    @classmethod
    def _own_protocol(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        own = {name: value for name, value in content.items() if name in FIELDS}
        rest = {name: value for name, value in content.items() if name not in FIELDS}
        if rest.get("train_on") is not None:
            rest = {
                "pretrain": False,
                **rest,
            }  # who is tested is not pretrained on, unless one says so
        return {**rest, "protocol": {**(rest.get("protocol") or {}), **own}} if own else rest

    @model_validator(mode="after")
    def _one_source(self) -> CohortConfig:
        if (self.path is None) == (self.simulate is None):
            raise ValueError("give either `path` or `simulate`")
        return self


class MethodConfig(_Strict):
    """One row of the table, or several: lists in `settings` are swept, `permutations` adds null models."""

    method: str | None = said(None, "A name of `nerve methods`.")
    features: str | None = said(
        None, "Instead: the folder of a trained model, or a table of numbers."
    )
    label: str | None = said(None, "What tables call it.")
    group: str = said("", "Rows of one group stand together between rules.")
    preset: str | None = said(None, "Settings to begin with; the experiment's by default.")
    settings: dict[str, Any] = said({}, "Parameters of the method; lists are swept.")
    cohorts: list[str] | None = said(
        None, "Only these cohorts are predicted by it; all by default.", min_length=1
    )
    permutations: int = Field(
        0, ge=0, description="Retrain with this many region permutations as the null."
    )
    scope: Literal["all", "train_folds", "other_people", "not stated"] = said(
        "not stated", "Of `features`: whether whatever made them had seen the tested participants."
    )

    @model_validator(mode="after")
    def _one_source(self) -> MethodConfig:
        if (self.method is None) == (self.features is None):
            raise ValueError("give either `method` or `features`")
        return self

    @property
    def name(self) -> str:
        """What it is called where no label is given."""
        return self.label or self.method or Path(str(self.features)).stem

    def variants(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Every combination of the listed settings: what was swept, and all settings.

        Examples
        --------
        >>> MethodConfig(method="nerve", settings={"mask_ratio": [0.25, 0.5], "epochs": 9}).variants()[0]
        ({'mask_ratio': 0.25}, {'mask_ratio': 0.25, 'epochs': 9})
        """
        swept = {name: values for name, values in self.settings.items() if isinstance(values, list)}
        chosen = [
            dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())
        ]
        return [(one, self.settings | one) for one in chosen]


class SlurmConfig(_Strict):
    """What each job asks of the cluster."""

    partition: str | None = None
    minutes: int = Field(
        60, ge=1, description="Time limit; a job that reaches it is requeued and goes on."
    )
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    memory_gb: float | None = Field(None, gt=0)
    array_limit: int = Field(32, ge=1, description="Jobs at a time.")
    requeue: int = Field(
        20, ge=0, description="How often a job that ran out of time may be requeued."
    )
    extra: dict[str, Any] = said({}, "Further sbatch parameters.")


class ExperimentConfig(_Strict):
    """A comparison."""

    name: str = "experiment"
    title: str = ""
    kind: Literal["experiment", "evaluation"] = said(
        "experiment", "Which command has made the file."
    )
    layout: Literal["methods", "tokenizers", "parcellations"] = said(
        "methods", "The paper's table to print."
    )
    parcellation: str | None = said(
        None, "Order of regions for all cohorts, by label; that of the first by default."
    )
    preset: str = said(
        "small", "Preset of methods that name none; every method knows small and paper."
    )
    device: Device = "auto"
    interpret: bool = said(
        False, "Maps of the last NERVE row: weights, attention, patch importance."
    )
    seeds: list[Seed] = Field([0], min_length=1, description="Of training.")
    cohorts: dict[str, CohortConfig] = Field(min_length=1)
    methods: list[MethodConfig] = Field(min_length=1)
    protocol: dict[str, Any] = said(
        {}, "Fields of the protocol, over those of the paper: `nerve.Protocol`."
    )
    slurm: SlurmConfig = Field(default_factory=lambda: SlurmConfig.model_validate({}))

    @model_validator(mode="after")
    def _cohorts_have_names(self) -> ExperimentConfig:
        for name in self.cohorts:  # simulated ones become folders of that name
            if (
                not name.strip()
                or name in (".", "..")
                or len(name) > 100
                or not set(name).isdisjoint("/\\\0\n\r\t")
            ):
                raise ValueError(
                    f"a cohort is called {brief(name)}, expected a short name without slashes"
                )
        unknown = {
            name for entry in self.methods for name in entry.cohorts or ()
        } - self.cohorts.keys()
        if unknown:
            raise ValueError(
                f"a method names cohorts {brief(sorted(unknown))}, known are {listed(self.cohorts)}"
            )
        for name, cohort in self.cohorts.items():
            other = self.cohorts.get(str(cohort.train_on))
            if cohort.train_on is not None and (other is None or other.train_on is not None):
                raise ValueError(
                    f"train_on of cohort {brief(name)} is {brief(cohort.train_on)}, expected another cohort of the "
                    "file that is not itself trained elsewhere"
                )
        return self

    def protocol_of(self, cohort: str) -> Protocol:
        """How a cohort is evaluated: the paper's protocol, changed by the file, changed for the cohort."""
        where = f"cohort {cohort!r}"
        given = known_fields({**self.protocol, **self.cohorts[cohort].protocol}, where)
        return validated(Protocol, {**PAPER_PROTOCOL, **given}, where)


_PARTS: dict[str, type[BaseModel]] = {
    "cohorts": CohortConfig,
    "methods": MethodConfig,
    "slurm": SlurmConfig,
}


def config_path(name: str | os.PathLike[str]) -> Path:
    """The file of an experiment: a path, or the name of one that comes with the package (``table1_main``)."""
    packaged = Path(str(files("nerve") / "configs" / f"{name}.yaml"))
    return packaged if not Path(name).exists() and packaged.is_file() else Path(name)


def load_config(path: str | os.PathLike[str]) -> ExperimentConfig:
    """Read an experiment file; every mistake is one sentence with its place in the file."""
    path = config_path(path)
    config = validated(ExperimentConfig, read_yaml(path), path)
    known_fields(config.protocol, f"{path}: protocol")
    for name in config.cohorts:
        config.protocol_of(name)
    check_methods(config, path)
    return config


def validated(model: type[Model], content: Any, where: object) -> Model:
    """Content checked against a model; the first mistake becomes a sentence, with the nearest known name."""
    try:
        return TypeAdapter(model).validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = list(_PARTS.get(str(first["loc"][0]), ExperimentConfig).model_fields)
            raise NerveError(
                f"{where}: there is no setting {place!r}, expected one of {listed(known, most=30)}."
                f"{did_you_mean(str(first['loc'][-1]), known)}"
            ) from None
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        came = (
            ""
            if first["type"] in ("missing", "value_error")
            else f" (it is {brief(first['input'])})"
        )
        raise NerveError(f"{where}: {f'{place}: ' if place else ''}{message}{came}.") from None


def check_methods(
    config: ExperimentConfig, where: object, parcellation: Parcellation | None = None
) -> None:
    """Refuse methods that do not exist and settings that they do not know, or cannot have for these regions."""
    common: dict[str, Any] = {
        "seed": config.seeds[0],
        "device": config.device,
        "parcellation": parcellation,
    }
    for number, entry in enumerate(config.methods):
        place = f"{where}: methods.{number} ({entry.name})"
        if nothing := [name for name, values in entry.settings.items() if values == []]:
            raise NerveError(f"{place}: {nothing[0]} is an empty list, expected values to try.")
        for _, settings in entry.variants() if entry.method is not None else ():
            try:
                make_method(str(entry.method), entry.preset or config.preset, settings, **common)
            except NerveError as error:
                raise NerveError(f"{place}: {error}") from None
