"""Occlusion and patterns, against the evaluation, slow literal versions and planted pairs."""

import re
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from tests.evaluation.conftest import predict

import nerve
from nerve import NERVE, Cohort, NerveError, Patching, Protocol
from nerve._utils.errors import NerveWarning
from nerve.data.simulate import Target, simulate_cohort
from nerve.evaluation.participants import prepare_participants
from nerve.interpret import patch_importance
from nerve.interpret.importance import pattern_sizes
from nerve.interpret.occlusion import Embedding, embedding_of, occluded_predictions, training_means

pytestmark = pytest.mark.xdist_group("interpret")  # they share cohort and encoders
QUICK = {"n_folds": 4, "n_bootstrap": 100}


@pytest.fixture(scope="module")
def planted():
    """200 participants; the target lies on three network pairs, among other factors."""
    target = Target("score", 0.8, {"general": 1.0})
    return simulate_cohort(
        200, "schaefer100-7", timepoints=200, keep_timeseries=False, seed=5, targets=[target]
    )


@pytest.fixture(scope="module")
def truth(planted):
    return {frozenset(pair) for pair in planted.notes["truth"]["targets"]["score"]["pairs"]}


def top(table, column, most=3):
    """Largest drops, or largest patterns of either sign: a needed pair has a positive drop."""
    size = table[column] if column == "drop" else table[column].abs()
    order = size.sort_values(ascending=False).index[:most]
    return {
        frozenset(pair) for pair in table.loc[order, ["network_a", "network_b"]].to_numpy().tolist()
    }


@pytest.fixture(scope="module")
def raw_table(planted):
    return patch_importance("raw", planted, ["score"], n_repeats=2, **QUICK)


@pytest.mark.slow
def test_planted_pairs_come_out_on_top_of_raw_fc(raw_table, truth):
    assert len(truth) == 3
    assert top(raw_table, "pattern") == truth
    assert top(raw_table, "pattern_rms") == truth
    # pairs share information: occlusion puts at most one other pair before the third
    assert top(raw_table, "drop", 2) <= truth
    assert top(raw_table, "drop", 4) >= truth
    assert (raw_table["drop_low"].head(2) > 0).all()


@pytest.mark.slow
def test_planted_pairs_are_found_whichever_they_are():
    """Two structures of three pairs each: a random map has 0.6 of the 6 in its first three."""
    found = {"drop": 0, "pattern": 0}
    for structure in (1, 2):
        target = Target("score", 0.8, {"general": 1.0})
        options = {
            "seed": 5 + structure,
            "structure_seed": structure,
            "targets": [target],
            "keep_timeseries": False,
        }
        cohort = simulate_cohort(200, "schaefer100-7", timepoints=150, **options)
        truth = {frozenset(pair) for pair in cohort.notes["truth"]["targets"]["score"]["pairs"]}
        table = patch_importance("raw", cohort, ["score"], n_folds=3, n_bootstrap=2)
        for column in found:
            found[column] += len(top(table, column) & truth)
    assert found["drop"] >= 4
    assert found["pattern"] >= 4


@pytest.mark.slow
def test_maps_state_their_stability(raw_table):
    assert (raw_table["n_seeds"] == 2).all()
    assert raw_table["stability"].iloc[0] > 0.7
    assert raw_table["pattern_stability"].iloc[0] > 0.9


@pytest.mark.slow
def test_planted_pairs_come_out_on_top_of_an_embedding(planted, truth):
    options = {"heads": 2, "decoder_dim": 16}
    encoder = NERVE(
        "schaefer100-7",
        view="fc",
        dim=16,
        depth=1,
        epochs=3,
        pooling="tokens",
        **options,
    )
    table = patch_importance(encoder.fit(planted), planted, ["score"], n_folds=3, n_bootstrap=2)
    assert len(top(table, "drop") & truth) >= 2
    assert len(top(table, "pattern") & truth) >= 2


@pytest.mark.slow
def test_a_target_that_nothing_predicts_gives_a_warning(cohort):
    with pytest.warns(NerveWarning, match="null .*chance"):
        table = patch_importance("raw", cohort, ["null"], **QUICK)
    assert (table["drop_low"] <= table["drop_high"]).all()


