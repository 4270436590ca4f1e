"""Brain Network Transformer: FC rows as tokens, attention, and a readout by orthogonal clusters."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from nerve.core.training import TrainingSettings
from nerve.data.parcellation import Parcellation
from nerve.methods.graph_layers import perceptron
from nerve.methods.parameters import (
    TORCH_BETAS,
    TORCH_EPS,
    Count,
    Device,
    NotNegative,
    Positive,
    Seed,
    Share,
    Width,
)
from nerve.methods.trained import ScalarModule, SupervisedMethod

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "n_clusters": 20,
        "feedforward": 128,
        "pooling_hidden": 16,
        "epochs": 60,
        "lr": 0.0003,
    },
}


class BrainNetTF(SupervisedMethod):
    """A transformer on the rows of FC, read out by soft clusters around orthogonal centres.

    The method's own: each region's FC profile is a token; two transformer layers (4 heads, 1,024
    hidden); OCRead, which pools the regions into 100 clusters with frozen orthogonal centres, of
    unit length but for the first, which keeps the length of its draw as in the release; linear
    layers 8, 256, 32; mixup of FC and target; Adam with a cosine from 1e-4 to 1e-5, batches of 16,
    200 epochs.

    Ours: one output for a continuous or two-valued target; any number of regions (the width is
    padded with zeros to a multiple of the heads, and there are at most R clusters); the weights of
    the best inner-validation epoch are kept. Its paper speaks of time series; its code reads the FC
    matrix only, and so do we, which is why it runs on cohorts where the NERVE paper prints "--".

    The NERVE paper does not say: how the classifier was made to regress, learning rate, epochs.

    Parameters
    ----------
    n_clusters : int
        Tokens after pooling; no more than regions.
    heads : int
        Attention heads; the width is padded with zeros to a multiple of them.
    feedforward : int
        Hidden width of the transformer layers.
    pooling_hidden : int
        Middle of the autoencoder in OCRead.
    dropout : float
        In the transformer layers, while training.
    mixup : bool
        Train on mixtures of random pairs of participants.
    epochs : int
        Passes over the training participants.
    batch_size : int
        Participants per step.
    lr : float
        Learning rate.
    min_lr : float
        Learning rate at the end of the cosine.
    weight_decay : float
        Weight decay.
    validation_fraction : float
        Share of the training participants on whom the epoch is chosen.
    seed : int
        Fixes initial weights, split, data order and whatever else is random.
    device : str
        auto, cpu, cuda, cuda:1, mps.
    """

    title: ClassVar[str] = "BrainNetTF"
    citation: ClassVar[str] = "Kan et al. (2022) Brain network transformer. NeurIPS 35:25586-25599."
    adapted: ClassVar[str] = (
        "One output instead of two classes; rows padded to a multiple of the heads."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    def __init__(
        self,
        *,
        n_clusters: Width = 100,
        heads: Width = 4,
        feedforward: Width = 1024,
        pooling_hidden: Width = 32,
        dropout: Share = 0.1,
        mixup: bool = True,
        epochs: Count = 200,
        batch_size: Count = 16,
        lr: Positive = 1e-4,
        min_lr: NotNegative = 1e-5,
        weight_decay: NotNegative = 1e-4,
        validation_fraction: Share = 0.1,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.n_clusters = n_clusters
        self.heads = heads
        self.feedforward = feedforward
        self.pooling_hidden = pooling_hidden
        self.dropout = dropout
        self.mixup = mixup
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.min_lr = min_lr
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.device = device

    def build(self, parcellation: Parcellation) -> BrainNetTFModel:
        """Make the untrained module."""
        return BrainNetTFModel(
            parcellation.n_regions,
            n_clusters=self.n_clusters,
            heads=self.heads,
            feedforward=self.feedforward,
            pooling_hidden=self.pooling_hidden,
            dropout=self.dropout,
            mixup=self.mixup,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer="adam",
            lr=self.lr,
            min_lr=self.min_lr,
            weight_decay=self.weight_decay,
            betas=TORCH_BETAS,
            eps=TORCH_EPS,
            clip=None,
            validation_fraction=self.validation_fraction,
            seed=self.seed,
            device=self.device,
        )


class BrainNetTFModel(ScalarModule):
    """FC rows → transformer layer → transformer layer → OCRead → linear layers → one number.

    Parameters
    ----------
    n_regions : int
        Regions of FC, R.
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
        Train on λ·(x, y) + (1 - λ)·(x', y') of random pairs, λ ~ Beta(1, 1), one λ per batch.
    """

    def __init__(
        self,
        n_regions: int,
        *,
        n_clusters: int,
        heads: int,
        feedforward: int,
        pooling_hidden: int,
        dropout: float,
        mixup: bool,
    ) -> None:
        super().__init__()
        self.padding = -n_regions % heads
        self.mixup = mixup
        width = n_regions + self.padding
        n_clusters = min(n_clusters, n_regions)
        layers = [
            nn.TransformerEncoderLayer(width, heads, feedforward, dropout, batch_first=True)
            for _ in range(2)
        ]
        self.layers = nn.Sequential(*layers)
        self.readout = OCRead(n_regions, width, n_clusters, pooling_hidden)
        self.reduce = nn.Sequential(nn.Linear(width, 8), nn.LeakyReLU())
        self.head = perceptron(8 * n_clusters, 256, 32, 1)

    def forward(self, fc: Tensor) -> Tensor:
        """(batch, R, R) → (batch,)."""
        tokens = self.layers(functional.pad(fc, (0, self.padding)))  # (batch, R, width)
        pooled, _ = self.readout(tokens)  # (batch, clusters, width)
        return self.head(self.reduce(pooled).flatten(1)).squeeze(-1)

    def training_loss(self, batch: tuple[Tensor, Tensor], draws: Any) -> Tensor:
        """The error: on mixed pairs while training, on the participants in evaluation mode."""
        fc, target = batch
        if self.training and self.mixup:
            share = draws.shared_uniform(1)
            # a random order of the participants in this process
            partner = draws.uniform().argsort()
            fc = torch.lerp(fc[partner], fc, share)
            target = torch.lerp(target[partner], target, share)
        return self.error(self(fc), target)


class OCRead(nn.Module):
    """Orthonormal clustering readout (its paper's name).

    An autoencoder over the whole graph, R·d → hidden → hidden → R·d, refines the tokens to H. With
    centres E, K orthogonal vectors that are drawn once and never trained, the soft assignment of
    token i to cluster k and the pooled tokens are

        P_ik = softmax_k((H_i · E_k)² / ‖E_k‖),     Z = Pᵀ H.

    All centres but the first have unit length, as in the release: see `cluster_centres`.

    Parameters
    ----------
    n_tokens, width : int
        R and d.
    n_clusters : int
        K, at most `width`: there are no more orthogonal vectors.
    hidden : int
        Width of the autoencoder's middle; its two outer layers hold 2·R·d·hidden weights, most of
        the model.
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
    """(clusters, width) orthogonal rows: Gram–Schmidt on a Glorot-uniform draw.

    The first row stays as it is drawn and the others have unit length: the release scales from the
    second on.

    Parameters
    ----------
    n_clusters : int
    width : int

    Returns
    -------
    (clusters, width)

    Examples
    --------
    >>> centres = cluster_centres(3, 5)
    >>> products = centres @ centres.T
    >>> torch.allclose(products, torch.diag(products.diagonal()), atol=1e-6)
    True
    >>> products.diagonal()[1:].round(decimals=4)
    tensor([1., 1.])
    """
    draw = torch.empty(n_clusters, width)
    nn.init.xavier_uniform_(draw)
    # QR is Gram–Schmidt, up to signs that the square removes
    centres = torch.linalg.qr(draw.T).Q.T.contiguous()
    centres[0] = draw[0]
    return centres
