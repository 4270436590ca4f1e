"""A rehearsal: the same rows, cohorts and targets on a few simulated participants.

It shows in minutes that a file is right, what its tables will look like and which cells stay empty,
before weeks of a cluster are asked for. Its numbers say nothing about brains.
"""

from __future__ import annotations

import re
from typing import Any

from nerve.data.simulate import default_targets
from nerve.evaluation.protocol import as_names
from nerve.experiments.config import CohortConfig, ExperimentConfig, MethodConfig
from nerve.methods import PRETRAINED, method_class

_EPOCHS = 3
SIMULATED = {"n": 60, "timepoints": 100}
_FOLDS = 3
PERMUTATIONS = 20  # the fewest permuted models that can give p < 0.05: 1 / 21
_SIMULATED_COVARIATES = ("age", "sex", "site", "mean_fd")
# simulated participants have no families, and no site that matters
_NOT_SIMULATED = ("groups", "site", "combat", "preserve", "leave_site_out", "motion")


def rehearsal(config: ExperimentConfig) -> ExperimentConfig:
    """Make a small copy of an experiment.

    Parameters
    ----------
    config : ExperimentConfig
        The experiment; its cohorts need not exist.

    Returns
    -------
    ExperimentConfig
        On simulated cohorts of 100 regions, with the preset `small`, three folds and one seed.
    """
    cohorts = {}
    for seed, name in enumerate(config.cohorts, start=1):
        cohorts[name] = _simulated_cohort(config, name, seed)
    protocol = _simulated_protocol(config.protocol) | {"n_folds": _FOLDS, "n_inner_folds": _FOLDS}
    return config.model_copy(
        update={
            "title": f"{config.title} (rehearsal on simulated participants)".strip(),
            "parcellation": _smaller_atlas(config.parcellation or "schaefer400-17"),
            "preset": "small",
            "seeds": config.seeds[:1],
            "cohorts": cohorts,
            "methods": [_shorter_method(entry) for entry in config.methods],
            "protocol": protocol,
        }
    )


def _simulated_cohort(config: ExperimentConfig, name: str, seed: int) -> CohortConfig:
    """A simulated cohort; a target that is not simulated is another simulated one, renamed."""
    cohort = config.cohorts[name]
    wanted = config.protocol_of(name).targets
    simulated = [target.name for target in default_targets()]
    known = (*simulated, *_SIMULATED_COVARIATES)
    missing = [target for target in wanted if target not in known]
    spare = [target for target in simulated if target not in wanted]
    return cohort.model_copy(
        update={
            "path": None,
            "simulate": {**SIMULATED, "seed": seed, "keep_timeseries": cohort.timeseries},
            "columns": dict(zip(missing, spare, strict=False)),
            "protocol": _simulated_protocol(cohort.protocol),
        }
    )


def _shorter_method(entry: MethodConfig) -> MethodConfig:
    """The same method with few epochs and few null models."""
    settings: dict[str, Any] = {}
    if entry.method == "nerve":
        # the preset `small` has another view and pooling than the paper's model
        settings["view"] = "fc" if entry.settings.get("recentre") is None else "tangent"
        settings["pooling"] = "mean"
    settings |= entry.settings
    if settings.pop(PRETRAINED, None) is not None:
        # the trained model has other regions: the deepest network takes its place, with random
        # initial weights
        settings["network"] = "paper"
    is_trained = entry.method is not None and hasattr(
        method_class(entry.method), "training_settings"
    )
    if is_trained and not isinstance(settings.get("epochs"), list):
        # an untrained control keeps its 0 epochs
        settings["epochs"] = min(settings.get("epochs", _EPOCHS), _EPOCHS)
    if isinstance(settings.get("patching"), str):
        settings["patching"] = _smaller_atlas(settings["patching"])
    permutations = min(entry.permutations, PERMUTATIONS)
    return entry.model_copy(
        update={"preset": None, "settings": settings, "permutations": permutations}
    )


def _smaller_atlas(name: str) -> str:
    """The atlas of 100 regions with the same networks: schaefer400-17 → schaefer100-17."""
    if name.startswith(("grid", "permuted", "networks")):  # these fit any number of regions
        return name
    networks = re.search(r"-(7|17)", name)
    return f"schaefer100-{networks[1] if networks else 17}"


def _simulated_protocol(protocol: dict[str, Any]) -> dict[str, Any]:
    """The fields of a protocol that simulated participants can follow."""
    kept = {name: value for name, value in protocol.items() if name not in _NOT_SIMULATED}
    if "covariates" in kept:
        covariates = as_names(kept["covariates"])
        kept["covariates"] = [name for name in covariates if name in _SIMULATED_COVARIATES]
    return kept
