"""Beside other programs: threads sleep while they wait, and there are as many as the process may use."""

import os
import subprocess
import sys

import pytest

from nerve._utils import cores


def in_a_new_process(code: str, *arguments: str, **variables: str) -> str:
    decided = (*cores.WAITING, *cores.THREADS, "OPENBLAS_THREAD_TIMEOUT")
    kept = {name: value for name, value in os.environ.items() if name not in decided}
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=kept | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


PROGRAM = """
import os, sys
import nerve.cli
nerve.cli.main = lambda: print(*(os.environ.get(name) for name in sys.argv[1:]))
from nerve.__main__ import main
main()
"""


def variables_of_the_program(*names: str, **variables: str) -> list[str]:
    """What `nerve` sets before it does anything."""
    return in_a_new_process(PROGRAM, *names, **variables).split()


@pytest.mark.slow
def test_waiting_threads_sleep_unless_the_user_decided():
    policy = "OMP_WAIT_POLICY"
    timeout = "OPENBLAS_THREAD_TIMEOUT"
    assert variables_of_the_program(policy, timeout) == ["PASSIVE", "4"]
    assert variables_of_the_program(policy, OMP_WAIT_POLICY="ACTIVE") == ["ACTIVE"]
    assert variables_of_the_program(policy, GOMP_SPINCOUNT="1000") == ["None"]
    assert variables_of_the_program(timeout, OPENBLAS_THREAD_TIMEOUT="20") == ["20"]


def test_the_program_loads_no_library_before_its_variables_are_set():
    heavy = "{'torch', 'numpy', 'pandas', 'sklearn', 'scipy'}"
    code = f"import nerve.__main__, sys; print({heavy} & set(sys.modules))"
    assert in_a_new_process(code) == "set()"


@pytest.mark.skipif(cores._visible_cores() < 2, reason="one core: there is nothing to limit")
@pytest.mark.slow
def test_slurm_says_how_many_threads_there_are_unless_the_user_does():
    threads = "OMP_NUM_THREADS"
    assert variables_of_the_program(threads, SLURM_CPUS_PER_TASK="1") == ["1"]
    assert variables_of_the_program(threads, SLURM_CPUS_PER_TASK="1", OMP_NUM_THREADS="2") == ["2"]


@pytest.mark.parametrize(
    ("listed", "files", "expected"),
    [
        ("0::/job/step", {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000"}, [1.5]),
        ("0::/not/mounted/here", {"cpu.max": "400000 100000"}, [4.0]),
        (
            "3:cpu,cpuacct:/a",
            {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"},
            [2.0],
        ),
        ("3:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, []),
        ("4:memory:/a", {"cpu.max": "100000 100000"}, []),
        ("0::/", {"cpu.max": "what is this"}, []),
    ],
)
def test_quotas_of_every_group_around_the_process_count(tmp_path, listed, files, expected):
    for name, text in (
        {f"sys/fs/cgroup/{key}": value for key, value in files.items()}
        | {"proc/self/cgroup": listed}
    ).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert list(cores._cgroup_quotas(tmp_path)) == expected


def test_the_least_of_affinity_quota_and_slurm_counts(monkeypatch):
    monkeypatch.setattr(cores, "_visible_cores", lambda: 16)
    monkeypatch.setattr(cores, "_cgroup_quotas", lambda root: iter([3.5]))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    assert cores.usable_cores() == 4  # a quota of 3.5 keeps four threads busy
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    assert cores.usable_cores() == 2


def test_processes_share_the_cores_and_keep_a_smaller_number_of_threads(monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cores.threads_per_process(2) == 4
    assert cores.threads_per_process(16) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cores.threads_per_process(2) == 1
