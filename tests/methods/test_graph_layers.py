"""Dense graph layers against literal algebra, one node and one edge at a time, and against torch-geometric."""

import numpy as np
import pytest
import torch

from nerve.methods.graph_layers import (
    GraphConvolution,
    GraphIsomorphism,
    normalised_adjacency,
    strongest_edges,
)


def random_graphs(n_graphs=3, n_nodes=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    upper = torch.triu(
        (torch.rand(n_graphs, n_nodes, n_nodes, generator=generator) < 0.4).float(), 1
    )
    return torch.randn(n_graphs, n_nodes, 5, generator=generator), upper + upper.transpose(1, 2)


def random_fc(n=4, n_regions=12, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(
        np.stack([np.corrcoef(rng.normal(size=(n_regions, 30))) for _ in range(n)]).astype("f")
    )


def test_gin_is_the_perceptron_of_a_node_plus_the_sum_of_its_neighbours():
    x, adjacency = random_graphs()
    layer = GraphIsomorphism(5, 6, 4).eval()
    out = layer(x, adjacency)
    for graph in range(len(x)):
        for node in range(x.shape[1]):
            total = x[graph, node].clone()
            for other in range(x.shape[1]):
                if adjacency[graph, node, other]:
                    total += x[graph, other]
            torch.testing.assert_close(
                layer.mlp(total[None, None])[0, 0], out[graph, node], rtol=1e-4, atol=1e-5
            )


def test_gcn_agrees_with_the_sum_over_edges_of_the_paper():
    x, adjacency = random_graphs()
    layer = GraphConvolution(5, 4)
    torch.nn.init.normal_(layer.bias)
    out = layer(x, adjacency)
    degree = 1 + adjacency.sum(-1)
    for graph in range(len(x)):
        for node in range(x.shape[1]):
            total = layer.linear(x[graph, node]) / degree[graph, node]
            for other in range(x.shape[1]):
                if adjacency[graph, node, other]:
                    scale = (degree[graph, node] * degree[graph, other]).sqrt()
                    total = total + layer.linear(x[graph, other]) / scale
            torch.testing.assert_close(total + layer.bias, out[graph, node], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.xdist_group("torch_geometric")  # its import takes seconds
def test_layers_agree_with_torch_geometric():
    geometric = pytest.importorskip("torch_geometric.nn")
    x, adjacency = random_graphs(n_graphs=1)
    edges = adjacency[0].nonzero().T
    ours = GraphConvolution(5, 4)
    theirs = geometric.GCNConv(5, 4)
    theirs.lin.weight.data = ours.linear.weight.data
    torch.testing.assert_close(theirs(x[0], edges), ours(x, adjacency)[0], rtol=1e-4, atol=1e-5)
    gin = GraphIsomorphism(5, 6, 4).eval()
    their_gin = geometric.GINConv(lambda rows: gin.mlp(rows[None])[0])
    torch.testing.assert_close(their_gin(x[0], edges), gin(x, adjacency)[0], rtol=1e-4, atol=1e-5)


def test_layers_commute_with_a_renumbering_of_the_nodes():
    x, adjacency = random_graphs()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1))
    for layer in (GraphConvolution(5, 4), GraphIsomorphism(5, 6, 4).eval()):
        moved = layer(x[:, order], adjacency[:, order][:, :, order])
        torch.testing.assert_close(moved, layer(x, adjacency)[:, order], rtol=1e-4, atol=1e-5)


def test_a_node_without_edges_keeps_its_own_features():
    looped = normalised_adjacency(torch.zeros(1, 3, 3))
    assert torch.equal(looped[0], torch.eye(3))


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 1.0])
def test_strongest_edges_are_the_share_of_pairs_with_the_largest_size(share):
    fc = random_fc()
    graph = strongest_edges(fc, share)
    rows, columns = np.triu_indices(12, 1)
    for matrix, edges in zip(fc.numpy(), graph.numpy(), strict=True):
        size = np.abs(matrix[rows, columns])
        expected = np.zeros(len(size), bool)
        expected[np.argsort(size)[::-1][: max(1, round(share * len(size)))]] = True
        assert np.array_equal(edges[rows, columns] == 1, expected)
        assert np.array_equal(edges, edges.T)
        assert np.trace(edges) == 0


def test_neighbours_chosen_by_either_end_are_kept():
    fc = random_fc()
    graph = strongest_edges(fc, 3).numpy()
    for matrix, edges in zip(fc.numpy(), graph, strict=True):
        size = np.abs(matrix) - 2 * np.eye(12)
        expected = np.zeros((12, 12))
        for node in range(12):
            for other in np.argsort(size[node])[::-1][:3]:
                expected[node, other] = expected[other, node] = 1
        assert np.array_equal(edges, expected)
