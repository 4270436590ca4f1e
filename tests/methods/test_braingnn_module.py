"""BrainGNN's layers against literal versions: one weight matrix a region, one graph at a time."""

import numpy as np
import pytest
import torch

from nerve.methods.braingnn import (
    RegionConv,
    TopKPool,
    consistency_loss,
    pooling_loss,
    two_step_edges,
)

BATCH, NODES, REGIONS, IN, OUT = 3, 6, 9, 4, 5


@pytest.fixture
def graphs():
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(BATCH, NODES, IN, generator=generator)
    edges = torch.rand(BATCH, NODES, NODES, generator=generator)
    edges = (edges + edges.transpose(1, 2)) / 2 * (1 - torch.eye(NODES))
    regions = torch.stack(
        [torch.randperm(REGIONS, generator=generator)[:NODES] for _ in range(BATCH)]
    )
    return nodes, edges, regions


def test_region_convolution_is_one_weight_matrix_a_region(graphs):
    nodes, edges, regions = graphs
    layer = RegionConv(IN, OUT, REGIONS, n_communities=3)
    found = layer(nodes, edges, regions).detach()
    for b in range(BATCH):
        messages = []
        for i in range(NODES):
            weight = layer.bases[:, 3].detach().clone()  # (in, out)
            for u in range(3):
                weight += (
                    max(layer.membership[regions[b, i], u].item(), 0.0) * layer.bases[:, u].detach()
                )
            messages.append(nodes[b, i] @ weight)
        for i in range(NODES):
            share = edges[b, i] / edges[b, i].sum()
            expected = (
                messages[i]
                + sum(share[j] * messages[j] for j in range(NODES))
                + layer.bias.detach()
            )
            torch.testing.assert_close(found[b, i], expected)


def test_initial_weights_are_those_of_the_releases_linear_layers():
    """Memberships are a layer R → K without bias, bases and B_0 weight and bias of a layer K → in · out."""
    n_regions, n_communities, in_width, out_width = 300, 8, 50, 40
    torch.manual_seed(0)
    ours = RegionConv(in_width, out_width, n_regions, n_communities)
    memberships = torch.nn.Linear(n_regions, n_communities, bias=False)
    bases = torch.nn.Linear(n_communities, in_width * out_width)
    pairs = [
        (ours.membership, memberships.weight),
        (ours.bases[:, :-1], bases.weight),
        (ours.bases[:, -1], bases.bias),
    ]
    for own, theirs in pairs:
        own, theirs = own.detach(), theirs.detach()
        assert float(own.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=0.02)
        assert float(own.std()) == pytest.approx(float(theirs.std()), rel=0.05)
    assert 0.5 / in_width**0.5 < float(ours.bias.detach().abs().max()) <= 1 / in_width**0.5


def test_region_convolution_never_lays_out_weights_of_every_region():
    """At 400 regions, 400 in and 32 out, a weight matrix a region would be 5 million numbers."""
    layer = RegionConv(400, 32, 400)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.numel()) or t, lambda t: t
    ):
        layer(torch.randn(1, 400, 400), torch.rand(1, 400, 400), torch.arange(400).unsqueeze(0))
    assert max(kept) < 400 * 400 * 32 / 10


def test_top_k_pooling_keeps_the_best_nodes_of_each_graph(graphs):
    nodes, edges, regions = graphs
    pool = TopKPool(IN, ratio=0.4)
    pooled, among, kept_regions, gates = pool(nodes, edges, regions)
    weight = pool.weight.detach().numpy()
    for b in range(BATCH):
        score = nodes[b].numpy() @ weight / np.linalg.norm(weight)
        gate = 1 / (1 + np.exp(-(score - score.mean()) / score.std()))
        np.testing.assert_allclose(gates[b].detach(), gate, rtol=1e-4)
        best = np.argsort(-score)[:3]  # ⌈0.4 · 6⌉
        np.testing.assert_allclose(
            pooled[b].detach(), nodes[b].numpy()[best] * gate[best, None], rtol=1e-4
        )
        np.testing.assert_allclose(among[b], edges[b].numpy()[np.ix_(best, best)])
        assert kept_regions[b].tolist() == regions[b].numpy()[best].tolist()


@pytest.mark.slow
@pytest.mark.xdist_group("torch_geometric")
def test_top_k_pooling_chooses_what_torch_geometric_chooses(graphs):
    """Standardising scores changes the gates, not the choice."""
    geometric = pytest.importorskip("torch_geometric.nn")
    nodes, edges, _ = graphs
    pool, other = (
        TopKPool(IN, ratio=0.5),
        geometric.TopKPooling(IN, ratio=0.5, nonlinearity="sigmoid"),
    )
    with torch.no_grad():
        other.select.weight.copy_(pool.weight)
    for b in range(BATCH):
        kept = other(nodes[b], torch.nonzero(edges[b]).T)[4]
        ours = pool(nodes[b : b + 1], edges[b : b + 1], torch.arange(NODES).unsqueeze(0))[2][0]
        assert kept.tolist() == ours.tolist()


def test_two_step_edges_count_paths(graphs):
    edges = graphs[1]
    found = two_step_edges(edges)
    for b, i, j in np.ndindex(BATCH, NODES, NODES):
        paths = 2 * edges[b, i, j] + sum(edges[b, i, k] * edges[b, k, j] for k in range(NODES))
        expected = 0.0 if i == j else paths.item()
        assert found[b, i, j].item() == pytest.approx(expected, rel=1e-5)


def test_pooling_loss_is_the_papers_formula():
    gates = torch.tensor([[0.9, 0.2, 0.7, 0.4, 0.1], [0.5, 0.6, 0.3, 0.8, 0.2]])
    rows = []
    for row in gates.numpy():
        ranked = sorted(row, reverse=True)
        rows.append(-(sum(np.log(ranked[:2])) + sum(np.log(1 - np.array(ranked[2:])))) / 5)
    assert pooling_loss(gates, 0.4).item() == pytest.approx(np.mean(rows), rel=1e-5)


def test_pooling_loss_is_least_when_gates_are_decided():
    undecided, decided = torch.full((1, 4), 0.5), torch.tensor([[0.999, 0.999, 0.001, 0.001]])
    assert pooling_loss(decided, 0.5) < 0.01 < pooling_loss(undecided, 0.5)


def test_consistency_loss_is_the_sum_over_pairs_within_groups():
    gates = torch.rand(7, 4, generator=torch.Generator().manual_seed(1))
    group = torch.tensor([True, False, True, True, False, False, True])
    expected = 0.0
    for member in (group, ~group):
        own = gates[member].numpy()
        pairs = sum(((a - b) ** 2).sum() for a in own for b in own)
        expected += pairs / (2 * len(own) ** 2)
    assert consistency_loss(gates, group).item() == pytest.approx(expected, rel=1e-5)
    assert consistency_loss(
        gates, torch.ones(7, dtype=torch.bool)
    ).isfinite()  # a batch with one group only
