"""A killed worker costs its own run only, other runs are done again; Ctrl-C ends all workers."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml
from tests.experiments.dying_worker import DOOMED, REAL, work_or_die

from nerve.experiments import launch
from nerve.experiments.experiment import Experiment
from nerve.experiments.run_store import DONE, FAILED, RUNNING

MINUTES = 600  # until a process counts as hanging


@pytest.mark.slow
def test_only_the_run_whose_worker_is_killed_fails(make_config, tmp_path, monkeypatch):
    experiment = Experiment.prepare(
        make_config([{"method": "raw"}, {"method": "covariates"}]), tmp_path / "out"
    )
    real, once, always, _ = experiment.plan.unique_tasks
    for run, deaths in ((once, 1), (always, 9)):
        (tmp_path / "out" / f"{DOOMED}-{run.id}").write_text(str(deaths))
    (tmp_path / "out" / f"{REAL}-{real.id}").touch()
    monkeypatch.setattr(launch, "_run_in_worker", work_or_die)
    events = []
    launch.launch(experiment, "local", 2, lambda task, status: events.append((task.id, status)))
    statuses = {task.id: experiment.store.status(task.id) for task in experiment.plan.unique_tasks}
    assert events.count((once.id, RUNNING)) == 2  # begun again
    assert events.index((real.id, RUNNING)) < events.index((real.id, DONE))
    assert statuses.pop(always.id) == FAILED
    assert set(statuses.values()) == {DONE}
    assert "The worker process was ended from outside" in experiment.failures()[0]
    assert "--jobs" in experiment.failures()[0]
    assert (experiment.store.run_folder(real.id) / "predictions.tsv").is_file()


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_of_an_experiment_without_a_traceback(make_config, tmp_path, tiny):
    endless = tiny | {"epochs": 100_000, "checkpoint_seconds": 0}
    config = make_config([{"method": "nerve", "settings": endless}], seeds=[1, 2]).model_dump(
        mode="json"
    )
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "nerve", "experiment", str(tmp_path / "c.yaml")]
    command += ["--out", str(tmp_path / "out"), "--jobs", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell's jobs ignore it
    ) as process:  # fmt: skip
        try:
            # both runs have begun when their first checkpoints are there
            while (
                process.poll() is None
                and len(list((tmp_path / "out").glob("runs/*/last.safetensors"))) < 2
            ):
                time.sleep(0.01)
            workers = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            errors = process.communicate(timeout=MINUTES)[1]
        finally:
            process.kill()
    _, alive = psutil.wait_procs(workers, timeout=MINUTES)
    assert workers
    assert not alive
    assert process.returncode != 0
    assert "Traceback" not in errors
