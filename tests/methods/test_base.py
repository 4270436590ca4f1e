"""What every trained method inherits: inputs in any order, training, saving and loading, clear refusals."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone

from nerve._utils.errors import NerveError, NotFitted
from nerve.core.training import TrainingSettings
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.inputs import as_cohort
from nerve.methods.trained import Encoder, SupervisedMethod


class _Module(torch.nn.Module):
    def __init__(self, n_regions: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(n_regions, 1)

    def embed(self, fc):
        return self.linear(fc)[..., 0]  # (batch, regions)

    def predict(self, fc):
        return self.embed(fc).mean(1)

    def training_loss(self, batch, draws):
        if isinstance(batch, tuple):
            return ((self.predict(batch[0]) - batch[1]) ** 2).mean()
        return ((self.embed(batch) - batch.mean(2)) ** 2).mean()


class RowMean(Encoder):
    lr = 1e-2

    def __init__(self, parcellation=None, epochs=3, seed=0, device="cpu"):
        self.parcellation, self.epochs, self.seed, self.device = parcellation, epochs, seed, device

    def build(self, parcellation):
        return _Module(parcellation.n_regions)

    def training_settings(self):
        return TrainingSettings(
            epochs=self.epochs, batch_size=8, lr=self.lr, seed=self.seed, device=self.device
        )


class MeanPredictor(SupervisedMethod):
    lr = 0.2

    def __init__(self, epochs=40, seed=0, device="cpu"):
        self.epochs, self.seed, self.device = epochs, seed, device

    build = RowMean.build
    training_settings = RowMean.training_settings


@pytest.fixture
def parcellation() -> Parcellation:
    return Parcellation(tuple("abcdef"), ("A", "A", "B", "B", "B", "C"), name="tiny")


@pytest.fixture
def cohort(parcellation) -> Cohort:
    series = np.random.default_rng(0).normal(size=(30, 40, 6))
    fc = np.stack([np.corrcoef(x.T) for x in series]).astype(np.float32)
    participants = pd.DataFrame({"participant_id": [f"secret-{i}" for i in range(30)]})
    return Cohort(fc, participants, parcellation, name="tiny")


def test_a_cohort_in_another_order_gives_the_same_features(cohort):
    encoder = RowMean().fit(cohort)
    order = [3, 1, 5, 0, 2, 4]
    shuffled = cohort.align(cohort.parcellation.subset(order))
    assert not np.allclose(shuffled.connectivity, cohort.connectivity)
    np.testing.assert_allclose(encoder.transform(shuffled), encoder.transform(cohort), atol=1e-6)


def test_a_missing_region_is_refused_by_name(cohort):
    encoder = RowMean().fit(cohort)
    with pytest.raises(NerveError, match=r"\(f, of network C;"):
        encoder.transform(cohort.align(cohort.parcellation.subset([0, 1, 2, 3, 4])))


def test_cohorts_with_other_surplus_regions_are_pooled_in_the_order_of_the_model(cohort):
    people = np.arange(len(cohort))
    whole = cohort.subset(people[:20])
    without_f = cohort.subset(people[20:]).align(cohort.parcellation.subset([4, 3, 2, 1, 0]))
    encoder = RowMean().fit(cohort.align(cohort.parcellation.subset([0, 1, 2, 3, 4])))
    expected = np.concatenate([encoder.transform(whole), encoder.transform(without_f)])
    np.testing.assert_allclose(encoder.transform([whole, without_f]), expected, atol=1e-6)


def test_array_and_cohort_agree(cohort):
    first = RowMean(parcellation=cohort.parcellation).fit(cohort)
    second = RowMean(parcellation=cohort.parcellation).fit(cohort.connectivity)
    assert np.array_equal(first.transform(cohort), second.transform(cohort.connectivity))
    assert np.array_equal(clone(first).fit(cohort).transform(cohort), first.transform(cohort))


def test_saved_and_loaded_is_identical_and_contains_no_ids(cohort, tmp_path):
    encoder = RowMean().fit(cohort)
    encoder.save(tmp_path / "model")
    assert {f.name for f in (tmp_path / "model").iterdir()} == {
        "model.safetensors",
        "config.json",
        "history.tsv",
        "README.md",
        ".nerve",
    }
    loaded = RowMean.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.transform(cohort), encoder.transform(cohort))
    assert loaded.get_params()["epochs"] == 3
    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "model").iterdir())


def test_load_refuses_by_name(cohort, tmp_path):
    folder = tmp_path / "model"
    RowMean().fit(cohort).save(folder)
    config = json.loads((folder / "config.json").read_text())

    def changed(**entries):
        (folder / "config.json").write_text(json.dumps({**config, **entries}))
        return folder

    with pytest.raises(NerveError, match=r"format 99.*Update nerve"):
        RowMean.load(changed(format_version=99))
    with pytest.raises(NerveError, match="holds a RowMean, expected a MeanPredictor"):
        MeanPredictor.load(changed())
    regions = {name: values[:-1] for name, values in config["parcellation"]["regions"].items()}
    with pytest.raises(NerveError, match=r"linear\.weight is \(1, 6\), expected \(1, 5\)"):
        mark = Parcellation.from_table(pd.DataFrame(regions), name="tiny").fingerprint
        RowMean.load(
            changed(parcellation={"name": "tiny", "regions": regions, "fingerprint": mark})
        )
    (folder / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(NerveError, match="not a readable safetensors"):
        RowMean.load(changed())
    (folder / "model.safetensors").unlink()
    with pytest.raises(NerveError, match=r"model\.safetensors: there is no such file"):
        RowMean.load(folder)
    with pytest.raises(NerveError, match="no such folder"):
        RowMean.load(tmp_path / "nowhere")


@pytest.mark.slow
def test_predictor_learns_and_answers_in_the_units_of_the_target(cohort, tmp_path):
    y = 100 + 50 * cohort.connectivity.mean((1, 2)).astype(float)
    predictor = MeanPredictor(epochs=25).fit(cohort, y)
    assert predictor.score(cohort, y) > 0.5
    predictor.save(tmp_path)
    assert np.array_equal(
        MeanPredictor.load(tmp_path, device="cpu").predict(cohort), predictor.predict(cohort)
    )


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (np.zeros((3, 4)), "participants, regions, regions"),
        (np.zeros((3, 4, 5)), "participants, regions, regions"),
        (np.full((2, 6, 6), np.nan), "Matrix 1: it holds NaN"),
        (np.zeros((2, 6, 6), complex), "real FC"),
        (np.zeros((2, 5, 5)), "5 regions, expected the 6"),
    ],
)
def test_unusable_arrays_are_refused(data, sentence, parcellation):
    with pytest.raises(NerveError, match=sentence):
        as_cohort(data, parcellation)


def test_use_before_fit_is_refused():
    with pytest.raises(NotFitted, match="Call fit first"):
        RowMean().transform(np.zeros((2, 6, 6)))


def test_weights_of_another_type_and_labels_of_another_order_are_refused(cohort, tmp_path):
    RowMean().fit(cohort).save(tmp_path / "model")
    file, config = tmp_path / "model" / "model.safetensors", tmp_path / "model" / "config.json"
    whole, described = load_file(file), json.loads(config.read_text())
    save_file({name: (tensor * 10).to(torch.int8) for name, tensor in whole.items()}, file)
    with pytest.raises(NerveError, match="of int8, expected"):
        RowMean.load(tmp_path / "model")
    save_file(whole, file)
    RowMean.load(tmp_path / "model")
    described["parcellation"]["regions"]["label"].reverse()
    config.write_text(json.dumps(described))
    with pytest.raises(NerveError, match="regions are not those that the model was saved with"):
        RowMean.load(tmp_path / "model")
