"""What an experiment file may say: cohorts, methods, protocol, seeds, SLURM.

Any setting of a method may be a list: each value becomes a variant, which is a row of its own.
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

# Experiment files follow the paper unless they say otherwise; `nerve evaluate` has the defaults of
# `Protocol` itself.
PAPER_PROTOCOL: dict[str, Any] = {
    "covariates": ("age", "sex"),
    "motion": NONE,
    "pretrain_scope": "all",
}


class _Strict(BaseModel):
    """A part of an experiment file: values are not changed later, unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CohortConfig(_Strict):
    """One cohort: a folder made by `nerve ingest`, or arguments of the simulation.

    Any field of the protocol (targets, covariates, groups, site …) may stand here too, and then
    holds for this cohort.
    """

    path: str | None = Field(
        None,
        description="Folder of a cohort; looked for beside the config file, then in the current "
        "folder.",
    )
    simulate: dict[str, Any] | None = Field(
        None, description="Arguments of `simulate_cohort` instead of a path."
    )
    label: str | None = Field(None, description="What tables call it.")
    target_labels: dict[str, str] = Field({}, description="What tables call the targets.")
    columns: dict[str, str] = Field(
        {}, description="Columns to rename, as our name: name in the participants table."
    )
    train_on: str | None = Field(
        None,
        description="Another cohort of the file: everything is fitted on that one, and this one is "
        "only predicted.",
    )
    pretrain: bool = Field(True, description="Train encoders on it; false: out of domain.")
    timeseries: bool = Field(True, description="Use its time series where a method needs them.")
    protocol: dict[str, Any] = Field({}, description="Fields of the protocol for this cohort.")

    @model_validator(mode="before")
    @classmethod
    def _gather_protocol(cls, content: Any) -> Any:
        """Move fields of the protocol that stand beside the others into `protocol`."""
        if not isinstance(content, dict):
            return content
        protocol = {name: value for name, value in content.items() if name in FIELDS}
        settings = {name: value for name, value in content.items() if name not in FIELDS}
        if settings.get("train_on") is not None:
            # a cohort that is only tested is not pretrained on, unless the file says so
            settings.setdefault("pretrain", False)
        if protocol:
            settings["protocol"] = {**(settings.get("protocol") or {}), **protocol}
        return settings

    @model_validator(mode="after")
    def _check_origin(self) -> CohortConfig:
        if (self.path is None) == (self.simulate is None):
            raise ValueError("give either `path` or `simulate`")
        return self


