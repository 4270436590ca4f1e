"""Brain Network Transformer: FC rows as tokens, attention, and a readout by orthonormal clusters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerve.models.ocread import OCRead
from nerve.models.scalar import ScalarModel


class BrainNetTFModel(ScalarModel):
    """FC rows → transformer layer → transformer layer → OCRead → linear layers → one number.

    Parameters
    ----------
    n_regions : int
        R: number of tokens, and their width.
    n_clusters : int
        Tokens after pooling; no more than R can be orthonormal.
    heads : int
        Attention heads; the width is padded with zeros to a multiple of them.
    feedforward : int
        Hidden width of the transformer layers.
    pooling_hidden : int
        Middle of the autoencoder in OCRead.
    dropout : float
        In the transformer layers.
    mixup : bool
        Train on λ·(x, y) + (1 - λ)·(x', y') of random pairs, λ ~ Beta(1, 1), one λ a batch.
    """

    def __init__(
        self,
        n_regions: int,
        n_clusters: int = 100,
        heads: int = 4,
        feedforward: int = 1024,
        pooling_hidden: int = 32,
        dropout: float = 0.1,
        mixup: bool = True,
    ) -> None:
        super().__init__()
        self.padding = -n_regions % heads
        self.mixup = mixup
        width, n_clusters = n_regions + self.padding, min(n_clusters, n_regions)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, feedforward, dropout, batch_first=True) for _ in range(2)
        )
        self.readout = OCRead(n_regions, width, n_clusters, pooling_hidden)
        self.reduce = nn.Sequential(nn.Linear(width, 8), nn.LeakyReLU())
        self.head = nn.Sequential(
            nn.Linear(8 * n_clusters, 256),
            nn.LeakyReLU(),
            nn.Linear(256, 32),
            nn.LeakyReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, fc: Tensor) -> Tensor:
        """(batch, R, R) → (batch,)."""
        tokens = functional.pad(fc, (0, self.padding))  # (batch, R, width)
        for layer in self.layers:
            tokens = layer(tokens)
        pooled, _ = self.readout(tokens)  # (batch, clusters, width)
        return self.head(self.reduce(pooled).flatten(1)).squeeze(-1)

    def training_loss(self, batch: tuple[Tensor, Tensor], draws: Any) -> Tensor:
        """The error on mixed pairs while training, on the participants themselves in evaluation mode."""
        fc, target = batch
        if self.training and self.mixup:
            share = draws.shared_uniform(1)
            partner = draws.uniform().argsort()  # a random order of the participants in this process
            fc = torch.lerp(fc[partner], fc, share)
            target = torch.lerp(target[partner], target, share)
        return self.error(self(fc), target)
