"""A killed worker costs its own run, which is tried again once; the other runs of its wave are not touched."""

import os
import signal
from pathlib import Path

import pytest

from nerve.experiments import launch
from nerve.experiments.main import prepare
from nerve.experiments.store import DONE, FAILED
from nerve.files import claim

DOOMED = "doomed"


def work_or_die(folder, run_id, threads=0, card=None):
    """The worker's own function, but that the run named in the file `doomed` kills its process."""
    path = os.path.join(folder, DOOMED)
    wanted, deaths = Path(path).read_text().split()
    if run_id == wanted and int(deaths) > 0:
        (claim(os.path.join(folder, "runs", run_id)) / "task.json").write_text("{}")
        Path(path).write_text(f"{wanted} {int(deaths) - 1}")
        os.kill(os.getpid(), signal.SIGKILL)
    return launch_work(folder, run_id, threads, card)


launch_work = launch.work


@pytest.mark.slow
@pytest.mark.parametrize(("deaths", "status"), [(1, DONE), (2, FAILED)])
def test_only_the_run_whose_worker_is_killed_fails(make_config, tmp_path, monkeypatch, deaths, status):
    experiment = prepare(make_config([{"method": "raw"}, {"method": "pca"}]), tmp_path / "out")
    doomed = experiment.plan.unique[1]
    (tmp_path / "out" / DOOMED).write_text(f"{doomed.id} {deaths}")
    monkeypatch.setattr(launch, "work", work_or_die)
    launch.launch(experiment.workspace, experiment.plan, "local", 2)
    found = launch.statuses(experiment.workspace, experiment.plan)
    assert found.pop(doomed.id) == status
    assert set(found.values()) == {DONE}