class MethodConfig(_Strict):
    """One row of the table, or several.

    Lists in `settings` are swept, `permutations` adds null models.
    """

    method: str | None = Field(None, description="A name of `nerve methods`.")
    features: str | None = Field(
        None, description="Instead: the folder of a trained model, or a table of numbers."
    )
    label: str | None = Field(None, description="What tables call it.")
    group: str = Field("", description="Rows of one group stand together between rules.")
    preset: str | None = Field(
        None, description="Settings to begin with; the experiment's by default."
    )
    settings: dict[str, Any] = Field({}, description="Parameters of the method; lists are swept.")
    cohorts: list[str] | None = Field(
        None, min_length=1, description="The cohorts that it predicts; all by default."
    )
    permutations: int = Field(
        0, ge=0, description="Retrain with this many region permutations as the null."
    )
    scope: Literal["all", "train_folds", "other_people", "not stated"] = Field(
        "not stated",
        description="Of `features`, and of a model that is fine-tuned: which of the tested "
        "participants it was trained on.",
    )

    @model_validator(mode="after")
    def _check_origin(self) -> MethodConfig:
        if (self.method is None) == (self.features is None):
            raise ValueError("give either `method` or `features`")
        return self

    @property
    def name(self) -> str:
        """The label, or where none is given the method or the name of the file."""
        return self.label or self.method or Path(str(self.features)).stem

    def variants(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """List every combination of the settings that are lists.

        Returns
        -------
        list of (dict, dict)
            For each combination: the settings that were swept, and all settings.

        Examples
        --------
        >>> entry = MethodConfig(method="nerve", settings={"mask_ratio": [0.25, 0.5], "epochs": 9})
        >>> entry.variants()[0]
        ({'mask_ratio': 0.25}, {'mask_ratio': 0.25, 'epochs': 9})
        """
        lists = {name: values for name, values in self.settings.items() if isinstance(values, list)}
        variants = []
        for values in itertools.product(*lists.values()):
            swept = dict(zip(lists, values, strict=True))
            variants.append((swept, self.settings | swept))
        return variants


class SlurmConfig(_Strict):
    """What each job asks of the cluster."""

    partition: str | None = None
    minutes: int = Field(
        60,
        ge=1,
        description="Time limit. A job that reaches it is queued again: encoders, also those "
        "of folds, resume from their last checkpoint; supervised methods begin again.",
    )
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    memory_gb: float | None = Field(None, gt=0)
    array_limit: int = Field(32, ge=1, description="Jobs at a time.")
    requeue: int = Field(
        20, ge=0, description="How often a job that ran out of time may be requeued."
    )
    extra: dict[str, Any] = Field({}, description="Further sbatch parameters.")


class ExperimentConfig(_Strict):
    """A comparison."""

    name: str = "experiment"
    title: str = ""
    layout: Literal["methods", "tokenizers", "parcellations"] = Field(
        "methods", description="The paper's table to print."
    )
    parcellation: str | None = Field(
        None,
        description="Order of regions for all cohorts, by label; that of the first by default.",
    )
    preset: str = Field(
        "small",
        description="Preset of methods that name none; every method knows small and paper.",
    )
    device: Device = "auto"
    interpret: bool = Field(
        False, description="Maps of the last NERVE row: weights, attention, patch importance."
    )
    seeds: list[Seed] = Field([0], min_length=1, description="Seeds of the training.")
    cohorts: dict[str, CohortConfig] = Field(min_length=1)
    methods: list[MethodConfig] = Field(min_length=1)
    protocol: dict[str, Any] = Field(
        {}, description="Fields of the protocol, over those of the paper: `nerve.Protocol`."
    )
    slurm: SlurmConfig = Field(default_factory=lambda: SlurmConfig.model_validate({}))

    @model_validator(mode="after")
    def _check_cohorts(self) -> ExperimentConfig:
        """Refuse names that cannot be folders, and references to cohorts that are not listed."""
        for name in self.cohorts:  # the folder of a simulated cohort has its name
            is_folder_name = (
                bool(name.strip())
                and name not in (".", "..")
                and len(name) <= 100
                and set(name).isdisjoint("/\\\0\n\r\t")
            )
            if not is_folder_name:
                raise ValueError(
                    f"a cohort is called {brief(name)}, expected a short name without slashes"
                )
        named: set[str] = set()
        for entry in self.methods:
            named.update(entry.cohorts or ())
        unknown = named - self.cohorts.keys()
        if unknown:
            raise ValueError(
                f"a method names cohorts {brief(sorted(unknown))}, known are {listed(self.cohorts)}"
            )
        for name, cohort in self.cohorts.items():
            if cohort.train_on is None:
                continue
            trained_on = self.cohorts.get(cohort.train_on)
            if trained_on is None or trained_on.train_on is not None:
                raise ValueError(
                    f"train_on of cohort {brief(name)} is {brief(cohort.train_on)}, expected "
                    "another cohort of the file that is not itself trained elsewhere"
                )
        return self

    def protocol_of(self, cohort: str) -> Protocol:
        """Return the protocol of a cohort.

        Parameters
        ----------
        cohort : str
            One of the names in `cohorts`.

        Returns
        -------
        Protocol
            The paper's, changed by the `protocol` of the file, then by that of the cohort.
        """
        place = f"cohort {cohort!r}"
        changes = known_fields({**self.protocol, **self.cohorts[cohort].protocol}, place)
        return validate(Protocol, {**PAPER_PROTOCOL, **changes}, place)


_PARTS: dict[str, type[BaseModel]] = {
    "cohorts": CohortConfig,
    "methods": MethodConfig,
    "slurm": SlurmConfig,
}


def config_path(name: str | os.PathLike[str]) -> Path:
    """Find the file of an experiment.

    Parameters
    ----------
    name : path
        A file, or the name of one that comes with the package (``table1_main``).

    Returns
    -------
    Path
        The file; it need not exist.
    """
    packaged = Path(str(files("nerve") / "configs" / f"{name}.yaml"))
    # a folder of that name does not hide it: `nerve demo demo` makes one, and may be typed twice
    return packaged if packaged.is_file() and not Path(name).is_file() else Path(name)


def load_config(path: str | os.PathLike[str]) -> ExperimentConfig:
    """Read an experiment file.

    Parameters
    ----------
    path : path
        A file, or the name of one that comes with the package.

    Returns
    -------
    ExperimentConfig
        Checked: every mistake is a `NerveError` with its place in the file.
    """
    path = config_path(path)
    config = validate(ExperimentConfig, read_yaml(path), path)
    known_fields(config.protocol, f"{path}: protocol")
    for name in config.cohorts:
        config.protocol_of(name)
    check_methods(config, path)
    return config


def validate(model: type[Model], content: Any, place: object) -> Model:
    """Check content against a model.

    Parameters
    ----------
    model : type
        A pydantic model or a dataclass.
    content : object
        What was read.
    place : object
        Where it was read, for the error.

    Returns
    -------
    object
        An instance of `model`. The first mistake is a `NerveError`, with the nearest known name.
    """
    try:
        return TypeAdapter(model).validate_python(content)
    except ValidationError as error:
        mistake = error.errors()[0]
    setting = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == "extra_forbidden":
        known = list(_PARTS.get(str(mistake["loc"][0]), ExperimentConfig).model_fields)
        raise NerveError(
            f"{place}: there is no setting {setting!r}, expected one of {listed(known, most=30)}."
            f"{did_you_mean(str(mistake['loc'][-1]), known)}"
        )
    where = f"{place}: {setting}" if setting else f"{place}"
    message = mistake["msg"].removeprefix("Value error, ").rstrip(".")
    if mistake["type"] not in ("missing", "value_error"):
        message += f" (it is {brief(mistake['input'])})"
    raise NerveError(f"{where}: {message}.")


def check_methods(
    config: ExperimentConfig, place: object, parcellation: Parcellation | None = None
) -> None:
    """Refuse methods that do not exist, and settings that they do not know.

    Parameters
    ----------
    config : ExperimentConfig
        Whose methods are checked.
    place : object
        Where they are written, for the error.
    parcellation : Parcellation, optional
        With it, settings that are not possible for these regions are refused too.
    """
    for number, entry in enumerate(config.methods):
        entry_place = f"{place}: methods.{number} ({entry.name})"
        for name, values in entry.settings.items():
            if values == []:
                raise NerveError(f"{entry_place}: {name} is an empty list, expected values to try.")
        if entry.method is None:
            continue
        for _, settings in entry.variants():
            try:
                make_method(
                    entry.method,
                    entry.preset or config.preset,
                    settings,
                    seed=config.seeds[0],
                    device=config.device,
                    parcellation=parcellation,
                )
            except NerveError as error:
                raise NerveError(f"{entry_place}: {error}") from None
