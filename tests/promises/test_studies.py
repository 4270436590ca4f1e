"""Every number-making command that a page names exists, and every study is named by a page."""

import importlib
import re
import sys

import pytest
from tests.promises.documents import PAGES, ROOT

# files whose names begin with an underscore hold what several studies share
STUDIES = sorted(path.stem for path in (ROOT / "studies").glob("[!_]*.py"))
EXPERIMENT_FILES = sorted((ROOT / "configs").glob("*.yaml"))
COMMAND = re.compile(r"python -m (studies|benchmarks|torture|tools)\.(\w+)")


def named_commands(path):
    """The (package, module) pairs that a page or an experiment file names."""
    return set(COMMAND.findall(path.read_text(encoding="utf-8")))


def test_every_named_command_exists():
    missing = [
        f"{path.name}: python -m {package}.{module}"
        for path in [*PAGES, *EXPERIMENT_FILES]
        for package, module in sorted(named_commands(path))
        if not (ROOT / package / f"{module}.py").is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_named_by_a_page(name):
    pages = [page for page in PAGES if ("studies", name) in named_commands(page)]
    assert pages, f"no page names python -m studies.{name}"


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_shows_its_help(name, monkeypatch, capsys):
    study = importlib.import_module(f"studies.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        study.main()
    assert end.value.code == 0
    assert f"python -m studies.{name}" in capsys.readouterr().out
