"""Stability, network weights and attention, against literal versions and planted answers."""

import numpy as np
import pytest
import torch

from nerve import NERVE, NerveError
from nerve.interpret import attention_summary, network_weights, stability
from nerve.interpret.maps import attention_table, between_networks, roll_out

pytestmark = pytest.mark.xdist_group("interpret")  # they share cohort and encoders


def test_stability_is_the_mean_of_numpy_correlations():
    maps = np.random.default_rng(0).normal(size=(4, 3, 5))
    r = np.corrcoef(maps.reshape(4, -1))
    assert stability(maps) == pytest.approx(r[np.triu_indices(4, 1)].mean())


def test_stability_of_edge_cases():
    one = np.arange(6.0)
    assert np.isnan(stability([one]))
    assert stability([one, 3 * one + 2]) == pytest.approx(1)
    assert stability([one, np.full(6, 0.3)]) == 0
    assert stability([np.r_[one, np.nan], np.r_[one, 5]]) == pytest.approx(1)


def test_weights_are_row_norms_relative_to_the_network(encoders):
    table = network_weights(encoders[0])
    factors = encoders[0].module_.tokenizer.embed_factors.detach().numpy()
    networks = np.array(encoders[0].parcellation_.networks)
    for i in (0, 17, 99):
        mates = np.flatnonzero(networks == networks[i])
        expected = np.linalg.norm(factors[i]) / np.mean([np.linalg.norm(factors[j]) for j in mates])
        assert table["weight"][i] == pytest.approx(expected, rel=1e-5)
    assert table.groupby("network")["share"].sum().to_numpy() == pytest.approx(np.ones(7))
    assert table.groupby("network")["weight"].mean().to_numpy() == pytest.approx(np.ones(7))
    assert table["region"].tolist() == list(encoders[0].parcellation_.labels)
    assert np.isfinite(table[["x", "y", "z"]].to_numpy()).all()
    assert table["stability"].isna().all()
    assert (table["n_seeds"] == 1).all()


@pytest.mark.slow
def test_weights_find_a_planted_region_and_do_not_see_the_scale_of_a_network(cohort):
    encoder = NERVE.from_preset("small", dim=16, depth=1, epochs=1, device="cpu", heads=2).fit(
        cohort
    )
    before = network_weights(encoder)
    members = encoder.patching_.members[2]
    with torch.no_grad():
        encoder.module_.tokenizer.embed_factors[members] *= 7.0
    assert network_weights(encoder)["weight"].to_numpy() == pytest.approx(
        before["weight"].to_numpy(), rel=1e-5
    )
    with torch.no_grad():
        encoder.module_.tokenizer.embed_factors[members[3]] *= 5.0
    table = network_weights(encoder)
    assert table["rank"][members[3]] == 1
    assert table["weight"].idxmax() == members[3]


def test_the_same_encoder_twice_is_perfectly_stable(encoders, cohort):
    twice = [encoders[0], encoders[0]]
    table = network_weights(twice)
    assert table["stability"].to_numpy() == pytest.approx(1)
    assert table["weight_sd"].abs().max() < 1e-12
    attention = attention_summary(twice, cohort.subset(np.arange(5)))
    assert attention.table["stability"].to_numpy() == pytest.approx(1)
    assert -1 <= network_weights(encoders)["stability"].iloc[0] < 0.999


@pytest.mark.slow
def test_other_tokenizers_have_no_network_weights(cohort):
    options = {"init": "scaled"}
    encoder = NERVE.from_preset(
        "small", tokenizer="shared", dim=16, depth=1, epochs=1, device="cpu", **options
    )
    encoder.fit(cohort)
    with pytest.raises(NerveError, match="bilinear"):
        network_weights(encoder)
    with pytest.raises(NerveError, match="not fitted"):
        network_weights(NERVE())


@pytest.mark.slow
def test_attention_is_the_mean_of_the_models_maps_over_participants(encoders, cohort):
    few = cohort.subset(np.arange(20))  # more than one chunk
    found = attention_summary(encoders, few)
    module, patching = encoders[1].module_, encoders[1].patching_
    with torch.inference_mode():
        matrices = encoders[1].view_.apply(few.inputs("fc"))
        maps = [
            module.attention(torch.from_numpy(patching.pack(one)[None]))[0].numpy()
            for one in matrices
        ]
    assert found.maps[1] == pytest.approx(np.mean(maps, axis=0), abs=1e-5)
    rollout = np.mean([_literal_rollout(one) for one in maps], axis=0)
    assert found.rollout[1] == pytest.approx(rollout, abs=1e-5)
    for rows in (found.maps, found.rollout):
        assert rows.sum(axis=-1) == pytest.approx(1, abs=1e-5)


def _literal_rollout(maps):
    total = np.eye(maps.shape[-1])
    for layer in maps:
        total = (0.5 * layer.mean(axis=0) + 0.5 * np.eye(len(total))) @ total
    return total


def test_attention_table_names_its_source_and_rows_sum_to_one(encoders, cohort):
    table = attention_summary(encoders, cohort.subset(np.arange(5))).table
    assert table.groupby(["seed", "layer", "head", "from"])[
        "attention"
    ].sum().to_numpy() == pytest.approx(1, abs=1e-5)
    assert table["layer"].iloc[0] == "rollout"
    assert len(table) == 2 * 64 * (1 + 2 + 2 * 2)
    assert set(table["head"]) == {"mean", "1", "2"}


def test_summary_between_networks_finds_planted_attention(encoders):
    patching = encoders[0].patching_
    tokens = 1 + patching.n_patches
    names = patching.pairs.tolist()
    maps = np.zeros((tokens, tokens))
    maps[:, 1 + names.index([2, 5])] = 1.0  # everything attends to the pair (2, 5)
    summary = between_networks(maps, patching)
    assert summary[:, 1 + 2] == pytest.approx(0.5)
    assert summary[:, 1 + 5] == pytest.approx(0.5)
    literal = between_networks(
        np.random.default_rng(0).dirichlet(np.ones(tokens), tokens), patching
    )
    assert literal.sum(axis=1) == pytest.approx(1)


def test_rollout_of_even_attention_is_even_but_for_the_residual():
    maps = np.full((1, 3, 2, 4, 4), 0.25)
    rolled = roll_out(maps)[0]
    assert np.diag(rolled) == pytest.approx(0.5**3 + (1 - 0.5**3) / 4)


def test_pairs_of_attention_are_a_distribution(encoders, cohort):
    found = attention_summary(encoders, cohort.subset(np.arange(5)))
    assert len(found.pairs) == 28
    assert 0.5 < found.pairs["attention"].sum() <= 1
    assert found.pairs["n_seeds"].eq(2).all()


def test_even_attention_has_ratios_of_one_and_no_stability(encoders):
    patching = encoders[0].patching_
    tokens = 1 + patching.n_patches
    maps = np.full((2, 3, 2, tokens, tokens), 1 / tokens)
    table = attention_table(maps, roll_out(maps), patching, [0, 1])
    assert table["ratio"].to_numpy() == pytest.approx(1)
    assert table["stability"].abs().max() < 1e-6  # alike only in what says nothing


def test_unrelated_attention_is_not_called_stable(encoders):
    patching = encoders[0].patching_
    tokens = 1 + patching.n_patches
    maps = np.random.default_rng(0).dirichlet(np.ones(tokens), (4, 2, 2, tokens))
    table = attention_table(maps, roll_out(maps), patching, [0, 1, 2, 3])
    assert table["stability"].abs().max() < 0.3
