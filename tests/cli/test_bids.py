"""`nerve-bids`: participants one by one, then the group; every step of the containers is real."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nerve.cli import bids
from nerve.data.cohort import Cohort
from nerve.data.export import export_cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.nerve import NERVE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
REGIONS = Parcellation(tuple("abcdefgh"), tuple("AABBCCDD"), name="letters")


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(rng.normal(size=(8, 60))) for _ in range(12)])
    table = pd.DataFrame(
        {"participant_id": [f"{i:02}" for i in range(12)], "score": rng.normal(size=12)}
    )
    return Cohort(fc, table, REGIONS, name="tiny")


@pytest.fixture(scope="module")
def model(cohort) -> NERVE:
    settings = {"dim": 8, "epochs": 1, "n_components": 4, "device": "cpu", "pooling": "mean"}
    return NERVE.from_preset("small", **settings).fit(cohort)


def test_participants_one_by_one_then_the_group(cohort, model, tmp_path, capsys):
    derivatives, out = str(export_cohort(cohort, tmp_path / "derivatives")), str(tmp_path / "out")
    model.save(tmp_path / "model")
    for label in (["00"], ["sub-01", "02"]):
        bids.main(
            [
                derivatives,
                out,
                "participant",
                "--participant-label",
                *label,
                "--model",
                str(tmp_path / "model"),
            ]
        )
    assert sorted(path.name for path in (tmp_path / "out").glob("sub-*")) == [
        "sub-00",
        "sub-01",
        "sub-02",
    ]
    bids.main([derivatives, out, "participant", "--model", str(tmp_path / "model")])
    bids.main([derivatives, out, "group"])
    made = Cohort.load(tmp_path / "out" / "group" / "cohort")
    np.testing.assert_allclose(made.align(REGIONS).connectivity, cohort.connectivity, atol=1e-6)
    assert made.participants["score"].notna().all()
    table = pd.read_csv(
        tmp_path / "out" / "group" / "embeddings.tsv", sep="\t", dtype={"participant_id": str}
    )
    assert set(table["participant_id"]) == set(cohort.participants["participant_id"])
    table = table.set_index("participant_id").loc[cohort.participants["participant_id"]]
    np.testing.assert_allclose(table, model.transform(cohort), atol=1e-5)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        bids.main([derivatives, out, "participant", "--participant-label", "99"])
    assert "no files of sub-99" in capsys.readouterr().err
    bids.main([derivatives, out, "group", "--model", str(tmp_path / "model")])
    said = capsys.readouterr()
    assert "12 participants" in said.out
    assert "does not look like" not in said.err


def test_participant_level_compares_nothing_and_group_level_does(cohort, model, tmp_path, capsys):
    """A participant's FC says little about preprocessing; that of all of them does."""
    model.save(tmp_path / "model")
    narrow = np.where(np.eye(8), 1, np.array(cohort.connectivity) * 0.3)
    derivatives = str(
        export_cohort(Cohort(narrow, cohort.participants, REGIONS, name="n"), tmp_path / "narrow")
    )
    bids.main([derivatives, str(tmp_path / "out"), "participant", "--participant-label", "00"])
    assert "1 participant written" in capsys.readouterr().out
    bids.main([derivatives, str(tmp_path / "out"), "participant"])
    bids.main([derivatives, str(tmp_path / "out"), "group", "--model", str(tmp_path / "model")])
    assert (
        "Cohort 'narrow' does not look like what the model was trained on"
        in capsys.readouterr().err
    )


# ---- recipes, as far as they can be tried without an engine


def _steps():
    """Every file that the two recipes copy, and every command that they run while building."""
    docker = (ROOT / "containers" / "Dockerfile").read_text()
    apptainer = (ROOT / "containers" / "nerve.def").read_text()
    sections = dict(re.findall(r"^%(\w+)\n((?:    .*\n|\n)+)", apptainer, re.MULTILINE))
    copied = [
        name
        for line in re.findall(r"^COPY (.*)", docker, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    copied += [line.split()[0] for line in sections["files"].strip().splitlines()]
    ran = re.findall(r"^RUN (.*)", docker, re.MULTILINE)
    ran += [line.strip() for line in sections["post"].strip().splitlines()]
    return copied, ran, docker, sections


def test_recipes_copy_what_is_there_and_run_what_exists():
    copied, ran, docker, sections = _steps()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(copied) == 10
    for name in copied:
        assert (ROOT / name).exists(), f"the recipe copies {name}, which does not exist"
    for command in ran:
        assert re.fullmatch(
            r"cd /opt/nerve|pip install (--no-cache-dir |--constraint constraints\.txt )+\S+"
            r"|useradd --create-home --uid 1000 nerve && install -d -o nerve -g nerve /work",
            command,
        )
        for extra in re.findall(r"\[(.*)\]", command):
            assert set(extra.split(",")) <= set(project["optional-dependencies"])
    assert "torch" in (ROOT / "constraints.txt").read_text()
    assert {project["readme"], *project["license-files"]} <= set(
        copied
    )  # or pip could not build the package
    assert 'ENTRYPOINT ["nerve-bids"]' in docker
    assert "exec nerve-bids" in sections["runscript"]
    assert project["scripts"]["nerve-bids"] == "nerve.__main__:bids"


@pytest.mark.slow
@pytest.mark.skipif(
    "NERVE_RECIPES" not in os.environ,
    reason="installs everything once more; NERVE_RECIPES=1 runs it",
)
@pytest.mark.timeout(7200)
def test_every_step_of_the_recipe_works_in_a_fresh_environment(tmp_path):
    docker = _steps()[2]
    top, environment = tmp_path / "opt", tmp_path / "venv"
    top.mkdir()
    for line in re.findall(r"^COPY (.*) \S+$", docker, re.MULTILINE):
        for name in line.split():
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, top / name)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    path = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}
    for step in re.findall(r"^RUN (.*)", docker, re.MULTILINE):
        subprocess.run(step, shell=True, cwd=top, env=os.environ | path, check=True)
    for words in (["nerve-bids", "--help"], ["nerve", "models", "show", "nerve-small-419"]):
        done = subprocess.run(
            words, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
