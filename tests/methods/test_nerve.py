"""nerve.NERVE: scikit-learn's manners, any region order, what is saved, and that it learns."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import nerve
from nerve._utils.errors import NerveError, NerveWarning, NotFitted
from nerve.core.patching import Patching
from nerve.data.parcellation import Parcellation
from nerve.methods.parameters import parse_assignments, read_settings
from nerve.methods.runs import configured_encoder, embed_file, resolved_yaml

TINY = {"dim": 16, "depth": 1, "epochs": 2, "batch_size": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def parcellation() -> Parcellation:
    sizes = [5, 3, 7, 4]
    networks = tuple(f"N{g}" for g, n in enumerate(sizes) for _ in range(n))
    return Parcellation(tuple(f"r{i}" for i in range(19)), networks, name="nineteen")


@pytest.fixture(scope="module")
def cohort(parcellation) -> nerve.Cohort:
    """People who differ along three factors that every network pair shares: a masked patch can be told from others."""
    generator = np.random.default_rng(0)
    loadings = generator.normal(size=(3, 19))
    participants = generator.normal(size=(80, 3))
    fc = 0.08 * np.tanh(np.einsum("pk,ki,kj->pij", participants, loadings, loadings))
    fc += 0.005 * generator.normal(size=(80, 19, 19))
    fc = (fc + fc.transpose(0, 2, 1)) / 2
    fc[:, range(19), range(19)] = 1
    table = pd.DataFrame(
        {"participant_id": [f"private{i}" for i in range(80)], "score": participants[:, 0]}
    )
    return nerve.Cohort(fc.astype(np.float32), table, parcellation, name="factors")


@pytest.fixture(scope="module")
def fitted(cohort) -> nerve.NERVE:
    return nerve.NERVE(**TINY).fit(cohort)


@pytest.mark.slow
def test_the_call_of_the_design_page(cohort, parcellation):
    encoder = nerve.NERVE(
        parcellation=parcellation, tokenizer="bilinear", mask_ratio=0.5, epochs=2, seed=0
    ).fit(cohort)
    assert encoder.transform(cohort).shape == (80, 256)
    assert encoder.transform(cohort, pooling="tokens").shape == (80, 10, 256)
    assert encoder.patching_.pairs.shape == (10, 2)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["bilinear", "shared", "specific"])
def test_masked_patches_of_new_participants_are_predicted_better_than_by_the_mean(
    cohort, tokenizer
):
    init = {} if tokenizer == "bilinear" else {"init": "scaled"}
    train, test = cohort.subset(np.arange(60)), cohort.subset(np.arange(60, 80))
    settings = {
        **TINY,
        "view": "fc",
        "dim": 32,
        "epochs": 15,
        "lr": 5e-3,
        "tokenizer": tokenizer,
        **init,
    }
    encoder = nerve.NERVE(**settings).fit(train)
    patching = encoder.patching_
    masked = np.stack([np.random.default_rng(i).permutation(10)[:5] for i in range(20)])
    rebuilt = patching.pack(encoder.reconstruct(test, masked))
    truth, mean = patching.pack(test.connectivity), patching.pack(train.connectivity).mean(0)
    hidden = np.stack([np.isin(patching.patch_of, row) for row in masked])
    assert np.square(rebuilt - truth)[hidden].mean() < 0.8 * np.square(mean - truth)[hidden].mean()


def test_reordered_cohort_gives_the_same_embedding_and_missing_network_is_named(fitted, cohort):
    order = np.random.default_rng(1).permutation(19)
    shuffled = cohort.align(cohort.parcellation.subset(order))
    np.testing.assert_allclose(fitted.transform(shuffled), fitted.transform(cohort), atol=1e-5)
    without = cohort.align(cohort.parcellation.subset(np.arange(15)))
    with pytest.raises(NerveError, match="of network N3;"):
        fitted.transform(without)
    with pytest.raises(NerveError, match="15 regions"):
        fitted.transform(without.connectivity)


@pytest.mark.slow
def test_same_seed_same_weights_other_seed_others(fitted, cohort):
    again = clone(fitted).fit(cohort)
    assert np.array_equal(again.transform(cohort), fitted.transform(cohort))
    other = clone(fitted).set_params(seed=1).fit(cohort)
    assert not np.allclose(other.transform(cohort), fitted.transform(cohort))


def test_an_embedding_does_not_depend_on_the_other_participants(fitted, cohort):
    alone = np.concatenate([fitted.transform(cohort.subset([i])) for i in range(4)])
    np.testing.assert_allclose(alone, fitted.transform(cohort)[:4], atol=1e-5)


def test_saved_and_loaded_is_identical(fitted, cohort, tmp_path):
    fitted.save(tmp_path)
    loaded = nerve.NERVE.load(tmp_path, device="cpu")
    for pooling in ("pca", "mean", "cls", "tokens"):
        assert np.array_equal(loaded.transform(cohort, pooling), fitted.transform(cohort, pooling))
    assert loaded.get_params() == fitted.get_params()
    assert loaded.score(cohort) == fitted.score(cohort)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["parcellation"]["regions"]["label"] == list(cohort.parcellation.labels)
    assert not any(b"private" in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.slow
def test_a_patching_object_survives_saving(cohort, tmp_path):
    patching = Patching(np.arange(19) % 4)
    encoder = nerve.NERVE(patching=patching, **TINY).fit(cohort)
    encoder.save(tmp_path)
    assert nerve.NERVE.load(tmp_path).patching_ == patching
    with pytest.raises(NerveError, match="it groups 8 regions"):
        nerve.NERVE(patching=Patching.grid(8, 4), **TINY).fit(cohort)


def test_named_patchings(cohort):
    networks = Patching.from_parcellation(cohort.parcellation)
    for name, expected in {
        "networks": networks,
        "grid5": Patching.grid(19, 5),
        "permuted3": networks.permuted(3),
    }.items():
        encoder = nerve.NERVE(patching=name, **TINY)
        encoder.build(cohort.parcellation)
        assert encoder.patching_ == expected


@pytest.mark.slow
def test_pipeline_and_cross_validation_on_arrays(cohort, parcellation):
    pipeline = make_pipeline(nerve.NERVE(parcellation=parcellation, **TINY), Ridge())
    pipeline.set_params(nerve__epochs=1)
    scores = cross_val_score(pipeline, cohort.connectivity, cohort.participants["score"], cv=2)
    assert np.isfinite(scores).all()
    search = GridSearchCV(
        nerve.NERVE(parcellation=parcellation, **TINY), {"epochs": [0, 1]}, cv=2, refit=False
    )
    assert search.fit(cohort.connectivity).best_params_["epochs"] in (0, 1)


def test_in_a_pipeline_behind_nilearn():
    connectome = pytest.importorskip("nilearn.connectome")
    series = [np.random.default_rng(i).normal(size=(60, 20)) for i in range(12)]
    pipeline = make_pipeline(
        connectome.ConnectivityMeasure(kind="correlation", standardize=False),
        nerve.NERVE(patching="grid5", **TINY),
    )
    assert pipeline.fit_transform(series).shape == (12, 256)
    assert list(pipeline[-1].get_feature_names_out())[:2] == ["dim0", "dim1"]


APPLICABLE = [
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_mixin_order,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_tags_renamed,
]


@pytest.mark.parametrize("check", APPLICABLE, ids=lambda check: check.__name__)
def test_scikit_learns_own_checks_that_need_no_two_dimensional_data(check):
    check("NERVE", nerve.NERVE())


@pytest.mark.slow
def test_fit_changes_no_parameter_and_returns_itself(cohort):
    encoder = nerve.NERVE(**TINY)
    before = encoder.get_params()
    assert encoder.fit(cohort) is encoder
    assert encoder.get_params() == before
    assert encoder.n_features_in_ == 19


def test_score_is_minus_the_masked_loss_and_repeats(fitted, cohort):
    assert fitted.score(cohort) == fitted.score(cohort)
    assert -1.5 < fitted.score(cohort) < 0  # in units of the entries' own variance


def test_reconstruct_gives_symmetric_matrices_off_the_diagonal_blocks(fitted, cohort):
    rebuilt = fitted.reconstruct(cohort)
    assert rebuilt.shape == (80, 19, 19)
    first, second = (
        cohort.parcellation.networks.index("N0"),
        cohort.parcellation.networks.index("N2"),
    )
    assert np.array_equal(rebuilt[:, first, second], rebuilt[:, second, first])


def test_array_without_parcellation_is_cut_into_sixteens_with_a_warning():
    fc = np.stack([np.corrcoef(np.random.default_rng(i).normal(size=(40, 60))) for i in range(10)])
    with pytest.warns(NerveWarning, match="sixteens"):
        encoder = nerve.NERVE(**TINY).fit(fc)
    assert encoder.patching_ == Patching.grid(40, 16)


@pytest.mark.slow
def test_several_cohorts_are_pooled_and_each_gives_validation(cohort):
    order = np.random.default_rng(5).permutation(19)
    second = nerve.Cohort(
        cohort.connectivity[:40],
        pd.DataFrame({"participant_id": [f"b{i}" for i in range(40)]}),
        cohort.parcellation,
        name="second",
    ).align(cohort.parcellation.subset(order))
    encoder = nerve.NERVE(**TINY).fit([cohort, second])
    assert encoder.data_["cohorts"] == {"factors": 80, "second": 40}
    assert encoder.data_["n_validation"] == 12


def test_missing_values_name_the_participant(cohort):
    fc = np.array(cohort.connectivity)
    fc[7, 3, 4] = np.nan
    broken = nerve.Cohort(fc, cohort.participants, cohort.parcellation, name="broken")
    with pytest.raises(NerveError, match=r"Participant private7 of broken.*nerve check"):
        nerve.NERVE(**TINY).fit(broken)


def test_not_fitted():
    for verb in ("transform", "reconstruct", "score", "save"):
        with pytest.raises(NotFitted, match="fit"):
            getattr(nerve.NERVE(), verb)(np.zeros((2, 4, 4)) if verb != "save" else "somewhere")


def test_every_preset_is_valid_and_settings_are_checked():
    for preset in nerve.NERVE.presets:
        nerve.NERVE.from_preset(preset).check_parameters()
    with pytest.raises(NerveError, match=r"no setting 'leraning_rate'|Did you mean"):
        nerve.NERVE.from_preset("small", leraning_rate=1)
    with pytest.raises(NerveError, match=r"mask_ratio is 1\.5, expected less than 1"):
        nerve.NERVE.from_preset("small", mask_ratio=1.5).check_parameters()
    with pytest.raises(NerveError, match="Did you mean 'paper'"):
        nerve.NERVE.from_preset("papr")
    with pytest.raises(TypeError, match="'epoch'"):
        nerve.NERVE(epoch=3)
    with pytest.raises(ValueError, match="'epoch'"):
        nerve.NERVE().set_params(epoch=3)
    with pytest.raises(NerveError, match="Did you mean 'epochs'"):
        nerve.NERVE.from_preset("small", epoch=3)


@pytest.mark.parametrize("preset", ["paper", "default", "small"])
def test_the_file_of_a_run_is_read_back_as_it_was(preset, tmp_path):
    """`--resume` reads it: 1e-06 is a number in JSON and a word in YAML."""
    encoder = nerve.NERVE.from_preset(preset, lr=1e-6, eps=1e-12, clip=None)
    (tmp_path / "config.yaml").write_text(resolved_yaml(encoder))
    again = configured_encoder(tmp_path, None, None, [], resume=True)
    assert again.check_parameters() == encoder.check_parameters()
    assert again.preset_name() == preset


def test_yaml_and_assignments(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("preset: small\nlr: 1e-3\nclip: null\n")
    preset, settings = read_settings(file)
    assigned = parse_assignments(["dim=32", "lr=2e-4", "keep=last", "betas=[0.8, 0.9]"])
    chosen = nerve.NERVE.from_preset(preset, **settings | assigned).training_settings()
    assert (chosen.lr, chosen.clip, chosen.keep, chosen.betas) == (2e-4, None, "last", (0.8, 0.9))
    file.write_text("- a list")
    with pytest.raises(NerveError, match="holds no settings"):
        read_settings(file)
    file.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(NerveError, match="not valid YAML"):
        read_settings(file)
    with pytest.raises(NerveError, match="expected key=value"):
        parse_assignments(["lr"])


def test_a_wrong_setting_is_blamed_on_where_it_stands(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("lr: 0.001\ndepth: 2\n")
    with pytest.raises(
        NerveError, match=r"^--set: there is no setting 'epoch'.*Did you mean 'epochs'"
    ):
        configured_encoder(tmp_path, None, file, ["epoch=3"], False)
    with pytest.raises(NerveError, match=r"^--set: epochs is -3"):
        configured_encoder(tmp_path, None, file, ["epochs=-3"], False)
    file.write_text("epoch: 3\n")
    with pytest.raises(NerveError, match=r"c\.yaml: there is no setting 'epoch'"):
        configured_encoder(tmp_path, None, file, ["lr=0.1"], False)


def test_embeddings_are_not_overwritten_unasked(tmp_path):
    (tmp_path / "e.tsv").write_text("mine\n")
    with pytest.raises(
        NerveError, match=r"e\.tsv: it exists, .*Choose another name, or say --overwrite"
    ):
        embed_file(tmp_path / "run", tmp_path / "cohort", tmp_path / "e.tsv")


@pytest.mark.slow
def test_a_large_cohort_is_packed_into_a_file_and_read_from_it(cohort, tmp_path, monkeypatch):
    from nerve.methods import packing

    expected = nerve.NERVE(**TINY).fit(cohort).transform(cohort)
    monkeypatch.setattr(packing, "IN_MEMORY_BELOW", 0)
    source = packing.packed_dataset(
        packing.PatchDataset(cohort, Patching.from_parcellation(cohort.parcellation)), tmp_path
    )
    assert isinstance(source.array, np.memmap)
    assert np.array_equal(nerve.NERVE(**TINY).fit(cohort).transform(cohort), expected)
    assert np.array_equal(
        nerve.NERVE(**TINY).fit(cohort, run_dir=tmp_path / "run").transform(cohort), expected
    )
    assert not (tmp_path / "run" / "packed.npy").exists()


@pytest.mark.slow
def test_half_precision_cohort_trains(cohort):
    half = nerve.Cohort(
        cohort.connectivity.astype(np.float16), cohort.participants, cohort.parcellation
    )
    assert torch.isfinite(torch.from_numpy(nerve.NERVE(**TINY).fit(half).transform(half))).all()


def test_a_misspelt_tokenizer_is_corrected():
    with pytest.raises(NerveError, match="Did you mean 'bilinear'"):
        nerve.NERVE(tokenizer="bilinar").check_parameters()
