"""A model goes to a hub as the folder that `save` writes, and only when it is asked for."""

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import HfApi

from nerve._utils.errors import NerveError
from nerve.data.cohort import Cohort
from nerve.data.parcellation import load_parcellation
from nerve.methods.nerve import NERVE

ATLAS = load_parcellation("schaefer100-17")


class HubInAFolder:
    """A hub that is a folder of this machine; it takes only what the real one takes."""

    def __init__(self, root):
        self.root = Path(root)
        self.private = {}

    def create_repo(self, *args, **options):
        inspect.signature(HfApi.create_repo).bind(self, *args, **options)
        self.private[args[0]] = options["private"]
        (self.root / args[0]).mkdir(parents=True, exist_ok=options["exist_ok"])

    def upload_folder(self, **options):
        inspect.signature(HfApi.upload_folder).bind(self, **options)
        repository = self.root / options["repo_id"]
        for name in options["allow_patterns"]:
            shutil.copy(Path(options["folder_path"]) / name, repository)
        return f"commit of {options['repo_id']}: {options['commit_message']}"


@pytest.fixture(scope="module")
def cohort():
    series = np.random.default_rng(0).normal(size=(14, 120, ATLAS.n_regions))
    fc = np.stack([np.corrcoef(one.T) for one in series])
    table = pd.DataFrame({"participant_id": [f"secret{i}" for i in range(14)]})
    return Cohort(fc, table, ATLAS, name="few")


@pytest.fixture(scope="module")
def encoder(cohort):
    settings = {"dim": 16, "epochs": 1, "n_components": 4, "device": "cpu"}
    return NERVE.from_preset("small", **settings).fit(cohort)


def test_what_comes_back_from_the_hub_is_the_same_model(encoder, cohort, tmp_path):
    hub = HubInAFolder(tmp_path)
    assert "owner/first" in encoder.push_to_hub("owner/first", api=hub)
    folder = tmp_path / "owner" / "first"
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors",
        "config.json",
        "README.md",
        "history.tsv",
    }
    again = NERVE.from_pretrained(folder, device="cpu")
    np.testing.assert_array_equal(again.transform(cohort), encoder.transform(cohort))


def test_the_card_begins_with_what_hubs_read_and_names_no_participant(encoder, tmp_path):
    encoder.push_to_hub("owner/first", api=HubInAFolder(tmp_path))
    folder = tmp_path / "owner" / "first"
    assert (folder / "README.md").read_text().startswith("---\nlibrary_name: nerve\n")
    for path in folder.iterdir():
        assert b"secret" not in path.read_bytes()


def test_a_repository_is_private_unless_it_is_said_to_be_public(encoder, tmp_path):
    hub = HubInAFolder(tmp_path)
    encoder.push_to_hub("owner/first", api=hub)
    encoder.push_to_hub("owner/second", private=False, api=hub)
    assert hub.private == {"owner/first": True, "owner/second": False}


def test_a_hub_that_refuses_is_one_sentence(encoder, tmp_path):
    class Closed(HubInAFolder):
        def create_repo(self, *args, **options):
            raise ConnectionError("no route.\nand a long trace")

    with pytest.raises(NerveError, match=r"owner/first: the hub did not take the model \(no route"):
        encoder.push_to_hub("owner/first", api=Closed(tmp_path))


def test_a_name_that_the_hub_does_not_allow_is_refused_before_a_connection(encoder):
    with pytest.raises(NerveError, match="the hub did not take the model"):
        encoder.push_to_hub("two//slashes/here")


@pytest.mark.slow
def test_the_library_of_the_hub_is_not_loaded_by_anything_else(tmp_path):
    """Offline is the default: training, saving and reading know no hub."""
    code = (
        "import sys, nerve\n"
        "cohort = nerve.simulate_cohort(20, parcellation='schaefer100-17', timepoints=60)\n"
        "encoder = nerve.NERVE.from_preset('small', dim=16, epochs=1, n_components=4).fit(cohort)\n"
        "encoder.save(sys.argv[1])\n"
        "nerve.NERVE.from_pretrained(sys.argv[1]).transform(cohort)\n"
        "assert 'huggingface_hub' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")],
        check=True,
        env={**os.environ, "TQDM_DISABLE": "1"},
    )
