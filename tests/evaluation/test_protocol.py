"""One protocol, one set of names: each field reaches Python, experiment files, the command line and the report."""

import re

import pytest
from typer.testing import CliRunner

from nerve import NerveError, Protocol
from nerve.cli import app
from nerve.evaluation.protocol import FIELDS
from nerve.experiments.config import ExperimentConfig

OTHER = {
    "targets": ["b", "c"], "classes": ["a"],
    "covariates": ["age"], "groups": "family", "site": "site", "leave_site_out": True,
    "combat": True, "combat_on": "diagnosis=control",
    "preserve": ["age"], "regress_features": True, "motion": "fd", "confirmed_values": ["y"],
    "non_numeric": "missing",
    "n_folds": 4, "n_repeats": 2,
    "n_inner_folds": 3, "kernel": "cosine", "lambdas": [0.5, 2.0], "n_components": 7, "exact_up_to": 99,
    "n_landmarks": 33, "seed": 5, "n_bootstrap": 11, "n_permutations": 12, "labels": [25, 50],
    "n_draws": 3, "pretrain_scope": "all",
}  # fmt: skip


def given(name):
    """The field with another value than its default, and what it cannot be without."""
    needs = {"targets": ["a"]} | (
        {"site": "site"} if name in ("combat", "combat_on", "leave_site_out") else {}
    )
    needs |= {"combat": True} if name == "combat_on" else {}
    return needs | {name: OTHER[name]}


def plain(value):
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_reaches_python_and_files(name):
    assert plain(getattr(Protocol(**given(name)), name)) == OTHER[name]
    values = given(name)
    whole = {
        "cohorts": {"A": {"path": "x", "targets": values.pop("targets")}},
        "methods": [{"method": "raw"}],
    }
    for content in (
        whole | {"protocol": values},
        {**whole, "cohorts": {"A": whole["cohorts"]["A"] | values}},
    ):
        protocol = ExperimentConfig.model_validate(content).protocol_of("A")
        assert plain(getattr(protocol, name)) == OTHER[name]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_reaches_the_command_line(name, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "nerve.experiments.commands.run_evaluation", lambda *a, **k: seen.append(a[2])
    )
    options = []
    for key, value in given(name).items():
        words = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        options += [f"--{key.replace('_', '-')}", *([] if value is True else [words])]
    result = CliRunner().invoke(app, ["evaluate", "cohort", "--out", "out", *options])
    assert result.exit_code == 0, result.output
    assert plain(getattr(seen[0], name)) == OTHER[name]


def test_defaults_and_sentences_of_the_command_line_are_the_protocols():
    said = re.sub(
        r"[│╭╮╰╯─\s]+",
        " ",
        CliRunner().invoke(app, ["evaluate", "--help"], env={"COLUMNS": "400"}).output,
    )
    for name, field in FIELDS.items():
        assert f"--{name.replace('_', '-')}" in said
        assert re.sub(r"\s+", " ", field.metadata["help"]) in said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"targets": []}, "There are no targets"),
        ({"classes": ["b"]}, "classes names b, expected some of the targets: a"),
        ({"kernel": "corelation"}, "Did you mean 'correlation'"),
        ({"n_folds": 1}, "n_folds is 1, expected a whole number of at least 2"),
        ({"n_folds": True}, "n_folds is True"),
        ({"n_bootstrap": 10**9}, "expected at most 100,000"),
        ({"lambdas": "a,b"}, "lambdas is 'a,b', expected numbers"),
        ({"lambdas": (-1.0,)}, "none below 0"),
        ({"combat_on": "group=control"}, "together with combat"),
        (
            {"combat_on": "control", "combat": True, "site": "s"},
            "combat_on is 'control', expected column=value",
        ),
        ({"combat": True}, "need the column of the site"),
        ({"combat": True, "leave_site_out": True, "site": "s"}, "Choose combat or leave_site_out"),
    ],
)
def test_mistakes_are_sentences(changes, sentence):
    with pytest.raises(NerveError, match=sentence):
        Protocol(**({"targets": ["a"]} | changes))


@pytest.mark.parametrize("text", ["nan", "inf", "25,nan", "25,inf", "-inf"])
@pytest.mark.parametrize("name", ["labels", "lambdas"])
def test_nan_and_infinity_are_refused(name, text):
    with pytest.raises(NerveError, match=f"{name} is '{text}', expected"):
        Protocol(targets="age", **{name: text})