@pytest.mark.slow
def test_intact_predictions_are_those_of_evaluate(cohort, encoders):
    evaluated = predict(
        encoders[0].transform(cohort), cohort, ["p_factor", "age"], ["sex"], n_folds=4
    )
    embedding = embedding_of(encoders[0], cohort, Patching.grid(100, 50))
    found = predictions_of(embedding, cohort, ["p_factor", "age"], ["sex"])
    for t, name in enumerate(["p_factor", "age"]):
        expected = evaluated[evaluated["target"] == name].set_index("participant")
        rows = expected.loc[cohort.participants["participant_id"]]
        assert found.intact[:, t] == pytest.approx(rows["predicted"].to_numpy(), rel=1e-4, abs=1e-5)
        assert found.observed[:, t] == pytest.approx(rows["observed"].to_numpy())


def predictions_of(embedding, cohort, targets, covariates=()):
    participants, protocol = prepare_participants(
        cohort, Protocol(targets=targets, covariates=covariates, n_folds=4)
    )
    folds = participants.folds[0]
    return occluded_predictions(embedding, cohort, participants, folds, protocol)


@pytest.mark.slow
def test_progress_goes_on_within_a_fold_from_nothing_to_all(planted, monkeypatch, capsys):
    monkeypatch.setattr(nerve._utils.progress, "SECONDS_BETWEEN_LINES", 0)
    patch_importance("raw", planted, ["score"], n_folds=2, n_bootstrap=2)
    label = "occlusion, model 1 of 1, repeat 1 of 1"
    counts = re.findall(rf"{label}: (\d+) of (\d+) predictions", capsys.readouterr().err)
    shares = [int(done) / int(total) for done, total in counts]
    assert 0 < shares[1] < 0.1
    assert shares[-1] == 1
    assert shares == sorted(shares)
    assert len(shares) >= 2 * Patching.from_parcellation(planted.parcellation).n_patches


@pytest.mark.slow
def test_patches_of_another_patching_are_hidden_in_the_matrices_of_the_view(encoders, cohort):
    other = Patching.grid(100, 25)
    embedding = embedding_of(encoders[0], cohort, other)
    fc, mean = cohort.inputs("fc", np.arange(3)), cohort.inputs("fc").mean(axis=0)
    first = next(iter(embedding.features_with_hidden_patches(np.arange(3), mean)))
    view = encoders[0].view_
    matrices, average = view.apply(fc), view.apply(mean[None])[0]
    matrices[:, :25, :25] = average[:25, :25]
    assert first == pytest.approx(encoders[0].embed_matrices(matrices), abs=1e-5)


def test_a_feature_that_reads_one_patch_is_harmed_by_that_patch_only(cohort):
    patching = Patching.from_parcellation(cohort.parcellation)
    patch = 9
    columns = slice(patching.offsets[patch], patching.offsets[patch + 1])
    found = predictions_of(
        Embedding(lambda fc: patching.pack(fc)[:, columns], partial(cohort.inputs, "fc"), patching),
        cohort,
        ["p_factor"],
    )
    changed = np.abs(found.occluded - found.intact).max(axis=(1, 2)) > 1e-9
    assert np.flatnonzero(changed).tolist() == [patch]


def test_hidden_patches_are_the_mean_and_everything_else_is_untouched(cohort):
    patching = Patching.from_parcellation(cohort.parcellation)
    fc, mean = cohort.inputs("fc", np.arange(3)), cohort.inputs("fc").mean(axis=0)
    before = fc.copy()
    embedding = Embedding(np.asarray, lambda rows: fc[rows], patching)
    for patch, flat in enumerate(embedding.features_with_hidden_patches(np.arange(3), mean)):
        hidden = flat.reshape(fc.shape)
        inside = patching.patch_of == patch
        packed = patching.pack(hidden)
        assert (packed[:, inside] == patching.pack(mean)[inside]).all()
        assert (packed[:, ~inside] == patching.pack(fc)[:, ~inside]).all()
        assert (hidden == hidden.transpose(0, 2, 1)).all()
    assert (fc == before).all()


