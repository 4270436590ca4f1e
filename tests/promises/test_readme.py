"""README and the first tutorial do what they say: their own lines are run, on few people and for one epoch."""

import warnings

import pandas as pd
import pytest
from tests.promises import stand_ins
from tests.promises.documents import ROOT, blocks, in_one_epoch, nerve_commands
from typer.testing import CliRunner

from nerve._utils.errors import NerveWarning
from nerve.cli import app

README = (ROOT / "README.md").read_text(encoding="utf-8")
START = (ROOT / "docs" / "tutorials" / "get-started.md").read_text(encoding="utf-8")
N = 12  # participants


def run(words):
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0, f"nerve {' '.join(words)}\n{ended.output}"
    return ended.stdout


def section(text, heading):
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture(scope="module")
def derivatives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    stand_ins.derivatives(folder, N)
    return folder


@pytest.mark.slow
def test_the_readmes_commands_run_on_an_xcpd_folder(derivatives, monkeypatch, quick):
    monkeypatch.chdir(derivatives)
    for words in nerve_commands(section(README, "On your own data")):
        if (
            words[0] != "experiment"
        ):  # its configs want paths; tests/experiments runs them on simulated cohorts
            run(words)
    assert (derivatives / "results" / "report.html").stat().st_size > 10_000
    assert len(pd.read_csv(derivatives / "embeddings.tsv", sep="\t")) == N


@pytest.mark.slow
def test_the_readmes_python_runs(derivatives, monkeypatch):
    monkeypatch.chdir(derivatives)
    [code] = blocks(README, "python")
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        exec(in_one_epoch(code), names)
    assert names["Z"].shape == (N, 256)
    assert len(names["results"].predictions) == N


@pytest.mark.slow
def test_the_first_tutorial_runs_from_top_to_bottom(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    said = {words[0]: run(words) for words in nerve_commands(START)}
    assert "true r 0.60" in said["simulate"]
    assert said["check"].strip().endswith("usable")
    assert "scope: all" in said["evaluate"]
    assert (tmp_path / "results" / "report.html").is_file()
    [code] = blocks(START, "python")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        exec(in_one_epoch(code), {})
