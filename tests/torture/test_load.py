"""What the load torture measures by memory, here by what is read: never more than a batch of a large cohort at once."""

import numpy as np
import pandas as pd
import pytest

import nerve
from nerve import evaluate
from nerve.data.cohort import Cohort
from nerve.data.lazy_arrays import Stack
from nerve.data.parcellation import Parcellation
from nerve.data.quality import check_cohort
from nerve.methods.nerve import NERVE
from torture import load

REGIONS = Parcellation(tuple(f"r{i}" for i in range(12)), tuple("AAAABBBBCCCC"), name="twelve")
N, BATCH = 150, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(series) for series in rng.normal(size=(N, 12, 40))])
    people = pd.DataFrame(
        {"participant_id": [f"p{i}" for i in range(N)], "age": rng.normal(size=N)}
    )
    return Cohort(fc, people, REGIONS).save(tmp_path_factory.mktemp("load") / "cohort")


@pytest.fixture
def most_read(monkeypatch):
    """The largest number of whole matrices that were read at once, of cohorts that all count as large."""
    counts = [0]
    read = Stack._read

    def counted(stack, index, region=None):
        counts.append(len(index) if region is None else 0)
        return read(stack, index, region)

    monkeypatch.setattr("nerve.data.lazy_arrays.MATERIALISE_BELOW", 0)
    monkeypatch.setattr(Stack, "_read", counted)
    return lambda: max(counts)


def train_and_embed(cohort):
    small = {
        "dim": 8,
        "depth": 1,
        "epochs": 1,
        "batch_size": BATCH,
        "n_components": 4,
        "device": "cpu",
    }
    return NERVE.from_preset("small", **small).fit(cohort).transform(cohort)


STEPS = {"check": check_cohort, "pretrain and embed": train_and_embed} | {
    name: lambda cohort, name=name: evaluate(name, cohort, "age", n_folds=3, motion=None)
    for name in ("raw", "pca", "tangent")
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_no_step_reads_more_than_a_batch_at_once(folder, most_read, step):
    STEPS[step](nerve.Cohort.load(folder))
    assert 0 < most_read() <= BATCH


def test_a_step_that_takes_too_much_or_predicts_nothing_breaks_the_promise():
    step = {"seconds": 1.0, "gibibytes": 1.0, "r": 0.5}
    assert load.promise_of(10, {"embed": step}, limit=1.2).kept
    for changed in (step | {"gibibytes": 1.3}, step | {"r": 0.1}, {"error": "ended with -9"}):
        assert not load.promise_of(10, {"embed": changed}, limit=1.2).kept
