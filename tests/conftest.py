"""Fixtures for all tests."""

import atexit
import fcntl
import functools
import gc
import logging
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel processes: one thread each

import pytest
import typer.main

# folders that begin first, so that processes end together
LONG = ("torture", "experiments", "training", "promises", "contracts", "report")
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    """Long tests come first; those of a file stay in one process, which makes what they share once."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # this process has said everything by then, and need not tidy its memory
logging.getLogger().addHandler(logging.NullHandler())  # or a command's own would write to the closed stream of its test
gc.disable()  # while modules are imported and tests found: nothing of it is ever freed


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the garbage collector need not look at them again after each test."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`made_once(name, write)`: a folder that one of the processes of a test run writes and all read."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once"

    def folder_of(name: str, write: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        folder.mkdir(parents=True, exist_ok=True)
        with open(root / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                write(folder)
                done.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, where there is one."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data are not on this machine (../shared/data)")
    return SHARED_DATA


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk():
    """What tests write is not to survive a power cut; that files are flushed is a claim of `tests/test_files.py`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def commands_are_built_once():
    """typer's runner would otherwise build every command and its options again for each line that is typed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True, scope="session")
def tensors_are_in_one_process():
    """torch would otherwise import all that serves tensors of several machines, before it compares two of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.testing._comparison._HAS_DTENSOR", False)
        yield


@pytest.fixture
def unpainted(monkeypatch) -> None:
    """Figures are drawn but not turned into SVG, where only the words of a page are looked at."""
    monkeypatch.setattr("nerve.report.figures.svg", lambda figure: "<svg></svg>")


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Reports have no figures, where something else that a command does is the claim."""
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {})
