"""Nothing that nerve did not write is replaced or removed, whichever command is asked to write there."""

import json

import numpy as np
import pytest
import yaml

from nerve import Cohort, Protocol
from nerve._utils.errors import NerveError
from nerve.data.quality import check_cohort
from nerve.data.simulate import simulate_cohort
from nerve.experiments import commands
from nerve.experiments.experiment import Experiment
from nerve.interpret import interpret_to
from nerve.methods.runs import embed_file, pretrain

MINE = "precious\n"


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    people = simulate_cohort(24, "schaefer100-7", 40, keep_timeseries=False)
    return people.save(tmp_path_factory.mktemp("cohorts") / "cohort")


@pytest.fixture
def mine(tmp_path):
    """A folder of the user's."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in (
        "README.md",
        "config.yaml",
        "config.json",
        "experiment.yaml",
        "scores.tsv",
        "x.npy",
        "x.json",
    ):
        (folder / name).write_text(MINE)
    yield folder
    assert all(file.read_text() == MINE for file in folder.iterdir())
    assert len(list(folder.iterdir())) == 7


def tiny_experiment():
    cohorts = {"a": {"simulate": {"n": 20, "timepoints": 30}, "targets": ["p_factor"]}}
    return {
        "name": "e",
        "parcellation": "schaefer100-7",
        "cohorts": cohorts,
        "methods": [{"method": "raw"}],
    }


COMMANDS = {
    "pretrain": lambda cohort, mine: pretrain([cohort], mine, preset="small", device="cpu"),
    "pretrain --resume": lambda cohort, mine: pretrain(
        [cohort], mine, preset="small", device="cpu", resume=True
    ),
    "embed": lambda cohort, mine: embed_file(
        "no model", cohort, mine / "scores.tsv", overwrite=True
    ),
    "embed .npy": lambda cohort, mine: embed_file(
        "no model", cohort, mine / "x.npy", overwrite=True
    ),
    "check": lambda cohort, mine: check_cohort(Cohort.load(cohort)).write(mine / "scores.tsv"),
    "save": lambda cohort, mine: Cohort.load(cohort).save(mine, overwrite=True),
    "evaluate": lambda cohort, mine: commands.run_evaluation(
        str(cohort), "raw", Protocol(targets="p_factor", n_folds=3), str(mine)
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_or_file_of_the_users_is_refused_and_left_alone(cohort, mine, command):
    with pytest.raises(
        NerveError, match=r"not replaced|was not made by nerve|nothing of yours is replaced"
    ):
        COMMANDS[command](cohort, mine)


def test_an_experiment_is_not_written_over_its_own_file(tmp_path):
    file = tmp_path / "experiment.yaml"
    text = "# my notes\n" + yaml.safe_dump(tiny_experiment())
    file.write_text(text)
    with pytest.raises(NerveError, match=r"experiment\.yaml and was not made by nerve"):
        Experiment.prepare(file, tmp_path)
    assert file.read_text() == text


def test_a_json_beside_embeddings_is_the_users_unless_we_wrote_it(cohort, tmp_path):
    (tmp_path / "x.json").write_text(MINE)
    with pytest.raises(NerveError, match=r"x\.json"):
        embed_file("no model", cohort, tmp_path / "x.npy", overwrite=True)
    (tmp_path / "x.json").write_text(
        json.dumps({"pooling": "mean", "shape": [1, 1], "participant_id": ["a"]})
    )
    np.save(tmp_path / "x.npy", np.zeros(1))
    with pytest.raises(NerveError, match="no such model"):  # allowed: the model is looked for
        embed_file(tmp_path / "no model", cohort, tmp_path / "x.npy", overwrite=True)


def test_overwriting_a_cohort_keeps_what_the_user_put_there(cohort, tmp_path):
    folder = Cohort.load(cohort).save(tmp_path / "c")
    (folder / "notes.txt").write_text(MINE)
    with pytest.raises(NerveError, match=r"notes\.txt, which nerve has not written"):
        Cohort.load(cohort).save(folder, overwrite=True)
    (folder / "notes.txt").rename(tmp_path / "notes.txt")
    Cohort.load(cohort).save(folder, overwrite=True)


@pytest.mark.slow
def test_a_model_without_its_checkpoint_is_not_trained_over(cohort, tmp_path):
    settings = ["dim=16", "depth=1", "heads=2", "epochs=1", "batch_size=16"]
    options = {"preset": "small", "device": "cpu", "assignments": settings}
    encoder = pretrain([cohort], tmp_path / "run", **options)
    (tmp_path / "run" / "last.safetensors").unlink()
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    for resume in (False, True):
        with pytest.raises(NerveError, match="already holds a trained model"):
            pretrain([cohort], tmp_path / "run", resume=resume, **options)
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    (tmp_path / "mine" / "interpretation").mkdir(parents=True)
    (tmp_path / "mine" / "interpretation" / "attention.tsv").write_text(MINE)
    for write in (
        encoder.save,
        lambda place: interpret_to(place.parent, encoder, Cohort.load(cohort)),
    ):
        with pytest.raises(NerveError, match="was not made by nerve"):
            write(tmp_path / "mine" / "interpretation")
    assert (tmp_path / "mine" / "interpretation" / "attention.tsv").read_text() == MINE
