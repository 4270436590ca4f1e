"""Small cohorts whose answer is known."""

import numpy as np
import pandas as pd
import pytest

import nerve
from nerve import Cohort, Parcellation


def predict(*given, **options):
    """The predictions of `nerve.evaluate`."""
    return nerve.evaluate(*given, **options).predictions


def make_cohort(n=80, n_regions=8, seed=0, **columns):
    """A cohort of random FC with the given columns."""
    rng = np.random.default_rng(seed)
    fc = np.stack([np.corrcoef(rng.normal(size=(n_regions, 60))) for _ in range(n)]).astype(
        np.float32
    )
    regions = pd.DataFrame(
        {"label": [f"r{i}" for i in range(n_regions)], "network": list("AB") * (n_regions // 2)}
    )
    table = pd.DataFrame({"participant_id": [f"sub-{i:03}" for i in range(n)], **columns})
    return Cohort(fc, table, Parcellation.from_table(regions, name="toy"), name="toy")


@pytest.fixture
def cohort():
    """120 participants with two planted targets, covariates, families, sites and motion."""
    return planted_cohort()


def planted_cohort():
    """What the fixture `cohort` gives, for fixtures of a whole module."""
    rng = np.random.default_rng(7)
    n = 120
    age, sex = rng.uniform(8, 21, n), rng.choice(["F", "M"], n)
    signal = rng.normal(size=n)
    missing = np.where(rng.random(n) < 0.15, np.nan, signal + rng.normal(size=n))
    return make_cohort(
        n,
        age=age,
        sex=sex,
        score=signal + 0.3 * age + rng.normal(size=n),
        partly=missing,
        patient=np.where(signal + rng.normal(size=n) > 0, "yes", "no"),
        family=rng.integers(0, 70, n),
        site=rng.choice(["A", "B", "C"], n),
        mean_fd=rng.gamma(2, 0.1, n),
        signal=signal,
    )


@pytest.fixture
def features(cohort):
    """(120, 10) features that carry the planted signal."""
    rng = np.random.default_rng(8)
    noise = rng.normal(size=(len(cohort), 10))
    return noise + 1.5 * cohort.participants["signal"].to_numpy()[:, None] * rng.normal(size=10)
