"""Tokenizers agree with the paper's equations written out, forward and backward, whatever the patches."""

import numpy as np
import pytest
import torch
from tests.reference import nerve_literal

import nerve
from nerve.core import TOKENIZERS, MaskedAutoencoder
from nerve.core.patching import Patching
from nerve.core.randomness import Draws
from nerve.core.tokenizers import PatchChoice

PATCHINGS = {
    "7 uneven": Patching([0, 1, 2, 3, 4, 5, 6, 0, 0, 3, 5, 5, 5, 6, 1]),
    "17 uneven": Patching(np.r_[np.arange(17), [0, 0, 0, 4, 4, 9, 16]]),
    "grid": Patching.grid(14, 4),
    "permuted": Patching([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3]).permuted(1),
    "one region a group": Patching([2, 0, 1]),
}
every_patching = pytest.mark.parametrize("patching", PATCHINGS.values(), ids=PATCHINGS)
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


def matrices(patching: Patching, people: int = 3, seed: int = 0) -> np.ndarray:
    series = np.random.default_rng(seed).normal(size=(people, patching.n_regions, 30))
    return np.stack([np.corrcoef(one) for one in series])


def model_for(patching: Patching, name: str = "bilinear", **options) -> MaskedAutoencoder:
    torch.manual_seed(0)
    defaults = {"dim": 8, "depth": 1, "heads": 2, "decoder_dim": 4, "decoder_heads": 2}
    return MaskedAutoencoder(patching, name, **{**defaults, **options}).double()


@pytest.mark.slow
@every_tokenizer
@every_patching
def test_tokens_equal_the_written_out_khatri_rao_product(patching, name):
    model, fc = model_for(patching, name), matrices(patching)
    fast = model.tokenizer.embed(torch.from_numpy(patching.pack(fc)))
    groups = patching.group_of.tolist()
    slow = torch.stack([nerve_literal.tokens(model, torch.from_numpy(one), groups) for one in fc])
    torch.testing.assert_close(fast, slow, atol=1e-10, rtol=0)


@every_tokenizer
@pytest.mark.parametrize(
    ("patches", "kind"),
    [
        ("7 uneven", "sum"),
        ("grid", "patch_mean"),
        ("permuted", "patch_mean"),
        ("one region a group", "patch_mean"),
    ],
)
def test_loss_and_gradient_equal_the_written_out_equation(patches, name, kind):
    patching = PATCHINGS[patches]
    model, fc = model_for(patching, name, loss=kind), matrices(patching, people=2)
    noise = torch.rand(2, patching.n_patches, generator=torch.Generator().manual_seed(1))
    visible, masked = model.choose_masks(noise)
    fast = model.masked_loss(torch.from_numpy(patching.pack(fc)), visible, masked)
    fast.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    groups = patching.group_of.tolist()
    slow = sum(
        nerve_literal.loss(model, torch.from_numpy(one), groups, v.tolist(), m.tolist(), kind)
        for one, v, m in zip(fc, visible, masked, strict=True)
    ) / len(fc)
    slow.backward()
    assert fast.item() == pytest.approx(slow.item(), abs=1e-9)
    for parameter_name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(
                gradients[parameter_name], parameter.grad, atol=1e-8, rtol=1e-6
            )


def test_float32_agrees_with_the_literal_float64_to_1e5_at_400_regions():
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer400-17"))
    model = MaskedAutoencoder(patching, dim=16, depth=1, heads=2, decoder_dim=8)
    fc = matrices(patching, people=1)
    fast = model.tokenizer.embed(torch.from_numpy(patching.pack(fc)).float())[0]
    u = model.tokenizer.embed_factors.double()
    x = torch.from_numpy(fc[0])
    for p, (rows, cols) in enumerate(nerve_literal.pairs_of(patching.group_of.tolist())):
        slow = torch.einsum("ij,ik,jk->k", x[rows][:, cols], u[rows], u[cols])
        torch.testing.assert_close(fast[p].double(), slow, atol=1e-5, rtol=1e-5)


