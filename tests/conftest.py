"""Fixtures for all tests."""

import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

# Test processes run side by side, one per core: several threads in each would only wait for one another. Sums of
# several threads are also rounded otherwise than those of one, and tests compare bit for bit.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

# No time limit per example: by default, hypothesis fails what takes longer than a fifth of a second.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# `make torture` asks for many more examples, of which tests/torture/test_bad_input.py says how many.
hypothesis.settings.register_profile(
    "torture", deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
hypothesis.settings.load_profile("any machine")

# folders whose tests are long
LONG = ("torture", "experiments", "training", "promises", "contracts", "report")
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    """Long tests come first, so that no process ends late; those of a file share a process, and with it fixtures.

    Both only save time: every test passes alone, and in any order.
    """
    items.sort(key=lambda item: item.path.parent.name not in LONG)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


# A command that sets up logging would otherwise keep writing to the stream of its test, which is closed by then.
logging.getLogger().addHandler(logging.NullHandler())


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


@pytest.fixture
def unpainted(monkeypatch) -> None:
    """Figures are drawn but not turned into SVG, where only the words of a page are looked at."""
    monkeypatch.setattr("nerve.report.figures.svg", lambda figure: "<svg></svg>")


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Reports have no figures, where something else that a command does is the claim."""
    monkeypatch.setattr("nerve.report.figures.SECTIONS", {})
