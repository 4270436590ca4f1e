"""BrainMass (Yang et al., 2024): two views of a participant agree, and hidden rows of FC are told apart and rebuilt."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nerve.models.brainnettf import perceptron


class RegionTransformer(nn.Module):
    """Post-norm transformer over regions: tokens are rows of FC, as wide as there are regions.

    The number of heads must divide the width. Where it does not, rows are padded with zeros to the next width that it
    divides (R = 419 with 10 heads: 420).
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.width = math.ceil(n_regions / settings.n_heads) * settings.n_heads
        self.recompute = settings.recompute
        shape = self.width, settings.n_heads, settings.feedforward, settings.dropout
        layers = [
            nn.TransformerEncoderLayer(*shape, batch_first=True) for _ in range(settings.n_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.reduce = nn.Sequential(nn.Linear(self.width, 8), nn.LeakyReLU())
        self.head = projection_head(8 * n_regions, 16 * n_regions, settings.projection)

    def tokens(self, rows: Tensor) -> Tensor:
        """Rows of FC padded to the width of the tokens: (batch, regions, width)."""
        return nn.functional.pad(rows, (0, self.width - rows.shape[-1]))

    def contextualise(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, width) → the same, through all layers."""
        for layer in self.layers:
            if (
                self.recompute and torch.is_grad_enabled()
            ):  # keep only the layers' inputs, at a third more time
                tokens = checkpoint(layer, tokens, use_reentrant=False)
            else:
                tokens = layer(tokens)
        return tokens

    def features(self, fc: Tensor) -> Tensor:
        """Eight numbers per region, side by side: (batch, 8 regions)."""
        return self.reduce(self.contextualise(self.tokens(fc))).flatten(1)

    def forward(self, fc: Tensor) -> Tensor:
        """The projection that views are compared in: (batch, width)."""
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
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    dropped_volumes : float
        Share of volumes left out of a view; used where the batch holds time series.
    momentum : float
        m above.
    recompute : bool
        Compute activations twice rather than keep them: a batch of 64 at R = 400 then fits in a few GiB.
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.dropped, self.momentum = settings.dropped_volumes, settings.momentum
        self.n_contrasted, self.n_rebuilt = (
            min(n, n_regions) for n in (settings.n_contrasted, settings.n_rebuilt)
        )
        self.weight_contrast, self.weight_rebuild = (
            settings.weight_contrast,
            settings.weight_rebuild,
        )
        self.online = RegionTransformer(n_regions, settings)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = projection_head(
            settings.projection, 2 * settings.projection, settings.projection
        )
        width = self.online.width
        self.mask_vector = nn.Parameter(torch.empty(1, 1, width))
        self.extra_tokens = nn.Parameter(torch.empty(1, 2, width))
        if not self.mask_vector.is_meta:  # drawing without numbers would import the compiler
            nn.init.xavier_normal_(self.mask_vector)
            nn.init.xavier_normal_(self.extra_tokens)
        # from the token of a hidden row to the row
        self.contrast_head, self.rebuild_head = (
            perceptron(width, settings.feedforward, n_regions) for _ in range(2)
        )
        with torch.device("cpu"):  # computed, not learned: also where the module is only counted
            positions = sine_positions(n_regions + 2, width)
        self.positions = nn.Buffer(positions, persistent=False)

    def training_loss(self, batch: Sequence[Any], draws: Any) -> Tensor:
        """The loss above; of each participant the batch has (volumes, regions), or (FC, degrees of freedom)."""
        first, second = self.views(batch, draws)  # (batch, regions, regions) each
        loss = self.agreement(first, second)
        loss = loss + self.weight_contrast * self.contrast(first, draws)
        return loss + self.weight_rebuild * self.rebuild(first, draws)

    def views(self, batch: Sequence[Any], draws: Any) -> tuple[Tensor, Tensor]:
        """Two versions of each participant's FC."""
        seeds = (
            (draws.uniform(2) * 2**24).long().tolist()
        )  # one per participant and view: lengths differ, seeds do not
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
            targets = self.target(second), self.target(first)  # (batch, projection)
        predictions = self.predictor(self.online(first)), self.predictor(self.online(second))
        cosines = [
            nn.functional.cosine_similarity(p, t, dim=-1)
            for p, t in zip(predictions, targets, strict=True)
        ]
        return (4 - 2 * (cosines[0] + cosines[1])).mean()

    def contrast(self, fc: Tensor, draws: Any) -> Tensor:
        """Cross-entropy of matching hidden rows with their predictions, by scalar product."""
        rows, contextual = self.hidden_rows(fc, self.n_contrasted, draws)
        logits = rows @ self.contrast_head(contextual).transpose(
            -1, -2
        )  # (batch, true row, predicted row)
        return -logits.log_softmax(-1).diagonal(dim1=-2, dim2=-1).mean()

    def rebuild(self, fc: Tensor, draws: Any) -> Tensor:
        """Mean squared error of rebuilt hidden rows."""
        rows, contextual = self.hidden_rows(fc, self.n_rebuilt, draws)
        return (self.rebuild_head(contextual) - rows).square().mean()

    def hidden_rows(self, fc: Tensor, count: int, draws: Any) -> tuple[Tensor, Tensor]:
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

    def embed_series(self, scans: Sequence[Tensor]) -> Tensor:
        """The same of whole scans, (volumes, regions) each, whose FC is made as that of the views is."""
        return self.embed(torch.stack([shrunk_correlation(series) for series in scans]))


def projection_head(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    """BYOL's perceptron: linear, batch norm, ReLU, linear."""
    return nn.Sequential(
        nn.Linear(width_in, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, width_out),
    )


def sine_positions(n_positions: int, width: int) -> Tensor:
    """Fixed positions: sin(p / 10000^(2⌊k/2⌋/width)) at even k, cos at odd k; (n_positions, width)."""
    k = torch.arange(width)
    angle = torch.arange(n_positions).unsqueeze(-1) / 10000 ** (2 * (k // 2) / width)
    return torch.where(k % 2 == 0, angle.sin(), angle.cos())


def correlation(series: Tensor) -> Tensor:
    """Pearson correlation of the columns of (…, volumes, regions); a constant column correlates with nothing (0)."""
    centred = series - series.mean(-2, keepdim=True)
    norm = centred.norm(dim=-2, keepdim=True)
    unit = centred / norm.clamp(min=1e-12)
    fc = unit.transpose(-1, -2) @ unit  # (…, regions, regions)
    return fc.clamp(-1, 1).diagonal_scatter(torch.ones_like(fc[..., 0]), dim1=-2, dim2=-1)


def shrunk_correlation(series: Tensor) -> Tensor:
    """Correlation of the columns of (…, volumes, regions) from their Ledoit–Wolf covariance, as nilearn's default.

    With z the columns at zero mean and unit variance, T volumes, S = zᵀ z / T and m the mean of its diagonal, the
    covariance is (1 - s) S + s m I. The shrinkage is s = min(b, d) / d, where d = ‖S - m I‖² is how far S is from its
    target and b = (mean_t ‖z_t‖⁴ - ‖S‖²) / T how far it scatters about the true covariance (Ledoit and Wolf, 2004).
    A constant column correlates with nothing (0).
    """
    n_volumes, n_regions = series.shape[-2:]
    centred = series - series.mean(-2, keepdim=True)
    spread = centred.square().mean(-2, keepdim=True).sqrt()
    z = centred / spread.clamp(min=1e-12)
    covariance = z.mT @ z / n_volumes  # (…, regions, regions)
    size = covariance.square().sum((-2, -1))  # (…,)
    mean_variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)  # (…,)
    distance = (size - n_regions * mean_variance.square()).clamp(min=1e-12)
    scatter = (z.square().sum(-1).square().mean(-1) - size) / n_volumes
    shrinkage = torch.minimum(scatter, distance) / distance  # (…,)
    shrunk = (1 - shrinkage)[..., None, None] * covariance
    variance = shrunk.diagonal(dim1=-2, dim2=-1) + (shrinkage * mean_variance).unsqueeze(
        -1
    )  # (…, regions)
    scale = variance.clamp(min=1e-12).rsqrt()
    fc = scale.unsqueeze(-1) * shrunk * scale.unsqueeze(-2)
    return fc.clamp(-1, 1).diagonal_scatter(torch.ones_like(variance), dim1=-2, dim2=-1)


def dropped_volume_views(series: Tensor, dropped: float, seeds: Sequence[int]) -> list[Tensor]:
    """Pseudo-FC of one scan (volumes, regions), each from another random choice of volumes (Yang et al. 2024).

    The release's: Ledoit–Wolf covariance of the volumes that are kept, brought to a correlation matrix.

    Parameters
    ----------
    series : (volumes, regions)
    dropped : float
        Share of the volumes that each view leaves out.
    seeds : sequence of int
        One per view.
    """
    n_kept = max(3, len(series) - int(dropped * len(series)))
    orders = [
        torch.randperm(len(series), generator=torch.Generator().manual_seed(seed)) for seed in seeds
    ]
    kept = [order[:n_kept].sort().values.to(series.device) for order in orders]
    return [shrunk_correlation(series[volumes]) for volumes in kept]


def wishart_views(fc: Tensor, degrees: Tensor, seeds: Sequence[int]) -> list[Tensor]:
    """FC as more scans of the same length would give if the participant's true FC were the one seen.

    With FC = Q Λ Qᵀ and ν degrees of freedom, ν volumes Z Λ^½ Qᵀ with Z standard normal have a covariance matrix that
    follows the Wishart law W(FC, ν); their correlation is the view. Λ is clipped at 0: FC of fewer volumes than regions
    is singular, and stored in 16 bits slightly indefinite.

    Parameters
    ----------
    fc : (regions, regions)
    degrees : scalar tensor
        Volumes less one.
    seeds : sequence of int
        One per view.
    """
    values, vectors = torch.linalg.eigh(fc.float())
    root = vectors * values.clamp(min=0).sqrt()  # root rootᵀ = fc
    generators = [
        torch.Generator().manual_seed(seed) for seed in seeds
    ]  # on the CPU: a GPU run sees the same views
    shape = max(3, int(degrees)), len(fc)
    return [
        correlation(torch.randn(shape, generator=one).to(fc.device) @ root.T) for one in generators
    ]
