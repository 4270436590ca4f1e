"""The walk of a matrix through NERVE: pooled once, viewed once, packed once, components found once, embedded once."""

from collections import Counter

import numpy as np
import pytest
from typer.testing import CliRunner

import nerve
from nerve.cli import app
from nerve.core.masked_autoencoder import MaskedAutoencoder
from nerve.core.views import TangentView
from nerve.data.parcellation import Parcellation
from nerve.data.simulate import simulate_cohort
from nerve.methods import nerve as nerve_method
from nerve.methods import packing

NETWORKS = tuple("AAAABBBBCCCC")
REGIONS = Parcellation(
    tuple(f"{name}{i}" for i, name in enumerate(NETWORKS)), NETWORKS, name="twelve"
)
SMALL = {
    "view": "tangent",
    "dim": 8,
    "epochs": 1,
    "n_components": 4,
    "device": "cpu",
}


@pytest.fixture
def counted(monkeypatch):
    """How often each step of the walk was taken; of packing, viewing and embedding, for how many participants."""
    counts = Counter()

    def count(owner, name, size=lambda *_: 1):
        function = getattr(owner, name)

        def counting(*arguments, **options):
            counts[name] += size(*arguments)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    count(nerve.Cohort, "concat")
    count(TangentView, "fit")
    count(TangentView, "apply", lambda _, fc, *__: len(fc))
    count(packing.PatchDataset, "packed", lambda _, rows: len(rows))
    count(nerve_method, "principal_components")
    count(MaskedAutoencoder, "embed", lambda _, packed, *__: len(packed))
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recentre", "viewed"), [(None, 40), ("site", 80)], ids=["plain", "recentred"]
)
def test_fit_takes_each_step_once(counted, tmp_path, recentre, viewed):
    """With recentring the view is applied twice: for the means of the sites, then to pack."""
    cohorts = [
        simulate_cohort(20, REGIONS, 60, seed=seed, keep_timeseries=False) for seed in (0, 1)
    ]
    for number, cohort in enumerate(cohorts):
        cohort.participants["participant_id"] = [f"{number}-{i}" for i in range(20)]
        cohort.participants["site"] = "s"
    nerve.Cohort.concat(cohorts, name="both").save(tmp_path / "both")
    both = nerve.Cohort.load(tmp_path / "both")
    counted.clear()
    nerve.NERVE(**SMALL, recentre=recentre).fit(both)
    assert counted == {"fit": 1, "apply": viewed, "packed": 40, "principal_components": 1}
    counted.clear()
    nerve.NERVE(**SMALL).fit(cohorts)
    assert counted == {"concat": 1, "fit": 1, "apply": 40, "packed": 40, "principal_components": 1}


@pytest.mark.slow
def test_an_evaluation_with_its_report_embeds_the_cohort_once(counted, tmp_path, undrawn):
    cohort = simulate_cohort(30, REGIONS, 60, seed=0, keep_timeseries=False)
    cohort.participants["other"] = np.random.default_rng(0).normal(size=30)
    folder = cohort.save(tmp_path / "cohort")
    nerve.NERVE(**SMALL).fit(nerve.Cohort.load(folder)).save(tmp_path / "run")
    counted.clear()
    words = ["evaluate", folder, "--features", tmp_path / "run", "--targets", "age,other", "--n-folds", "2",
             "--n-bootstrap", "10", "--motion", "none", "--out", tmp_path / "out"]  # fmt: skip
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    assert counted == {"apply": 30, "packed": 30, "embed": 30}
    counted.clear()
    done = CliRunner().invoke(app, ["report", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert not counted
