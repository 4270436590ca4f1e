"""Two processes at one experiment, run folder or cohort."""

import pytest

from torture import concurrency


@pytest.mark.slow
def test_short_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = [
        promise for promise in concurrency.run(tmp_path, short=True, seed=1) if not promise.kept
    ]
    assert not broken
