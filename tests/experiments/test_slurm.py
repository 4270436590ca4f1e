"""The same tasks on a real, one-node SLURM: results as on this machine, also when a job is stopped and queued again."""

import os
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

import pytest
import yaml

from nerve.experiments.main import prepare
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
def test_a_job_that_is_stopped_is_queued_again_and_ends_with_the_same_tables(make_config, tmp_path, tiny):
    settings = tiny | {"epochs": 80, "checkpoint_seconds": 0.2}
    rows = [{"method": "raw", "label": "Raw FC"}, {"method": "nerve", "label": "NERVE", "settings": settings}]
    config = make_config(rows, slurm={"minutes": 10, "cpus": 1, "partition": "debug"})
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    here = prepare(config, tmp_path / "here")
    here.run(jobs=1)
    there = prepare(config, tmp_path / "there")
    encode = next(task for task in there.plan.unique if task.work.kind == "encode")
    command = [sys.executable, "-m", "nerve", "experiment", str(tmp_path / "c.yaml"), "--launcher", "slurm"]
    log = (tmp_path / "log.txt").open("w")
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "there")], stdout=log, stderr=subprocess.STDOUT, env=os.environ
    )
    checkpoint = there.workspace.store.run_folder(encode.id) / "last.safetensors"
    store = there.workspace.store
    wait_until(lambda: checkpoint.is_file() and store.status(encode.id) == RUNNING, 200, "the encoder has a checkpoint")
    stopped = next(job for job in _jobs_of(tmp_path / "there", encode.id))
    subprocess.run(["scancel", "--signal=USR2", stopped], check=True)
    wait_until(lambda: store.status(encode.id) != RUNNING, 60, "the job has stopped")
    assert store.status(encode.id) != DONE
    assert process.wait(timeout=400) == 0, (tmp_path / "log.txt").read_text()
    assert store.status(encode.id) == DONE
    for name in ("scores.tsv", "tables/table.md"):
        assert (tmp_path / "here" / name).read_text() == (tmp_path / "there" / name).read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "nerve", "experiment", "--status", str(tmp_path / "there")],
        capture_output=True,
        text=True,
    )
    assert "0 waiting, 0 running, 5 done" in shown.stdout


def _jobs_of(folder: Path, run_id: str) -> list[str]:
    """The SLURM job that holds a run: the one whose process wrote the lock."""
    _, pid, *_ = (folder / "locks" / run_id).read_text().split()  # process 123 on host
    for job, state in jobs():
        listed = subprocess.run(["scontrol", "listpids", job], capture_output=True, text=True).stdout
        if state == "RUNNING" and any(line.split()[0] == pid for line in listed.splitlines()[1:]):
            return [job]
    return [job for job, state in jobs() if state == "RUNNING"]
