"""A full disk and a read-only folder, where a tmpfs may be mounted; and how a full disk reads elsewhere."""

import errno
import tempfile
from pathlib import Path

import pytest

from nerve import cli
from nerve._utils import locks
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


def test_the_full_disk_is_named_even_if_the_system_does_not_name_it(monkeypatch, capsys):
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cli, "app", full)
    with pytest.raises(SystemExit):
        cli.main()
    message = capsys.readouterr().err.strip()
    assert message.endswith(": No space left on device.")
    assert tempfile.gettempdir() in message


def test_a_lock_on_a_full_disk_is_held_and_given_back(tmp_path, monkeypatch):
    """That it cannot say who holds it does not matter."""

    def full(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with locks.holding(tmp_path / "lock") as is_held:
        assert is_held
    assert not (tmp_path / "lock").exists()
