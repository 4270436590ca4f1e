"""README and the first tutorial do what they say: their own lines are run, on few people and for one epoch."""

import warnings

import numpy as np
import pandas as pd
import pytest
from tests.promises.documents import ROOT, blocks, in_one_epoch, nerve_commands
from typer.testing import CliRunner

import nerve
from nerve.checks import NerveWarning
from nerve.cli import app

README = (ROOT / "README.md").read_text(encoding="utf-8")
START = (ROOT / "docs" / "tutorials" / "get-started.md").read_text(encoding="utf-8")


def run(words):
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0, f"nerve {' '.join(words)}\n{ended.output}"
    return ended.stdout


def quick(words):
    """The same command with one epoch, one narrow layer, few people and few folds."""
    words = ["epochs=1" if word.startswith("epochs=") else word for word in words]
    words = ["40" if before == "--subjects" else word for before, word in zip(["", *words], words, strict=False)]
    if words[0] == "interpret":  # a batch per fold and patch
        return [*words, "--n-folds", "2", "--n-bootstrap", "50"]
    if words[0] != "pretrain":
        return words
    narrow = ["--set", "depth=1", "--set", "dim=16"]
    return [*words, *narrow, *(["--set", "epochs=1"] if "epochs=1" not in words else [])]


def section(text, heading):
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def write_xcpd(folder, cohort):
    """The people of a cohort in XCP-D's layout: 7-network order, labels without prefix, 56 regions more."""
    seven = cohort.align("schaefer400-7")
    labels = [label.removeprefix("7Networks_") for label in seven.parcellation.labels]
    labels += [f"Outside_{i}" for i in range(56)]
    for person, fc in zip(seven.participants["participant_id"], seven.connectivity, strict=True):
        name = "sub-" + person.removeprefix("sub-")
        func = folder / name / "func"
        func.mkdir(parents=True)
        whole = np.eye(len(labels))
        whole[:400, :400] = fc
        table = pd.DataFrame(whole, columns=labels, index=pd.Index(labels, name="Node"))
        path = func / f"{name}_task-rest_space-fsLR_seg-4S456Parcels_stat-pearsoncorrelation_relmat.tsv"
        table.to_csv(path, sep="\t", float_format="%.5f")


@pytest.fixture(scope="module")
def derivatives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme")
    cohort = nerve.simulate_cohort(20, "schaefer400-17", timepoints=100, seed=0, keep_timeseries=False)
    write_xcpd(folder / "derivatives" / "xcp_d", cohort)
    cohort.participants.to_csv(folder / "participants.tsv", sep="\t", index=False)
    return folder


@pytest.mark.slow
def test_the_readmes_commands_run_on_an_xcpd_folder(derivatives, monkeypatch, unpainted):
    monkeypatch.chdir(derivatives)
    for words in nerve_commands(section(README, "On your own data")):
        if words[0] != "experiment":  # its configs want paths; tests/experiments runs them on simulated cohorts
            run(quick(words))
    assert (derivatives / "results" / "report.html").stat().st_size > 10_000
    assert len(pd.read_csv(derivatives / "embeddings.tsv", sep="\t")) == 20


@pytest.mark.slow
def test_the_readmes_python_runs(derivatives, monkeypatch):
    monkeypatch.chdir(derivatives)
    [code] = blocks(README, "python")
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        exec(in_one_epoch(code), names)
    assert names["Z"].shape == (20, 256)
    assert len(names["predictions"]) == 20


@pytest.mark.slow
def test_the_first_tutorial_runs_from_top_to_bottom(tmp_path, monkeypatch, unpainted):
    monkeypatch.chdir(tmp_path)
    said = {words[0]: run(quick(words)) for words in nerve_commands(START)}
    assert "true r 0.60" in said["simulate"]
    assert said["check"].strip().endswith("usable")
    assert "pretrain_scope: all" in said["evaluate"]
    assert (tmp_path / "results" / "report.html").is_file()
    [code] = blocks(START, "python")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        exec(in_one_epoch(code), {})
