"""BrainGNN: two region-aware convolutions on dense, batched graphs, each followed by top-k pooling and a readout."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nerve.models.scalar import ScalarModel

LARGEST_R = 1 - 1e-6


class RegionConv(nn.Module):
    """Graph convolution whose weights depend on the region, through soft membership in a few communities.

    With region i's memberships α_i = relu(M_i) in K communities, its weights are W_i = B_0 + Σ_u α_iu B_u, and

        h'_i = W_i h_i + Σ_j e_ij W_j h_j + b,

    where the weights e_ij of i's neighbours sum to one. W_i h_i is computed as Σ_u α_iu (B_u h_i), so that no
    (R, in, out) weights are ever made.

    Initial weights are the release's, which are torch's of two linear layers, R → K → in · out: uniform within
    ±1/√R for M, ±1/√K for all B and ±1/√in for b.

    Parameters
    ----------
    in_width, out_width : int
    n_regions : int
    n_communities : int
    """

    def __init__(
        self, in_width: int, out_width: int, n_regions: int, n_communities: int = 8
    ) -> None:
        super().__init__()
        self.membership = nn.Parameter(torch.empty(n_regions, n_communities))
        self.bases = nn.Parameter(
            torch.empty(in_width, n_communities + 1, out_width)
        )  # the last one is B_0
        self.bias = nn.Parameter(torch.empty(out_width))
        fans = (self.membership, n_regions), (self.bases, n_communities), (self.bias, in_width)
        for parameter, fan_in in fans:
            bound = 1 / math.sqrt(fan_in)
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, nodes: Tensor, edges: Tensor, regions: Tensor) -> Tensor:
        """Nodes (batch, n, in), edges (batch, n, n) ≥ 0, regions (batch, n) of each node → (batch, n, out)."""
        alpha = nn.functional.embedding(regions, torch.relu(self.membership))  # (batch, n, K)
        mixing = torch.cat([alpha, torch.ones_like(alpha[..., :1])], dim=-1)  # (batch, n, K + 1)
        in_bases = (nodes @ self.bases.flatten(1)).unflatten(
            -1, self.bases.shape[1:]
        )  # (batch, n, K + 1, out)
        own = (mixing.unsqueeze(-2) @ in_bases).squeeze(-2)  # (batch, n, out)
        shares = edges / edges.sum(-1, keepdim=True).clamp(min=1e-8)
        return own + shares @ own + self.bias


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

    def forward(
        self, nodes: Tensor, edges: Tensor, regions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
    return (
        -(ranked[:, :k].log().sum(-1) + (1 - ranked[:, k:]).log().sum(-1)).mean() / gates.shape[-1]
    )


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
        total = (
            total + (weight * (gates - mean).square()).sum()
        )  # mean squared distance to the mean is half the pairs'
    return total


class BrainGNNModel(ScalarModel):
    """FC rows and partial correlations → (convolution, pooling, readout) twice → linear layers → one number.

    Parameters
    ----------
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    width : int
        Of both convolutions.
    n_communities : int
        Bases that a region's weights are mixed from.
    ratio : float
        Share of the nodes that each pooling keeps.
    hidden : tuple of two int
        Widths of the linear layers, each with batch norm and dropout.
    dropout : float
    pooling_weight : float
        Of the loss that separates kept from dropped nodes, for each pooling.
    consistency_weight : float
        Of the loss that makes participants of one group choose alike, for the first pooling.
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.ratio, width, hidden = settings.ratio, settings.width, settings.hidden
        self.pooling_weight, self.consistency_weight = (
            settings.pooling_weight,
            settings.consistency_weight,
        )
        self.convolutions = nn.ModuleList(
            RegionConv(in_width, width, n_regions, settings.n_communities)
            for in_width in (n_regions, width)
        )
        self.pools = nn.ModuleList(TopKPool(width, self.ratio) for _ in range(2))
        head: list[nn.Module] = []
        for before, after in pairwise([4 * width, *hidden]):
            head += [
                nn.Linear(before, after),
                nn.ReLU(),
                nn.BatchNorm1d(after),
                nn.Dropout(settings.dropout),
            ]
        self.head = nn.Sequential(*head, nn.Linear(hidden[-1], 1))

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """FC and |partial correlation|, (batch, R, R) each → (batch,)."""
        return self.with_gates(inputs)[0]

    def with_gates(self, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The output, and the gates of all nodes before each pooling: (batch, R), (batch, kept)."""
        fc, edges = inputs
        nodes = node_features(fc)  # (batch, R, R)
        regions = torch.arange(fc.shape[1], device=fc.device).expand(fc.shape[:2])  # (batch, R)
        readouts: list[Tensor] = []
        gates: list[Tensor] = []
        for convolution, pool in zip(self.convolutions, self.pools, strict=True):
            if readouts:
                edges = two_step_edges(edges)
            nodes = torch.relu(convolution(nodes, edges, regions))
            nodes, edges, regions, gate = pool(nodes, edges, regions)
            readouts += [nodes.amax(1), nodes.mean(1)]  # (batch, width) each
            gates.append(gate)
        return self.head(torch.cat(readouts, -1)).squeeze(-1), gates

    def training_loss(self, batch: tuple[tuple[Tensor, Tensor], Tensor], draws: Any) -> Tensor:
        """The error plus the losses of pooling, in validation too: the release picks the epoch by this sum."""
        inputs, target = batch
        predicted, gates = self.with_gates(inputs)
        loss = self.error(predicted, target)
        loss = loss + self.pooling_weight * sum(pooling_loss(gate, self.ratio) for gate in gates)
        middle = (
            0.5 if self.binary else 0.0
        )  # of 0/1, or of z-scores: above or below the training mean
        return loss + self.consistency_weight * consistency_loss(gates[0], target > middle)


def node_features(fc: Tensor) -> Tensor:
    """Each region's FC profile in Fisher z, nothing for itself; (batch, R, R)."""
    z = torch.atanh(fc.clamp(-LARGEST_R, LARGEST_R))
    return z * (1 - torch.eye(fc.shape[-1], device=fc.device, dtype=fc.dtype))
