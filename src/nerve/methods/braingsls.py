"""BrainGSLs: encode the connections among visible regions, rebuild those of the masked ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from nerve.core.training import Dataset, TrainingSettings
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.brainnetcnn import EdgeToEdge, EdgeToNode
from nerve.methods.graph_layers import GraphConvolution
from nerve.methods.inputs import CohortDataset, required_timeseries
from nerve.methods.parameters import (
    Count,
    Device,
    Epochs,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Width,
)
from nerve.methods.trained import Encoder, mean_sample

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "edge_filters": 4,
        "width": 16,
        "epochs": 60,
    },
}


class BrainGSLs(Encoder):
    """BrainGSLs: connections of masked regions are rebuilt from those of the others.

    With codes H (from the visible block for visible regions, random for masked ones), Z = GCN(H)
    and V the visible regions, the loss is the mean over pairs not both in V of
    ((Z Zᵀ)_ij - FC_ij)².

    *The method's own*: a BrainNetCNN-like encoder of the visible block (two edge-to-edge layers of
    8, edge-to-node to 48, leaky ReLU of 0.33), one graph convolution as decoder, inner products as
    rebuilt connections; SGD at 5e-3 with momentum 0.9, weight decay 0.01, batches of 32; a graph of
    the group's mean FC of at least 0.15.

    *Ours*: masks are drawn anew for each participant and step, where the release draws one for all
    participants and keeps it, so that a quarter of the regions never enters its features. The
    random vectors of masked regions are drawn anew with the mask, where the release draws them once
    for each participant and region. The loss is the mean over the hidden pairs, where the release
    counts the visible ones as zeros. The feature is the codes of all regions side by side (48 R),
    which is what the release's own classifier reads; ``readout="mean"`` gives 48 numbers. The
    release has no code for the paper's signal part: with ``signals=True`` two temporal convolutions
    encode each region's BOLD signal, added to the codes of visible regions.

    *Not said* by the paper whose tables we follow: readout, epochs, and whether signals were used.
    They are off by default, because one of its cohorts had FC only.

    Parameters
    ----------
    edge_filters : int
        Channels of the edge-to-edge layers.
    width : int
        Width of a region's code.
    mask_ratio : float
        Share of the regions that is masked.
    threshold : float
        Mean FC from which two regions are joined in the decoder's graph.
    slope : float
        Of the leaky ReLU.
    readout : {"flat", "mean"}
        The feature: codes of all regions side by side, or their mean.
    signals : bool
        Also encode the time series; a cohort without them is refused.
    epochs : int
        Passes over the training participants.
    batch_size : int
        Participants per step.
    lr : float
        Learning rate.
    momentum : float
        Momentum of SGD.
    weight_decay : float
        Weight decay.
    seed : int
        Fixes initial weights, split, data order and whatever else is random.
    device : str
        auto, cpu, cuda, cuda:1, mps.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fc = np.stack([np.corrcoef(x) for x in rng.normal(size=(12, 10, 40))])
    >>> BrainGSLs(width=6, epochs=1).fit(fc).transform(fc).shape
    (12, 60)
    """

    title: ClassVar[str] = "BrainGSLs"
    citation: ClassVar[str] = (
        "Wen et al. (2023) Graph self-supervised learning with application to brain networks "
        "analysis. IEEE J. Biomed. Health Inform. 27:4154-4165."
    )
    adapted: ClassVar[str] = (
        "Masks are redrawn for each participant and step; signals are used only where asked for."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    batch_size_apply: ClassVar[int] = 32

    def __init__(
        self,
        *,
        edge_filters: Width = 8,
        width: Width = 48,
        mask_ratio: Part = 0.25,
        threshold: Annotated[float, Field(ge=-1, lt=1)] = 0.15,
        slope: NotNegative = 0.33,
        readout: Literal["flat", "mean"] = "flat",
        signals: bool = False,
        epochs: Epochs = 100,
        batch_size: Count = 32,
        lr: Positive = 5e-3,
        momentum: Share = 0.9,
        weight_decay: NotNegative = 0.01,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.edge_filters = edge_filters
        self.width = width
        self.mask_ratio = mask_ratio
        self.threshold = threshold
        self.slope = slope
        self.readout = readout
        self.signals = signals
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.seed = seed
        self.device = device

    def build(self, parcellation: Parcellation) -> BrainGSLsModel:
        """Make the untrained module."""
        return BrainGSLsModel(
            parcellation.n_regions,
            edge_filters=self.edge_filters,
            width=self.width,
            mask_ratio=self.mask_ratio,
            threshold=self.threshold,
            slope=self.slope,
            readout=self.readout,
            signals=self.signals,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer="sgd",
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            schedule="constant",
            seed=self.seed,
            device=self.device,
        )

    @property
    def n_features(self) -> int:
        """The width of a code, for each region or of their mean."""
        return self.width if self.readout == "mean" else self.width * self.n_features_in_

    def dataset(self, cohort: Cohort) -> Dataset:
        """FC, with time series if signals are encoded."""
        if not self.signals:
            return CohortDataset(cohort, "fc")
        required_timeseries(cohort, "BrainGSLs with signals=True reads", "Use signals=False.")
        return _FCAndSeries(cohort)

    def prepare_module(self, module: Any, dataset: Dataset, rows: np.ndarray) -> None:
        """The decoder's graph, from the mean FC of the training participants."""
        module.set_group_graph(mean_sample(dataset, rows))


