"""The steps of the load torture on few people, with a bound on memory."""

import pytest

from torture import load


@pytest.mark.slow
def test_short_form(tmp_path):
    broken = [promise for promise in load.run(tmp_path, short=True, seed=0) if not promise.kept]
    assert not broken
