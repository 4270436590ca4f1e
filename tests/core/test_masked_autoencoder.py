"""The masked autoencoder: nothing leaks, masks are exact and uniform, tokens keep their place."""

import numpy as np
import pytest
import torch
from tests.core.test_tokenizers import (
    PATCHINGS,
    every_patching,
    every_tokenizer,
    matrices,
    model_for,
)
from tests.reference import nerve_literal

import nerve
from nerve._utils.errors import NerveError
from nerve.core import MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.randomness import Draws


def packed_for(patching: Patching, people: int = 3) -> torch.Tensor:
    return torch.from_numpy(patching.pack(matrices(patching, people)))


@every_tokenizer
@every_patching
def test_a_masked_patch_reaches_neither_the_visible_tokens_nor_the_prediction(patching, name):
    """The released code's defect: about 48 % of the patches that bore loss were visible to its encoder."""
    model, packed = model_for(patching, name, standardise=True), packed_for(patching)
    visible, masked = model.choose_masks(torch.rand(3, patching.n_patches))
    hidden = torch.zeros(3, patching.n_patches, dtype=torch.bool).scatter(1, masked, True)
    entries = hidden[
        :, torch.from_numpy(patching.patch_of)
    ]  # (people, S): the entries that are masked
    changed = torch.where(entries, torch.randn_like(packed) * 1e3, packed)
    torch.nn.init.normal_(model.decoder_norm.weight)
    model.fit_standardisation([packed])
    assert torch.equal(model.encode(packed, visible), model.encode(changed, visible))
    assert torch.equal(model.reconstruct(packed, masked), model.reconstruct(changed, masked))


@every_tokenizer
@every_patching
def test_a_visible_patch_does_reach_the_prediction(patching, name):
    model, packed = model_for(patching, name), packed_for(patching)
    _, masked = model.choose_masks(torch.rand(3, patching.n_patches))
    assert not torch.allclose(
        model.reconstruct(packed, masked), model.reconstruct(packed * 1.5, masked)
    )


def test_a_leak_would_be_found_by_the_gradient():
    """d prediction of a masked patch / d its own entries is exactly zero."""
    patching = PATCHINGS["7 uneven"]
    model, packed = model_for(patching), packed_for(patching, 1).requires_grad_()
    _, masked = model.choose_masks(torch.rand(1, patching.n_patches))
    model.reconstruct(packed, masked).sum().backward()
    hidden = np.isin(patching.patch_of, masked[0].numpy())
    assert torch.all(packed.grad[0, hidden] == 0)
    assert torch.all(packed.grad[0, ~hidden] != 0)


def test_count_is_exact_and_every_patch_is_masked_equally_often():
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer400-17"))
    with torch.device("meta"):
        model = MaskedAutoencoder(patching)
    visible, masked = model.choose_masks(Draws(0, 0, 4000).uniform(153))
    assert visible.shape == (4000, 76)
    assert masked.shape == (4000, 77)
    assert torch.equal(
        torch.cat([visible, masked], 1).sort(1).values, torch.arange(153).expand(4000, -1)
    )
    share = torch.bincount(masked.flatten(), minlength=153) / 4000
    assert (share - 77 / 153).abs().max() < 4 * (0.25 / 4000) ** 0.5
    assert (
        len({tuple(row) for row in masked[:100].tolist()}) == 100
    )  # each person has a mask of their own


def test_attention_maps_are_those_the_encoder_uses():
    patching = PATCHINGS["grid"]
    model, packed = model_for(patching, depth=2), packed_for(patching)
    maps = model.attention(packed)
    assert maps.shape == (3, 2, 2, 1 + patching.n_patches, 1 + patching.n_patches)
    torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1], dtype=maps.dtype))
    block = model.encoder[0]
    x = model.token_sequence(packed, None)
    value = block.attention._heads_of(block.norm1(x))[2]
    mixed = (maps[:, 0] @ value).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block.attention.out(mixed), block.attention(block.norm1(x)))


def test_token_p_is_pair_p():
    """Without layers a token depends on its own patch alone: changing patch p changes token p only."""
    patching = PATCHINGS["permuted"]
    model, packed = model_for(patching, depth=0), packed_for(patching, 1)
    before = model.embed(packed, "tokens")
    for p in range(patching.n_patches):
        changed = packed.clone()
        changed[:, patching.offsets[p] : patching.offsets[p + 1]] += 1
        moved = (model.embed(changed, "tokens") != before).any(-1)[0]
        assert moved.nonzero().flatten().tolist() == [p]


