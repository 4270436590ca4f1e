"""BrainMass: two views of a participant agree; hidden rows of FC are identified and rebuilt."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nerve.core.training import Dataset, LabelledDataset, TrainingSettings
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.graph_layers import perceptron
from nerve.methods.inputs import CohortDataset, cohorts_in, required_timeseries
from nerve.methods.parameters import (
    TORCH_BETAS,
    TORCH_EPS,
    BatchOfSeveral,
    Count,
    Device,
    Epochs,
    Layers,
    NotNegative,
    Positive,
    Seed,
    Share,
    Width,
)
from nerve.methods.trained import Encoder

SUBSTITUTE = "views drawn from a Wishart distribution"

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "n_layers": 2,
        "n_heads": 5,
        "feedforward": 256,
        "projection": 64,
        "dropout": 0.0,
        "recompute": False,
        "epochs": 20,
        "warmup_epochs": 3,
        "lr": 0.001,
        "batch_size": 32,
        "momentum": 0.98,
    },
}


class BrainMass(Encoder):
    """BrainMass: a large transformer over regions, on two noisy versions of each participant's FC.

    L = BYOL + 0.1 · InfoNCE + 2 · MSE. BYOL: an online network and a predictor must predict, from
    one view, what a slowly following copy of the network (momentum 0.996) makes of the other.
    InfoNCE: 10 rows of a view are hidden, and each prediction must match its own row best. MSE: 5
    hidden rows are rebuilt. The feature is eight numbers per region, 8 R.

    *The method's own*: views from two random 80 % of the volumes, and the features from all of
    them, by the Ledoit–Wolf covariance (nilearn's default, which the release takes); 16 post-norm
    transformer layers on R tokens of width R, 10 heads, feed-forward 2,048; AdamW at 3e-4, which
    rises epoch by epoch in the first 10 and then stays, 2,000 epochs of batches of 64; no
    participant is held out.

    *Ours*: the mask vector and the heads of the two masked tasks are trained; the release builds
    the optimiser from the online network and the predictor alone, and they stay as drawn. Rows are
    padded with zeros where 10 does not divide R. The norm of the gradient is clipped, where the
    release clips each entry. The last weights are kept: BYOL's loss is no criterion to choose
    weights by, since it also falls in collapse.

    *Without time series* the views cannot be formed; in a pool, this concerns only the cohorts
    without them. The substitute, which marks the row as adapted: each view is the correlation
    matrix of ν normal volumes whose covariance is the participant's FC (a Wishart draw), ν being
    the degrees of freedom of the scan: the participants' column `n_volumes` less one, or else
    `degrees_of_freedom`. Two such views differ as two whole scans would, more than two 80 % choices
    of the same volumes do. They are not shrunk, and neither is the FC from which such participants'
    features come.

    *Not said* by the paper whose tables we follow: how views were made for the cohort of which it
    had FC only.

    Parameters
    ----------
    n_layers : int
        Layers of the transformer.
    n_heads : int
        Attention heads.
    feedforward : int
        Hidden width of the transformer layers.
    projection : int
        Width in which views are compared.
    dropout : float
        In the transformer layers, while training.
    dropped_volumes : float
        Share of the volumes that a view leaves out.
    momentum : float
        Of the target network, which follows the online network.
    n_contrasted : int
        Rows hidden for InfoNCE.
    n_rebuilt : int
        Rows hidden for MSE.
    weight_contrast : float
        Weight of InfoNCE in the loss.
    weight_rebuild : float
        Weight of MSE in the loss.
    views : {"auto", "timeseries", "wishart"}
        auto uses time series if a cohort has them, in `fit` and in `transform`.
    degrees_of_freedom : int
        Of a scan whose length is not known.
    recompute : bool
        Compute activations a second time rather than keep them: less memory, a third more time.
    epochs : int
        Passes over the training participants.
    batch_size : int
        Participants per step.
    lr : float
        Learning rate.
    warmup_epochs : float
        Epochs in which the learning rate rises.
    seed : int
        Fixes initial weights, split, data order and whatever else is random.
    device : str
        auto, cpu, cuda, cuda:1, mps.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(x) for x in rng.normal(size=(12, 10, 40))])
    >>> model = BrainMass.from_preset("small", epochs=1, device="cpu").fit(fc)
    >>> model.transform(fc).shape, model.adapted_
    ((12, 80), 'views drawn from a Wishart distribution')
    """

    title: ClassVar[str] = "BrainMass"
    citation: ClassVar[str] = (
        "Yang et al. (2024) BrainMass: advancing brain network analysis for diagnosis with "
        "large-scale self-supervised learning. IEEE Trans. Med. Imaging 43:4004-4016."
    )
    adapted: ClassVar[str] = (
        "Trains the mask vector and both masked-row heads; without time series, views are "
        "drawn from a Wishart distribution."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    batch_size_apply: ClassVar[int] = 32

    _training_cohorts: Sequence[Cohort] = ()  # during `fit`, where several cohorts are given

    def __init__(
        self,
        *,
        n_layers: Layers = 16,
        n_heads: Width = 10,
        feedforward: Width = 2048,
        projection: Width = 1024,
        dropout: Share = 0.1,
        dropped_volumes: Share = 0.2,
        momentum: Share = 0.996,
        n_contrasted: Count = 10,
        n_rebuilt: Count = 5,
        weight_contrast: NotNegative = 0.1,
        weight_rebuild: NotNegative = 2.0,
        views: Literal["auto", "timeseries", "wishart"] = "auto",
        degrees_of_freedom: Count = 200,
        recompute: bool = True,
        epochs: Epochs = 2000,
        batch_size: BatchOfSeveral = 64,
        lr: Positive = 3e-4,
        warmup_epochs: NotNegative = 10,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.n_layers = n_layers
        self.n_heads = n_heads
        self.feedforward = feedforward
        self.projection = projection
        self.dropout = dropout
        self.dropped_volumes = dropped_volumes
        self.momentum = momentum
        self.n_contrasted = n_contrasted
        self.n_rebuilt = n_rebuilt
        self.weight_contrast = weight_contrast
        self.weight_rebuild = weight_rebuild
        self.views = views
        self.degrees_of_freedom = degrees_of_freedom
        self.recompute = recompute
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.warmup_epochs = warmup_epochs
        self.seed = seed
        self.device = device

    def build(self, parcellation: Parcellation) -> BrainMassModel:
        """Make the untrained module."""
        return BrainMassModel(
            parcellation.n_regions,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            feedforward=self.feedforward,
            projection=self.projection,
            dropout=self.dropout,
            dropped_volumes=self.dropped_volumes,
            momentum=self.momentum,
            n_contrasted=self.n_contrasted,
            n_rebuilt=self.n_rebuilt,
            weight_contrast=self.weight_contrast,
            weight_rebuild=self.weight_rebuild,
            recompute=self.recompute,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=5e-5,
            betas=TORCH_BETAS,
            eps=TORCH_EPS,
            schedule="constant",
            warmup_epochs=self.warmup_epochs,
            warmup="epochs",
            # the last weights are kept, so no participant is held out
            validation_fraction=0.0,
            keep="last",
            seed=self.seed,
            device=self.device,
        )

    @property
    def n_features(self) -> int:
        """Eight per region."""
        return 8 * self.n_features_in_

    def begin_fit(self, data: Any) -> Cohort:
        """Keep each cohort too: the pool has time series only if all cohorts have them."""
        cohort = super().begin_fit(data)
        self._training_cohorts = [part.align(cohort.parcellation) for part in cohorts_in(data)]
        return cohort

    def finish(self, module: Any, dataset: Dataset) -> None:
        """Forget the training cohorts."""
        self._training_cohorts = []

    def dataset(self, cohort: Cohort) -> ScanDataset:
        """Time series of the cohort; if it has none, FC and degrees of freedom."""
        return ScanDataset([self._scans(cohort)])

    def training_dataset(self, cohort: Cohort, folder: Path | None) -> ScanDataset:
        """The same of every cohort given to `fit`."""
        return ScanDataset([self._scans(part) for part in self._training_cohorts or [cohort]])

    def _scans(self, cohort: Cohort) -> Dataset:
        if self.views == "timeseries":
            required_timeseries(
                cohort,
                "BrainMass makes its views from",
                "Use views='wishart', and say so in the table.",
            )
        if self.views == "wishart" or cohort.timeseries is None:
            return LabelledDataset(CohortDataset(cohort, "fc"), self.scan_degrees(cohort))
        return CohortDataset(cohort, "timeseries")

    def prepare_module(self, module: Any, dataset: Any, rows: np.ndarray) -> None:
        """Note which views were used."""
        n_drawn = sum(len(part) for part in dataset.parts if isinstance(part, LabelledDataset))
        self.adapted_ = SUBSTITUTE if n_drawn else ""
        if 0 < n_drawn < len(dataset):
            self.adapted_ += f" for {n_drawn} of {len(dataset)} participants"

    def scan_degrees(self, cohort: Cohort) -> np.ndarray:
        """(n,): volumes less one of each scan, from the series, the table or the parameter."""
        if cohort.timeseries is not None:
            return cohort.timeseries.lengths - 1
        if "n_volumes" not in cohort.participants:
            return np.full(len(cohort), self.degrees_of_freedom)
        volumes = cohort.participants["n_volumes"].astype(float) - 1
        return volumes.fillna(self.degrees_of_freedom).to_numpy()

    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, 8 R), from the whole scan if there are time series, else from FC."""
        if self.views == "wishart" or cohort.timeseries is None:
            return self.apply(self.module_.embed, CohortDataset(cohort, "fc"))
        return self.apply(self.module_.embed_series, CohortDataset(cohort, "timeseries"))


