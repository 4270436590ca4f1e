"""The model that comes with the package: small, offline, nobody's data, and a warning for cohorts made otherwise."""

import re
import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from nerve._utils.errors import NerveError
from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.methods.configuration import read_configuration
from nerve.methods.nerve import NERVE
from nerve.methods.pretrained import located, packaged_models

NAME = "nerve-small-419"
REGIONS = load_parcellation("schaefer400-17+aseg19")
N, VOLUMES = 12, 25  # so many independent volumes let entries spread as in a real scan


@pytest.fixture(scope="module")
def encoder():
    return NERVE.from_pretrained(NAME, device="cpu")


def test_its_settings_are_compared_with_its_preset_and_none_that_it_does_not_name():
    with located(NAME) as folder:
        config = read_configuration(folder)
    assert NERVE.saved_preset(config) == "small"
    expected = {"n_directions": 16, "dim": 32, "n_components": 32}
    assert NERVE.differences(config["parameters"], "small") == expected


def like_the_training(encoder, change=lambda series: series):
    """Participants drawn from the group mean that the model keeps."""
    mean = np.eye(419)
    above = np.triu_indices(419, 1)
    mean[above] = mean[above[::-1]] = encoder.signature_.mean
    values, vectors = np.linalg.eigh(mean)
    root = vectors * np.sqrt(np.maximum(values, 0))
    rng = np.random.default_rng(0)
    series = [change(root @ rng.normal(size=(419, VOLUMES))) for _ in range(N)]
    participants = pd.DataFrame(
        {"participant_id": [f"p{i:02}" for i in range(N)], "age": rng.uniform(20, 50, N)}
    )
    return Cohort(np.stack([np.corrcoef(one) for one in series]), participants, REGIONS, name="new")


@pytest.fixture(scope="module")
def cohort(encoder):
    return like_the_training(encoder)


def test_the_file_is_small_and_holds_statistics_of_the_group_only(encoder):
    archive = packaged_models()[NAME]
    assert archive.stat().st_size < 5 * 2**20
    with zipfile.ZipFile(archive) as packed:
        assert set(packed.namelist()) == {
            "model.safetensors",
            "config.json",
            "README.md",
            "history.tsv",
        }
        assert not any(re.search(rb"sub-\d", packed.read(name)) for name in packed.namelist())
    n = sum(encoder.data_["cohorts"].values())
    shapes = {name: tuple(tensor.shape) for name, tensor in encoder.tensors().items()}
    assert not [
        name for name, shape in shapes.items() if n in shape or encoder.data_["n_training"] in shape
    ]
    assert shapes["view.directions"][1] <= n // 4
    assert shapes["components"][1] <= n // 4


def test_the_card_says_on_whom_and_how_it_was_trained_and_what_was_measured():
    said = CliRunner().invoke(app, ["models", "show", NAME]).output
    for word in (
        "UCLA",
        "STAGES",
        "CC0",
        "Apache-2.0",
        "Poldrack",
        "Pearson r",
        "## Measured",
        "unseen",
        "nor for diagnosis",
    ):
        assert word in said
    assert NAME in CliRunner().invoke(app, ["models", "list"]).output


@pytest.mark.slow
def test_only_cohorts_that_look_different_cause_a_warning(encoder, cohort, tmp_path):
    assert not encoder.likeness(cohort).differences
    fc, off = np.array(cohort.connectivity), 1 - np.eye(419)
    seven = REGIONS.positions_of(load_parcellation("schaefer400-7+aseg19"))
    planted = {
        "Fisher z": (np.arctanh(fc * off), "Fisher z"),
        "order": (fc[:, seven[:, None], seven], "order of schaefer400-7"),
        "spread": (np.where(off, 0.3 * fc, 1), "spread by"),
    }
    for name, (changed, sentence) in planted.items():
        other = Cohort(changed.astype(np.float32), cohort.participants, REGIONS, name="other")
        assert sentence in " ".join(encoder.likeness(other).differences), name
    kept = like_the_training(
        encoder,
        lambda series: series + 2 * series.std() * np.random.default_rng(1).normal(size=VOLUMES),
    )
    assert "regressed out in the model's training cohort" in " ".join(
        encoder.likeness(kept).differences
    )


@pytest.mark.slow
def test_every_command_takes_it_by_name_without_a_network(cohort, tmp_path, monkeypatch):
    def refused(*_):
        raise AssertionError("the network was asked for")

    monkeypatch.setattr("socket.socket.connect", refused)
    folder = str(cohort.save(tmp_path / "new"))
    done = CliRunner().invoke(
        app, ["embed", NAME, folder, str(tmp_path / "e.tsv"), "--device", "cpu"]
    )
    assert done.exit_code == 0, done.output
    table = pd.read_csv(tmp_path / "e.tsv", sep="\t").set_index("participant_id")
    assert table.shape == (N, 32)
    words = [
        "evaluate",
        folder,
        "--features",
        NAME,
        "--targets",
        "age",
        "--n-folds",
        "3",
        "--out",
        str(tmp_path / "r"),
    ]
    monkeypatch.setattr("nerve.report.page.write_report", lambda folder, *_: folder)
    done = CliRunner().invoke(app, [*words, "--n-bootstrap", "10"])
    assert done.exit_code == 0, done.output
    assert NAME in done.output


def test_it_takes_an_atlas_with_regions_below_the_cortex_and_refuses_one_without(encoder, cohort):
    """Features of the same participants seen in Shen-268 follow those in the model's own regions."""
    coarse = cohort.resample("shen268", farthest=30.0)
    with pytest.raises(NerveError, match="19 of 419 regions have no region of schaefer200-17"):
        cohort.resample("schaefer200-17").resample(REGIONS)
    carried = encoder.transform(coarse.resample(REGIONS))
    own = encoder.transform(cohort)
    assert np.isfinite(carried).all()
    correlations = np.corrcoef(own - own.mean(0), carried - carried.mean(0))[:N, N:]
    # each participant is most like themselves
    assert (correlations.argmax(axis=1) == np.arange(N)).all()
