"""BrainGSLs: masked adjacency reconstruction and the visible block against literal versions."""

import numpy as np
import pandas as pd
import pytest
import torch
from tests.methods.modules import untrained

from nerve._utils.errors import MissingInput, NerveError
from nerve.core.randomness import Draws
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.braingsls import BrainGSLs, BrainGSLsModel, SignalEncoder

R, N = 12, 8


def cohort(with_series: bool) -> Cohort:
    rng = np.random.default_rng(0)
    many = [rng.normal(size=(40 + i, R)) @ rng.normal(size=(R, R)) for i in range(N)]
    participants = pd.DataFrame({"participant_id": [f"sub-{i}" for i in range(N)]})
    regions = Parcellation(tuple(f"r{i}" for i in range(R)), ("a",) * R, name="test")
    return Cohort(
        np.stack([np.corrcoef(one.T) for one in many]),
        participants,
        regions,
        many if with_series else None,
    )


@pytest.fixture
def fc() -> torch.Tensor:
    return torch.from_numpy(cohort(False).inputs("fc"))


@pytest.fixture
def module(fc) -> BrainGSLsModel:
    torch.manual_seed(0)
    made = untrained(BrainGSLs(edge_filters=3, width=5), R)
    made.set_group_graph(fc.mean(0))
    return made


def literal_codes(
    module: BrainGSLsModel, fc: torch.Tensor, visible: list[int]
) -> dict[int, torch.Tensor]:
    """Cut the visible block out and convolve it with the filters' weights of its regions, edge by edge."""
    edges = fc[visible][:, visible].unsqueeze(0)  # (channels, v, v)
    scale = R / len(visible)
    for layer in (module.first, module.second):
        row, column = layer.row[:, visible] * scale, layer.column[:, visible] * scale
        out = torch.empty(layer.bias.shape[0], len(visible), len(visible))
        for i in range(len(visible)):
            for j in range(len(visible)):
                out[:, i, j] = (
                    torch.einsum("ck,cko->o", edges[:, i], row)
                    + torch.einsum("ck,cko->o", edges[:, :, j], column)
                    + layer.bias
                )
        edges = torch.nn.functional.leaky_relu(out, 0.33)
    row, column = module.nodes.row[:, visible] * scale, module.nodes.column[:, visible] * scale
    codes = {}
    for i, region in enumerate(visible):
        total = torch.einsum("ck,cko->o", edges[:, i], row) + torch.einsum(
            "ck,cko->o", edges[:, :, i], column
        )
        codes[region] = torch.nn.functional.leaky_relu(total + module.nodes.bias, 0.33)
    return codes


