"""What an experiment file may say: cohorts, methods and variants, protocol, seeds, launcher.

Any setting of a method may be a list: each value becomes a variant, and a row of the table says which.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nerve.checks import NerveError, brief, did_you_mean, listed
from nerve.files import read_yaml

Config = TypeVar("Config", bound=BaseModel)
REFERENCE_ROWS = ("raw", "pca", "covariates")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CohortConfig(_Strict):
    """One cohort: a folder made by `nerve ingest`, or arguments of the simulation."""

    path: str | None = Field(None, description="Folder of a cohort; relative to the config file.")
    simulate: dict[str, Any] | None = Field(None, description="Arguments of `simulate_cohort` instead of a path.")
    label: str | None = Field(None, description="What tables call it.")
    targets: list[str] = Field(min_length=1, description="Columns to predict.")
    target_labels: dict[str, str] = Field(default_factory=dict, description="What tables call the targets.")
    columns: dict[str, str] = Field(default_factory=dict, description="our name: name in the participants table.")
    covariates: list[str] | None = Field(None, description="Instead of those of the protocol.")
    groups: str | None = Field(None, description="Column of families, kept whole in a fold.")
    site: str | None = Field(None, description="Column of sites, for ComBat and blocks of permutations.")
    pretrain: bool = Field(True, description="Train encoders on it; false: out of domain.")
    timeseries: bool = Field(True, description="Use its time series where a method needs them.")

    @model_validator(mode="after")
    def _one_source(self) -> CohortConfig:
        if (self.path is None) == (self.simulate is None):
            raise ValueError("give either `path` or `simulate`")
        return self


class MethodConfig(_Strict):
    """One row of the table, or several: lists in `settings` are swept, `permutations` adds null models."""

    method: str = Field(description="A name of `nerve methods`, or raw, pca, covariates.")
    label: str | None = Field(None, description="What tables call it.")
    group: str = Field("", description="Rows of one group stand together between rules.")
    preset: str | None = Field(None, description="Settings to start from; the experiment's by default.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Parameters of the method; lists are swept.")
    select: bool = Field(False, description="One row: the variant chosen in each fold on training people only.")
    permutations: int = Field(0, ge=0, description="Retrain with this many region permutations as the null.")
    together: int = Field(1, ge=1, description="Permuted models trained in one process; more than 1 for tiny ones.")

    def variants(self) -> list[tuple[str, dict[str, Any]]]:
        """Every combination of the listed settings, with a name for it.

        Examples
        --------
        >>> MethodConfig(method="nerve", settings={"mask_ratio": [0.25, 0.5], "epochs": 9}).variants()
        [('mask_ratio=0.25', {'mask_ratio': 0.25, 'epochs': 9}), ('mask_ratio=0.5', {'mask_ratio': 0.5, 'epochs': 9})]
        """
        swept = {name: values for name, values in self.settings.items() if isinstance(values, list)}
        found = []
        for values in itertools.product(*swept.values()):
            chosen = dict(zip(swept, values, strict=True))
            found.append((", ".join(f"{k}={v}" for k, v in chosen.items()), self.settings | chosen))
        return found


class ProtocolConfig(_Strict):
    """How predictions are made and tested; defaults follow CBIG and the paper."""

    folds: int = Field(10, ge=2, description="Outer folds.")
    inner_folds: int = Field(5, ge=2, description="Inner folds, for λ.")
    kernel: Literal["correlation", "linear", "cosine", "rbf"] = Field("correlation", description="Kernel of the ridge.")
    covariates: list[str] = Field(default_factory=lambda: ["age", "sex"], description="Regressed from the targets.")
    harmonise: bool = Field(False, description="ComBat over sites, fitted on training folds.")
    seed: int = Field(42, ge=0, description="Of folds and resamples.")
    n_bootstrap: int = Field(1000, ge=10, description="Resamples of people for intervals and comparisons.")
    n_permutations: int = Field(0, ge=0, description="Permutations of each target for its p; 0 for none.")
    pca_components: int = Field(256, ge=1, description="Width of the PCA reference row.")
    pretrain_scope: Literal["all", "train_folds"] = Field(
        "all", description="all: encoders see test people unlabelled (the paper); train_folds: never."
    )


class SlurmConfig(_Strict):
    """What each job asks of the cluster."""

    partition: str | None = None
    minutes: int = Field(60, ge=1, description="Time limit; a job that reaches it is requeued and goes on.")
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    memory_gb: float | None = Field(None, gt=0)
    array_limit: int = Field(32, ge=1, description="Jobs at a time.")
    requeue: int = Field(20, ge=0, description="How often a job that ran out of time may be requeued.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Further sbatch parameters.")


class ExperimentConfig(_Strict):
    """A comparison."""

    name: str = "experiment"
    title: str = ""
    layout: Literal["methods", "tokenizers", "parcellations"] = Field(
        "methods", description="Which of the paper's tables to print."
    )
    parcellation: str = Field("schaefer400-17", description="All cohorts are brought into this order, by label.")
    preset: str = Field("default", description="Preset of methods that name none.")
    device: str = "auto"
    interpret: bool = Field(False, description="Maps of the last NERVE row: weights, attention, patch importance.")
    seeds: list[int] = Field(default_factory=lambda: [0], min_length=1, description="Of training.")
    cohorts: dict[str, CohortConfig] = Field(min_length=1)
    methods: list[MethodConfig] = Field(min_length=1)
    protocol: ProtocolConfig = Field(default_factory=lambda: ProtocolConfig.model_validate({}))
    slurm: SlurmConfig = Field(default_factory=lambda: SlurmConfig.model_validate({}))

    @model_validator(mode="after")
    def _cohorts_have_names(self) -> ExperimentConfig:
        for name in self.cohorts:  # simulated ones become folders of that name
            if not name.strip() or name in (".", "..") or len(name) > 100 or not set(name).isdisjoint("/\\\0\n\r\t"):
                raise ValueError(f"a cohort is called {brief(name)}, expected a short name without slashes")
        return self

    @model_validator(mode="after")
    def _labels_are_unique(self) -> ExperimentConfig:
        labels = [method.label or method.method for method in self.methods]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"two rows are called {listed(twice)}: give each method a `label` of its own")
        return self


def load_config(path: str | os.PathLike[str]) -> ExperimentConfig:
    """Read an experiment file; every mistake is one sentence with its place in the file."""
    path = Path(path)
    config = validated(ExperimentConfig, read_yaml(path), path)
    check_methods(config, path)
    return config


def validated(model: type[Config], content: Any, where: object) -> Config:
    """Content checked against a model; the first mistake becomes a sentence, with the nearest known name."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = _fields_at(model, first["loc"][:-1])
            raise NerveError(
                f"{where}: there is no setting {place!r}, expected one of {listed(known, most=30)}."
                f"{did_you_mean(str(first['loc'][-1]), known)}"
            ) from None
        message = first["msg"].removeprefix("Value error, ")
        came = "" if first["type"] in ("missing", "value_error") else f" (it is {brief(first['input'])})"
        raise NerveError(f"{where}: {place or 'the file'}: {message}{came}.") from None


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """Names of the settings at a place inside nested models."""
    for part in place:
        field = model.model_fields.get(str(part))
        if field is not None:
            nested = [t for t in (field.annotation, *get_args(field.annotation)) if _is_model(t)]
            model = nested[0] if nested else model
    return list(model.model_fields)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def check_methods(config: ExperimentConfig, where: object) -> None:
    """Refuse methods that do not exist, before anything is run."""
    from nerve.methods import METHODS

    known = [*REFERENCE_ROWS, *METHODS]
    for row in config.methods:
        if row.method not in known:
            raise NerveError(
                f"{where}: there is no method {row.method!r}, expected one of {listed(known, most=30)}."
                f"{did_you_mean(row.method, known)}"
            )
