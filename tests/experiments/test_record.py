"""What is written of a run that failed."""

import re

import pytest

from nerve.checks import NerveError
from nerve.experiments.main import prepare
from nerve.experiments.store import FAILED
from nerve.experiments.work import Probe


def test_the_traceback_of_a_failed_run_holds_no_folders(make_config, tmp_path, monkeypatch):
    def fail(work, job):
        raise ValueError(f"could not read {tmp_path}/my study/fc.npy")

    monkeypatch.setattr(Probe, "run", fail)
    experiment = prepare(make_config([{"method": "raw"}]), tmp_path / "out")
    with pytest.raises(NerveError, match="no run has made predictions"):
        experiment.run(jobs=1)
    assert set(experiment.counts) == {FAILED}
    texts = [file.read_text() for file in (tmp_path / "out" / "runs").rglob("error.txt")]
    assert texts
    for text in texts:
        assert "ValueError: could not read […]/fc.npy" in text
        assert "test_record.py" in text
        assert not re.search(r"/\w+/\w+", text)
