"""Marks and escapes in every place where a user can put a string: none of them is in a file that is mailed."""

import re
import sys
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest

from nerve.cli import main

N, R = 60, 12
ESCAPE = "\x1b[31m\x07\x9b2J"  # in every name
# ids, folders, values of columns, and the year of all dates (not as digits of a longer number)
SECRETS = (
    b"ZQid",
    b"ZQpath",
    b"ZQvalue",
    rb"(?<![\w.+/])1987(?![\w+/])",
)
# what holds ids by design: cohorts, tables with one row per participant, and records of where the cohorts are
OF_PEOPLE = (
    "predictions.tsv",
    "folds.tsv",
    "embeddings.tsv",
    "features.tsv",
    "inputs.json",
    "experiment.yaml",
)
TARGETS = f"score{ESCAPE},group{ESCAPE}"


def write_source(folder):
    """One matrix per participant, their table, a table of regions and one of features."""
    rng = np.random.default_rng(0)
    source = folder / "ZQpathsource"
    source.mkdir()
    ids = [f"ZQid{i:03}" for i in range(N)]
    for i, person in enumerate(ids):
        if i != 1:  # the second has the matrix of the first
            matrix = np.corrcoef(rng.normal(size=(R, 60)))
        np.savetxt(source / f"{person}.csv", matrix, delimiter=",")
    (source / "ZQidbroken.csv").write_text("1,2\n3\n")
    regions = pd.DataFrame({"label": [f"r{i}{ESCAPE}" for i in range(R)]})
    regions["network"] = [f"{name}{ESCAPE}" for name in "ABC" * (R // 3)]
    regions.to_csv(folder / f"regions{ESCAPE}.tsv", sep="\t", index=False)
    people = pd.DataFrame({"participant_id": ids, f"score{ESCAPE}": rng.normal(size=N)})
    people[f"group{ESCAPE}"] = [
        f"{name}{ESCAPE}" for name in rng.choice(["patients", "controls"], N)
    ]
    people[f"age{ESCAPE}"] = rng.uniform(8, 20, N)
    people["sex"] = ["F", "M"] * (N // 2 - 1) + ["ZQvalue of one", "1987-06-05"]
    people["site"] = ["here", "there"] * (N // 2 - 1) + ["ZQvalue site", "there"]
    people["scanned"] = [f"1987-06-{1 + i % 28:02}" for i in range(N)]
    people["cohort"] = [f"ZQvalue{i}" for i in range(N)]
    people.to_csv(folder / "people.tsv", sep="\t", index=False)
    features = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"])
    features.insert(0, "participant_id", [*ids[:-2], "ZQidunknown", "ZQidstranger"])
    (folder / "ZQpathtables").mkdir()
    features.to_csv(folder / "ZQpathtables" / "features.tsv", sep="\t", index=False)


COMMANDS = [
    ["ingest", "ZQpathsource", "ZQpathwork/cohort", "--participants", "people.tsv", "--parcellation",
     f"regions{ESCAPE}.tsv", "--name", f"mine{ESCAPE}"],
    ["check", "ZQpathwork/cohort", "--out", "check.tsv"],
    ["pretrain", "ZQpathwork/cohort", "--out", "model", "--preset", "small", "--device", "cpu", "--set", "epochs=1",
     "--set", "dim=16", "--set", "depth=1", "--set", f"patching=regions{ESCAPE}.tsv"],
    ["embed", "model", "ZQpathwork/cohort", "embeddings.tsv", "--device", "cpu"],
    ["evaluate", "ZQpathwork/cohort", "--targets", TARGETS, "--covariates", f"age{ESCAPE},sex,scanned",
     "--site", "site", "--features", "raw,model,ZQpathtables/features.tsv", "--out", "evaluated",
     "--n-folds", "3", "--n-bootstrap", "20"],
    ["evaluate", "ZQpathwork/cohort", "--targets", TARGETS, "--covariates", f"age{ESCAPE},sex,site", "--features",
     "tangent", "--out", "probed", "--n-folds", "3", "--n-bootstrap", "20", "--save-model", "probe"],
    ["run", "ZQpathwork/cohort", "--targets", TARGETS, "--covariates", "sex", "--model", "model", "--out", "whole",
     "--n-folds", "3", "--n-bootstrap", "20"],
    ["interpret", "model", "ZQpathwork/cohort", "--targets", f"score{ESCAPE}", "--n-folds", "3"],
    ["report", "evaluated", "--cohort", "ZQpathwork/cohort"],
    ["report", "model", "--cohort", "ZQpathwork/cohort"],
    ["pack", "model", "model.zip"],
]  # fmt: skip


@pytest.fixture(scope="module")
def mailed(tmp_path_factory):
    """What the commands have written, but for what holds ids by design: name → content."""
    folder = tmp_path_factory.mktemp("ZQpathhome")
    write_source(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(warnings, "showwarning", warnings.showwarning)  # which `main` replaces
        for words in COMMANDS:
            patch.setattr(sys, "argv", ["nerve", *words])
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, words
    with zipfile.ZipFile(folder / "model.zip") as archive:
        archive.extractall(folder / "unpacked")
    found = {}
    for name in ("model", "evaluated", "whole", "probed", "probe", "unpacked"):
        for file in sorted((folder / name).rglob("*")):
            place = file.relative_to(folder)
            in_runs = "runs" in place.parts and "model" not in place.parts
            if file.is_file() and not in_runs and file.name not in OF_PEOPLE:
                found[str(place)] = file.read_bytes()
    return found


def test_what_is_mailed_is_looked_at(mailed):
    names = {
        "report.html",
        "quality.tsv",
        "protocol.md",
        "protocol.json",
        "README.md",
        "config.json",
        "probe.json",
        "table.md",
    }
    assert names <= {name.rpartition("/")[2] for name in mailed}


@pytest.mark.parametrize("secret", SECRETS)
def test_no_id_folder_value_or_date_is_mailed(mailed, secret):
    assert [name for name, content in mailed.items() if re.search(secret, content)] == []


TEXT = (".html", ".md", ".json", ".tsv", ".csv", ".tex", ".txt", ".yaml")


def test_no_control_character_is_mailed(mailed):
    for name, content in mailed.items():
        if name.endswith(TEXT):
            text = content.decode("utf-8")
            assert not [
                letter
                for letter in text
                if not letter.isprintable() and letter not in "\n\t\xa0\u202f"
            ], name


def test_names_are_still_shown(mailed):
    page = mailed["evaluated/report.html"].decode()
    assert r"score\x1b[31m" in page
    assert "58 of 60" not in page
    assert "2 of 60 participants are left out (no features)" in page
    assert "nerve evaluate PATH" in page
