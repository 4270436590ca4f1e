"""The same tasks on a real SLURM of one node: the same results, also when a job is requeued.

Most of it is waiting: a process of its own waits, from the first test of this folder (conftest.py)
to the last.
"""

import multiprocessing
import os
import subprocess
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from shutil import which

import pytest
import yaml
from typer.testing import CliRunner

from nerve.cli import app
from nerve.experiments import commands
from nerve.experiments.experiment import Experiment
from nerve.experiments.run_store import DONE, RUNNING


def slurm_answers() -> bool:
    if which("sinfo") is None:
        return False
    answer = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True)
    return any(state in answer.stdout for state in ("idle", "mix", "alloc"))


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(
        not slurm_answers(), reason="no SLURM here; tools/slurm.sh installs and starts one"
    ),
]

UNWRITTEN = "nerve.report.page.write_report", lambda folder, *_: folder


def jobs() -> list[tuple[str, str]]:
    listed = subprocess.run(["squeue", "-h", "-o", "%i %T"], capture_output=True, text=True).stdout
    return [tuple(line.split()) for line in listed.splitlines()]


def wait_until(condition, seconds, what):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"waited {seconds} s until {what}; jobs: {jobs()}"
        time.sleep(0.1)


def stop_and_go_on(config, folder):
    """Run an experiment on SLURM; stop the job that trains once it has a checkpoint; wait."""
    there = Experiment.prepare(config, folder / "there")
    encode = next(task for task in there.plan.unique_tasks if task.kind == "encode")
    store, checkpoint = there.store, there.store.run_folder(encode.id) / "last.safetensors"
    (folder / "c.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    with ThreadPoolExecutor(1) as thread:
        launched = thread.submit(
            commands.run_experiment, folder / "c.yaml", str(folder / "there"), "slurm"
        )
        wait_until(
            lambda: checkpoint.is_file() and store.status(encode.id) == RUNNING,
            900,
            "there is a checkpoint",
        )
        array = next((folder / "there" / "slurm").glob("*_submission.sh")).name.partition("_")[0]
        number = [task.id for task in there.plan.unique_tasks if not task.needs].index(encode.id)
        subprocess.run(["scancel", "--signal=USR2", f"{array}_{number}"], check=True)
        wait_until(lambda: store.status(encode.id) != RUNNING, 900, "the job has stopped")
        assert launched.result(timeout=900) == []
    assert store.status(encode.id) == DONE


def beside(config, folder):
    """`stop_and_go_on`, in a process that says what went wrong in a file."""
    with open(folder / "said", "w") as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(*UNWRITTEN)
        os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
        try:
            stop_and_go_on(config, folder)
        except BaseException:
            traceback.print_exc(file=said)
            said.flush()
            os._exit(1)
    os._exit(0)


@pytest.fixture(scope="session")
def on_slurm(make_config, tiny, tmp_path_factory):
    settings = tiny | {"epochs": 100, "checkpoint_seconds": 0}
    rows = [
        {"method": "raw", "label": "Raw FC"},
        {"method": "nerve", "label": "NERVE", "settings": settings},
    ]
    config = make_config(rows, slurm={"minutes": 10, "cpus": 1, "partition": "debug"})
    config = config.model_copy(update={"cohorts": {"alpha": config.cohorts["alpha"]}})
    folder = tmp_path_factory.mktemp("slurm")
    process = multiprocessing.get_context("fork").Process(target=beside, args=(config, folder))
    process.start()
    yield config, folder, process
    process.kill()


def test_an_experiment_is_begun(on_slurm):
    assert on_slurm[2].exitcode in (None, 0)


def test_a_job_that_is_stopped_is_queued_again_and_ends_with_the_same_tables(on_slurm, monkeypatch):
    config, folder, process = on_slurm
    monkeypatch.setattr(*UNWRITTEN)
    Experiment.prepare(config, folder / "here").run(jobs=1)
    process.join(1500)
    assert process.exitcode == 0, (folder / "said").read_text()
    for name in ("scores.tsv", "tables/table.md"):
        assert (folder / "here" / name).read_text() == (folder / "there" / name).read_text()
    shown = CliRunner().invoke(app, ["experiment", "--status", str(folder / "there")])
    assert "0 waiting, 0 running, 3 done" in shown.output
