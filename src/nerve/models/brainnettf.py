"""Brain Network Transformer: FC rows as tokens, attention, and a readout by orthogonal clusters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerve.models.scalar import ScalarModel


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers of these widths with leaky ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.LeakyReLU()]
    return nn.Sequential(*layers[:-1])


class OCRead(nn.Module):
    """Orthonormal clustering readout (its paper's name).

    An autoencoder over the whole graph, R·d → hidden → hidden → R·d, refines the tokens to H. With centres E, K
    orthogonal vectors that are drawn once and never trained, the soft assignment of token i to cluster k and the
    pooled tokens are

        P_ik = softmax_k((H_i · E_k)² / ‖E_k‖),     Z = Pᵀ H.

    All centres but the first have unit length, as in the release: see `cluster_centres`.

    Parameters
    ----------
    n_tokens, width : int
        R and d.
    n_clusters : int
        K, at most `width`: there are no more orthogonal vectors.
    hidden : int
        Width of the autoencoder's middle; its two outer layers hold 2·R·d·hidden weights, most of the model.
    """

    def __init__(self, n_tokens: int, width: int, n_clusters: int = 100, hidden: int = 32) -> None:
        super().__init__()
        self.refine = perceptron(n_tokens * width, hidden, hidden, n_tokens * width)
        self.centres = nn.Buffer(cluster_centres(n_clusters, width))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, R, d) → pooled tokens (batch, K, d) and the assignment (batch, R, K)."""
        refined = self.refine(tokens.flatten(1)).view_as(tokens)  # (batch, R, d)
        strength = (refined @ self.centres.T) ** 2 / self.centres.norm(dim=-1)  # (batch, R, K)
        assignment = torch.softmax(strength, dim=-1)  # (batch, R, K)
        return assignment.transpose(1, 2) @ refined, assignment


def cluster_centres(n_clusters: int, width: int) -> Tensor:
    """(clusters, width) orthogonal rows: Gram–Schmidt on a Glorot-uniform draw from torch's generator.

    The first row stays as it is drawn and the others have unit length: the release scales from the second on.

    Examples
    --------
    >>> centres = cluster_centres(3, 5)
    >>> products = centres @ centres.T
    >>> torch.allclose(products, torch.diag(products.diagonal()), atol=1e-6), products.diagonal()[1:].round(decimals=4)
    (True, tensor([1., 1.]))
    """
    draw = torch.empty(n_clusters, width)
    nn.init.xavier_uniform_(draw)
    centres = torch.linalg.qr(
        draw.T
    ).Q.T.contiguous()  # QR is Gram–Schmidt, up to signs that the square removes
    centres[0] = draw[0]
    return centres


class BrainNetTFModel(ScalarModel):
    """FC rows → transformer layer → transformer layer → OCRead → linear layers → one number.

    Parameters
    ----------
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    n_clusters : int
        Tokens after pooling; no more than R can be orthogonal.
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

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.padding = -n_regions % settings.heads
        self.mixup = settings.mixup
        width, n_clusters = n_regions + self.padding, min(settings.n_clusters, n_regions)
        shape = width, settings.heads, settings.feedforward, settings.dropout
        layers = [nn.TransformerEncoderLayer(*shape, batch_first=True) for _ in range(2)]
        self.layers = nn.Sequential(*layers)
        self.readout = OCRead(n_regions, width, n_clusters, settings.pooling_hidden)
        self.reduce = nn.Sequential(nn.Linear(width, 8), nn.LeakyReLU())
        self.head = perceptron(8 * n_clusters, 256, 32, 1)

    def forward(self, fc: Tensor) -> Tensor:
        """(batch, R, R) → (batch,)."""
        tokens = self.layers(functional.pad(fc, (0, self.padding)))  # (batch, R, width)
        pooled, _ = self.readout(tokens)  # (batch, clusters, width)
        return self.head(self.reduce(pooled).flatten(1)).squeeze(-1)

    def training_loss(self, batch: tuple[Tensor, Tensor], draws: Any) -> Tensor:
        """The error on mixed pairs while training, on the participants themselves in evaluation mode."""
        fc, target = batch
        if self.training and self.mixup:
            share = draws.shared_uniform(1)
            partner = (
                draws.uniform().argsort()
            )  # a random order of the participants in this process
            fc = torch.lerp(fc[partner], fc, share)
            target = torch.lerp(target[partner], target, share)
        return self.error(self(fc), target)
