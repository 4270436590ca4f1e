"""BrainGNN: two region-aware graph convolutions, each followed by top-k pooling and a readout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nerve.models.roi_graph import RegionConv, TopKPool, consistency_loss, pooling_loss, two_step_edges
from nerve.models.scalar import ScalarModel

LARGEST_R = 1 - 1e-6


class BrainGNNModel(ScalarModel):
    """FC rows and partial correlations → (convolution, pooling, readout) twice → linear layers → one number.

    Parameters
    ----------
    n_regions : int
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

    def __init__(
        self,
        n_regions: int,
        width: int = 32,
        n_communities: int = 8,
        ratio: float = 0.5,
        hidden: tuple[int, int] = (32, 512),
        dropout: float = 0.5,
        pooling_weight: float = 0.1,
        consistency_weight: float = 0.1,
    ) -> None:
        super().__init__()
        self.ratio, self.pooling_weight, self.consistency_weight = ratio, pooling_weight, consistency_weight
        self.convolutions = nn.ModuleList(
            RegionConv(in_width, width, n_regions, n_communities) for in_width in (n_regions, width)
        )
        self.pools = nn.ModuleList(TopKPool(width, ratio) for _ in range(2))
        self.head = nn.Sequential(
            nn.Linear(4 * width, hidden[0]),
            nn.ReLU(),
            nn.BatchNorm1d(hidden[0]),
            nn.Dropout(dropout),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.BatchNorm1d(hidden[1]),
            nn.Dropout(dropout),
            nn.Linear(hidden[1], 1),
        )

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
        """The error, plus the losses of pooling while training; validation looks at the error alone."""
        inputs, target = batch
        predicted, gates = self.with_gates(inputs)
        loss = self.error(predicted, target)
        if not self.training:
            return loss
        loss = loss + self.pooling_weight * sum(pooling_loss(gate, self.ratio) for gate in gates)
        middle = 0.5 if self.binary else 0.0  # of 0/1, or of z-scores: above or below the training mean
        return loss + self.consistency_weight * consistency_loss(gates[0], target > middle)


def node_features(fc: Tensor) -> Tensor:
    """Each region's FC profile in Fisher z, nothing for itself; (batch, R, R)."""
    z = torch.atanh(fc.clamp(-LARGEST_R, LARGEST_R))
    return z * (1 - torch.eye(fc.shape[-1], device=fc.device, dtype=fc.dtype))