class ScanDataset:
    """Several cohorts, some with time series and some without, as one.

    A batch is a list: per participant a (volumes, R) tensor, or (FC, degrees of freedom).

    Parameters
    ----------
    parts : list of Dataset
        One per cohort.
    """

    def __init__(self, parts: list[Dataset]) -> None:
        self.parts = parts
        # the cohort of each participant, and the row in it
        self.places: list[tuple[Dataset, np.ndarray]] = []
        for part in parts:
            self.places += [(part, np.array([row])) for row in range(len(part))]

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, rows: np.ndarray) -> list[Any]:
        """The participants at these rows."""
        scans: list[Any] = []
        for place in rows:
            part, row = self.places[place]
            scan = part.batch(row)
            if isinstance(scan, tuple):
                fc, degrees = scan
                scans.append((fc[0], degrees[0]))
            else:
                scans.append(scan[0])
        return scans


class BrainMassModel(nn.Module):
    """The loss of a batch is L = BYOL + `weight_contrast` · InfoNCE + `weight_rebuild` · MSE.

    *BYOL*: with online network f, predictor q and target network g, whose weights follow those of f
    as ξ ← m ξ + (1 - m) θ after each step, and views u, v of a participant: the mean of
    [2 - 2 cos(q(f(u)), g(v))] + [2 - 2 cos(q(f(v)), g(u))].

    *InfoNCE*: `n_contrasted` rows of a participant are hidden, and each prediction is to be matched
    with its row. *MSE*: `n_rebuilt` hidden rows are rebuilt. Both replace the hidden rows of the
    first view by a learned vector, with two further learned tokens and sine positions, as the
    release does.

    Parameters
    ----------
    n_regions : int
        Regions of FC, R.
    n_layers, n_heads, feedforward : int
        Of the transformer.
    projection : int
        Width in which views are compared.
    dropout : float
        In the transformer.
    dropped_volumes : float
        Share of volumes left out of a view; used where the batch holds time series.
    momentum : float
        m above.
    n_contrasted, n_rebuilt : int
        Rows hidden for InfoNCE and for MSE.
    weight_contrast, weight_rebuild : float
        Their weights in the loss.
    recompute : bool
        Compute activations twice rather than keep them: a batch of 64 at R = 400 then fits in a
        few GiB.
    """

    def __init__(
        self,
        n_regions: int,
        *,
        n_layers: int,
        n_heads: int,
        feedforward: int,
        projection: int,
        dropout: float,
        dropped_volumes: float,
        momentum: float,
        n_contrasted: int,
        n_rebuilt: int,
        weight_contrast: float,
        weight_rebuild: float,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.dropped_volumes = dropped_volumes
        self.momentum = momentum
        self.n_contrasted = min(n_contrasted, n_regions)
        self.n_rebuilt = min(n_rebuilt, n_regions)
        self.weight_contrast = weight_contrast
        self.weight_rebuild = weight_rebuild
        self.online = RegionTransformer(
            n_regions,
            n_layers=n_layers,
            n_heads=n_heads,
            feedforward=feedforward,
            projection=projection,
            dropout=dropout,
            recompute=recompute,
        )
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predictor = _projection_head(projection, 2 * projection, projection)
        width = self.online.width
        self.mask_vector = nn.Parameter(torch.empty(1, 1, width))
        self.extra_tokens = nn.Parameter(torch.empty(1, 2, width))
        if not self.mask_vector.is_meta:  # drawing into meta tensors would import the compiler
            nn.init.xavier_normal_(self.mask_vector)
            nn.init.xavier_normal_(self.extra_tokens)
        # token of a hidden row → the row
        self.contrast_head = perceptron(width, feedforward, n_regions)
        self.rebuild_head = perceptron(width, feedforward, n_regions)
        with torch.device("cpu"):  # computed, not learned: also if the module is built as meta
            positions = _sine_positions(n_regions + 2, width)
        self.positions = nn.Buffer(positions, persistent=False)

    def training_loss(self, batch: Sequence[Any], draws: Any) -> Tensor:
        """The loss above; a batch has (volumes, R), or (FC, degrees), for each participant."""
        first, second = self.views(batch, draws)  # (batch, regions, regions) each
        loss = self.agreement(first, second)
        loss = loss + self.weight_contrast * self.contrast(first, draws)
        return loss + self.weight_rebuild * self.rebuild(first, draws)

    def views(self, batch: Sequence[Any], draws: Any) -> tuple[Tensor, Tensor]:
        """Two versions of each participant's FC."""
        # one seed per participant and view, because the lengths of scans differ
        seeds = (draws.uniform(2) * 2**24).long().tolist()
        first = []
        second = []
        for scan, pair_of_seeds in zip(batch, seeds, strict=True):
            if isinstance(scan, tuple):
                fc, degrees = scan
                pair = wishart_views(fc, degrees, pair_of_seeds)
            else:
                pair = dropped_volume_views(scan, self.dropped_volumes, pair_of_seeds)
            first.append(pair[0])
            second.append(pair[1])
        return torch.stack(first), torch.stack(second)

    def agreement(self, first: Tensor, second: Tensor) -> Tensor:
        """The BYOL term."""
        with torch.no_grad():
            target_second = self.target(second)  # (batch, projection)
            target_first = self.target(first)
        from_first = self.predictor(self.online(first))  # (batch, projection)
        from_second = self.predictor(self.online(second))
        cosine = nn.functional.cosine_similarity
        similarity = cosine(from_first, target_second) + cosine(from_second, target_first)
        return (4 - 2 * similarity).mean()

    def contrast(self, fc: Tensor, draws: Any) -> Tensor:
        """Cross-entropy of matching hidden rows with their predictions, by scalar product."""
        rows, contextual = self.hidden_rows(fc, self.n_contrasted, draws)
        predicted = self.contrast_head(contextual)  # (batch, predicted row, regions)
        logits = rows @ predicted.transpose(-1, -2)  # (batch, true row, predicted row)
        return -logits.log_softmax(-1).diagonal(dim1=-2, dim2=-1).mean()

    def rebuild(self, fc: Tensor, draws: Any) -> Tensor:
        """Mean squared error of rebuilt hidden rows."""
        rows, contextual = self.hidden_rows(fc, self.n_rebuilt, draws)
        return (self.rebuild_head(contextual) - rows).square().mean()

    def hidden_rows(self, fc: Tensor, count: int, draws: Any) -> tuple[Tensor, Tensor]:
        """Hide random rows and encode the others.

        Parameters
        ----------
        fc : (batch, regions, regions)
        count : int
            Rows to hide per participant.
        draws : Draws
            Which rows.

        Returns
        -------
        rows : (batch, count, regions)
            The hidden rows.
        tokens : (batch, count, width)
            What the transformer gives in their places.
        """
        index = draws.uniform(fc.shape[-1]).argsort(-1)[:, :count, None]  # (batch, count, 1)
        hidden = torch.zeros_like(fc[..., :1]).scatter_(1, index, 1.0).bool()  # (batch, regions, 1)
        tokens = torch.where(hidden, self.mask_vector, self.online.tokens(fc))
        tokens = torch.cat([self.extra_tokens.expand(len(fc), -1, -1), tokens], 1) + self.positions
        contextual = self.online.contextualise(tokens)[:, 2:]  # (batch, regions, width)
        return fc.take_along_dim(index, 1), contextual.take_along_dim(index, 1)

    @torch.no_grad()
    def after_step(self, step: int, total_steps: int) -> None:
        """Let the target's weights follow the online network's."""
        pairs = zip(self.target.parameters(), self.online.parameters(), strict=True)
        for weights, online_weights in pairs:
            weights.lerp_(online_weights, 1 - self.momentum)

    def embed(self, fc: Tensor) -> Tensor:
        """Eight numbers per region of the online network, on the whole FC: (batch, 8 regions)."""
        return self.online.features(fc)

    def embed_series(self, scans: Sequence[Tensor]) -> Tensor:
        """The same of whole scans, (volumes, regions) each; their FC is shrunk like the views."""
        return self.embed(torch.stack([shrunk_correlation(series) for series in scans]))


class RegionTransformer(nn.Module):
    """Post-norm transformer over regions: tokens are rows of FC, as wide as there are regions.

    The number of heads must divide the width. If it does not divide R, rows are padded with zeros
    to the next width that it divides (R = 419 with 10 heads: 420).

    Parameters
    ----------
    n_regions : int
    n_layers : int
    n_heads : int
    feedforward : int
        Width of the hidden layer of each transformer layer.
    projection : int
        Width in which views are compared.
    dropout : float
    recompute : bool
        Compute activations again in the backward pass: slower, and less memory.
    """

    def __init__(
        self,
        n_regions: int,
        *,
        n_layers: int,
        n_heads: int,
        feedforward: int,
        projection: int,
        dropout: float,
        recompute: bool,
    ) -> None:
        super().__init__()
        self.width = math.ceil(n_regions / n_heads) * n_heads
        self.recompute = recompute
        layers = [
            nn.TransformerEncoderLayer(self.width, n_heads, feedforward, dropout, batch_first=True)
            for _ in range(n_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.reduce = nn.Sequential(nn.Linear(self.width, 8), nn.LeakyReLU())
        self.head = _projection_head(8 * n_regions, 16 * n_regions, projection)

    def tokens(self, rows: Tensor) -> Tensor:
        """Rows of FC padded to the width of the tokens: (batch, regions, width)."""
        return nn.functional.pad(rows, (0, self.width - rows.shape[-1]))

    def contextualise(self, tokens: Tensor) -> Tensor:
        """(batch, tokens, width) → the same, through all layers."""
        for layer in self.layers:
            if self.recompute and torch.is_grad_enabled():
                # only the inputs of layers are kept: less memory, a third more time
                tokens = checkpoint(layer, tokens, use_reentrant=False)
            else:
                tokens = layer(tokens)
        return tokens

    def features(self, fc: Tensor) -> Tensor:
        """Eight numbers per region, side by side: (batch, 8 regions)."""
        return self.reduce(self.contextualise(self.tokens(fc))).flatten(1)

    def forward(self, fc: Tensor) -> Tensor:
        """The projection in which views are compared: (batch, projection)."""
        return self.head(self.features(fc))


def _projection_head(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    """BYOL's perceptron: linear, batch norm, ReLU, linear."""
    return nn.Sequential(
        nn.Linear(width_in, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, width_out),
    )


def _sine_positions(n_positions: int, width: int) -> Tensor:
    """Fixed positions, (n, width): sin(p / 10000^(2⌊k/2⌋/width)) at even k, cos at odd k."""
    k = torch.arange(width)
    angle = torch.arange(n_positions).unsqueeze(-1) / 10000 ** (2 * (k // 2) / width)
    return torch.where(k % 2 == 0, angle.sin(), angle.cos())


def correlation(series: Tensor) -> Tensor:
    """Correlation of the columns of (…, volumes, regions), 0 with a constant column."""
    centred = series - series.mean(-2, keepdim=True)
    norm = centred.norm(dim=-2, keepdim=True)
    unit = centred / norm.clamp(min=1e-12)
    fc = unit.transpose(-1, -2) @ unit  # (…, regions, regions)
    return fc.clamp(-1, 1).diagonal_scatter(torch.ones_like(fc[..., 0]), dim1=-2, dim2=-1)


def shrunk_correlation(series: Tensor) -> Tensor:
    """Correlation of columns from their Ledoit–Wolf covariance, as nilearn has it by default.

    With z the columns at zero mean and unit variance, T volumes, S = zᵀ z / T and m the mean of its
    diagonal, the covariance is (1 - s) S + s m I. The shrinkage is s = min(b, d) / d, where d = ‖S
    - m I‖² is how far S is from its target and b = (mean_t ‖z_t‖⁴ - ‖S‖²) / T how far it scatters
    about the true covariance (Ledoit and Wolf, 2004). A constant column correlates with nothing
    (0).

    Parameters
    ----------
    series : (…, volumes, regions)

    Returns
    -------
    (…, regions, regions)
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
    target_variance = (shrinkage * mean_variance).unsqueeze(-1)
    variance = shrunk.diagonal(dim1=-2, dim2=-1) + target_variance  # (…, regions)
    scale = variance.clamp(min=1e-12).rsqrt()
    fc = scale.unsqueeze(-1) * shrunk * scale.unsqueeze(-2)
    return fc.clamp(-1, 1).diagonal_scatter(torch.ones_like(variance), dim1=-2, dim2=-1)


def dropped_volume_views(series: Tensor, dropped: float, seeds: Sequence[int]) -> list[Tensor]:
    """FC of one scan, for each view from another random choice of volumes (Yang et al. 2024).

    As in the release: the correlation matrix of the Ledoit–Wolf covariance of these volumes.

    Parameters
    ----------
    series : (volumes, regions)
    dropped : float
        Share of the volumes that each view leaves out.
    seeds : sequence of int
        One per view.

    Returns
    -------
    list of (regions, regions)
    """
    n_kept = max(3, len(series) - int(dropped * len(series)))
    views = []
    for seed in seeds:
        order = torch.randperm(len(series), generator=torch.Generator().manual_seed(seed))
        volumes = order[:n_kept].sort().values.to(series.device)
        views.append(shrunk_correlation(series[volumes]))
    return views


def wishart_views(fc: Tensor, degrees: Tensor, seeds: Sequence[int]) -> list[Tensor]:
    """FC as further scans of the same length would give it, if the observed FC were the true one.

    With FC = Q Λ Qᵀ and ν degrees of freedom, ν volumes Z Λ^½ Qᵀ with Z standard normal have a
    covariance matrix that follows the Wishart distribution W(FC, ν); their correlation is the view.
    Λ is clipped at 0, because FC of fewer volumes than regions is singular, and slightly indefinite
    if it is stored in 16 bits.

    Parameters
    ----------
    fc : (regions, regions)
    degrees : scalar tensor
        Volumes less one.
    seeds : sequence of int
        One per view.

    Returns
    -------
    list of (regions, regions)
    """
    values, vectors = torch.linalg.eigh(fc.float())
    root = vectors * values.clamp(min=0).sqrt()  # root rootᵀ = fc
    shape = (max(3, int(degrees)), len(fc))
    views = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)  # on the CPU: a GPU run sees the same views
        noise = torch.randn(shape, generator=generator).to(fc.device)
        views.append(correlation(noise @ root.T))
    return views
