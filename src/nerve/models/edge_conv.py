"""BrainNetCNN's three layers on whole FC matrices: edge to edge, edge to node, node to graph.

A cross-shaped filter sees one row and one column of a matrix at a time. Its row part depends on the row only and its
column part on the column only, so both are matrix products and the cross is their broadcast sum: nothing is tiled.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


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
        by_column = torch.matmul(edges.transpose(-1, -2), self.column).sum(1)  # (batch, regions, out)
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
        return by_row.unsqueeze(-1) + by_column.transpose(1, 2).unsqueeze(-2)  # (batch, out, regions, regions)


class EdgeToNode(_CrossFilter):
    """Each region becomes the filtered sum of its edges, in and out.

    h[i, o] = Σ_c Σ_k (r[c, k, o] H[c, i, k] + s[c, k, o] H[c, k, i]) + b[o].

    Maps (batch, in, R, R) to (batch, R, out).
    """

    def forward(self, edges: Tensor) -> Tensor:
        """One vector for each region."""
        by_row, by_column = self.arms(edges)
        return by_row + by_column + self.bias


class NodeToGraph(nn.Linear):
    """The whole graph as filtered sums over its regions: g[o] = Σ_i Σ_c w[o, i, c] h[i, c] + b[o].

    Maps (batch, R, in) to (batch, out).
    """

    def __init__(self, in_channels: int, out_channels: int, n_regions: int) -> None:
        super().__init__(in_channels * n_regions, out_channels)
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, nodes: Tensor) -> Tensor:
        """One vector for each graph."""
        return super().forward(nodes.flatten(1))
