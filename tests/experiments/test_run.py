"""`nerve run`: from a cohort folder to one report; a second time; with a model from elsewhere."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.nerve import NERVE
from nerve.methods.pretrained import pack

pytestmark = pytest.mark.slow

REGIONS = Parcellation(
    tuple(f"r{i:02}" for i in range(16)), tuple("AAAABBBBCCCCDDDD"), name="letters"
)
FIGURES = {"cohorts": ("group_mean_fc", "likeness"), "pretraining": ("loss_curves",), "findings": ("forest",),
           "interpretation": ("interpretation_attention", "interpretation_importance")}  # fmt: skip
PROTOCOL = ("--n-folds", "3", "--n-bootstrap", "20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    own = np.repeat(rng.normal(size=(30, 4, 50)), 4, axis=1)
    fc = np.stack([np.corrcoef(one) for one in own + rng.normal(size=(30, 16, 50))])
    table = {"participant_id": [f"secret{i:02}" for i in range(30)], "age": rng.uniform(8, 20, 30)}
    table |= {
        "score": rng.normal(size=30),
        "other": rng.normal(size=30),
        "sex": np.tile(["F", "M"], 15),
    }
    return Cohort(fc, pd.DataFrame(table), REGIONS, name="tiny").save(
        tmp_path_factory.mktemp("run") / "tiny"
    )


def run(folder, out, *options, targets="score,sex"):
    words = [
        "run",
        str(folder),
        "--targets",
        targets,
        "--covariates",
        "age",
        "--out",
        str(out),
        *PROTOCOL,
        *options,
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(autouse=True, scope="module")
def few_figures():
    """Drawn but not painted: tests/report paints them all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nerve.report.figures.svg", lambda figure: "<svg></svg>")
        patch.setattr("nerve.report.figures.SECTIONS", FIGURES)
        yield


@pytest.fixture(scope="module")
def first(folder, few_figures):
    out = folder.parent / "first"
    return out, run(folder, out, "--preset", "small")


def words_of(out):
    page = (out / "report.html").read_text(encoding="utf-8")
    return page, re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_one_report_holds_all_parts(first):
    out, said = first
    page, words = words_of(out)
    for anchor in (
        "cohorts",
        "pretraining",
        "prediction",
        "comparison",
        "interpretation",
        "provenance",
    ):
        assert f'href="#{anchor}"' in page
        assert f'id="{anchor}"' in page
    for figure in ("group_mean_fc", "loss_curves", "forest", "interpretation_importance"):
        assert f'id="figure-{figure}"' in page
    assert "Checks of the cohort" in words
    assert "No encoder was trained here" not in words
    assert "No cohort could be opened" not in words
    assert "nothing to compare" not in words
    assert "secret" not in page
    for row in ("Raw FC", "PCA", "Tangent space", "NERVE"):
        assert row in words
    importance = pd.read_csv(out / "interpretation" / "importance.tsv", sep="\t")
    assert set(importance["target"]) == {"score", "sex"}
    assert re.search(
        r"What was found:\n +tiny, score: .*NERVE.* r = -?\d\.\d\d, 95 % interval", said
    )
    answer = re.search(r"tiny, score: (.*)\n", said)[1]
    assert answer in words  # the page opens with the same sentence


def test_a_second_run_replaces_the_first_and_other_targets_are_explained_anew(
    first, folder, tmp_path, monkeypatch
):
    out = shutil.copytree(first[0], tmp_path / "first")
    before = (out / "predictions.tsv").read_bytes()
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    run(folder, out, "--preset", "small")
    assert (out / "predictions.tsv").read_bytes() == before
    assert not (out / "runs").exists()
    run(folder, out, "--preset", "small", targets="other")
    importance = pd.read_csv(out / "interpretation" / "importance.tsv", sep="\t")
    assert set(importance["target"]) == {"other"}


def test_a_model_from_elsewhere_is_described_and_an_archive_is_as_good(
    folder, tmp_path, monkeypatch
):
    model = NERVE.from_preset("small", dim=8, epochs=1, n_components=4, device="cpu").fit(
        Cohort.load(folder)
    )
    archive = pack(model.save(tmp_path / "model"), tmp_path / "model.zip")
    run(folder, tmp_path / "a", "--model", str(archive))
    page, words = words_of(tmp_path / "a")
    for figure in ("likeness", "loss_curves", "interpretation_attention"):
        assert f'id="figure-{figure}"' in page
    assert "no clear difference" in words
    assert (
        "Trained before this evaluation: model, shrunk view (NERVE, the settings of small except"
        in words
    )
    assert "pooled participants of tiny" not in words
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    run(folder, tmp_path / "b", "--model", str(tmp_path / "model"))
    tables = [pd.read_csv(tmp_path / name / "predictions.tsv", sep="\t") for name in "ab"]
    pd.testing.assert_frame_equal(*tables)
    missing = CliRunner().invoke(
        app, ["run", str(folder), "--targets", "age", "--model", "none", "--out", "x"]
    )
    assert missing.exit_code != 0
    assert "there is no such model" in str(missing.exception)
