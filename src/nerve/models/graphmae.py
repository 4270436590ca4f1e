"""GraphMAE (Hou et al., KDD 2022) on brain graphs: hide half of the nodes, rebuild their features from the rest."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nerve.models.graph import GraphIsomorphism, NodeNorm, strongest_edges


def scaled_cosine_error(rebuilt: Tensor, original: Tensor, alpha: float) -> Tensor:
    """Mean of (1 - cos(x̂, x))^α over rows; α > 1 makes rows that are already well rebuilt count less."""
    return (
        (1 - nn.functional.cosine_similarity(rebuilt, original, dim=-1))
        .clamp(min=0)
        .pow(alpha)
        .mean()
    )


class GraphMaskedAutoencoder(nn.Module):
    """Nodes are regions, their features the rows of FC, edges the strongest connections.

    A step: replace the features of masked nodes by a learned token; encode with GIN layers; set the codes of the
    masked nodes to zero again ("re-mask"); decode with one GIN layer; compare the masked rows by scaled cosine error.

    Parameters
    ----------
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    width, n_layers : int
        Width of the codes, GIN layers of the encoder.
    mask_ratio : float
        Share of the nodes that is masked.
    masking : {"rows_and_columns", "rows"}
        FC is symmetric: with "rows" (as GraphMAE would have it) entry (i, j) of a masked node i can still be read in
        row j. "rows_and_columns" sets it to zero there too.
    keep_edges : float or int
        See `strongest_edges`. Edges are those of the whole graph: GraphMAE hides features, never structure.
    alpha : float
        Exponent of the scaled cosine error.
    dropout : float
        On the input of each layer, the decoder's too.
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.n_masked = max(1, int(settings.mask_ratio * n_regions))
        self.masking, self.keep_edges, self.alpha = (
            settings.masking,
            settings.keep_edges,
            settings.alpha,
        )
        width, n_layers = settings.width, settings.n_layers
        self.mask_token = nn.Parameter(torch.zeros(n_regions))
        self.dropout = nn.Dropout(settings.dropout)
        widths = [n_regions] + [width] * n_layers
        self.layers = nn.ModuleList(GraphIsomorphism(a, width, b) for a, b in pairwise(widths))
        self.activations = nn.ModuleList(
            nn.Sequential(NodeNorm(width), nn.PReLU()) for _ in range(n_layers)
        )
        self.to_decoder = nn.Linear(width, width, bias=False)
        self.decoder = GraphIsomorphism(width, width, n_regions)

    def training_loss(self, batch: Tensor, draws: Any) -> Tensor:
        """Scaled cosine error of the masked rows; batch is (batch, regions, regions)."""
        masked = self.choose_masked(batch.shape[-1], draws)
        adjacency = strongest_edges(batch, self.keep_edges)
        codes = self.encode(self.hide(batch, masked), adjacency)  # (batch, regions, width)
        codes = self.to_decoder(codes) * ~masked.unsqueeze(
            -1
        )  # re-masked: the decoder sees neighbours only
        rebuilt = self.decoder(self.dropout(codes), adjacency)  # (batch, regions, regions)
        return scaled_cosine_error(rebuilt[masked], batch[masked], self.alpha)

    def choose_masked(self, n_regions: int, draws: Any) -> Tensor:
        """Which nodes are masked, the same number for everyone: (batch, regions) of bool."""
        order = draws.uniform(n_regions).argsort(dim=-1)
        return order.argsort(dim=-1) < self.n_masked

    def hide(self, batch: Tensor, masked: Tensor) -> Tensor:
        """The features that the encoder is given: (batch, regions, regions)."""
        if self.masking == "rows_and_columns":
            batch = batch.masked_fill(masked.unsqueeze(-2), 0.0)
        return torch.where(masked.unsqueeze(-1), self.mask_token, batch)

    def encode(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """(batch, regions, regions) → (batch, regions, width)."""
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(self.dropout(x), adjacency))
        return x

    def embed(self, batch: Tensor) -> Tensor:
        """Mean code over all regions, nothing masked: (batch, width)."""
        return self.encode(batch, strongest_edges(batch, self.keep_edges)).mean(dim=-2)
