"""BrainNetCNN: sizes of the published network, and the bugs that copies of it have."""

import numpy as np
import torch
from tests.methods.modules import untrained

from nerve.methods.brainnetcnn import BrainNetCNN


def test_parameters_at_419_regions_are_those_of_the_tuned_network():
    regions, edge, node, graph = 419, 16, 128, 26
    expected = (2 * regions * edge + edge) + (2 * regions * edge * node + node)
    expected += (regions * node * graph + graph) + (graph + 1)
    with torch.device("meta"):
        model = untrained(BrainNetCNN(), regions)
    assert sum(p.numel() for p in model.parameters()) == expected


def test_dropout_is_off_when_predicting():
    torch.manual_seed(0)  # of nine tenths everything may be dropped, twice
    model = untrained(BrainNetCNN(edge_filters=2, node_filters=3, graph_filters=4, dropout=0.5), 6)
    fc = torch.randn(5, 6, 6)
    model.eval()
    assert torch.equal(model(fc), model(fc))
    model.train()
    assert not torch.equal(model(fc), model(fc))


def test_hidden_layers_of_the_first_paper_can_be_had():
    model = untrained(BrainNetCNN(hidden=(128, 30)), 6)
    assert [layer.out_features for layer in model.hidden] == [128, 30]
    assert model(torch.randn(3, 6, 6)).shape == (3,)


def test_one_prediction_does_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    fc = rng.uniform(-1, 1, (20, 7, 7)).astype(np.float32)
    method = BrainNetCNN.from_preset("small", epochs=2, device="cpu").fit(fc, rng.normal(size=20))
    np.testing.assert_allclose(method.predict(fc)[3], method.predict(fc[3:4])[0], rtol=1e-5)
