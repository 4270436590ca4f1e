"""A killed worker costs its own run, which is tried again once; the other runs of its wave are not touched."""

import os
import signal
from pathlib import Path

import pytest

from nerve.experiments import launch
from nerve.experiments.main import prepare
from nerve.experiments.store import DONE, FAILED

DOOMED = "doomed"


def work_or_die(folder, run_id, threads=0, card=None):
    """The worker's own function, but that a run kills its process as often as the file that is named after it says."""
    deaths = Path(folder, f"{DOOMED}-{run_id}")
    if deaths.is_file() and (left := int(deaths.read_text())):
        deaths.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return launch_work(folder, run_id, threads, card)


launch_work = launch.work


@pytest.mark.slow
def test_only_the_run_whose_worker_is_killed_fails(make_config, tmp_path, monkeypatch):
    experiment = prepare(make_config([{"method": "raw"}, {"method": "pca"}]), tmp_path / "out")
    once, twice = experiment.plan.unique[1:3]
    for run, deaths in ((once, 1), (twice, 2)):
        (tmp_path / "out" / f"{DOOMED}-{run.id}").write_text(str(deaths))
    monkeypatch.setattr(launch, "work", work_or_die)
    launch.launch(experiment.workspace, experiment.plan, "local", 2)
    found = launch.statuses(experiment.workspace, experiment.plan)
    assert found.pop(twice.id) == FAILED
    assert found[once.id] == DONE
    assert set(found.values()) == {DONE}
