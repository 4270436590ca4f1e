"""Beside other programs: threads sleep while they wait, and there are as many as the process may use."""

import os
import subprocess
import sys

import pytest

from nerve._utils import cores


def in_a_new_process(code: str, **variables: str) -> str:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in (*cores.WAITING, *cores.THREADS)
    }
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


SAID = (
    "import nerve, os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('OMP_NUM_THREADS'))"
)


@pytest.mark.slow
def test_waiting_threads_sleep_unless_the_user_decided():
    assert in_a_new_process(SAID).startswith("PASSIVE")
    assert in_a_new_process(SAID, OMP_WAIT_POLICY="ACTIVE").startswith("ACTIVE")
    assert in_a_new_process(SAID, GOMP_SPINCOUNT="1000").startswith("None")
    blas = "import nerve, os; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    assert in_a_new_process(blas, OPENBLAS_THREAD_TIMEOUT="20") == "20"


def test_import_costs_no_library_so_that_the_policy_comes_first():
    heavy = "{'torch', 'numpy', 'pandas', 'sklearn'}"
    assert in_a_new_process(f"import nerve, sys; print({heavy} & set(sys.modules))") == "set()"


@pytest.mark.skipif(cores._seen_by_libraries() < 2, reason="one core: there is nothing to limit")
def test_slurm_says_how_many_threads_there_are_unless_the_user_does():
    assert in_a_new_process(SAID, SLURM_CPUS_PER_TASK="1").endswith("1")
    assert in_a_new_process(SAID, SLURM_CPUS_PER_TASK="1", OMP_NUM_THREADS="2").endswith("2")


class LoadedTorch:
    """As much of torch as is asked when it was imported before us."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def get_num_threads(self) -> int:
        return self.threads

    def set_num_threads(self, threads: int) -> None:
        self.threads = threads


@pytest.mark.parametrize(("chosen", "expected"), [(8, 3), (2, 2)])
def test_a_torch_that_is_already_there_is_limited_unless_the_user_did(
    monkeypatch, chosen, expected
):
    for name in cores.THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cores, "_seen_by_libraries", lambda: 8)
    monkeypatch.setattr(cores, "_granted", lambda: 3)
    monkeypatch.setitem(sys.modules, "torch", LoadedTorch(chosen))
    cores.share_the_machine()
    assert sys.modules["torch"].get_num_threads() == expected
    assert os.environ.pop("OMP_NUM_THREADS") == "3"


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
    assert list(cores._quotas(tmp_path)) == expected


def test_the_least_of_affinity_quota_and_slurm_counts(monkeypatch):
    monkeypatch.setattr(cores, "_seen_by_libraries", lambda: 16)
    monkeypatch.setattr(cores, "_quotas", lambda root: iter([3.5]))
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