def test_standardising_moves_and_scales_input_and_target_alike():
    patching = PATCHINGS["grid"]
    model, packed = model_for(patching, standardise=True), packed_for(patching)
    plain = model_for(patching)
    torch.nn.init.ones_(model.decoder_norm.weight)
    plain.load_state_dict(
        {k: v for k, v in model.state_dict().items() if k not in ("mean", "scale")}
    )
    shift = torch.randn(patching.n_entries, dtype=torch.float64)
    model.mean.copy_(shift)
    model.scale.fill_(3.0)
    draws = [Draws(0, 0, 3), Draws(0, 0, 3)]
    moved = 3 * packed + shift
    torch.testing.assert_close(
        model.training_loss(moved, draws[0]), plain.training_loss(packed, draws[1])
    )
    torch.testing.assert_close(model.reconstruct(moved), 3 * plain.reconstruct(packed) + shift)


def test_standardised_entries_have_mean_zero_and_unit_size_and_reconstructions_begin_at_the_mean():
    patching = PATCHINGS["7 uneven"]
    model, packed = model_for(patching, standardise=True), packed_for(patching, 20) * 3 + 5
    model.fit_standardisation([packed[:13], packed[13:]])
    entries = model._standardised(packed)
    torch.testing.assert_close(
        entries.mean(0), torch.zeros(patching.n_entries).double(), atol=1e-5, rtol=0
    )
    assert entries.square().mean().item() == pytest.approx(1, rel=1e-5)
    masked = model.choose_masks(torch.rand(20, patching.n_patches))[1]
    torch.testing.assert_close(
        model.reconstruct(packed, masked), packed.mean(0).expand(20, -1), atol=1e-5, rtol=0
    )
    assert model.masked_loss(
        packed, *model.choose_masks(torch.rand(20, patching.n_patches))
    ).item() == pytest.approx(1, abs=0.2)


def test_poolings_and_their_shapes():
    patching = PATCHINGS["17 uneven"]
    model, packed = model_for(patching), packed_for(patching)
    tokens = model.embed(packed, "tokens")
    assert tokens.shape == (3, patching.n_patches, 8)
    torch.testing.assert_close(model.embed(packed), tokens.mean(1))
    assert model.embed(packed, "cls").shape == (3, 8)
    with pytest.raises(NerveError, match="Did you mean 'mean'"):
        model.embed(packed, "meen")
    with pytest.raises(NerveError, match="without components"):
        model.embed(packed, "pca")


def test_regions_in_another_order_give_the_same_loss():
    """Relabelling regions consistently in data, groups and factors changes nothing."""
    patching = PATCHINGS["7 uneven"]
    model, fc = model_for(patching), matrices(patching)
    order = np.random.default_rng(3).permutation(patching.n_regions)
    other = model_for(Patching(patching.group_of[order]))
    weights = model.state_dict()
    for name in ("tokenizer.embed_factors", "tokenizer.reconstruct_factors"):
        weights[name] = weights[name][torch.from_numpy(order)]
    other.load_state_dict(weights)
    noise = torch.rand(3, patching.n_patches)
    first = model.masked_loss(torch.from_numpy(patching.pack(fc)), *model.choose_masks(noise))
    shuffled = torch.from_numpy(other.patching.pack(fc[:, order][:, :, order]))
    torch.testing.assert_close(other.masked_loss(shuffled, *other.choose_masks(noise)), first)


def test_gather_and_pad_of_the_benchmark_is_the_same_model():
    patching = PATCHINGS["7 uneven"]
    model, fc = model_for(patching), matrices(patching)
    noise = torch.rand(3, patching.n_patches)
    literal = nerve_literal.GatherAndPad(model)
    literal.real = literal.real.double()
    slow = literal.training_loss(torch.from_numpy(fc), noise.double())
    fast = model.masked_loss(torch.from_numpy(patching.pack(fc)), *model.choose_masks(noise))
    assert fast.item() == pytest.approx(slow.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mask_ratio": 1.0}, "mask_ratio is 1.0"),
        ({"heads": 3}, "cannot be shared by 3 attention heads"),
        ({"tokenizer": "bilinaer"}, "Did you mean 'bilinear'"),
        ({"loss": "mse"}, "expected one of 'patch_mean', 'sum'"),
        ({"init": "sings"}, "Did you mean 'signs'"),
    ],
)
def test_impossible_models_are_refused(options, sentence):
    with pytest.raises(NerveError, match=sentence):
        MaskedAutoencoder(PATCHINGS["grid"], **{"dim": 8, **options})
