"""A killed worker costs its own run, which is tried again once; the other runs of its wave are not touched."""

import pytest
from tests.experiments.dying_worker import DOOMED, REAL, work_or_die

from nerve.experiments import launch
from nerve.experiments.main import Experiment
from nerve.experiments.store import DONE, FAILED, RUNNING


@pytest.mark.slow
def test_only_the_run_whose_worker_is_killed_fails(make_config, tmp_path, monkeypatch):
    experiment = Experiment.prepare(make_config([{"method": "raw"}, {"method": "covariates"}]), tmp_path / "out")
    real, once, twice, _ = experiment.plan.unique
    for run, deaths in ((once, 1), (twice, 2)):
        (tmp_path / "out" / f"{DOOMED}-{run.id}").write_text(str(deaths))
    (tmp_path / "out" / f"{REAL}-{real.id}").touch()
    monkeypatch.setattr(launch, "work", work_or_die)
    told = []
    launch.launch(experiment, "local", 2, lambda task, status: told.append((task.id, status)))
    found = {task.id: experiment.store.status(task.id) for task in experiment.plan.unique}
    assert told.count((once.id, RUNNING)) == 2  # begun again
    assert told.index((real.id, RUNNING)) < told.index((real.id, DONE))
    assert found.pop(twice.id) == FAILED
    assert found[once.id] == DONE
    assert set(found.values()) == {DONE}
    assert "worker process ended" in experiment.failures()[0]
    assert (experiment.store.run_folder(real.id) / "predictions.tsv").is_file()
