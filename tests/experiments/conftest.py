"""A tiny experiment: two simulated cohorts, reference rows and a NERVE that trains in a second."""

from pathlib import Path
from typing import Any

import pytest

from nerve.data.simulate import simulate_cohort
from nerve.experiments.config import ExperimentConfig

TINY = {"epochs": 1, "dim": 16, "depth": 1, "batch_size": 32, "heads": 2}
PROTOCOL = {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 20}


HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    """All tests in one process, which begins the experiment on SLURM and asks for it at the end."""
    ours = [item for item in items if item.path.parent == HERE]
    for item in ours:
        item.add_marker(pytest.mark.xdist_group("experiment"))
    first = [item for item in ours if item.name == "test_an_experiment_is_begun"]
    items[:] = first + [item for item in items if item not in first]


def save_cohorts(folder) -> None:
    simulate_cohort(40, "schaefer100-7", 40, seed=1, name="alpha").save(folder / "alpha")
    simulate_cohort(30, "schaefer100-7", 40, seed=2, name="gamma", keep_timeseries=False).save(
        folder / "gamma"
    )


@pytest.fixture(scope="session")
def make_config(made_once):
    folder = made_once("experiment-cohorts", save_cohorts)

    def make(methods: list[dict[str, Any]], **changes: Any) -> ExperimentConfig:
        content = {
            "name": "tiny",
            "parcellation": "schaefer100-7",
            "preset": "small",
            "device": "cpu",
            "cohorts": {
                "alpha": {"path": str(folder / "alpha"), "targets": ["p_factor", "null"]},
                "gamma": {
                    "path": str(folder / "gamma"),
                    "targets": ["p_factor"],
                    "pretrain": False,
                },
            },
            "methods": methods,
            "protocol": PROTOCOL | changes.pop("protocol", {}),
        }
        return ExperimentConfig.model_validate(content | changes)

    return make


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    return dict(TINY)
