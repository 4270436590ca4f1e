"""Fine-tuned NERVE: it finds what one network pair carries, trains only what is asked for, and sees no test label."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import nerve
from nerve._utils.errors import NerveError, NotFitted
from nerve.data.parcellation import Parcellation
from nerve.evaluation.covariates import CovariateRegression
from nerve.methods import load_method, make_method
from nerve.methods.finetuned import AttentionPooling, FineTunedNERVE

pytestmark = pytest.mark.slow
N_TRAINING = 160
SIGNAL = ("N1", "N3")  # the one network pair that follows the score
QUICK = {"heads": 2, "epochs": 3, "batch_size": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def parcellation() -> Parcellation:
    networks = tuple(f"N{g}" for g in range(6) for _ in range(4))
    return Parcellation(tuple(f"r{i}" for i in range(24)), networks, name="twenty-four")


@pytest.fixture(scope="module")
def cohort(parcellation) -> nerve.Cohort:
    """Participants whose score shows in the FC between two networks and nowhere else."""
    generator = np.random.default_rng(0)
    n = 240
    score = generator.normal(size=n)
    fc = 0.1 * generator.normal(size=(n, 24, 24))
    first, second = (np.array(parcellation.networks) == name for name in SIGNAL)
    pattern = np.outer(first, second) * generator.choice([-1.0, 1.0], (24, 24))
    fc += 0.08 * score[:, None, None] * pattern
    fc = np.triu(fc, 1)
    fc = fc + fc.transpose(0, 2, 1) + np.eye(24)
    table = pd.DataFrame(
        {
            "participant_id": [f"private{i}" for i in range(n)],
            "score": score,
            "group": np.where(score > 0, "patient", "control"),
            "third": np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.5])],
            "age": generator.uniform(20, 60, n),
            "family": [f"family{i // 3}" for i in range(n)],
            "constant": 1.0,
        }
    )
    return nerve.Cohort(fc.astype(np.float32), table, parcellation, name="planted")


@pytest.fixture(scope="module")
def encoder(cohort) -> nerve.NERVE:
    settings = {"view": "fc", "dim": 16, "depth": 2, "heads": 2, "epochs": 2, "pooling": "mean"}
    return nerve.NERVE(**settings, batch_size=16, device="cpu").fit(cohort)


@pytest.fixture(scope="module")
def run(encoder, tmp_path_factory):
    return encoder.save(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def training(cohort):
    return cohort.subset(np.arange(N_TRAINING))


@pytest.fixture(scope="module")
def new(cohort):
    return cohort.subset(np.arange(N_TRAINING, len(cohort)))


def column(cohort, name):
    return cohort.participants[name].to_numpy()


def weights_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def changed(before, after):
    """Names of the tensors that are not the same to the last bit."""
    return {name for name in before if not torch.equal(before[name], after[name])}


# What is learned


@pytest.mark.parametrize(
    ("layers", "pooling"), [(0, "attention"), (0, "mean"), (1, "attention"), ("all", "attention")]
)
def test_a_score_that_one_network_pair_carries_is_predicted(
    encoder, training, new, layers, pooling
):
    model = encoder.finetune(
        training, "score", layers=layers, pooling=pooling, heads=2, epochs=60, patience=20,
        batch_size=16, learning_rate=3e-3, device="cpu",
    )  # fmt: skip
    r = np.corrcoef(model.predict(new), column(new, "score"))[0, 1]
    # chance exceeds 0.22 once in twenty times, for 80 participants
    assert r > 0.4, r


def test_shuffled_scores_are_not_learned(encoder, training, new):
    shuffled = np.random.default_rng(1).permutation(column(training, "score"))
    model = FineTunedNERVE(encoder, layers=0, heads=2, epochs=20, batch_size=16, device="cpu")
    model.fit(training, shuffled)
    assert abs(np.corrcoef(model.predict(new), column(new, "score"))[0, 1]) < 0.3


def test_two_classes_come_back_as_words(encoder, training, new):
    model = encoder.finetune(
        training, "group", layers=0, heads=2, epochs=40, batch_size=16, learning_rate=3e-3,
        device="cpu",
    )  # fmt: skip
    assert set(model.predict(new)) <= {"control", "patient"}
    assert (model.predict(new) == column(new, "group")).mean() > 0.6
    np.testing.assert_allclose(model.predict_proba(new).sum(1), 1)


def test_three_classes_have_a_probability_each(encoder, training, new, tmp_path):
    model = encoder.finetune(
        training, "third", layers=0, heads=2, epochs=40, batch_size=16, learning_rate=3e-3,
        device="cpu",
    )  # fmt: skip
    probabilities = model.predict_proba(new)
    assert probabilities.shape == (len(new), 3)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    labels = np.array(model.target_["labels"])
    np.testing.assert_array_equal(model.predict(new), labels[probabilities.argmax(1)])
    largest_class = max((column(new, "third") == label).mean() for label in labels)
    assert (model.predict(new) == column(new, "third")).mean() > largest_class
    loaded = FineTunedNERVE.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(new), probabilities)


def test_covariates_are_regressed_with_coefficients_of_these_participants(encoder, training):
    model = encoder.finetune(training, "score", ["age"], layers=0, **QUICK)
    age = training.participants[["age"]]
    score = column(training, "score").astype(float)[:, None]
    residuals = CovariateRegression().fit(age, score).residuals(age, score)[:, 0]
    by_hand = FineTunedNERVE(encoder, layers=0, **QUICK).fit(training, residuals)
    np.testing.assert_array_equal(model.predict(training), by_hand.predict(training))


def test_participants_without_the_target_are_left_out(encoder, training):
    table = training.participants.copy()
    table.loc[:9, "score"] = np.nan
    holes = nerve.Cohort(training.connectivity, table, training.parcellation, name="holes")
    model = encoder.finetune(holes, "score", layers=0, **QUICK)
    known = training.subset(np.arange(10, N_TRAINING))
    again = FineTunedNERVE(encoder, layers=0, **QUICK).fit(known, column(known, "score"))
    np.testing.assert_array_equal(model.predict(training), again.predict(training))


# What is trained


def test_the_head_only_leaves_the_encoder_as_it_was_to_the_last_bit(encoder, training):
    before = weights_of(encoder.module_)
    model = encoder.finetune(training, "score", layers=0, **QUICK)
    assert changed(before, weights_of(model.module_.autoencoder)) == set()
    assert model.history_["gradient_norm"].gt(0).all()


def test_k_layers_change_the_last_k_blocks_and_nothing_else(encoder, training):
    before = weights_of(encoder.module_)
    model = encoder.finetune(training, "score", layers=1, **QUICK)
    names = changed(before, weights_of(model.module_.autoencoder))
    assert names
    assert all(name.startswith("encoder.1.") for name in names)


def test_all_layers_change_tokenizer_positions_and_every_block(encoder, training):
    before = weights_of(encoder.module_)
    model = encoder.finetune(training, "score", layers="all", **QUICK)
    names = changed(before, weights_of(model.module_.autoencoder))
    roots = {".".join(name.split(".")[:2]) for name in names}
    assert {"cls", "positions", "tokenizer.embed_factors", "encoder.0", "encoder.1"} <= roots
    assert not [name for name in names if "decoder" in name or "reconstruct" in name]


def test_the_pretrained_model_stays_as_it_was(encoder, training):
    before = weights_of(encoder.module_)
    features = encoder.transform(training)
    encoder.finetune(training, "score", layers="all", **QUICK)
    assert changed(before, weights_of(encoder.module_)) == set()
    np.testing.assert_array_equal(encoder.transform(training), features)


def test_tokens_that_are_kept_in_memory_are_those_that_every_step_would_compute(encoder, training):
    model = FineTunedNERVE(encoder, layers=1, **QUICK).fit(training, column(training, "score"))
    packed = model.dataset(training).batch(np.arange(8))
    with torch.inference_mode():
        tokens = model.module_.untrained_part(packed)
        assert tokens.shape == (8, 1 + 21, 16)
        torch.testing.assert_close(model.module_(tokens), model.module_(packed))


def test_attention_pooling_is_the_formula_of_its_docstring():
    torch.manual_seed(0)
    pool = AttentionPooling(n_patches=5, dim=6, heads=2)
    tokens = torch.randn(3, 5, 6)
    expected = torch.empty(3, 6)
    for participant in range(3):
        for head in range(2):
            part = slice(3 * head, 3 * head + 3)
            scores = torch.empty(5)
            for pair in range(5):
                key = (pool.key.weight @ (tokens[participant, pair] + pool.pairs[pair]))[part]
                scores[pair] = pool.query[head, 0] @ key / 3**0.5
            attention = scores.softmax(0)
            values = (tokens[participant] @ pool.value.weight.T + pool.value.bias)[:, part]
            expected[participant, part] = attention @ values
    torch.testing.assert_close(pool(tokens), expected)


# Inner participants, seeds, resuming


def test_the_epoch_is_the_best_one_of_the_inner_participants(encoder, training):
    model = FineTunedNERVE(encoder, layers="all", learning_rate=0.01, **{**QUICK, "epochs": 12})
    model.fit(training, column(training, "score"))
    history = model.history_
    best = history.loc[history["validation_loss"].idxmin()]
    assert model.best_step_ == best["step"]

    settings = model.training_settings()
    _, inner = model.validation_split(training, settings)
    part = training.subset(inner)
    score = column(training, "score")
    target = (column(part, "score") - score.mean()) / score.std()
    predicted = (model.predict(part) - score.mean()) / score.std()
    np.testing.assert_allclose(
        np.square(predicted - target).mean(), best["validation_loss"], rtol=1e-4
    )


def test_training_stops_when_the_inner_participants_get_no_better(encoder, training):
    noise = np.random.default_rng(2).normal(size=N_TRAINING)
    model = FineTunedNERVE(encoder, layers="all", learning_rate=0.01, patience=2,
                           **{**QUICK, "epochs": 100})  # fmt: skip
    model.fit(training, noise)
    losses = model.history_["validation_loss"].to_numpy()
    assert len(losses) < 100
    assert losses.argmin() == len(losses) - 3


def test_families_are_whole_in_the_inner_split(encoder, training):
    model = FineTunedNERVE(encoder, layers=0, **QUICK)
    families = column(training, "family")
    fitted, inner = model.validation_split(training, model.training_settings(), families)
    assert len(inner) > 20
    assert not set(families[fitted]) & set(families[inner])
    by_column = encoder.finetune(training, "score", groups="family", layers=0, **QUICK)
    by_hand = clone(model).fit(training, column(training, "score"), groups=families)
    np.testing.assert_array_equal(by_column.predict(training), by_hand.predict(training))


def test_the_same_seed_gives_the_same_model_and_another_another(run, training):
    score = column(training, "score")
    first = FineTunedNERVE(run, layers="all", **QUICK).fit(training, score)
    second = clone(first).fit(training, score)
    other = clone(first).set_params(seed=1).fit(training, score)
    np.testing.assert_array_equal(first.predict(training), second.predict(training))
    assert not np.array_equal(first.predict(training), other.predict(training))


@pytest.mark.parametrize("layers", [0, "all"])
def test_a_training_that_was_stopped_goes_on_bit_for_bit(run, training, tmp_path, layers):
    score = column(training, "score")
    settings = {**QUICK, "epochs": 6, "checkpoint_seconds": 0.0}
    whole = FineTunedNERVE(run, layers=layers, **settings).fit(training, score)

    def stop_in_the_third_epoch(row):
        if row["epoch"] == 3:
            raise RuntimeError("stopped here")

    stopped = FineTunedNERVE(run, layers=layers, **settings)
    with pytest.raises(RuntimeError, match="stopped here"):
        stopped.fit(training, score, run_dir=tmp_path, callbacks=[stop_in_the_third_epoch])
    resumed = FineTunedNERVE(run, layers=layers, **settings)
    resumed.fit(training, score, run_dir=tmp_path, resume=True)
    assert changed(weights_of(whole.module_), weights_of(resumed.module_)) == set()
    np.testing.assert_array_equal(whole.predict(training), resumed.predict(training))


def test_a_training_that_ended_early_ends_where_it_ended_when_resumed(run, training, tmp_path):
    noise = np.random.default_rng(2).normal(size=N_TRAINING)
    settings = {**QUICK, "epochs": 60, "learning_rate": 0.01, "patience": 1}
    first = FineTunedNERVE(run, **settings).fit(training, noise, run_dir=tmp_path)
    again = FineTunedNERVE(run, **settings).fit(training, noise, run_dir=tmp_path, resume=True)
    assert len(again.history_) == len(first.history_) < 60
    np.testing.assert_array_equal(again.predict(training), first.predict(training))


def test_a_run_is_not_resumed_from_another_encoder(encoder, training, tmp_path):
    score = column(training, "score")
    FineTunedNERVE(encoder, layers=0, **QUICK).fit(training, score, run_dir=tmp_path)
    other = clone(encoder).set_params(seed=5).fit(training)
    with pytest.raises(NerveError, match=r"cannot be resumed.*weights was"):
        FineTunedNERVE(other, layers=0, **QUICK).fit(training, score, run_dir=tmp_path, resume=True)


# Files


def test_a_saved_model_predicts_the_same_without_the_run(encoder, training, tmp_path):
    folder = encoder.save(tmp_path / "secret-place" / "second")
    model = FineTunedNERVE(folder, layers="all", **QUICK).fit(training, column(training, "score"))
    saved = model.save(tmp_path / "model")
    for file in folder.iterdir():
        file.unlink()
    loaded = load_method(saved, device="cpu")
    np.testing.assert_array_equal(loaded.predict(training), model.predict(training))
    np.testing.assert_array_equal(
        loaded.encoder_.transform(training), model.encoder_.transform(training)
    )
    texts = "".join((saved / name).read_text() for name in ("config.json", "README.md"))
    assert "secret-place" not in texts
    assert "private" not in texts
    assert "Encoder: second, pretrained without labels on planted (240)" in texts
    again = loaded.save(tmp_path / "again")
    assert (again / "config.json").read_text() == (saved / "config.json").read_text()


def test_a_clone_keeps_a_nerve_that_was_fitted(encoder):
    copy = clone(FineTunedNERVE(encoder, layers=1))
    assert copy.pretrained is encoder
    assert not hasattr(copy, "module_")


# Errors


def test_what_is_no_nerve_is_refused(training, tmp_path):
    other = make_method("tangent").fit(training).save(tmp_path / "tangent")
    with pytest.raises(NerveError, match="holds a TangentSpace, expected a NERVE"):
        FineTunedNERVE(other).fit(training, column(training, "score"))
    with pytest.raises(NerveError, match="there is no such model"):
        FineTunedNERVE(tmp_path / "nowhere").fit(training, column(training, "score"))
    with pytest.raises(NotFitted, match="not fitted"):
        FineTunedNERVE(nerve.NERVE()).fit(training, column(training, "score"))


def test_more_layers_than_there_are_and_other_values_are_refused(encoder, run, training):
    score = column(training, "score")
    with pytest.raises(NerveError, match="layers: it is 3, and the encoder has 2 blocks"):
        FineTunedNERVE(run, layers=3).fit(training, score)
    with pytest.raises(NerveError, match="0 for the head only, or all"):
        FineTunedNERVE(run, layers="some").fit(training, score)
    with pytest.raises(NerveError, match="a divisor of 16"):
        encoder.finetune(training, "score", heads=3)


def test_targets_that_cannot_be_learned_are_refused(encoder, training):
    with pytest.raises(NerveError, match="same value for every training participant"):
        encoder.finetune(training, "constant", **QUICK)
    with pytest.raises(NerveError, match="nothing"):
        encoder.finetune(training, "nothing", **QUICK)
    with pytest.raises(NerveError, match="there are 2, expected one"):
        encoder.finetune(training, ["score", "age"], **QUICK)
    with pytest.raises(NerveError, match="3 classes, and there are covariates"):
        encoder.finetune(training, "third", ["age"], **QUICK)


def test_too_few_participants_for_an_inner_split_are_refused(encoder, training):
    with pytest.raises(NerveError, match="5 of them leave 4 to train on and 1 for the inner"):
        encoder.finetune(training.subset(np.arange(5)), "score", **QUICK)
    one_family = np.array(["the same"] * 40)
    with pytest.raises(NerveError, match="without splitting families"):
        FineTunedNERVE(encoder, **QUICK).fit(
            training.subset(np.arange(40)), column(training, "score")[:40], groups=one_family
        )


def test_regions_are_matched_by_label_and_another_atlas_is_refused(encoder, training):
    model = encoder.finetune(training, "score", layers=0, **QUICK)
    order = np.random.default_rng(0).permutation(24)
    labels = tuple(training.parcellation.labels[i] for i in order)
    networks = tuple(training.parcellation.networks[i] for i in order)
    moved = training.align(Parcellation(labels, networks, name="moved"))
    np.testing.assert_allclose(model.predict(moved), model.predict(training), atol=1e-6)
    again = encoder.finetune(moved, "score", layers=0, **QUICK)
    np.testing.assert_allclose(again.predict(training), model.predict(training), atol=1e-5)
    other = nerve.simulate_cohort(20, parcellation="schaefer100-7", timepoints=50)
    with pytest.raises(NerveError, match="are not among the"):
        encoder.finetune(other, "age", layers=0, **QUICK)
    with pytest.raises(NerveError, match="are not among the"):
        model.predict(other)
