"""Layers that methods share: on dense, batched adjacency matrices, and how FC becomes a graph.

A brain graph has a few hundred nodes, the same for all participants, and thousands of edges. A
batch of dense matrix products is then simpler than message passing over edge lists, and faster
(`benchmarks/graph_layers.py`).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def strongest_edges(fc: Tensor, keep: float | int) -> Tensor:
    """A symmetric 0/1 graph of the strongest connections by absolute value, without self-loops.

    Parameters
    ----------
    fc : (batch, regions, regions)
    keep : float or int
        A share of all pairs, below 1. Or a whole number: each region chooses so many neighbours,
        and an edge is kept if either end chose it.

    Returns
    -------
    (batch, regions, regions) of 0.0 and 1.0
    """
    n_regions = fc.shape[-1]
    strength = fc.detach().abs()
    if isinstance(keep, int):
        strength = strength.diagonal_scatter(strength.new_zeros(fc.shape[:-1]), dim1=-2, dim2=-1)
        chosen = strength.topk(min(keep, n_regions - 1), dim=-1).indices  # (batch, regions, keep)
    else:
        n_pairs = n_regions * (n_regions - 1) // 2
        above = torch.ones_like(strength[0]).triu(1).bool()
        strength = torch.where(above, strength, -1.0).flatten(1)  # (batch, regions²)
        n_edges = min(max(1, round(keep * n_pairs)), n_pairs)
        chosen = strength.topk(n_edges, dim=-1, sorted=False).indices  # (batch, edges)
    directed = torch.zeros_like(strength).scatter_(-1, chosen, 1.0).view_as(fc)
    return torch.maximum(directed, directed.mT)


def normalised_adjacency(adjacency: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2, with D the degrees of A + I: (batch, nodes, nodes)."""
    n_nodes = adjacency.shape[-1]
    identity = torch.eye(n_nodes, device=adjacency.device, dtype=adjacency.dtype)
    looped = adjacency + identity
    scale = looped.sum(-1).rsqrt()  # (batch, nodes)
    return scale.unsqueeze(-1) * looped * scale.unsqueeze(-2)


class NodeNorm(nn.BatchNorm1d):
    """Batch norm over the nodes of all graphs in a batch: (batch, nodes, width) → the same."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each feature over batch and nodes."""
        return super().forward(x.flatten(0, -2)).view_as(x)


class GraphIsomorphism(nn.Module):
    """A graph isomorphism layer (GIN; Xu et al. 2019): H' = MLP((1 + ε) H + A H), with ε = 0 fixed.

    The perceptron has one hidden layer with batch norm and PReLU, as in GraphMAE.

    Parameters
    ----------
    width_in, hidden, width_out : int
    """

    def __init__(self, width_in: int, hidden: int, width_out: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width_in, hidden), NodeNorm(hidden), nn.PReLU(), nn.Linear(hidden, width_out)
        )

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """(batch, nodes, width_in), (batch, nodes, nodes) → (batch, nodes, width_out)."""
        return self.mlp(x + adjacency @ x)


class GraphConvolution(nn.Module):
    """A graph convolution (GCN; Kipf & Welling 2017): H' = D^-1/2 (A + I) D^-1/2 H W + b."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(width_out))
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """(batch, nodes, width_in), (batch, nodes, nodes) → (batch, nodes, width_out)."""
        return normalised_adjacency(adjacency) @ self.linear(x) + self.bias


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers of these widths with leaky ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU()]
    return nn.Sequential(*layers[:-1])
