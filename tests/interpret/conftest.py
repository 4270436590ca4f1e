"""A small cohort and two small encoders that differ in the seed."""

import pytest

from nerve import NERVE
from nerve.data.simulate import simulate_cohort

OPTIONS = {"heads": 2, "decoder_dim": 16, "init": "scaled", "n_components": 16}


@pytest.fixture(scope="session")
def cohort():
    return simulate_cohort(40, "schaefer100-7", timepoints=80, keep_timeseries=False, seed=3)


@pytest.fixture(scope="session")
def encoders(cohort):
    return [
        NERVE.from_preset(
            "small", dim=16, depth=2, epochs=2, seed=seed, device="cpu", **OPTIONS
        ).fit(cohort)
        for seed in range(2)
    ]
