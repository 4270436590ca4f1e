"""Brain Network Transformer: published size, mixup while training only, any number of regions."""

import pytest
import torch
from tests.methods.modules import untrained

from nerve.core.randomness import Draws
from nerve.methods.brainnettf import BrainNetTF


@pytest.mark.slow
def test_parameters_at_400_regions():
    with torch.device("meta"):
        model = untrained(BrainNetTF(), 400)
    trained = sum(p.numel() for p in model.parameters())
    pooling = sum(p.numel() for p in model.readout.parameters())
    assert trained == 13_545_257
    assert trained + model.readout.centres.numel() == pytest.approx(13.6e6, rel=2e-3)
    assert pooling > 0.75 * trained  # mostly the R² pooling network


@pytest.mark.parametrize("n_regions", [5, 7, 12])
def test_any_number_of_regions_goes_with_four_heads(n_regions):
    model = untrained(BrainNetTF(feedforward=8), n_regions)
    assert model(torch.randn(2, n_regions, n_regions)).shape == (2,)
    assert model.readout.centres.shape[0] == n_regions  # of 100 asked for


def test_padding_adds_nothing_where_none_is_needed():
    assert untrained(BrainNetTF(feedforward=8), 8).layers[0].self_attn.embed_dim == 8
    assert untrained(BrainNetTF(feedforward=8), 7).layers[0].self_attn.embed_dim == 8


def test_mixup_trains_on_mixed_pairs_and_validates_on_single_participants():
    model = untrained(BrainNetTF(n_clusters=4, feedforward=8, dropout=0.0), 8)
    fc, target = torch.randn(6, 8, 8), torch.randn(6)
    model.eval()
    plain = model.error(model(fc), target)
    torch.testing.assert_close(model.training_loss((fc, target), Draws(0, 1, 6)), plain)
    model.train()
    draws = Draws(0, 1, 6)
    share, partner = draws.shared_uniform(1), draws.uniform().argsort()
    mixed = share * fc + (1 - share) * fc[partner]
    expected = model.error(model(mixed), share * target + (1 - share) * target[partner])
    torch.testing.assert_close(model.training_loss((fc, target), Draws(0, 1, 6)), expected)