class _FCAndSeries:
    """Batches of (FC, list of time series)."""

    def __init__(self, cohort: Cohort) -> None:
        self.fc = CohortDataset(cohort, "fc")
        self.series = CohortDataset(cohort, "timeseries")

    def __len__(self) -> int:
        return len(self.fc)

    def batch(self, rows: np.ndarray) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The participants at these positions."""
        return self.fc.batch(rows), self.series.batch(rows)


class BrainGSLsModel(nn.Module):
    """Local encoder on the visible block, graph decoder on all regions.

    With V the visible regions, E the encoder (two edge-to-edge layers, one edge-to-node layer) and
    G the group's graph:

    H_i = E(FC[V, V])_i for visible i, a random normal vector for masked i;  Z = GCN(H, G);
    L = mean over (i, j) not both visible of ((Z Zᵀ)_ij - FC_ij)².

    The filters have one weight per region: leaving masked rows and columns out of every sum is the
    convolution of the visible block, and any region can be masked. Sums are scaled by R / |V|, so
    that codes keep their size when nothing is masked.

    Parameters
    ----------
    n_regions : int
        Regions of FC, R.
    edge_filters, width : int
        Channels of the edge-to-edge layers; width of a region's code.
    mask_ratio : float
        Share of the regions that is masked.
    threshold : float
        Group-mean FC from which two regions are joined in the decoder's graph.
    slope : float
        Of the leaky ReLU.
    readout : {"flat", "mean"}
        The feature: codes of all regions side by side, or their mean.
    signals : bool
        Add the encoding of visible regions' BOLD signals to their codes; batches are then (FC, list
        of series).
    """

    def __init__(
        self,
        n_regions: int,
        *,
        edge_filters: int,
        width: int,
        mask_ratio: float,
        threshold: float,
        slope: float,
        readout: str,
        signals: bool,
    ) -> None:
        super().__init__()
        self.n_masked = max(1, int(mask_ratio * n_regions))
        self.width = width
        self.threshold = threshold
        self.readout = readout
        self.first = EdgeToEdge(1, edge_filters, n_regions)
        self.second = EdgeToEdge(edge_filters, edge_filters, n_regions)
        self.nodes = EdgeToNode(edge_filters, width, n_regions)
        self.activation = nn.LeakyReLU(slope)
        self.signals = SignalEncoder(width, slope) if signals else None
        self.decoder = GraphConvolution(width, width)
        self.group_graph = nn.Buffer(torch.zeros(n_regions, n_regions))

    def set_group_graph(self, mean_fc: Tensor) -> None:
        """Join the regions whose group-mean FC reaches the threshold.

        A participant's own graph would tell the decoder which of the masked connections are strong.

        Parameters
        ----------
        mean_fc : (regions, regions)
        """
        graph = (mean_fc >= self.threshold).to(self.group_graph)
        self.group_graph.copy_(graph.fill_diagonal_(0))

    def training_loss(self, batch: Any, draws: Any) -> Tensor:
        """The loss above; a batch is FC, (batch, regions, regions), or FC and a list of series."""
        fc, series = _fc_and_series(batch)
        visible = self.choose_visible(fc.shape[-1], draws)  # (batch, regions)
        noise = draws.normal(fc.shape[-1], self.width)
        codes = torch.where(visible.unsqueeze(-1), self.codes(fc, series, visible), noise)
        codes = self.decoder(codes, self.group_graph)  # (batch, regions, width)
        hidden = ~(visible.unsqueeze(-1) & visible.unsqueeze(-2))  # (batch, regions, regions)
        return (codes @ codes.transpose(-1, -2) - fc)[hidden].square().mean()

    def choose_visible(self, n_regions: int, draws: Any) -> Tensor:
        """Which regions are visible, as many in each participant: (batch, regions) of bool."""
        return draws.uniform(n_regions).argsort(-1).argsort(-1) >= self.n_masked

    def codes(self, fc: Tensor, series: Sequence[Tensor] | None, visible: Tensor) -> Tensor:
        """Codes of the regions, meaningful for visible ones only: (batch, regions, width)."""
        both = visible.unsqueeze(-1) & visible.unsqueeze(-2)  # (batch, regions, regions)
        block = both.unsqueeze(1)  # (batch, 1, regions, regions)
        # R / |V|
        block = block * (visible.shape[-1] / visible.sum(-1)).view(-1, 1, 1, 1)
        # (batch, filters, regions, regions)
        edges = self.activation(self.first(fc.unsqueeze(1) * block))
        edges = self.activation(self.second(edges * block))
        codes = self.activation(self.nodes(edges * block))  # (batch, regions, width)
        return codes if self.signals is None else codes + self.signals(series or [])

    def embed(self, batch: Any) -> Tensor:
        """Codes with nothing masked: (batch, regions · width), or (batch, width) for their mean."""
        fc, series = _fc_and_series(batch)
        everything = torch.ones(fc.shape[:2], dtype=torch.bool, device=fc.device)
        codes = self.codes(fc, series, everything)
        return codes.mean(1) if self.readout == "mean" else codes.flatten(1)


def _fc_and_series(batch: Any) -> tuple[Tensor, Sequence[Tensor] | None]:
    """FC and, if the batch has them, time series."""
    return (batch, None) if isinstance(batch, Tensor) else (batch[0], batch[1])


class SignalEncoder(nn.Module):
    """BOLD signals to vectors: two temporal convolutions, then the mean over time."""

    def __init__(self, width: int, slope: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 16, kernel_size=7, stride=2, padding=3),
            nn.LeakyReLU(slope),
            nn.Conv1d(16, width, kernel_size=7, stride=2, padding=3),
            nn.LeakyReLU(slope),
        )

    def forward(self, series: Sequence[Tensor]) -> Tensor:
        """A list of (volumes, regions), of any lengths → (batch, regions, width)."""
        vectors = []
        for scan in series:
            centred = scan - scan.mean(0)
            standardised = centred / centred.std(0).clamp(min=1e-6)
            signals = standardised.T.unsqueeze(1)  # (regions, 1, volumes)
            vectors.append(self.layers(signals).mean(-1))  # (regions, width)
        return torch.stack(vectors)
