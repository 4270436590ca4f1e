"""Factors of a person: nothing masked is read, the equations are those written, planted factors are found."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from tests.models.test_tokenizers import PATCHINGS, every_patching, every_tokenizer, matrices, model_for

from nerve.checks import NerveError
from nerve.models import parameter_counts
from nerve.models.person_factors import STEPS, PersonFactors
from nerve.models.principal import principal_components
from nerve.models.starts import start_from
from nerve.patching import Patching


def started(patching: Patching, name: str = "bilinear", rank: int = 4, **options):
    """A model with completion whose transformer has something to say, and some people."""
    model = model_for(patching, name, center=True, completion=rank, **options)
    packed = torch.from_numpy(patching.pack(matrices(patching, 12)))
    start_from(model, [packed])
    torch.nn.init.normal_(model.decoder_norm.weight)
    return model, packed


@every_tokenizer
@every_patching
def test_a_masked_patch_does_not_reach_its_prediction(patching, name):
    model, packed = started(patching, name)
    _, masked = model.split(torch.rand(12, patching.n_patches))
    hidden = torch.zeros(12, patching.n_patches, dtype=torch.bool).scatter(1, masked, True)
    entries = hidden[:, torch.from_numpy(patching.patch_of)]  # (people, S)
    changed = torch.where(entries, torch.randn_like(packed) * 1e3, packed)
    assert torch.equal(model.reconstruct(packed, masked), model.reconstruct(changed, masked))
    assert not torch.allclose(model.reconstruct(packed, masked), model.reconstruct(packed * 0.9, masked))


def test_a_leak_would_be_found_by_the_gradient():
    patching = PATCHINGS["7 uneven"]
    model, packed = started(patching)
    packed = packed[:1].clone().requires_grad_()
    visible, masked = model.split(torch.rand(1, patching.n_patches))
    model.completion(packed, visible).sum().backward()
    hidden = np.isin(patching.patch_of, masked[0].numpy())
    diagonal = patching.rows == patching.cols
    assert torch.all(packed.grad[0, hidden | diagonal] == 0)
    upper = patching.rows < patching.cols
    assert torch.any(packed.grad[0, ~hidden & upper] != 0)


def test_training_starts_at_the_completion_alone_and_untouched_people_at_the_mean():
    patching = PATCHINGS["grid"]
    model, packed = started(patching)
    torch.nn.init.zeros_(model.decoder_norm.weight)
    _, masked = model.split(torch.rand(12, patching.n_patches))
    alone = model.completion(packed, model._others(masked))
    torch.testing.assert_close(model.reconstruct(packed, masked), alone)
    mean = packed.mean(0, keepdim=True)
    torch.testing.assert_close(model.completion(mean), mean)
    torch.testing.assert_close(model.completion.features(mean), torch.zeros(1, patching.n_regions * 4).double())


def test_the_displacement_is_the_written_matrix_and_keeps_distances():
    patching = PATCHINGS["7 uneven"]
    model, packed = started(patching, rank=4)
    module = model.completion
    found = patching.unpack(model.reading(packed).numpy())  # (people, R, R)
    D = module.factors.detach().numpy()
    moved = module.features(packed).detach().numpy().reshape(len(packed), *D.shape)
    E = D / np.linalg.norm(D, axis=0)
    np.testing.assert_allclose(found, moved @ E.T + E @ moved.transpose(0, 2, 1), atol=1e-10)


def test_tokens_are_what_sets_a_person_apart():
    """Nothing for the group itself; and with signs, distances between tokens are about those of what is read."""
    patching = PATCHINGS["grid"]
    model, packed = started(patching, init="signs", scale_tokens=True, dim=256, heads=4, depth=0)
    tokens = model.embed(packed, "tokens")
    group = model.embed(packed.mean(0, keepdim=True), "tokens")
    torch.testing.assert_close(group, torch.zeros_like(group), atol=1e-6, rtol=0)
    assert tokens.square().mean().sqrt().item() == pytest.approx(1, rel=1e-6)
    sketch = torch.cdist(tokens.flatten(1), tokens.flatten(1))
    truth = torch.cdist(model.reading(packed), model.reading(packed))
    assert np.corrcoef(sketch.flatten().detach(), truth.flatten())[0, 1] > 0.95


def literal(module: PersonFactors, fc: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """The equations at the top of the module, one person, in numpy."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    D, C = module.factors.detach().numpy(), module.remainder.detach().numpy()
    a, b = sigmoid(10 * module.step.detach().numpy()), sigmoid(10 * module.momentum.detach().numpy())
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
    model, packed = started(patching)
    fc = matrices(patching, 12)
    visible, _ = model.split(torch.rand(12, patching.n_patches))
    found = patching.unpack(model.completion(packed, visible).detach().numpy())
    for person in range(3):
        shown = np.isin(patching.patch_of, visible[person].numpy()).astype(float)
        expected = literal(model.completion, fc[person], patching.unpack(shown))
        np.testing.assert_allclose(found[person], expected, atol=1e-8)


