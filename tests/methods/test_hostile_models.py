"""A model that somebody made to do harm: nothing in it is a path, and every entry has its type."""

import json
import os
import shutil
import zipfile

import numpy as np
import pytest
import torch
from tests.evaluation.test_transfer import planted
from typer.testing import CliRunner

from nerve import KeptModel, NerveError, Protocol, simulate_cohort
from nerve._utils.errors import NerveWarning
from nerve.cli import app
from nerve.data.cohort import Cohort
from nerve.methods import load_method
from nerve.methods.nerve import NERVE
from nerve.methods.ppca import PPCA
from nerve.methods.pretrained import pack
from nerve.methods.raw import RawFC
from nerve.methods.run_folder import RunFolder, load_tensors, save_tensors
from nerve.methods.runs import pretrain
from nerve.methods.tangent import TangentSpace


@pytest.fixture(scope="module")
def cohort():
    return simulate_cohort(24, parcellation="schaefer100-17", timepoints=60, keep_timeseries=False)


@pytest.fixture(scope="module")
def trained(cohort, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "run"
    encoder = NERVE.from_preset("small", epochs=1, dim=8, heads=2, depth=1, n_components=4)
    encoder.set_params(decoder_dim=8, decoder_heads=2, device="cpu").fit(cohort).save(folder)
    return folder


@pytest.fixture
def model(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def edit(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["patching", "parcellation"])
def test_no_parameter_of_a_saved_model_is_a_path(model, tmp_path, name):
    secret = tmp_path / "secret.tsv"
    secret.write_text("label\tnetwork\nTOPSECRET\tx\n")
    edit(model, lambda config: config["parameters"].update({name: str(secret)}))
    with pytest.raises(NerveError, match=name) as refusal:
        NERVE.load(model)
    assert "TOPSECRET" not in str(refusal.value)


def test_no_parameter_of_a_saved_reference_is_a_path(cohort, tmp_path):
    PPCA(4).fit(cohort).save(tmp_path / "ppca")
    edit(tmp_path / "ppca", lambda config: config["parameters"].update(patching="/etc/passwd"))
    with pytest.raises(NerveError, match="patching is no known name") as refusal:
        load_method(tmp_path / "ppca")
    assert "root:x" not in str(refusal.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("method",), ["NERVE"]),
        (("data",), "/etc/passwd"),
        (("data", "cohorts"), {"a": "many"}),
        (("data", "n_training"), -1),
        (("data", "path"), "/etc/passwd"),
        (("parcellation", "name"), 7),
        (("parcellation", "regions", "x"), "abc"),
        (("signature", "spread"), "wide"),
        (("best_step",), "last"),
        (("training", "lr"), {"deep": {"deeper": 1}}),
        (("adapted",), None),
        (("include",), "other.json"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_every_entry_of_config_json_has_its_type(model, place, value):
    def change(config):
        inner = config
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value

    edit(model, change)
    with pytest.raises(NerveError, match=rf"config\.json: its entry {place[0]}"):
        NERVE.load(model)


@pytest.mark.parametrize("name", ["view.whitening", "view.mean", "signature.mean"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.int64])
def test_every_tensor_has_its_type(model, name, dtype):
    tensors = load_tensors(model / "model.safetensors")
    tensors[name] = tensors[name].to(dtype)
    save_tensors(model / "model.safetensors", tensors)
    with pytest.raises(NerveError, match=rf"its array {name} is of type"):
        NERVE.load(model)


def test_the_weights_of_a_module_have_their_type(model):
    tensors = load_tensors(model / "model.safetensors")
    name = next(name for name in tensors if "." in name and not name.startswith(("view", "sig")))
    tensors[name] = tensors[name].to(torch.int8)
    save_tensors(model / "model.safetensors", tensors)
    with pytest.raises(NerveError, match="the weights do not fit the model"):
        NERVE.load(model)


def test_a_tensor_that_is_not_finite_is_refused(model):
    tensors = load_tensors(model / "model.safetensors")
    tensors["view.mean"][0] = torch.nan
    save_tensors(model / "model.safetensors", tensors)
    with pytest.raises(NerveError, match=r"view\.mean holds values that are not numbers"):
        NERVE.load(model)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "archive.zip"])
def test_a_pipe_or_a_device_is_not_opened(model, tmp_path, name):
    place = tmp_path / name if name.endswith(".zip") else model / name
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        place.unlink(missing_ok=True)
        make(place)
        with pytest.raises(NerveError, match=r"is a (pipe|device)|holds no config"):
            load_method(place if name.endswith(".zip") else model)


def test_a_cohort_whose_matrices_are_a_pipe_is_refused(cohort, tmp_path):
    cohort.save(tmp_path / "cohort")
    (tmp_path / "cohort/connectivity.npy").unlink()
    os.mkfifo(tmp_path / "cohort/connectivity.npy")
    with pytest.raises(NerveError, match="is a pipe"):
        Cohort.load(tmp_path / "cohort")


def test_a_file_of_another_size_than_its_header_says_is_refused_before_it_is_read(model):
    """A sparse file of a terabyte takes no disk, and reading it would take all memory."""
    weights = model / "model.safetensors"
    header = weights.read_bytes()[:8]
    with open(weights, "r+b") as stream:
        stream.truncate(2**40)
    with pytest.raises(NerveError, match="is not a readable safetensors file"):
        NERVE.load(model)
    weights.write_bytes(header + b"{}")
    with pytest.raises(NerveError, match="is not a readable safetensors file"):
        NERVE.load(model)


def test_an_archive_holds_what_its_folder_held(model, tmp_path, cohort):
    edit(model, lambda config: config["parameters"].update(patching="/etc/passwd"))
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as packed:
        for name in ("model.safetensors", "config.json", "README.md", "history.tsv"):
            packed.write(model / name, name)
    with pytest.raises(NerveError, match="patching is no known name"):
        NERVE.from_pretrained(tmp_path / "evil.zip")


def test_a_sound_model_is_read_from_folder_and_archive(model, tmp_path, cohort):
    features = NERVE.load(model).transform(cohort)
    again = NERVE.from_pretrained(pack(model, tmp_path / "sound.zip")).transform(cohort)
    np.testing.assert_array_equal(again, features)


# What a kept model predicts from


@pytest.fixture(scope="module")
def here():
    return planted(60, 1, "here")


@pytest.fixture(scope="module")
def there():
    return planted(30, 2, "there")


@pytest.fixture
def kept(here, tmp_path):
    protocol = Protocol(targets="score", covariates="age,group", motion="none")
    return KeptModel(RawFC(), protocol).fit(here).save(tmp_path / "kept")


def with_table(cohort, measure="pearson", **columns):
    table = cohort.participants.assign(**columns)
    return Cohort(cohort.connectivity, table, cohort.parcellation, name="there", measure=measure)


@pytest.mark.parametrize(
    ("place", "value"),
    [("kernel", "os.system"), ("means", "all"), ("fitted_on", "/etc/passwd"), ("covariates", 3)],
)
def test_every_entry_of_a_kept_model_has_its_type(kept, place, value):
    path = kept / "probe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {place: value}))
    with pytest.raises(NerveError, match=rf"probe\.json: its entry {place}"):
        KeptModel.load(kept)


def test_weights_of_a_kept_model_have_their_type_and_shape(kept):
    tensors = load_tensors(kept / "probe.safetensors")
    for weights in (tensors["weights"].to(torch.int8), tensors["weights"][:3]):
        save_tensors(kept / "probe.safetensors", tensors | {"weights": weights})
        with pytest.raises(NerveError, match=r"probe\.safetensors: its array"):
            KeptModel.load(kept)


def test_another_measure_than_fitted_on_is_refused(kept, there):
    with pytest.raises(NerveError, match=r"Fisher z.*expected Pearson"):
        KeptModel.load(kept).predict(with_table(there, measure="fisher_z"))


def test_unknown_categories_cause_a_warning(kept, there):
    model = KeptModel.load(kept)
    with pytest.warns(NerveWarning, match="30 of 30 .* 'group' .* does not know .*male"):
        model.predict(with_table(there, group=np.resize(["male", "female"], 30)))


def test_a_covariate_without_values_is_refused_and_missing_values_cause_a_warning(kept, there):
    model = KeptModel.load(kept)
    with pytest.raises(NerveError, match="'age' is missing in every row"):
        model.predict(with_table(there, age=np.nan))
    with pytest.warns(NerveWarning, match="missing for some .*age in 3"):
        model.predict(with_table(there, age=there.participants["age"].where(np.arange(30) > 2)))


def test_a_number_that_may_be_a_code_for_missing_causes_a_warning(kept, there):
    ages = there.participants["age"].where(np.arange(30) > 1, -9999.0)
    with pytest.warns(NerveWarning, match="'age' of 2 participants .*-9999"):
        KeptModel.load(kept).predict(with_table(there, age=ages))


# Checkpoints


def test_a_checkpoint_with_another_state_is_refused_by_the_name_of_the_entry(cohort, tmp_path):
    encoder = NERVE.from_preset("small", epochs=1, dim=8, heads=2, depth=1, n_components=4)
    encoder.set_params(decoder_dim=8, decoder_heads=2, device="cpu")
    encoder.fit(cohort, run_dir=tmp_path / "run")
    checkpoints = RunFolder(tmp_path / "run")
    tensors, state = checkpoints.load()
    for name, value in (("identity", None), ("step", -1), ("history", "long")):
        checkpoints.save(tensors, state | {name: value})
        with pytest.raises(NerveError, match=rf"last\.safetensors: its entry {name} is not one of"):
            encoder.fit(cohort, run_dir=tmp_path / "run", resume=True)
    checkpoints.save(tensors, state)
    encoder.fit(cohort, run_dir=tmp_path / "run", resume=True)


# Few participants


def test_a_model_of_few_participants_is_not_saved(cohort, tmp_path):
    """The weights of a model of one participant are that participant's FC."""
    few = cohort.subset(range(9))
    with pytest.raises(NerveError, match=r"9 training participants, expected at least 10"):
        TangentSpace().fit(few).save(tmp_path / "tangent")
    with pytest.raises(NerveError, match=r"1 training participants, expected at least 10"):
        pretrain([cohort.subset([0])], tmp_path / "run", preset="small", assignments=["epochs=1"])
    assert not list(tmp_path.rglob("*.safetensors"))
    TangentSpace().fit(cohort.subset(range(10))).save(tmp_path / "ten")


def test_pretraining_on_two_participants_is_refused_in_a_sentence(cohort, tmp_path):
    cohort.subset([0, 1]).save(tmp_path / "two")
    words = ["pretrain", str(tmp_path / "two"), "--out", str(tmp_path / "run"), "--set", "epochs=1"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, NerveError)
    assert "training participants, expected at least 10" in str(result.exception)
