"""BrainGNN's layers on dense, batched graphs: region-aware convolution, top-k pooling, and their two losses."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class RegionConv(nn.Module):
    """Graph convolution whose weights depend on the region, through soft membership in a few communities.

    With region i's memberships α_i = relu(M_i) in K communities, its weights are W_i = B_0 + Σ_u α_iu B_u, and

        h'_i = W_i h_i + Σ_j e_ij W_j h_j + b,

    where the weights e_ij of i's neighbours sum to one. W_i h_i is computed as Σ_u α_iu (B_u h_i), so that no
    (R, in, out) weights are ever made.

    Parameters
    ----------
    in_width, out_width : int
    n_regions : int
    n_communities : int
    """

    def __init__(self, in_width: int, out_width: int, n_regions: int, n_communities: int = 8) -> None:
        super().__init__()
        self.membership = nn.Parameter(torch.randn(n_regions, n_communities) / math.sqrt(n_communities))
        self.bases = nn.Parameter(torch.empty(in_width, n_communities + 1, out_width))  # the last one is B_0
        self.bias = nn.Parameter(torch.zeros(out_width))
        bound = math.sqrt(6 / (in_width + out_width))
        nn.init.uniform_(self.bases, -bound, bound)

    def forward(self, nodes: Tensor, edges: Tensor, regions: Tensor) -> Tensor:
        """Nodes (batch, n, in), edges (batch, n, n) ≥ 0, regions (batch, n) of each node → (batch, n, out)."""
        alpha = torch.relu(self.membership)[regions]  # (batch, n, K)
        mixing = torch.cat([alpha, torch.ones_like(alpha[..., :1])], dim=-1)  # (batch, n, K + 1)
        in_bases = (nodes @ self.bases.flatten(1)).unflatten(-1, self.bases.shape[1:])  # (batch, n, K + 1, out)
        own = (mixing.unsqueeze(-2) @ in_bases).squeeze(-2)  # (batch, n, out)
        return own + _rows_to_one(edges) @ own + self.bias


class TopKPool(nn.Module):
    """Keep the nodes with the highest scores, each multiplied by its gate.

    Score s = h·w / ‖w‖, standardised over the nodes of a graph; gate g = sigmoid(s); the ⌈ratio·n⌉ best are kept.

    Parameters
    ----------
    width : int
    ratio : float
    """

    def __init__(self, width: int, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio = ratio
        self.weight = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.weight, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def forward(self, nodes: Tensor, edges: Tensor, regions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Kept nodes (batch, k, width), edges (batch, k, k), regions (batch, k); gates (batch, n) of all nodes."""
        score = nodes @ (self.weight / self.weight.norm())  # (batch, n)
        centred = score - score.mean(-1, keepdim=True)
        gates = torch.sigmoid(centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-8))
        kept = gates.topk(kept_nodes(nodes.shape[1], self.ratio), dim=-1).indices  # (batch, k)
        person = torch.arange(len(nodes), device=nodes.device).unsqueeze(-1)  # (batch, 1)
        pooled = nodes[person, kept] * gates[person, kept].unsqueeze(-1)
        among = edges[person.unsqueeze(-1), kept.unsqueeze(-1), kept.unsqueeze(-2)]  # (batch, k, k)
        return pooled, among, regions[person, kept], gates


def kept_nodes(n_nodes: int, ratio: float) -> int:
    """How many nodes pooling keeps: ⌈ratio·n⌉."""
    return math.ceil(ratio * n_nodes)


def two_step_edges(edges: Tensor) -> Tensor:
    """Edges between nodes at most two steps apart: (E + I)², without self-loops; (batch, n, n)."""
    identity = torch.eye(edges.shape[-1], device=edges.device, dtype=edges.dtype)
    looped = edges + identity
    return (looped @ looped) * (1 - identity)


def pooling_loss(gates: Tensor, ratio: float) -> Tensor:
    """Push gates of kept nodes towards one and of the others towards zero.

    -1/n (Σ_kept log g + Σ_dropped log(1 - g)), the mean over graphs; gates (batch, n).
    """
    ranked = gates.sort(-1, descending=True).values.clamp(1e-6, 1 - 1e-6)
    k = kept_nodes(gates.shape[-1], ratio)
    return -(ranked[:, :k].log().sum(-1) + (1 - ranked[:, k:]).log().sum(-1)).mean() / gates.shape[-1]


def consistency_loss(gates: Tensor, group: Tensor) -> Tensor:
    """Let participants of one group choose the same regions: Σ_groups 1/(2 m²) Σ_{a,b in group} ‖g_a - g_b‖².

    Parameters
    ----------
    gates : (batch, n)
    group : (batch,) bool
    """
    total = gates.new_zeros(())
    for member in (group, ~group):
        size = member.sum().clamp(min=1)
        weight = member.to(gates.dtype).unsqueeze(-1) / size  # (batch, 1)
        mean = (weight * gates).sum(0)  # (n,)
        total = total + (weight * (gates - mean).square()).sum()  # mean squared distance to the mean is half the pairs'
    return total


def _rows_to_one(edges: Tensor) -> Tensor:
    return edges / edges.sum(-1, keepdim=True).clamp(min=1e-8)
