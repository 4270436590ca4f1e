"""Options that users expect: seeds, whole help texts, and dry runs that leave nothing behind."""

import re
import subprocess
import sys

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from nerve import Cohort, evaluate, read_cohort
from nerve._utils.errors import NerveError, NerveWarning
from nerve.cli import app
from nerve.data.simulate import simulate_cohort
from nerve.evaluation.results import Results
from nerve.methods.nerve import NERVE


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, f"{done.output}\n{done.exception}"
    return done.output


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohorts") / "few"
    simulate_cohort(24, parcellation="schaefer100-17", timepoints=60).save(folder)
    return folder


@pytest.fixture
def quick(monkeypatch):
    """The preset small, smaller."""
    monkeypatch.setitem(NERVE.presets, "small", {"dim": 16, "epochs": 1, "n_components": 4})


@pytest.mark.slow
def test_the_seed_of_pretrain_is_that_of_the_run(cohort, tmp_path, quick):
    run("pretrain", cohort, "--out", tmp_path / "a", "--preset", "small", "--seed", 3)
    run("pretrain", cohort, "--out", tmp_path / "b", "--preset", "small", "--set", "seed=3")
    run("pretrain", cohort, "--out", tmp_path / "c", "--preset", "small")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]
    settings = yaml.safe_load((tmp_path / "a" / "config.yaml").read_text())
    assert settings["seed"] == 3


def test_a_seed_below_zero_is_refused_with_its_option(cohort, tmp_path):
    done = CliRunner().invoke(
        app, ["pretrain", str(cohort), "--out", str(tmp_path / "run"), "--seed", "-1"]
    )
    assert done.exit_code == 2
    assert "--seed" in done.output


@pytest.mark.slow
def test_the_seed_of_run_is_that_of_training_and_folds(cohort, tmp_path, quick, monkeypatch):
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    words = ["run", cohort, "--targets", "age", "--n-folds", 3, "--n-bootstrap", 10]
    words += ["--preset", "small"]
    run(*words, "--out", tmp_path / "plain")
    run(*words, "--out", tmp_path / "seeded", "--seed", 7)
    for name, training, folds in (("plain", 0, 42), ("seeded", 7, 7)):
        results = Results.load(tmp_path / name)
        (protocol,) = results.about["protocols"].values()
        assert protocol["seed"] == folds
        rows = results.rows.set_index("method")
        assert int(rows.loc["nerve", "seed"]) == training


def test_help_keeps_the_group_of_a_pattern(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "'(?P<id>S[0-9]+)'" in run("ingest", "--help")


@pytest.mark.slow
def test_the_dry_run_of_a_rehearsal_leaves_nothing_behind_and_prints_no_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "nerve", "experiment", "table1_main"]
        + ["--out", "out", "--rehearse", "--dry-run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"\d+ runs, 0 done", done.stdout)
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_card_of_a_model_begins_with_what_it_is_good_for():
    lines = run("models", "show", "nerve-small-419").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[:2] == ["## Good for, and not", "## What it is"]
    assert lines[4].startswith("Good for ")


# Words of the reader: options on the command line, parameters in Python


@pytest.mark.slow
def test_the_command_line_names_options(cohort, tmp_path):
    words = ["evaluate", str(cohort), "--targets", "age", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--n-folds", "1"])
    assert str(done.exception).startswith("--n-folds is 1, expected a whole number")
    done = CliRunner().invoke(app, [*words, "--n-folds", "3", "--n-bootstrap", "10"])
    assert "--motion none leaves it out" in done.output


@pytest.mark.slow
def test_python_names_parameters(cohort, tmp_path):
    loaded = Cohort.load(cohort)
    with pytest.raises(NerveError, match=r"^n_folds is 1, expected a whole number"):
        evaluate("raw", loaded, "age", n_folds=1)
    with pytest.warns(NerveWarning, match=r'^Head motion.*; motion="none" leaves it out'):
        evaluate("raw", loaded, "age", n_folds=3, n_bootstrap=10)
    rng = np.random.default_rng(0)
    for participant in "abc":
        np.save(tmp_path / f"{participant}.npy", np.corrcoef(rng.normal(size=(21, 40))))
    with pytest.raises(NerveError, match=r"21 regions.*parcellation=TSV with columns"):
        read_cohort(tmp_path, format="plain")