@every_tokenizer
@every_patching
def test_reconstruct_is_consistent_with_the_error_of_chosen_patches(patching, name):
    model, fc = model_for(patching, name, tokenizer_bias=True), matrices(patching)
    for parameter in model.tokenizer.parameters():
        torch.nn.init.normal_(parameter)
    packed = torch.from_numpy(patching.pack(fc))
    tokens = torch.randn(3, patching.n_patches, 4, dtype=torch.float64)
    chosen = torch.stack(
        [torch.randperm(patching.n_patches)[: max(1, patching.n_patches // 2)] for _ in fc]
    )
    errors = model.tokenizer.squared_errors(
        tokens.gather(1, chosen[..., None].expand(-1, -1, 4)),
        packed,
        PatchChoice(chosen, patching.n_patches),
    )
    whole = (model.tokenizer.reconstruct(tokens) - packed) ** 2
    for p, error in enumerate(errors):
        people = (chosen == p).any(1)
        expected = whole[people][:, patching.offsets[p] : patching.offsets[p + 1]].sum()
        assert error.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-9)


@every_tokenizer
@every_patching
def test_embedding_some_patches_equals_choosing_among_all(patching, name):
    model, packed = model_for(patching, name, tokenizer_bias=True), None
    for parameter in model.tokenizer.parameters():
        torch.nn.init.normal_(parameter)
    packed = torch.from_numpy(patching.pack(matrices(patching)))
    chosen = torch.stack(
        [torch.randperm(patching.n_patches)[: max(1, patching.n_patches // 2)] for _ in packed]
    )
    some = model.tokenizer.embed(packed, PatchChoice(chosen, patching.n_patches))
    every = model.tokenizer.embed(packed)
    torch.testing.assert_close(
        some, every.gather(1, chosen[..., None].expand(-1, -1, every.shape[-1]))
    )


@every_tokenizer
def test_scaled_init_gives_tokens_and_patches_of_unit_order(name):
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer100-17"))
    torch.manual_seed(0)
    model = MaskedAutoencoder(patching, name, depth=1)
    packed = 0.25 * torch.randn(4, patching.n_entries)
    tokens = model.tokenizer.embed(packed)
    assert 0.5 < tokens.std() < 2
    rebuilt = model.tokenizer.reconstruct(torch.randn(4, patching.n_patches, 64))
    assert 0.1 < rebuilt.std() < 1
    assert model.training_loss(packed, Draws(0, 0, 4)) < 1


@every_tokenizer
def test_random_signs_give_tokens_of_unit_size_that_keep_distances(name):
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer100-17"))
    torch.manual_seed(0)
    model = MaskedAutoencoder(patching, name, init="signs", depth=1)
    packed = 0.25 * torch.randn(8, patching.n_entries)
    tokens = model.tokenizer.embed(packed)
    assert 0.5 < tokens.std() < 2
    sketch, truth = torch.cdist(tokens.flatten(1), tokens.flatten(1)), torch.cdist(packed, packed)
    apart = truth > 0
    assert (sketch[apart] / truth[apart]).std() < 0.1 * (sketch[apart] / truth[apart]).mean()


# what building the released code gives (../shared/docs/methods.md): spreads of the first linear maps, and first losses
RELEASED = {
    "bilinear": (1.0, 1.0, 64.0),
    "shared": (0.0335, 0.0355, 0.11),
    "specific": (0.046, 0.057, 0.29),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASED)
def test_released_init_has_the_spreads_and_the_first_loss_of_the_released_code(name):
    patching = Patching.from_parcellation(nerve.load_parcellation("schaefer400-17"))
    torch.manual_seed(0)
    model = MaskedAutoencoder(patching, name, init="released", tokenizer_bias=True)
    there, back, first = RELEASED[name]
    weights = [
        p for p in model.tokenizer.parameters() if p.ndim == 2 and p.shape[0] != patching.n_patches
    ]
    assert weights[0].std().item() == pytest.approx(there, rel=0.1)
    assert weights[1].std().item() == pytest.approx(back, rel=0.1)
    assert model.positions.std().item() == pytest.approx(
        0.0071, rel=0.05
    )  # Xavier of (1, 154, 256)
    packed = 0.18 * torch.randn(8, patching.n_entries)  # FC of real people has this size
    loss = model.training_loss(packed, Draws(0, 0, 8)).item()
    assert loss == pytest.approx(first, rel=0.15)
