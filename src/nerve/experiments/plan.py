"""Config → runs. Each run is identified by the fingerprint of what determines it; shared work is one run.

Three kinds: `encode` trains an encoder on the pooled pretraining cohorts (once for all targets and cohorts), `probe`
predicts all targets of a cohort from its features, `train` trains a supervised network inside each fold for one target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nerve.checks import NerveError
from nerve.experiments.config import REFERENCE_ROWS, CohortConfig, ExperimentConfig, MethodConfig
from nerve.experiments.store import fingerprint

PERMUTED = "Permutation"


@dataclass(frozen=True)
class Task:
    """One run.

    Parameters
    ----------
    kind : {"encode", "probe", "train"}
    key : dict
        Plain JSON that determines the result: settings, seed, data, code. Nothing about how it is called.
    row, variant, seed, cohort
        Where its predictions stand in the tables.
    needs : tuple of str
        Ids of runs that must be done before.
    """

    kind: str
    key: Mapping[str, Any]
    row: str
    variant: str = ""
    seed: int = 0
    cohort: str = ""
    needs: tuple[str, ...] = ()
    group: str = ""

    @cached_property
    def id(self) -> str:
        """The fingerprint of the key."""
        return fingerprint(dict(self.key))

    @property
    def label(self) -> str:
        """What progress and status call it."""
        parts = [self.row, self.variant, f"seed {self.seed}" if self.seed else "", self.cohort]
        target = self.key.get("targets", [])
        parts += target if self.kind == "train" else []
        return f"{self.kind} " + " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class Plan:
    """Runs in an order in which each comes after what it needs."""

    tasks: tuple[Task, ...]
    rows: tuple[str, ...]
    groups: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def unique(self) -> tuple[Task, ...]:
        """One task an id: rows that ask for the same run share it."""
        return tuple({task.id: task for task in reversed(self.tasks)}.values())[::-1]

    def waves(self) -> list[list[Task]]:
        """Runs that may go at the same time, wave after wave."""
        ready = [[task for task in self.unique if not task.needs], [task for task in self.unique if task.needs]]
        return [wave for wave in ready if wave]


def make_plan(config: ExperimentConfig, data: Mapping[str, str], code: str) -> Plan:
    """The runs of an experiment.

    Parameters
    ----------
    data : mapping
        The fingerprint of each cohort as it enters the experiment.
    code : str
        The version of the code that computes.
    """
    tasks: list[Task] = []
    rows: list[str] = []
    groups: dict[str, str] = {}
    for method in config.methods:
        made = _rows_of(method, config, data, code)
        tasks += made
        for task in made:
            rows.append(task.row)
            groups[task.row] = task.group
    return Plan(tuple(tasks), tuple(dict.fromkeys(rows)), groups)


def _rows_of(method: MethodConfig, config: ExperimentConfig, data: Mapping[str, str], code: str) -> list[Task]:
    row = method.label or method.method
    if method.method in REFERENCE_ROWS:
        features = {"reference": method.method}
        if method.method == "pca":
            features["components"] = method.settings.get("components", config.protocol.pca_components)
        return [_probe(name, config, data, code, features, row, group=method.group) for name in config.cohorts]
    from nerve.methods import method_class

    supervised = hasattr(method_class(method.method), "predict")
    tasks: list[Task] = []
    for variant, settings in method.variants():
        preset = method.preset or config.preset
        for seed in config.seeds:
            spec = {"method": method.method, "preset": preset, "settings": settings, "seed": seed}
            make = _supervised if supervised else _encoded
            tasks += make(spec, config, data, code, row, variant, seed, method.group)
    if method.select:
        tasks = _selected(tasks, method, config, data, code, row)
    return tasks + _permuted(method, config, data, code)


def _permuted(method: MethodConfig, config: ExperimentConfig, data: Mapping[str, str], code: str) -> list[Task]:
    """Null models: regions assigned to networks at random, one permutation a model."""
    tasks: list[Task] = []
    for start in range(0, method.permutations, method.together):
        numbers = range(start, min(start + method.together, method.permutations))
        names = [f"permuted{number}" for number in numbers]
        patching = names if method.together > 1 else names[0]
        settings = method.variants()[0][1] | {"patching": patching}
        spec = {"method": method.method, "preset": method.preset or config.preset, "settings": settings, "seed": 0}
        if method.together == 1:
            tasks += _encoded(spec, config, data, code, PERMUTED, names[0], 0, "null")
            continue
        encode = Task("encode", _encode_key(spec, config, data, code), PERMUTED, f"{len(names)} together", group="null")
        tasks.append(encode)
        for member, name in enumerate(names):
            what = {"encoder": encode.id, "member": member}
            tasks += [
                _probe(cohort, config, data, code, what, PERMUTED, name, 0, (encode.id,), "null")
                for cohort in config.cohorts
            ]
    return tasks


def _encoded(
    spec: Mapping[str, Any],
    config: ExperimentConfig,
    data: Mapping[str, str],
    code: str,
    row: str,
    variant: str,
    seed: int,
    group: str,
) -> list[Task]:
    """An encoder trained once, and a probe on every cohort; or, strictly, an encoder in every fold of every cohort."""
    key = _encode_key(spec, config, data, code)
    if config.protocol.pretrain_scope == "train_folds":
        features = {"encoder_in_folds": key}
        return [_probe(name, config, data, code, features, row, variant, seed, group=group) for name in config.cohorts]
    if not key["pretrained_on"]:
        raise NerveError(
            f"Row {row!r} needs a cohort to be trained on, expected at least one without `pretrain: false`."
        )
    encode = Task("encode", key, row, variant, seed, group=group)
    return [
        encode,
        *(
            _probe(name, config, data, code, {"encoder": encode.id}, row, variant, seed, (encode.id,), group)
            for name in config.cohorts
        ),
    ]


def _selected(
    tasks: list[Task], method: MethodConfig, config: ExperimentConfig, data: Mapping[str, str], code: str, row: str
) -> list[Task]:
    """The encoders of all variants, and for each seed and cohort one probe that chooses among them in every fold."""
    encoders = [task for task in tasks if task.kind == "encode"]
    if len(encoders) < len(tasks) // (1 + len(config.cohorts)) or not encoders:
        raise NerveError(
            f"Row {row!r}: `select` chooses among variants of an encoder with pretrain_scope: all; list the variants "
            "as rows instead."
        )
    chosen = []
    for seed in config.seeds:
        ids = tuple(task.id for task in encoders if task.seed == seed)
        names = [task.variant for task in encoders if task.seed == seed]
        features = {"choose": list(ids), "variants": names}
        chosen += [
            _probe(name, config, data, code, features, row, "chosen in each fold", seed, ids, method.group)
            for name in config.cohorts
        ]
    return [*encoders, *chosen]


def _supervised(
    spec: Mapping[str, Any],
    config: ExperimentConfig,
    data: Mapping[str, str],
    code: str,
    row: str,
    variant: str,
    seed: int,
    group: str,
) -> list[Task]:
    tasks = []
    for name, cohort in config.cohorts.items():
        for target in cohort.targets:
            key = {"kind": "train", **spec, **_evaluation_key(name, cohort, config, data, code), "targets": [target]}
            tasks.append(Task("train", key, row, variant, seed, name, group=group))
    return tasks


def _probe(
    name: str,
    config: ExperimentConfig,
    data: Mapping[str, str],
    code: str,
    features: Mapping[str, Any],
    row: str,
    variant: str = "",
    seed: int = 0,
    needs: tuple[str, ...] = (),
    group: str = "",
) -> Task:
    key = {"kind": "probe", "features": features, **_evaluation_key(name, config.cohorts[name], config, data, code)}
    return Task("probe", key, row, variant, seed, name, needs, group)


def _evaluation_key(
    name: str, cohort: CohortConfig, config: ExperimentConfig, data: Mapping[str, str], code: str
) -> dict[str, Any]:
    protocol = config.protocol.model_dump(exclude={"n_bootstrap", "covariates", "pca_components"})
    return {
        "cohort": name,
        "data": data[name],
        "timeseries": cohort.timeseries,
        "targets": list(cohort.targets),
        "fold_targets": list(cohort.targets),  # folds are shared by all targets of the cohort
        "covariates": list(config.protocol.covariates if cohort.covariates is None else cohort.covariates),
        "groups": cohort.groups,
        "site": cohort.site,
        "protocol": protocol,
        "code": code,
    }


def _encode_key(
    spec: Mapping[str, Any], config: ExperimentConfig, data: Mapping[str, str], code: str
) -> dict[str, Any]:
    pooled = {name: data[name] for name, cohort in config.cohorts.items() if cohort.pretrain}
    series = {name: config.cohorts[name].timeseries for name in pooled}
    return {"kind": "encode", **spec, "pretrained_on": pooled, "timeseries": series, "code": code}
