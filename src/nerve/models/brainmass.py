"""BrainMass (Yang et al., 2024): two views of a participant agree, and hidden rows of FC are told apart and rebuilt."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nerve.models.pseudo_views import dropped_volume_views, wishart_views
from nerve.models.randomness import Draws


class RegionTransformer(nn.Module):
    """Post-norm transformer over regions: tokens are rows of FC, as wide as there are regions.

    The number of heads must divide the width. Where it does not, rows are padded with zeros to the next width that it
    divides (R = 419 with 10 heads: 420).
    """

    def __init__(
        self,
        n_regions: int,
        n_layers: int,
        n_heads: int,
        feedforward: int,
        width_out: int,
        *,
        dropout: float,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.width = math.ceil(n_regions / n_heads) * n_heads
        self.recompute = recompute
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(self.width, n_heads, feedforward, dropout, batch_first=True)
            for _ in range(n_layers)
        )
        self.reduce = nn.Sequential(nn.Linear(self.width, 8), nn.LeakyReLU())
        self.head = projection_head(8 * n_regions, 16 * n_regions, width_out)

    def tokens(self, rows: Tensor) -> Tensor:
        """Rows of FC padded to the width of the tokens: (batch, regions, width)."""
        return nn.functional.pad(rows, (0, self.width - rows.shape[-1]))

    def contextualise(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, width) → the same, through all layers."""
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():  # keep only the layers' inputs, at a third more time
                tokens = checkpoint(layer, tokens, use_reentrant=False)
            else:
                tokens = layer(tokens)
        return tokens

    def features(self, fc: Tensor) -> Tensor:
        """Eight numbers per region, side by side: (batch, 8 regions)."""
        return self.reduce(self.contextualise(self.tokens(fc))).flatten(1)

    def forward(self, fc: Tensor) -> Tensor:
        """The projection that views are compared in: (batch, width_out)."""
        return self.head(self.features(fc))


