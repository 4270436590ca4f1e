"""A rehearsal: the same rows, cohorts and targets on simulated participants, small enough for a laptop.

It shows in minutes that a file is right, what its tables will look like and which cells stay empty, before weeks of a
cluster are asked for. Its numbers say nothing about brains.
"""

from __future__ import annotations

import re
from typing import Any

from nerve.data.simulate import default_targets
from nerve.evaluation.protocol import as_names
from nerve.experiments.config import CohortConfig, ExperimentConfig, MethodConfig
from nerve.methods import method_class

EPOCHS = 3
SIMULATED = {"n": 60, "timepoints": 100}
FOLDS, PERMUTATIONS = 3, 20  # the fewest permuted models that can give p < 0.05: 1 / 21
KNOWN_COVARIATES = ("age", "sex", "site", "mean_fd")
NOT_SIMULATED = ("groups", "site", "combat", "preserve", "leave_site_out", "motion")


def rehearsal(config: ExperimentConfig) -> ExperimentConfig:
    """The experiment on simulated cohorts of 100 regions, with the preset `small`, three folds and one seed."""
    cohorts = {
        name: _cohort(config, name, seed) for seed, name in enumerate(config.cohorts, start=1)
    }
    return config.model_copy(
        update={
            "title": f"{config.title} (rehearsal on simulated participants)".strip(),
            "parcellation": _smaller(config.parcellation or "schaefer400-17"),
            "preset": "small",
            "seeds": config.seeds[:1],
            "cohorts": cohorts,
            "methods": [_method(one) for one in config.methods],
            "protocol": _protocol(config.protocol) | {"n_folds": FOLDS, "n_inner_folds": FOLDS},
        }
    )


def _cohort(config: ExperimentConfig, name: str, seed: int) -> CohortConfig:
    """Simulated participants; a target that the simulation does not have is one that it has, under another name."""
    cohort, wanted = config.cohorts[name], config.protocol_of(name).targets
    simulated = [target.name for target in default_targets()]
    missing = [target for target in wanted if target not in (*simulated, *KNOWN_COVARIATES)]
    spare = [target for target in simulated if target not in wanted]
    return cohort.model_copy(
        update={
            "path": None,
            "simulate": {**SIMULATED, "seed": seed, "keep_timeseries": cohort.timeseries},
            "columns": dict(zip(missing, spare, strict=False)),
            "protocol": _protocol(cohort.protocol),
        }
    )


def _method(method: MethodConfig) -> MethodConfig:
    # the preset `small` of NERVE is not the paper's model; a rehearsal of the paper's tables has it
    own = {
        "view": "fc" if method.settings.get("recentre") is None else "tangent",
        "pooling": "mean",
    }
    settings: dict[str, Any] = (own if method.method == "nerve" else {}) | method.settings
    swept = isinstance(settings.get("epochs"), list)
    if (
        method.method is not None
        and not swept
        and hasattr(method_class(method.method), "training_settings")
    ):
        settings["epochs"] = min(
            settings.get("epochs", EPOCHS), EPOCHS
        )  # none in an untrained control
    if isinstance(settings.get("patching"), str):
        settings["patching"] = _smaller(settings["patching"])
    fewer = min(method.permutations, PERMUTATIONS)
    return method.model_copy(update={"preset": None, "settings": settings, "permutations": fewer})


def _smaller(name: str) -> str:
    """The atlas of 100 regions with the same networks: schaefer400-17 → schaefer100-17; grids stay as they are."""
    if name.startswith(("grid", "permuted", "networks")):
        return name
    found = re.search(r"-(7|17)", name)
    return f"schaefer100-{found[1] if found else 17}"


def _protocol(given: dict[str, Any]) -> dict[str, Any]:
    """The fields that simulated participants can follow: they have no families, and no site that matters."""
    kept = {name: value for name, value in given.items() if name not in NOT_SIMULATED}
    if "covariates" in kept:
        kept["covariates"] = [
            name for name in as_names(kept["covariates"]) if name in KNOWN_COVARIATES
        ]
    return kept
