"""A tiny experiment: two simulated cohorts, reference rows and a NERVE that trains in a second."""

from typing import Any

import pytest

from nerve.experiments.config import ExperimentConfig

TINY = {"epochs": 2, "dim": 16, "depth": 1, "batch_size": 32, "heads": 2}


@pytest.fixture(scope="session")
def make_config():
    def make(methods: list[dict[str, Any]] | None = None, **changes: Any) -> ExperimentConfig:
        content = {
            "name": "tiny",
            "parcellation": "schaefer100-7",
            "preset": "small",
            "device": "cpu",
            "cohorts": {
                "alpha": {"simulate": {"n": 40, "timepoints": 40, "seed": 1}, "targets": ["p_factor", "null"]},
                "gamma": {
                    "simulate": {"n": 30, "timepoints": 40, "seed": 2, "keep_timeseries": False},
                    "targets": ["p_factor"],
                    "pretrain": False,
                },
            },
            "methods": methods
            or [{"method": "raw", "label": "Raw FC"}, {"method": "nerve", "label": "NERVE", "settings": TINY}],
            "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 50},
        }
        return ExperimentConfig.model_validate(content | changes)

    return make


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    return dict(TINY)
