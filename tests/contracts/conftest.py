"""All tests of one method run in one process, so that it is trained once."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE and hasattr(item, "callspec"):
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["name"]))
