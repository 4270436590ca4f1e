"""The same tasks on a real, one-node SLURM: results as on this machine, also when a job is stopped and queued again."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from shutil import which

import pytest
import yaml
from typer.testing import CliRunner

from nerve.cli import app
from nerve.experiments import commands
from nerve.experiments.main import Experiment
from nerve.experiments.store import DONE, RUNNING


def slurm_answers() -> bool:
    if which("sinfo") is None:
        return False
    answer = subprocess.run(["sinfo", "-h", "-o", "%t"], capture_output=True, text=True)
    return any(state in answer.stdout for state in ("idle", "mix", "alloc"))


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(not slurm_answers(), reason="no SLURM here; tools/slurm.sh installs and starts one"),
    pytest.mark.xdist_group("slurm"),
]


def jobs() -> list[tuple[str, str]]:
    listed = subprocess.run(["squeue", "-h", "-o", "%i %T"], capture_output=True, text=True).stdout
    return [tuple(line.split()) for line in listed.splitlines()]


def wait_until(condition, seconds, what):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"waited {seconds} s until {what}; jobs: {jobs()}"
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_a_job_that_is_stopped_is_queued_again_and_ends_with_the_same_tables(make_config, tmp_path, tiny, monkeypatch):
    settings = tiny | {"epochs": 50, "checkpoint_seconds": 0}
    rows = [{"method": "raw", "label": "Raw FC"}, {"method": "nerve", "label": "NERVE", "settings": settings}]
    config = make_config(rows, slurm={"minutes": 10, "cpus": 1, "partition": "debug"})
    config = config.model_copy(update={"cohorts": {"alpha": config.cohorts["alpha"]}})
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    there = Experiment.prepare(config, tmp_path / "there")
    encode = next(task for task in there.plan.unique if task.kind == "encode")
    store, checkpoint = there.store, there.store.run_folder(encode.id) / "last.safetensors"
    with ThreadPoolExecutor(1) as thread:
        launched = thread.submit(commands.run, tmp_path / "c.yaml", str(tmp_path / "there"), "slurm")
        wait_until(lambda: checkpoint.is_file() and store.status(encode.id) == RUNNING, 200, "there is a checkpoint")
        array = next((tmp_path / "there" / "slurm").glob("*_submission.sh")).name.partition("_")[0]
        number = [task.id for task in there.plan.unique if not task.needs].index(encode.id)
        subprocess.run(["scancel", "--signal=USR2", f"{array}_{number}"], check=True)
        wait_until(lambda: store.status(encode.id) != RUNNING, 60, "the job has stopped")
        assert store.status(encode.id) != DONE
        Experiment.prepare(config, tmp_path / "here").run(jobs=1)  # while SLURM queues the job again
        assert launched.result(timeout=400) == []
    assert store.status(encode.id) == DONE
    for name in ("scores.tsv", "tables/table.md"):
        assert (tmp_path / "here" / name).read_text() == (tmp_path / "there" / name).read_text()
    shown = CliRunner().invoke(app, ["experiment", "--status", str(tmp_path / "there")])
    assert "0 waiting, 0 running, 3 done" in shown.output