def test_the_mean_that_hides_a_patch_is_blind_to_the_test_fold(cohort):
    folds = np.arange(len(cohort)) % 3
    spoiled = cohort.connectivity.copy()
    spoiled[folds == 1] = 0.123
    other = Cohort(spoiled, cohort.participants, cohort.parcellation)
    means, changed = training_means(cohort, folds), training_means(other, folds)
    assert changed[1] == pytest.approx(means[1])
    assert means[2] == pytest.approx(
        cohort.inputs("fc", np.flatnonzero(folds != 2)).mean(axis=0, dtype=float)
    )
    assert np.abs(changed[0] - means[0]).max() > 0.01


def test_patterns_are_covariances_of_fc_with_predictions(cohort):
    patching = Patching.from_parcellation(cohort.parcellation)
    predicted = np.random.default_rng(0).normal(size=(len(cohort), 1))
    predicted[:4] = np.nan
    found = pattern_sizes(cohort, predicted, np.zeros(len(cohort), int), patching)
    for patch in (0, 5, 27):
        block = literal_pattern(cohort, predicted[:, 0], np.zeros(len(cohort)), patching, patch)
        assert found[patch, 0] == pytest.approx(np.sqrt((block**2).mean()), abs=1e-9)


def literal_pattern(cohort, predicted, folds, patching, patch):
    """cov(x, ŷ) / sd(ŷ) of the entries of a patch off the diagonal, ŷ centred fold by fold."""
    kept = np.isfinite(predicted)
    fc, y, folds = cohort.inputs("fc")[kept].astype(float), predicted[kept], folds[kept]
    y = y - np.array([y[folds == fold].mean() for fold in folds])
    covariance = np.einsum("nij,n->ij", fc, y) / len(y) / y.std()
    a, b = patching.pairs[patch]
    block = covariance[np.ix_(patching.members[a], patching.members[b])]
    return block[~np.eye(len(block), dtype=bool)] if a == b else block


@pytest.mark.slow
def test_tables_pattern_is_the_one_of_the_formula(cohort):
    patching = Patching.from_parcellation(cohort.parcellation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        table = patch_importance("raw", cohort, ["age"], **QUICK)
    found = predictions_of(embedding_of("raw", cohort, patching), cohort, ["age"])
    row, names = table.iloc[0], list(patching.group_names)
    pair = patching.pairs.tolist().index(
        [names.index(row["network_a"]), names.index(row["network_b"])]
    )
    expected = literal_pattern(cohort, found.intact[:, 0], found.folds, patching, pair)
    assert row["pattern"] == pytest.approx(expected.mean(), abs=1e-9)
    assert row["pattern_rms"] == pytest.approx(np.sqrt((expected**2).mean()), abs=1e-9)
    assert row["pattern_low"] < row["pattern"] < row["pattern_high"]
    assert np.isnan(row["stability"])


@pytest.mark.slow
def test_missing_targets_leave_participants_out_and_regions_may_be_in_another_order(
    cohort, encoders
):
    some = cohort.subset(np.arange(30))
    table = some.participants.assign(some=some.participants["age"].where(np.arange(30) % 5 > 0))
    order = np.random.default_rng(0).permutation(100)
    fc = np.ascontiguousarray(some.connectivity[:, order][:, :, order])
    mixed = Cohort(fc, table, some.parcellation.subset(order))
    plain = Cohort(some.connectivity, table, some.parcellation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NerveWarning)
        options = {"n_folds": 2, "n_bootstrap": 10, "patching": Patching.grid(100, 50)}
        tables = [
            patch_importance(encoders[0], one, ["some", "age"], **options) for one in (plain, mixed)
        ]
    assert set(tables[0]["n"]) == {24, 30}
    keys = ["target", "network_a", "network_b"]
    pd.testing.assert_frame_equal(
        *(table.set_index(keys).sort_index() for table in tables), rtol=1e-3, atol=1e-3
    )


def test_what_cannot_be_explained_is_refused_in_a_sentence(cohort):
    with pytest.raises(NerveError, match="expected 'raw'"):
        patch_importance("pca", cohort, ["age"])
    with pytest.raises(NerveError, match="combat"):
        patch_importance("raw", cohort, ["age"], combat=True, site="site")
    with pytest.raises(NerveError, match="agee"):
        patch_importance("raw", cohort, ["agee"])
