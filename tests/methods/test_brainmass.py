"""BrainMass: views, the three terms and the target network against literal versions."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from tests.methods.modules import untrained

from nerve._utils.errors import MissingInput
from nerve.core.randomness import Draws
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.brainmass import (
    BrainMass,
    BrainMassModel,
    correlation,
    dropped_volume_views,
    shrunk_correlation,
    wishart_views,
)

R = 12
TINY = {
    "n_layers": 1,
    "n_heads": 3,
    "feedforward": 16,
    "projection": 8,
    "recompute": False,
    "device": "cpu",
}


def series(n=6, volumes=40, seed=0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(volumes + 3 * i, R)) @ rng.normal(size=(R, R)) for i in range(n)]


def cohort(with_series: bool, **columns) -> Cohort:
    many = series()
    fc = np.stack([np.corrcoef(one.T) for one in many])
    participants = pd.DataFrame(
        {"participant_id": [f"sub-{i}" for i in range(len(many))], **columns}
    )
    regions = Parcellation(tuple(f"r{i}" for i in range(R)), ("a",) * R, name="test")
    return Cohort(fc, participants, regions, many if with_series else None)


def tensors(many) -> list[torch.Tensor]:
    return [torch.from_numpy(one.astype("f")) for one in many]


def model(**settings) -> BrainMassModel:
    small = {
        "n_layers": 1,
        "n_heads": 3,
        "feedforward": 16,
        "projection": 8,
        "dropout": 0.0,
        "recompute": False,
    }
    return untrained(BrainMass(**small | settings), R)


def test_correlation_is_pearsons_and_a_constant_region_correlates_with_nothing():
    one = series(1)[0]
    np.testing.assert_allclose(correlation(torch.from_numpy(one)), np.corrcoef(one.T), atol=1e-10)
    one[:, 3] = 5.0
    fc = correlation(torch.from_numpy(one)).numpy()
    assert fc[3, 3] == 1
    assert np.array_equal(np.delete(fc[3], 3), np.zeros(R - 1))


@pytest.mark.parametrize("volumes", [8, 30, 200])
def test_shrunk_correlation_is_nilearns_default(volumes):
    """As in the releases of BrainMass and GATE: ``ConnectivityMeasure(kind="correlation")``."""
    connectome = pytest.importorskip("nilearn.connectome")
    scans = np.stack([one[:volumes] for one in series(3, volumes=volumes)])
    measure = connectome.ConnectivityMeasure(kind="correlation")
    expected = measure.fit_transform(list(scans))
    np.testing.assert_allclose(shrunk_correlation(torch.from_numpy(scans)), expected, atol=1e-10)
    single = shrunk_correlation(torch.from_numpy(scans.astype("f")))
    np.testing.assert_allclose(single, expected, atol=1e-5)
    plain = correlation(torch.from_numpy(scans)).numpy()
    assert np.abs(expected - np.eye(R)).sum() < np.abs(plain - np.eye(R)).sum()


def test_shrunk_correlation_of_a_constant_region_is_nothing_and_of_nothing_the_identity():
    connectome = pytest.importorskip("nilearn.connectome")
    one = series(1)[0]
    one[:, 3] = 5.0
    fc = shrunk_correlation(torch.from_numpy(one)).numpy()
    measure = connectome.ConnectivityMeasure(kind="correlation")
    np.testing.assert_allclose(fc, measure.fit_transform([one])[0], atol=1e-10)
    assert np.array_equal(np.delete(fc[3], 3), np.zeros(R - 1))
    assert torch.equal(shrunk_correlation(torch.ones(20, R)), torch.eye(R))


def test_views_are_shrunk_as_in_the_release():
    one = torch.from_numpy(series(1)[0])
    for seed, view in zip((4, 5), dropped_volume_views(one, 0.2, (4, 5)), strict=True):
        order = torch.randperm(len(one), generator=torch.Generator().manual_seed(seed))
        kept = sorted(order[: len(one) - len(one) // 5].tolist())
        torch.testing.assert_close(view, shrunk_correlation(one[kept]))


def test_features_of_a_scan_are_read_from_its_shrunk_correlation_and_without_series_from_fc():
    fitted = BrainMass(**TINY, epochs=1).fit(cohort(True))
    scans = tensors(series())
    with torch.inference_mode():
        expected = fitted.module_.embed(torch.stack([shrunk_correlation(one) for one in scans]))
        of_fc = fitted.module_.embed(torch.from_numpy(cohort(False).inputs("fc")))
    np.testing.assert_allclose(fitted.transform(cohort(True)), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fitted.transform(cohort(False)), of_fc, rtol=1e-4, atol=1e-5)
    assert not np.allclose(expected, of_fc, atol=1e-3)


def test_everyone_is_trained_on_and_the_rate_rises_epoch_by_epoch():
    """The release holds nobody out; in epoch e of the first ten its rate is (e + 1) / 10 of 3e-4."""
    method = BrainMass.from_preset("paper")
    settings = method.training_settings()
    training, validation = method.validation_split(cohort(True), settings)
    assert (training.tolist(), validation.tolist()) == ([0, 1, 2, 3, 4, 5], [])
    rates = [
        settings.learning_rate(step, steps_per_epoch=4)
        for step in (0, 3, 4, 7, 35, 36, 39, 40, 7999)
    ]
    assert rates == pytest.approx([3e-5, 3e-5, 6e-5, 6e-5, 2.7e-4, 3e-4, 3e-4, 3e-4, 3e-4])


def test_a_view_is_the_correlation_of_a_fifth_fewer_volumes():
    """Give each volume regions of its own that are 1 there only: their variance tells whether the volume was kept."""
    volumes, n_own = 20, 30  # with few regions a volume all correlations would be shrunk to 0
    marked = torch.eye(volumes).repeat_interleave(n_own, dim=1)
    first, second = model().views([marked] * 5, Draws(0, 0, 5))
    # regions of a volume that is kept correlate with each other; those of a dropped one are constant 0
    kept = [
        (view.fill_diagonal_(0).abs().sum(-1) > 0).sum().item() / n_own
        for view in (*first, *second)
    ]
    assert kept == [16] * 10
    assert not torch.equal(first, second)


def test_views_do_not_depend_on_how_processes_share_the_batch():
    many = tensors(series())
    whole = model().views(many, Draws(3, 1, 6))
    part = model().views(many[4:], Draws(3, 1, 6, slice(4, 6)))
    assert all(torch.equal(w[4:], p) for w, p in zip(whole, part, strict=True))


@pytest.mark.slow
def test_wishart_views_scatter_about_fc_as_a_scan_of_that_length_would():
    """Sampling variance of r is (1 - ρ²)² / ν: planted ρ, many draws, two lengths."""
    fc = torch.eye(3)
    fc[0, 1] = fc[1, 0] = 0.6
    for degrees in (50, 200):
        n = 1500
        views = torch.stack(wishart_views(fc, torch.tensor(float(degrees)), range(n)))
        assert views[:, 0, 1].mean() == pytest.approx(0.6, abs=0.02)
        assert views[:, 0, 1].std() == pytest.approx((1 - 0.36) / degrees**0.5, rel=0.1)
        assert views[:, 0, 2].std() == pytest.approx(1 / degrees**0.5, rel=0.1)


@pytest.mark.slow
def test_wishart_views_of_a_singular_fc_are_correlation_matrices():
    one = np.random.default_rng(0).normal(size=(5, R))  # fewer volumes than regions
    fc = torch.from_numpy(np.corrcoef(one.T).astype(np.float16).astype("f"))
    for view in wishart_views(fc, torch.tensor(4.0), (0, 1)):
        assert torch.equal(view.diagonal(), torch.ones(R))
        assert view.isfinite().all()
        torch.testing.assert_close(view, view.T)


def test_agreement_is_byols_symmetric_loss_one_participant_at_a_time():
    module = model().eval()
    first, second = module.views(tensors(series()), Draws(0, 0, 6))
    torch.nn.init.normal_(module.target.head[3].weight)
    total = 0.0
    with torch.no_grad():
        for u, v in zip(first, second, strict=True):
            for seen, other in ((u, v), (v, u)):
                p = module.predictor(module.online(seen[None]))[0]
                t = module.target(other[None])[0]
                total += float(2 - 2 * (p @ t) / (p.norm() * t.norm())) / len(first)
        assert float(module.agreement(first, second)) == pytest.approx(total, rel=1e-4)


def test_contrast_is_the_cross_entropy_of_matching_rows_and_predictions():
    module = model(n_contrasted=4).eval()
    fc = torch.stack([correlation(one) for one in tensors(series())])
    index = Draws(0, 5, 6).uniform(R).argsort(-1)[:, :4]
    losses = []
    for participant in range(6):
        tokens = module.online.tokens(fc[participant : participant + 1]).clone()
        for row in index[participant]:
            tokens[0, row] = module.mask_vector[0, 0].detach()
        tokens = torch.cat([module.extra_tokens, tokens], 1) + module.positions
        out = module.online.contextualise(tokens)[0, 2:]
        predictions = torch.stack([module.contrast_head(out[row]) for row in index[participant]])
        for k, row in enumerate(index[participant]):
            scores = torch.stack([fc[participant, row] @ p for p in predictions])
            losses.append(torch.logsumexp(scores, 0) - scores[k])
    torch.testing.assert_close(
        module.contrast(fc, Draws(0, 5, 6)), torch.stack(losses).mean(), rtol=1e-4, atol=1e-5
    )


def test_rebuilding_never_sees_the_hidden_rows():
    """Another content of the hidden rows changes the target but not the prediction."""
    module = model(n_rebuilt=3).eval()
    fc = torch.stack([correlation(one) for one in tensors(series())])
    rows, tokens = module.hidden_rows(fc, 3, Draws(0, 2, 6))
    changed = fc.clone()
    for participant, index in enumerate(Draws(0, 2, 6).uniform(R).argsort(-1)[:, :3]):
        changed[participant, index] = 7.0
    other_rows, other_tokens = module.hidden_rows(changed, 3, Draws(0, 2, 6))
    assert torch.equal(tokens, other_tokens)
    assert (other_rows == 7).all()
    assert not (rows == 7).any()


def test_target_follows_the_online_network_with_the_momentum():
    module = model(momentum=0.9)
    torch.nn.init.normal_(module.online.reduce[0].weight)
    before = copy.deepcopy(module.target.state_dict())
    module.after_step(1, 10)
    online = dict(module.online.named_parameters())
    for name, own in module.target.named_parameters():
        torch.testing.assert_close(own, 0.9 * before[name] + 0.1 * online[name])


def test_the_target_starts_equal_and_is_never_trained():
    module = model()
    for own, leader in zip(module.target.parameters(), module.online.parameters(), strict=True):
        assert torch.equal(own, leader)
        assert not own.requires_grad


@pytest.mark.slow
def test_gradients_reach_the_mask_vector_and_every_head():
    """The release leaves mask vector, tokens and both masked-row heads out of its optimiser."""
    module = model()
    module.training_loss(tensors(series()), Draws(0, 0, 6)).backward()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name
    fitted = BrainMass(**TINY, epochs=3, batch_size=3, lr=1e-2, warmup_epochs=0).fit(cohort(True))
    start = fitted.seeded_build(fitted.parcellation_).state_dict()
    for name in ("mask_vector", "extra_tokens", "contrast_head.0.weight", "rebuild_head.2.weight"):
        assert not torch.equal(start[name], fitted.module_.state_dict()[name].cpu()), name


@pytest.mark.slow
def test_recomputing_activations_changes_memory_and_not_the_gradient():
    plain, thrifty = model(), model(recompute=True)
    thrifty.load_state_dict(plain.state_dict())
    for module in (plain, thrifty):
        module.training_loss(tensors(series()), Draws(0, 0, 6)).backward()
    for one, other in zip(plain.parameters(), thrifty.parameters(), strict=True):
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


def test_regions_that_the_heads_do_not_divide_are_padded():
    module = untrained(
        BrainMass(n_layers=1, n_heads=3, feedforward=16, projection=8, recompute=False), 7
    )
    assert module.online.width == 9
    assert module.embed(torch.eye(7).expand(2, 7, 7)).shape == (2, 56)


def test_full_size_has_the_published_number_of_parameters():
    with torch.device("meta"):
        module = untrained(BrainMass(), 400)
    assert sum(p.numel() for p in module.online.parameters()) == pytest.approx(64e6, rel=0.01)


@pytest.mark.slow
def test_views_follow_the_cohort_and_adapted_rows_are_marked():
    settings = {**TINY, "epochs": 1, "batch_size": 3}
    assert BrainMass(**settings).fit(cohort(True)).adapted_ == ""
    assert "Wishart" in BrainMass(**settings).fit(cohort(False)).adapted_
    assert "Wishart" in BrainMass(**settings, views="wishart").fit(cohort(True)).adapted_
    with pytest.raises(MissingInput, match="wishart"):
        BrainMass(**settings, views="timeseries").fit(cohort(False))


def test_in_a_pool_the_series_of_those_who_have_them_are_used():
    scanned, bare = cohort(True), cohort(False)
    bare.participants["participant_id"] = [f"other-{i}" for i in range(6)]
    method = BrainMass(**TINY, epochs=1, batch_size=4)
    pooled = method.begin_fit([scanned, bare])
    assert pooled.timeseries is None
    batch = method.training_dataset(pooled, None).batch(np.array([1, 7, 5]))
    np.testing.assert_allclose(batch[0], scanned.timeseries[1], rtol=1e-6)
    np.testing.assert_allclose(batch[1][0], bare.connectivity[1])
    assert float(batch[1][1]) == method.degrees_of_freedom
    views = model().views(batch, Draws(0, 0, 3))
    expected = dropped_volume_views(
        batch[0], 0.2, (Draws(0, 0, 3).uniform(2) * 2**24).long().tolist()[0]
    )
    assert torch.equal(views[0][0], expected[0])
    fitted = BrainMass(**TINY, epochs=1, batch_size=4).fit([scanned, bare])
    assert fitted.adapted_ == "views drawn from a Wishart distribution for 6 of 12 participants"
    assert not hasattr(fitted, "_pool")


def test_a_saved_model_remembers_that_it_was_adapted(tmp_path):
    here = cohort(False)
    other_ids = here.participants.assign(participant_id=[f"other-{i}" for i in range(len(here))])
    there = Cohort(here.connectivity, other_ids, here.parcellation)
    fitted = BrainMass(**TINY, epochs=1, batch_size=3).fit([here, there])
    fitted.save(tmp_path)
    again = BrainMass.load(tmp_path, device="cpu")
    assert again.adapted_ == fitted.adapted_
    assert np.array_equal(again.transform(cohort(True)), fitted.transform(cohort(True)))


def test_degrees_of_freedom_come_from_the_scan_then_the_table_then_the_parameter():
    method = BrainMass(degrees_of_freedom=77)
    assert method.scan_degrees(cohort(True)).tolist() == [39, 42, 45, 48, 51, 54]
    assert method.scan_degrees(cohort(False, n_volumes=[101, 102, 103, 104, None, 106])).tolist() == [
        100, 101, 102, 103, 77, 105,
    ]  # fmt: skip
    assert method.scan_degrees(cohort(False)).tolist() == [77] * 6
