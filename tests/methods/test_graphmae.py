"""GraphMAE: the loss and the masking against literal versions; what the masking hides."""

import numpy as np
import pytest
import torch
from tests.methods.modules import untrained

from nerve._utils.errors import NerveError
from nerve.core.randomness import Draws
from nerve.methods.graph_layers import strongest_edges
from nerve.methods.graphmae import GraphMAE, scaled_cosine_error

R = 16


@pytest.fixture
def fc() -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(
        np.stack([np.corrcoef(rng.normal(size=(R, 50))) for _ in range(6)]).astype("f")
    )


def draws(n: int, step: int = 0) -> Draws:
    return Draws(0, step, n)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 3.0])
def test_scaled_cosine_error_is_the_published_formula(alpha):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 7, 5)).astype("f")
    expected = np.mean(
        [
            (1 - (a @ b) / (np.linalg.norm(a) * np.linalg.norm(b))) ** alpha
            for a, b in zip(x, y, strict=True)
        ]
    )
    assert float(
        scaled_cosine_error(torch.from_numpy(x), torch.from_numpy(y), alpha)
    ) == pytest.approx(expected, 1e-5)


def test_scaled_cosine_error_ignores_scale_and_vanishes_for_equal_directions():
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    assert float(scaled_cosine_error(3 * x, x, 2.0)) == pytest.approx(0, abs=1e-10)
    assert float(scaled_cosine_error(-x, x, 1.0)) == pytest.approx(2, rel=1e-5)


def test_training_loss_is_what_the_steps_of_the_paper_give_one_participant_at_a_time(fc):
    module = untrained(GraphMAE(width=8, dropout=0.0), R).eval()
    torch.nn.init.normal_(module.mask_token)
    masked = module.choose_masked(R, draws(len(fc)))
    errors = []
    for participant in range(len(fc)):
        graph = strongest_edges(fc[participant : participant + 1], 0.1)
        x = fc[participant].clone()
        for node in range(R):
            if masked[participant, node]:
                x[:, node] = 0
        for node in range(R):
            if masked[participant, node]:
                x[node] = module.mask_token.detach()
        code = x[None]
        for layer, activation in zip(module.layers, module.activations, strict=True):
            code = activation(layer(code, graph))
        code = module.to_decoder(code)
        for node in range(R):
            if masked[participant, node]:
                code[0, node] = 0
        rebuilt = module.decoder(code, graph)[0]
        for node in range(R):
            if masked[participant, node]:
                errors.append(
                    1 - torch.cosine_similarity(rebuilt[node], fc[participant, node], dim=0)
                )
    torch.testing.assert_close(
        module.training_loss(fc, draws(len(fc))), torch.stack(errors).mean(), rtol=1e-4, atol=1e-5
    )


def test_dropout_is_before_every_layer_of_encoder_and_decoder(fc):
    """The release draws it at the input of each layer of both: two and one here."""
    module = untrained(GraphMAE(width=8, dropout=0.2), R).train()
    inputs: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []

    def remember(_, given, output):
        inputs.append(given[0])
        outputs.append(output)

    module.dropout.register_forward_hook(remember)
    read: list[torch.Tensor] = []
    for layer in (*module.layers, module.decoder):
        layer.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    module.training_loss(fc, draws(len(fc)))
    assert [tuple(one.shape[1:]) for one in inputs] == [(R, R), (R, 8), (R, 8)]
    assert len(read) == 3
    assert all(one is dropped for one, dropped in zip(read, outputs, strict=True))


def test_all_participants_have_the_same_number_of_masked_nodes_and_masks_differ(fc):
    masked = untrained(GraphMAE(width=8), R).choose_masked(R, draws(len(fc)))
    assert masked.sum(-1).tolist() == [R // 2] * len(fc)
    assert len({tuple(row.tolist()) for row in masked}) > 1


def test_a_masked_row_cannot_be_read_in_the_columns_unless_asked_for(fc):
    """Change the entries of a masked node, keep the graph: with columns hidden the encoder's input does not change."""
    module = untrained(GraphMAE(width=8), R)
    masked = module.choose_masked(R, draws(len(fc)))
    changed = fc.clone()
    both = masked.unsqueeze(-1) | masked.unsqueeze(-2)
    changed[both] *= -1
    assert torch.equal(module.hide(fc, masked), module.hide(changed, masked))
    module.masking = "rows"
    assert not torch.equal(module.hide(fc, masked), module.hide(changed, masked))


def test_unknown_masking_is_refused_with_the_choices(fc):
    with pytest.raises(NerveError, match="rows_and_columns"):
        GraphMAE(masking="cols", epochs=1).fit(fc.numpy())
