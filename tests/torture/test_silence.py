"""The attacks of `torture.silence`, in their short form."""

import pytest

from torture import silence


@pytest.mark.slow
def test_short_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [promise for promise in silence.run(tmp_path, short=True, seed=0) if not promise.kept] == []
