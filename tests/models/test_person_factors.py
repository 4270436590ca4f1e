"""Factors of a person: nothing masked is read, the equations are those written, planted factors are found."""

import numpy as np
import pytest
import torch
from tests.core.test_tokenizers import PATCHINGS, every_patching, matrices

from nerve.core.patching import Patching
from nerve.core.randomness import Draws
from nerve.models.person_factors import STEPS, PersonFactors


def started(patching: Patching, rank: int = 4) -> tuple[PersonFactors, torch.Tensor]:
    """A module that knows its group, and twelve people."""
    torch.manual_seed(0)
    module = PersonFactors(patching, rank, n_components=16).double()
    packed = torch.from_numpy(patching.pack(matrices(patching, 12)))
    module.fit_mean(packed.mean(0))
    return module, packed


def predicted(module: PersonFactors, packed: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """All patches, from the visible ones."""
    return module.patches(module.person(packed, visible))


def halves(patching: Patching, people: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Visible and masked patches of each."""
    order = torch.rand(
        people, patching.n_patches, generator=torch.Generator().manual_seed(0)
    ).argsort(1)
    half = patching.n_patches // 2
    return order[:, :half], order[:, half:]


@every_patching
def test_a_masked_patch_does_not_reach_its_prediction(patching):
    module, packed = started(patching)
    _, masked = halves(patching)
    hidden = torch.zeros(12, patching.n_patches, dtype=torch.bool).scatter(1, masked, True)
    entries = hidden[:, torch.from_numpy(patching.patch_of)]  # (people, S)
    changed = torch.where(entries, torch.randn_like(packed) * 1e3, packed)
    assert torch.equal(module.reconstruct(packed, masked), module.reconstruct(changed, masked))
    assert not torch.allclose(
        module.reconstruct(packed, masked), module.reconstruct(packed * 0.9, masked)
    )


def test_a_leak_would_be_found_by_the_gradient():
    patching = PATCHINGS["7 uneven"]
    module, packed = started(patching)
    packed = packed[:1].clone().requires_grad_()
    visible, masked = halves(patching, 1)
    predicted(module, packed, visible).sum().backward()
    hidden = np.isin(patching.patch_of, masked[0].numpy())
    diagonal = patching.rows == patching.cols
    assert torch.all(packed.grad[0, hidden | diagonal] == 0)
    upper = patching.rows < patching.cols
    assert torch.any(packed.grad[0, ~hidden & upper] != 0)


def test_completion_begins_at_the_group_mean():
    patching = PATCHINGS["grid"]
    module, packed = started(patching)
    mean = packed.mean(0, keepdim=True)
    torch.testing.assert_close(module.reconstruct(mean), mean)
    torch.testing.assert_close(
        module.features(mean), torch.zeros(1, patching.n_regions * 4).double()
    )


def test_the_loss_is_the_mean_error_of_the_masked_patches():
    patching = PATCHINGS["7 uneven"]
    module, packed = started(patching)
    order = Draws(0, 0, 12).uniform(patching.n_patches).argsort(1)
    visible, masked = order[:, : module.n_visible], order[:, module.n_visible :]
    squared = (predicted(module, packed, visible) - packed).square()
    expected = [
        squared[person, patching.offsets[p] : patching.offsets[p + 1]].mean().item()
        for person in range(12)
        for p in masked[person].tolist()
    ]
    assert module.training_loss(packed, Draws(0, 0, 12)).item() == pytest.approx(
        np.mean(expected), rel=1e-6
    )


def literal(module: PersonFactors, fc: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The equations at the top of the module, one person, in numpy."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    D, C = module.factors.detach().numpy(), module.remainder.detach().numpy()
    a, b = (
        sigmoid(10 * module.step.detach().numpy()),
        sigmoid(10 * module.momentum.detach().numpy()),
    )
    seen = np.maximum(seen, np.eye(len(fc)))
    s = 1 / (np.sqrt(seen.mean()) * np.linalg.norm(seen * fc))
    F, V = D.copy(), np.zeros_like(D)
    for t in range(STEPS):
        N = F + b[t] * V
        G = (seen * (N @ N.T + C - fc)) @ N
        V = b[t] * V - s * a[t] * G
        F = F + V
    return F @ F.T + C


@every_patching
def test_prediction_equals_the_written_out_equations(patching):
    module, packed = started(patching)
    fc = matrices(patching, 12)
    visible, _ = halves(patching)
    found = patching.unpack(predicted(module, packed, visible).detach().numpy())
    for person in range(3):
        shown = np.isin(patching.patch_of, visible[person].numpy()).astype(float)
        expected = literal(module, fc[person], patching.unpack(shown))
        np.testing.assert_allclose(found[person], expected, atol=1e-8)


def test_participants_of_low_rank_are_completed_from_half_of_their_patches():
    patching = Patching.grid(40, 5)
    rng = np.random.default_rng(0)
    common = rng.normal(size=(40, 3))
    loadings = common + 0.5 * rng.normal(size=(60, 40, 3))
    loadings /= np.linalg.norm(loadings, axis=2, keepdims=True)
    packed = torch.from_numpy(
        patching.pack(loadings @ loadings.transpose(0, 2, 1))
    )  # correlations of rank 3
    module = PersonFactors(patching, 8).double()
    module.fit_mean(packed[:40].mean(0))
    new = packed[40:]
    visible, masked = halves(patching, 20)
    hidden = torch.zeros(20, patching.n_patches).scatter(1, masked, 1.0)[
        :, torch.from_numpy(patching.patch_of)
    ]
    error = ((predicted(module, new, visible) - new).square() * hidden).sum()
    of_mean = ((packed[:40].mean(0) - new).square() * hidden).sum()
    assert error < 0.2 * of_mean


@pytest.mark.parametrize("factor", [0.0, 1e-3, 1.0, 30.0])
def test_no_matrix_makes_the_steps_diverge(factor):
    patching = PATCHINGS["17 uneven"]
    module, packed = started(patching)
    torch.nn.init.constant_(module.step, 5.0)  # the largest step sizes that can be learned
    for odd in (
        packed * factor,
        torch.full_like(packed, factor),
        torch.randn_like(packed) * factor,
    ):
        assert torch.isfinite(module.reconstruct(odd)).all()
        visible = halves(patching)[0]
        assert torch.isfinite(predicted(module, odd, visible)).all()
