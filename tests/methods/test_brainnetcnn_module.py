"""Edge-to-edge, edge-to-node and node-to-graph against loops over every index of their formulas."""

import numpy as np
import torch

from nerve.methods.brainnetcnn import EdgeToEdge, EdgeToNode

BATCH, CHANNELS, FILTERS, REGIONS = 2, 3, 4, 5


def edges() -> torch.Tensor:
    return torch.randn(
        BATCH, CHANNELS, REGIONS, REGIONS, generator=torch.Generator().manual_seed(0)
    )


def cross_sum(h: np.ndarray, layer, o: int, i: int, j: int) -> float:
    """One output of a cross-shaped filter: along row i and along column j, all channels."""
    row, column = layer.row.detach().numpy(), layer.column.detach().numpy()
    total = layer.bias[o].item()
    for c in range(CHANNELS):
        for k in range(REGIONS):
            total += row[c, k, o] * h[c, i, k] + column[c, k, o] * h[c, k, j]
    return total


def test_edge_to_edge_is_the_loop_over_both_arms_of_the_cross():
    layer = EdgeToEdge(CHANNELS, FILTERS, REGIONS)
    torch.nn.init.normal_(layer.bias)
    found = layer(edges()).detach().numpy()
    for b, o, i, j in np.ndindex(BATCH, FILTERS, REGIONS, REGIONS):
        np.testing.assert_allclose(
            found[b, o, i, j], cross_sum(edges()[b].numpy(), layer, o, i, j), rtol=1e-4, atol=1e-5
        )


def test_edge_to_edge_is_the_sum_of_a_row_and_a_column_convolution():
    layer = EdgeToEdge(CHANNELS, FILTERS, REGIONS)
    row = torch.conv2d(edges(), layer.row.permute(2, 0, 1).unsqueeze(2))  # kernel 1 x R
    column = torch.conv2d(edges(), layer.column.permute(2, 0, 1).unsqueeze(3))  # kernel R x 1
    torch.testing.assert_close(layer(edges()), row + column)


def test_edge_to_node_is_the_loop_over_a_regions_edges():
    layer = EdgeToNode(CHANNELS, FILTERS, REGIONS)
    torch.nn.init.normal_(layer.bias)
    found = layer(edges()).detach().numpy()
    for b, i, o in np.ndindex(BATCH, REGIONS, FILTERS):
        np.testing.assert_allclose(
            found[b, i, o], cross_sum(edges()[b].numpy(), layer, o, i, i), rtol=1e-4, atol=1e-5
        )


def test_relabelling_regions_relabels_the_filters():
    """A filter weight belongs to a region: moving regions and weights together changes nothing but the order."""
    layer, moved = EdgeToEdge(CHANNELS, FILTERS, REGIONS), EdgeToEdge(CHANNELS, FILTERS, REGIONS)
    order = torch.tensor([3, 0, 4, 1, 2])
    with torch.no_grad():
        moved.row.copy_(layer.row[:, order])
        moved.column.copy_(layer.column[:, order])
    shuffled = edges()[:, :, order][:, :, :, order]
    torch.testing.assert_close(moved(shuffled), layer(edges())[:, :, order][:, :, :, order])


def test_edge_to_edge_holds_no_tiled_copy():
    """What autograd keeps for the backward pass is no larger than the input: the sum of arms needs nothing."""
    layer = EdgeToEdge(1, 8, 40)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.numel()) or t, lambda t: t
    ):
        layer(torch.randn(2, 1, 40, 40, requires_grad=True))
    assert max(kept) <= 2 * 40 * 40
