"""BrainNetCNN: cross-shaped filters from edges to edges, to regions, to one number.

A cross-shaped filter sees one row and one column of a matrix at a time. Its row part depends on the row only and its
column part on the column only, so both are matrix products and the cross is their broadcast sum: nothing is tiled.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nerve.core.transformer import initialise_linear_layers
from nerve.models.scalar import ScalarModel


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
        """Row sums Σ_ck edges[c, i, k] row[c, k, o] and column sums Σ_ck edges[c, k, j] column[c, k, o]."""
        by_row = torch.matmul(edges, self.row).sum(1)  # (batch, regions, out)
        by_column = torch.matmul(edges.transpose(-1, -2), self.column).sum(
            1
        )  # (batch, regions, out)
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
        return by_row.unsqueeze(-1) + by_column.transpose(1, 2).unsqueeze(
            -2
        )  # (batch, out, regions, regions)


class EdgeToNode(_CrossFilter):
    """Each region becomes the filtered sum of its edges, in and out.

    h[i, o] = Σ_c Σ_k (r[c, k, o] H[c, i, k] + s[c, k, o] H[c, k, i]) + b[o].

    Maps (batch, in, R, R) to (batch, R, out).
    """

    def forward(self, edges: Tensor) -> Tensor:
        """One vector for each region."""
        by_row, by_column = self.arms(edges)
        return by_row + by_column + self.bias


class BrainNetCNNModel(ScalarModel):
    """FC matrix → edge to edge → edge to node → node to graph → linear layers → one number.

    Parameters
    ----------
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    edge_filters, node_filters, graph_filters : int
        Output channels of the three layers.
    hidden : tuple of int
        Widths of further layers between the graph vector and the output.
    slope : float
        Of the leaky ReLU after every layer but the last.
    dropout : float
        After the node layer and after the graph layer, while training.
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        edges, nodes, graph = settings.edge_filters, settings.node_filters, settings.graph_filters
        self.edge_to_edge = EdgeToEdge(1, edges, n_regions)
        self.edge_to_node = EdgeToNode(edges, nodes, n_regions)
        self.node_to_graph = nn.Linear(nodes * n_regions, graph)  # filtered sums over all regions
        initialise_linear_layers(self.node_to_graph)
        # in place: the largest tensor (batch, filters, R, R) is held once, not twice
        self.activation = nn.LeakyReLU(settings.slope, inplace=True)
        self.dropout = nn.Dropout(settings.dropout)
        widths = [graph, *settings.hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], 1)

    def forward(self, fc: Tensor) -> Tensor:
        """(batch, R, R) → (batch,)."""
        edges = self.activation(self.edge_to_edge(fc.unsqueeze(1)))  # (batch, edge filters, R, R)
        nodes = self.dropout(self.activation(self.edge_to_node(edges)))  # (batch, R, node filters)
        graph = self.dropout(
            self.activation(self.node_to_graph(nodes.flatten(1)))
        )  # (batch, graph filters)
        for layer in self.hidden:
            graph = self.dropout(self.activation(layer(graph)))
        return self.output(graph).squeeze(-1)
