"""Fixtures for all tests."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run in parallel processes: one thread each

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, where there is one."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data are not on this machine (../shared/data)")
    return SHARED_DATA
