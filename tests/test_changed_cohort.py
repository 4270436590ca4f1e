"""A cohort whose files were changed is another cohort: no result, checkpoint or verdict of before is taken for it."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest

from nerve import Cohort
from nerve.checks import NerveError
from nerve.experiments.config import ExperimentConfig
from nerve.experiments.main import Experiment
from nerve.methods.runs import pretrain
from nerve.quality import check_cohort
from nerve.simulate import simulate_cohort

pytestmark = pytest.mark.slow

ATLAS = "schaefer100-7"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    people = simulate_cohort(40, ATLAS, 40, keep_timeseries=False, seed=1)
    return people.save(tmp_path_factory.mktemp("original") / "cohort")


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "cohort")


def shuffle_target(folder):
    table = pd.read_csv(folder / "participants.tsv", sep="\t")
    table["p_factor"] = table["p_factor"].sample(frac=1, random_state=0).to_numpy()
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)


def reverse_matrices(folder):
    """Matrices of other participants, with the time of the file set back."""
    file = folder / "connectivity.npy"
    before = file.stat()
    np.save(file, np.load(file)[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def sort_table(folder):
    table = pd.read_csv(folder / "participants.tsv", sep="\t").sort_values("age")
    table.to_csv(folder / "participants.tsv", sep="\t", index=False)


def test_an_experiment_on_changed_files_runs_again_and_gives_what_a_fresh_folder_gives(tmp_path, folder):
    config = ExperimentConfig.model_validate(
        {
            "name": "tiny",
            "parcellation": ATLAS,
            "cohorts": {"alpha": {"path": str(folder), "targets": ["p_factor"]}},
            "methods": [{"method": "raw"}],
            "protocol": {"n_folds": 3, "n_inner_folds": 2, "n_bootstrap": 20},
        }
    )
    before = Experiment.prepare(config, tmp_path / "out").run(jobs=1).scores["r"].item()
    # rows are tied to matrices by id: a sorted table is the same cohort
    for change, again in ((sort_table, False), (shuffle_target, True), (reverse_matrices, True)):
        change(folder)
        seen = []
        after = Experiment.prepare(config, tmp_path / "out").run(jobs=1, report=lambda *told: seen.append(told))  # noqa: B023
        assert bool(seen) == again
        now = after.scores["r"].item()
        if again:
            fresh = Experiment.prepare(config, tmp_path / change.__name__).run(jobs=1)
            assert now == fresh.scores["r"].item()
        assert (now != before) == again
        before = now


def test_training_does_not_go_on_with_other_matrices(tmp_path, folder):
    settings = ["dim=16", "depth=1", "heads=2", "epochs=1", "batch_size=16"]
    run = {"preset": "small", "device": "cpu", "assignments": settings}
    pretrain([folder], tmp_path / "run", **run)
    reverse_matrices(folder)
    with pytest.raises(NerveError, match="data"):
        pretrain([folder], tmp_path / "run", resume=True, **run)


def test_check_says_what_was_changed(folder):
    def row():
        table = check_cohort(Cohort.load(folder)).table.set_index("check")
        return table.loc["files", "verdict"], table.loc["files", "detail"]

    assert row() == ("ok", "")
    shuffle_target(folder)
    assert row()[0] == "note"
    assert "participants.tsv changed: p_factor" in row()[1]
    reverse_matrices(folder)
    assert row()[0] == "warning"
    assert "connectivity.npy has changed" in row()[1]
