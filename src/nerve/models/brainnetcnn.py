"""BrainNetCNN: cross-shaped filters from edges to edges, to regions, to one number."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from nerve.models.edge_conv import EdgeToEdge, EdgeToNode, NodeToGraph
from nerve.models.scalar import ScalarModel


class BrainNetCNNModel(ScalarModel):
    """FC matrix → edge to edge → edge to node → node to graph → linear layers → one number.

    Parameters
    ----------
    n_regions : int
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
        edge_filters: int = 16,
        node_filters: int = 128,
        graph_filters: int = 26,
        hidden: tuple[int, ...] = (),
        slope: float = 0.1,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.edge_to_edge = EdgeToEdge(1, edge_filters, n_regions)
        self.edge_to_node = EdgeToNode(edge_filters, node_filters, n_regions)
        self.node_to_graph = NodeToGraph(node_filters, graph_filters, n_regions)
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
        graph = self.dropout(self.activation(self.node_to_graph(nodes)))  # (batch, graph filters)
        for layer in self.hidden:
            graph = self.dropout(self.activation(layer(graph)))
        return self.output(graph).squeeze(-1)