def test_people_of_low_rank_are_completed_from_half_of_their_patches():
    patching = Patching.grid(40, 5)
    rng = np.random.default_rng(0)
    common = rng.normal(size=(40, 3))
    loadings = common + 0.5 * rng.normal(size=(60, 40, 3))
    loadings /= np.linalg.norm(loadings, axis=2, keepdims=True)
    packed = torch.from_numpy(patching.pack(loadings @ loadings.transpose(0, 2, 1)))  # correlations of rank 3
    model = model_for(patching, center=True, completion=8)
    start_from(model, [packed[:40]])
    new = packed[40:]
    visible, masked = model.split(torch.rand(20, patching.n_patches, generator=torch.Generator().manual_seed(0)))
    hidden = torch.zeros(20, patching.n_patches).scatter(1, masked, 1.0)[:, torch.from_numpy(patching.patch_of)]
    error = ((model.completion(new, visible) - new).square() * hidden).sum()
    of_mean = ((packed[:40].mean(0) - new).square() * hidden).sum()
    assert error < 0.2 * of_mean


@pytest.mark.parametrize("factor", [0.0, 1e-3, 1.0, 30.0])
def test_no_matrix_makes_the_steps_diverge(factor):
    patching = PATCHINGS["17 uneven"]
    model, packed = started(patching)
    torch.nn.init.constant_(model.completion.step, 5.0)  # the largest step sizes that can be learned
    for odd in (packed * factor, torch.full_like(packed, factor), torch.randn_like(packed) * factor):
        assert torch.isfinite(model.completion(odd)).all()
        visible = model.split(torch.rand(12, patching.n_patches))[0]
        assert torch.isfinite(model.completion(odd, visible)).all()


def test_summary_keeps_the_distances_of_the_svd_of_the_factors_and_sums_to_zero():
    patching = PATCHINGS["grid"]
    model, packed = started(patching, dim=16)
    model.completion.fit_summary([packed[:5], packed[5:9]])
    found = model.embed(packed, "pca").detach().numpy()
    assert found.shape == (12, 16)
    factors = model.embed(packed, "factors").detach().numpy()
    directions = np.linalg.svd(factors[:9], full_matrices=False)[2]
    scores = factors @ directions.T  # (12, 9)
    np.testing.assert_allclose(found @ found.T, scores @ scores.T, atol=1e-8)
    np.testing.assert_allclose(found.sum(1), 0, atol=1e-8)


def test_components_are_scikit_learns_when_centred():
    values = np.random.default_rng(0).normal(size=(9, 30)) + 5
    mean, components, variances = principal_components(torch.from_numpy(values), 8)
    expected = PCA(8, svd_solver="full").fit(values)
    np.testing.assert_allclose(mean.numpy(), values.mean(0))
    np.testing.assert_allclose(np.abs(components.T.numpy()), np.abs(expected.components_), atol=1e-10)
    np.testing.assert_allclose(variances[:8].numpy() * 9 / 8, expected.explained_variance_, rtol=1e-10)


def test_components_of_people_who_do_not_differ_are_zero():
    mean, components, variances = principal_components(torch.ones(4, 6), 3)
    assert torch.equal(mean, torch.ones(6))
    assert not components.any()
    assert not variances.any()


def test_without_completion_there_is_nothing_new():
    patching = PATCHINGS["grid"]
    model = model_for(patching)
    assert not [name for name in model.state_dict() if "completion" in name]
    for pooling in ("factors", "pca"):
        with pytest.raises(NerveError, match="needs a model with completion"):
            model.embed(torch.zeros(1, patching.n_entries).double(), pooling)
    options = {"dim": 8, "heads": 2}
    more = parameter_counts(patching, **options, completion=4)
    rank = min(4, patching.n_regions)
    expected = patching.n_regions * (rank + patching.n_regions) + STEPS * (rank + 1)
    assert more["completion"] == expected
    assert more["total"] == parameter_counts(patching, **options)["total"] + expected