class BrainMassModel(nn.Module):
    """The loss of a batch is L = BYOL + `weight_contrast` · InfoNCE + `weight_rebuild` · MSE.

    *BYOL*: with online network f, predictor q and target network g, whose weights follow those of f as
    ξ ← m ξ + (1 - m) θ after each step, and views u, v of a participant: the mean of
    [2 - 2 cos(q(f(u)), g(v))] + [2 - 2 cos(q(f(v)), g(u))].

    *InfoNCE*: of `n_contrasted` hidden rows of a participant, which prediction belongs to which row.
    *MSE*: `n_rebuilt` hidden rows are rebuilt. Both hide rows of the first view behind a learned vector, with two
    further learned tokens and sine positions, as the release does.

    Parameters
    ----------
    dropped : float
        Share of volumes left out of a view; used where the batch holds time series.
    momentum : float
        m above.
    recompute : bool
        Compute activations twice rather than keep them: a batch of 64 at R = 400 then fits in a few GiB.
    """

    positions: Tensor

    def __init__(
        self,
        n_regions: int,
        n_layers: int = 16,
        n_heads: int = 10,
        feedforward: int = 2048,
        width_out: int = 1024,
        *,
        dropout: float = 0.1,
        dropped: float = 0.2,
        momentum: float = 0.996,
        n_contrasted: int = 10,
        n_rebuilt: int = 5,
        weight_contrast: float = 0.1,
        weight_rebuild: float = 2.0,
        recompute: bool = False,
    ) -> None:
        super().__init__()
        self.dropped, self.momentum = dropped, momentum
        self.n_contrasted, self.n_rebuilt = min(n_contrasted, n_regions), min(n_rebuilt, n_regions)
        self.weight_contrast, self.weight_rebuild = weight_contrast, weight_rebuild
        self.online = RegionTransformer(
            n_regions, n_layers, n_heads, feedforward, width_out, dropout=dropout, recompute=recompute
        )
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = projection_head(width_out, 2 * width_out, width_out)
        width = self.online.width
        self.mask_vector = nn.Parameter(torch.empty(1, 1, width))
        self.extra_tokens = nn.Parameter(torch.empty(1, 2, width))
        nn.init.xavier_normal_(self.mask_vector)
        nn.init.xavier_normal_(self.extra_tokens)
        self.contrast_head = masked_row_head(width, feedforward, n_regions)
        self.rebuild_head = masked_row_head(width, feedforward, n_regions)
        self.register_buffer("positions", sine_positions(n_regions + 2, width), persistent=False)

    def training_loss(self, batch: Sequence[Any], draws: Draws) -> Tensor:
        """The loss above; of each participant the batch has (volumes, regions), or (FC, degrees of freedom)."""
        first, second = self.views(batch, draws)  # (batch, regions, regions) each
        loss = self.agreement(first, second)
        loss = loss + self.weight_contrast * self.contrast(first, draws)
        return loss + self.weight_rebuild * self.rebuild(first, draws)

    def views(self, batch: Sequence[Any], draws: Draws) -> tuple[Tensor, Tensor]:
        """Two versions of each participant's FC."""
        seeds = (draws.uniform(2) * 2**24).long().tolist()  # one per participant and view: lengths differ, seeds do not
        pairs = [
            wishart_views(scan[0], scan[1], own)
            if isinstance(scan, tuple)
            else dropped_volume_views(scan, self.dropped, own)
            for scan, own in zip(batch, seeds, strict=True)
        ]
        return torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs])

    def agreement(self, first: Tensor, second: Tensor) -> Tensor:
        """The BYOL term."""
        with torch.no_grad():
            targets = self.target(second), self.target(first)  # (batch, width_out)
        predictions = self.predictor(self.online(first)), self.predictor(self.online(second))
        cosines = [nn.functional.cosine_similarity(p, t, dim=-1) for p, t in zip(predictions, targets, strict=True)]
        return (4 - 2 * (cosines[0] + cosines[1])).mean()

    def contrast(self, fc: Tensor, draws: Draws) -> Tensor:
        """Cross-entropy of matching hidden rows with their predictions, by scalar product."""
        rows, contextual = self.hidden_rows(fc, self.n_contrasted, draws)
        logits = rows @ self.contrast_head(contextual).transpose(-1, -2)  # (batch, true row, predicted row)
        return -logits.log_softmax(-1).diagonal(dim1=-2, dim2=-1).mean()

    def rebuild(self, fc: Tensor, draws: Draws) -> Tensor:
        """Mean squared error of rebuilt hidden rows."""
        rows, contextual = self.hidden_rows(fc, self.n_rebuilt, draws)
        return (self.rebuild_head(contextual) - rows).square().mean()

    def hidden_rows(self, fc: Tensor, count: int, draws: Draws) -> tuple[Tensor, Tensor]:
        """Hide `count` random rows: the rows (batch, count, regions) and their tokens (batch, count, width)."""
        index = draws.uniform(fc.shape[-1]).argsort(-1)[:, :count, None]  # (batch, count, 1)
        hidden = torch.zeros_like(fc[..., :1]).scatter_(1, index, 1.0).bool()  # (batch, regions, 1)
        tokens = torch.where(hidden, self.mask_vector, self.online.tokens(fc))
        tokens = torch.cat([self.extra_tokens.expand(len(fc), -1, -1), tokens], 1) + self.positions
        contextual = self.online.contextualise(tokens)[:, 2:]  # (batch, regions, width)
        return fc.take_along_dim(index, 1), contextual.take_along_dim(index, 1)

    @torch.no_grad()
    def after_step(self, step: int, total_steps: int) -> None:
        """Let the target's weights follow the online network's."""
        for own, leader in zip(self.target.parameters(), self.online.parameters(), strict=True):
            own.lerp_(leader, 1 - self.momentum)

    def embed(self, fc: Tensor) -> Tensor:
        """Eight numbers per region of the online network, on the whole FC: (batch, 8 regions)."""
        return self.online.features(fc)


def projection_head(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    """BYOL's perceptron: linear, batch norm, ReLU, linear."""
    return nn.Sequential(
        nn.Linear(width_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, width_out)
    )


def masked_row_head(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    """From the token of a hidden row to the row."""
    return nn.Sequential(nn.Linear(width_in, hidden), nn.LeakyReLU(), nn.Linear(hidden, width_out))


def sine_positions(n_positions: int, width: int) -> Tensor:
    """Fixed positions: sin(p / 10000^(2⌊k/2⌋/width)) at even k, cos at odd k; (n_positions, width)."""
    k = torch.arange(width)
    angle = torch.arange(n_positions).unsqueeze(-1) / 10000 ** (2 * (k // 2) / width)
    return torch.where(k % 2 == 0, angle.sin(), angle.cos())
