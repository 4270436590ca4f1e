"""A full disk and a read-only folder, where a tmpfs may be mounted; and how a full disk reads elsewhere."""

import errno

import pytest

from nerve import cli
from torture import disk


@pytest.mark.slow
def test_short_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if not disk.can_mount(tmp_path / "may-i"):
        pytest.skip("this user may not mount a tmpfs")
    broken = [promise for promise in disk.run(tmp_path, short=True, seed=0) if not promise.kept]
    assert not broken


def test_an_error_of_the_system_is_a_sentence_too(monkeypatch, capsys):
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/scratch/file")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert capsys.readouterr().err.strip() == "nerve: /scratch/file: No space left on device."
