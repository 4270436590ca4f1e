"""BrainNetCNN: cross-shaped filters from edges to edges, to regions, to one number.

A cross-shaped filter sees one row and one column of a matrix at a time. Its row part depends on the
row only and its column part on the column only, so both are matrix products and the cross is their
broadcast sum: nothing is tiled.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nerve.core.training import TrainingSettings
from nerve.core.transformer import initialise_linear_layers
from nerve.data.parcellation import Parcellation
from nerve.methods.parameters import (
    Count,
    Device,
    NotNegative,
    Positive,
    Seed,
    Share,
    Width,
    Widths,
)
from nerve.methods.trained import ScalarModule, SupervisedMethod

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "edge_filters": 8,
        "node_filters": 32,
        "graph_filters": 16,
        "epochs": 60,
        "batch_size": 32,
    },
}


class BrainNetCNN(SupervisedMethod):
    """A convolutional network whose filters are crosses: one row and one column of the FC matrix.

    The method's own: the edge-to-edge, edge-to-node and node-to-graph layers, leaky ReLU, dropout.
    Widths and schedule are those of He et al. (2020), who tuned the network for behaviour in 419
    regions: one edge-to-edge layer of 16 filters, 128 node filters, 26 graph filters, SGD with
    momentum, 150 epochs.

    Ours: the cross is a broadcast sum of two matrix products (same result, no tiled copies); any
    number of regions; dropout is off in `predict`; a two-valued target is learned by cross-entropy;
    the gradient's norm is clipped at 1. A tenth of the training participants is held out, and the
    weights of least error on them are kept; He et al. choose the epoch in inner folds and train
    again on all training participants. The matrix enters as it is, with its unit diagonal.

    The NERVE paper does not say: widths, learning rate, epochs, how the epoch was picked.

    Parameters
    ----------
    edge_filters : int
        Channels after the edge-to-edge layer.
    node_filters : int
        Channels after the edge-to-node layer.
    graph_filters : int
        Channels after the node-to-graph layer.
    hidden : tuple of int
        Widths of further linear layers before the output; Kawahara et al. used (128, 30), He et al.
        none.
    slope : float
        Of the leaky ReLU.
    dropout : float
        After the node layer and after the graph layer, while training.
    epochs : int
        Passes over the training participants.
    batch_size : int
        Participants per step.
    lr : float
        Learning rate.
    momentum : float
        Momentum of SGD.
    weight_decay : float
        Weight decay.
    validation_fraction : float
        Share of the training participants on whom the epoch is chosen.
    seed : int
        Fixes initial weights, split, data order and whatever else is random.
    device : str
        auto, cpu, cuda, cuda:1, mps.

    Examples
    --------
    >>> import numpy as np
    >>> fc = np.random.default_rng(0).uniform(-1, 1, (12, 8, 8))
    >>> model = BrainNetCNN(epochs=1, edge_filters=2, node_filters=3)
    >>> model.fit(fc, np.arange(12.0)).predict(fc).shape
    (12,)
    """

    title: ClassVar[str] = "BrainNetCNN"
    citation: ClassVar[str] = (
        "Kawahara et al. (2017) BrainNetCNN: convolutional neural networks for brain "
        "networks. NeuroImage 146:1038-1049; settings of He et al. (2020) NeuroImage "
        "206:116276."
    )
    adapted: ClassVar[str] = (
        "One layer of each kind, as in He et al. (2020); any number of regions."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    def __init__(
        self,
        *,
        edge_filters: Width = 16,
        node_filters: Width = 128,
        graph_filters: Width = 26,
        hidden: Widths = (),
        slope: NotNegative = 0.1,
        dropout: Share = 0.5,
        epochs: Count = 150,
        batch_size: Count = 128,
        lr: Positive = 0.01,
        momentum: Share = 0.9,
        weight_decay: NotNegative = 0.0,
        validation_fraction: Share = 0.1,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.edge_filters = edge_filters
        self.node_filters = node_filters
        self.graph_filters = graph_filters
        self.hidden = hidden
        self.slope = slope
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.device = device

    def build(self, parcellation: Parcellation) -> BrainNetCNNModel:
        """Make the untrained module."""
        return BrainNetCNNModel(
            parcellation.n_regions,
            edge_filters=self.edge_filters,
            node_filters=self.node_filters,
            graph_filters=self.graph_filters,
            hidden=self.hidden,
            slope=self.slope,
            dropout=self.dropout,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer="sgd",
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            schedule="constant",
            validation_fraction=self.validation_fraction,
            seed=self.seed,
            device=self.device,
        )


class BrainNetCNNModel(ScalarModule):
    """FC matrix → edge to edge → edge to node → node to graph → linear layers → one number.

    Parameters
    ----------
    n_regions : int
        Rows of the matrices.
    edge_filters, node_filters, graph_filters : int
        Output channels of the three layers.
    hidden : tuple of int
        Widths of further layers between the graph vector and the output.
    slope : float
        Of the leaky ReLU after every layer but the last.
    dropout : float
        After the node layer and after the graph layer, while training.
    """

    def __init__(
        self,
        n_regions: int,
        *,
        edge_filters: int,
        node_filters: int,
        graph_filters: int,
        hidden: tuple[int, ...],
        slope: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.edge_to_edge = EdgeToEdge(1, edge_filters, n_regions)
        self.edge_to_node = EdgeToNode(edge_filters, node_filters, n_regions)
        # filtered sums over all regions
        self.node_to_graph = nn.Linear(node_filters * n_regions, graph_filters)
        initialise_linear_layers(self.node_to_graph)
        # in place: the largest tensor (batch, filters, R, R) is held once, not twice
        self.activation = nn.LeakyReLU(slope, inplace=True)
        self.dropout = nn.Dropout(dropout)
        widths = [graph_filters, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], 1)

    def forward(self, fc: Tensor) -> Tensor:
        """(batch, R, R) → (batch,)."""
        edges = self.activation(self.edge_to_edge(fc.unsqueeze(1)))  # (batch, edge filters, R, R)
        nodes = self.dropout(self.activation(self.edge_to_node(edges)))  # (batch, R, node filters)
        # (batch, graph filters)
        graph = self.dropout(self.activation(self.node_to_graph(nodes.flatten(1))))
        for layer in self.hidden:
            graph = self.dropout(self.activation(layer(graph)))
        return self.output(graph).squeeze(-1)


class _CrossFilter(nn.Module):
    """Row and column filters of R weights for each pair of channels."""

    def __init__(self, in_channels: int, out_channels: int, n_regions: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.empty(in_channels, n_regions, out_channels))
        self.column = nn.Parameter(torch.empty(in_channels, n_regions, out_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        # Glorot: what one output sums is both arms of the cross in every channel
        bound = math.sqrt(6 / (2 * n_regions * in_channels + out_channels))
        nn.init.uniform_(self.row, -bound, bound)
        nn.init.uniform_(self.column, -bound, bound)

    def arms(self, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_ck edges[c, i, k] row[c, k, o], and Σ_ck edges[c, k, j] column[c, k, o]."""
        by_row = torch.matmul(edges, self.row).sum(1)  # (batch, regions, out)
        # (batch, regions, out)
        by_column = torch.matmul(edges.transpose(-1, -2), self.column).sum(1)
        return by_row, by_column


class EdgeToEdge(_CrossFilter):
    """Each edge becomes the filtered sum of the edges that share one of its two regions.

    H'[o, i, j] = Σ_c Σ_k (r[c, k, o] H[c, i, k] + s[c, k, o] H[c, k, j]) + b[o].

    Maps (batch, in, R, R) to (batch, out, R, R).
    """

    def forward(self, edges: Tensor) -> Tensor:
        """One output matrix for each filter."""
        by_row, by_column = self.arms(edges)
        by_row = (by_row + self.bias).transpose(1, 2)  # (batch, out, regions)
        by_column = by_column.transpose(1, 2)  # (batch, out, regions)
        return by_row.unsqueeze(-1) + by_column.unsqueeze(-2)  # (batch, out, regions, regions)


class EdgeToNode(_CrossFilter):
    """Each region becomes the filtered sum of its edges, in and out.

    h[i, o] = Σ_c Σ_k (r[c, k, o] H[c, i, k] + s[c, k, o] H[c, k, i]) + b[o].

    Maps (batch, in, R, R) to (batch, R, out).
    """

    def forward(self, edges: Tensor) -> Tensor:
        """One vector for each region."""
        by_row, by_column = self.arms(edges)
        return by_row + by_column + self.bias