@pytest.mark.slow
def test_codes_are_the_convolution_of_the_visible_block_alone(module, fc):
    visible = module.choose_visible(R, Draws(0, 0, N))
    codes = module.codes(fc, None, visible)
    for participant in range(N):
        regions = visible[participant].nonzero()[:, 0].tolist()
        for region, expected in literal_codes(module, fc[participant], regions).items():
            torch.testing.assert_close(codes[participant, region], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_loss_is_the_masked_adjacency_reconstruction_of_the_paper(module, fc):
    draws = Draws(0, 3, N)
    visible, noise = module.choose_visible(R, draws), draws.normal(R, 5)
    loop = (module.group_graph + torch.eye(R)).numpy()
    degree = loop.sum(0)
    errors = []
    for participant in range(N):
        codes = literal_codes(
            module, fc[participant], visible[participant].nonzero()[:, 0].tolist()
        )
        h = torch.stack([codes.get(i, noise[participant, i]) for i in range(R)])
        z = torch.zeros(R, 5)
        for i in range(R):
            for j in range(R):
                z[i] += (
                    loop[i, j]
                    / (degree[i] * degree[j]) ** 0.5
                    * (module.decoder.linear.weight @ h[j])
                )
        z = z + module.decoder.bias
        for i in range(R):
            for j in range(R):
                if not (visible[participant, i] and visible[participant, j]):
                    errors.append((z[i] @ z[j] - fc[participant, i, j]) ** 2)
    torch.testing.assert_close(
        module.training_loss(fc, Draws(0, 3, N)), torch.stack(errors).mean(), rtol=1e-3, atol=1e-4
    )


def test_masked_connections_are_never_seen_by_encoder_or_decoder(module, fc):
    """Only the target may know them: another content changes the loss through FC alone, never through the codes."""
    draws = Draws(0, 3, N)
    visible = module.choose_visible(R, draws)
    hidden = ~(visible.unsqueeze(-1) & visible.unsqueeze(-2))
    changed = torch.where(hidden, torch.full_like(fc, 0.9), fc)
    before, after = module.codes(fc, None, visible), module.codes(changed, None, visible)
    assert torch.equal(before[visible], after[visible])


def test_the_graph_joins_regions_by_the_groups_mean_and_has_no_loops(module, fc):
    expected = (fc.mean(0) >= 0.15).float()
    expected.fill_diagonal_(0)
    assert torch.equal(module.group_graph, expected)


def test_the_graph_is_of_training_participants_only():
    data = cohort(False)
    fitted = BrainGSLs(epochs=1, width=4, device="cpu").fit(data)
    training, validation = fitted.validation_split(data, fitted.training_settings())
    assert len(validation)
    mean = data.inputs("fc", training).mean(0)
    np.fill_diagonal(mean, 0)
    assert np.array_equal(fitted.module_.group_graph.numpy() == 1, mean >= 0.15)


def test_a_quarter_of_the_regions_is_masked_and_masks_differ_between_participants(module):
    visible = module.choose_visible(R, Draws(0, 0, N))
    assert visible.sum(-1).tolist() == [9] * N
    assert len({tuple(row.tolist()) for row in visible}) > 1


def test_readouts_are_the_codes_and_their_mean(fc):
    data = fc.numpy()
    flat = BrainGSLs(width=4, epochs=1, device="cpu").fit(data).transform(data)
    mean = BrainGSLs(width=4, epochs=1, readout="mean", device="cpu").fit(data).transform(data)
    np.testing.assert_allclose(flat.reshape(N, R, 4).mean(1), mean, rtol=1e-4, atol=1e-5)
    with pytest.raises(NerveError, match="flat"):
        BrainGSLs(readout="sum").fit(data)


def test_signals_need_time_series_and_are_trained():
    with pytest.raises(MissingInput, match="signals=False"):
        BrainGSLs(signals=True, epochs=1).fit(cohort(False))
    data = cohort(True)
    fitted = BrainGSLs(signals=True, width=4, epochs=2, batch_size=4, device="cpu").fit(data)
    assert fitted.transform(data).shape == (N, 4 * R)
    untrained = fitted.seeded_build(fitted.parcellation_).signals.layers[0].weight
    assert not torch.equal(untrained, fitted.module_.signals.layers[0].weight)
    with pytest.raises(MissingInput, match="time series"):
        fitted.transform(cohort(False))


def test_signal_codes_ignore_the_units_of_the_signal():
    encoder = SignalEncoder(5, 0.33)
    series = [torch.randn(30, R, generator=torch.Generator().manual_seed(0))]
    torch.testing.assert_close(
        encoder(series), encoder([series[0] * 70 + 900]), rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_with_signals_gradients_reach_every_weight_and_loss_falls():
    fitted = BrainGSLs(signals=True, width=6, epochs=12, batch_size=4, lr=0.02, device="cpu").fit(
        cohort(True)
    )
    assert (
        fitted.history_["training_loss"].iloc[-1] < 0.9 * fitted.history_["training_loss"].iloc[0]
    )
    source = fitted.dataset(cohort(True))
    fitted.module_.train().training_loss(source.batch(np.arange(N)), Draws(0, 0, N)).backward()
    for name, parameter in fitted.module_.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
