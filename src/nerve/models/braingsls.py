"""BrainGSLs (Wen et al., 2023): encode the connections among visible regions, rebuild those of the masked ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nerve.models.brainnetcnn import EdgeToEdge, EdgeToNode
from nerve.models.graph import GraphConvolution


class SignalEncoder(nn.Module):
    """BOLD signals to vectors: two temporal convolutions, the same for all regions, then the mean over time."""

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
        for person in series:
            centred = person - person.mean(0)
            signals = (centred / centred.std(0).clamp(min=1e-6)).T.unsqueeze(
                1
            )  # (regions, 1, volumes)
            vectors.append(self.layers(signals).mean(-1))  # (regions, width)
        return torch.stack(vectors)


class BrainGSLsModel(nn.Module):
    """Local encoder on the visible block, graph decoder on all regions.

    With V the visible regions, E the encoder (two edge-to-edge layers, one edge-to-node layer) and G the group's graph:

    H_i = E(FC[V, V])_i for visible i, a random normal vector for masked i;  Z = GCN(H, G);
    L = mean over (i, j) not both visible of ((Z Zᵀ)_ij - FC_ij)².

    The filters have one weight per region: leaving masked rows and columns out of every sum is the convolution of the
    visible block, and any region can be masked. Sums are scaled by R / |V|, so that codes keep their size when nothing
    is masked.

    Parameters
    ----------
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    edge_filters, width : int
        Channels of the edge-to-edge layers; width of a region's code.
    mask_ratio : float
        Share of the regions that is masked.
    threshold : float
        Group-mean FC from which two regions are joined in the decoder's graph.
    slope : float
        Of the leaky ReLU.
    signals : bool
        Add the encoding of visible regions' BOLD signals to their codes; batches are then (FC, list of series).
    readout : {"flat", "mean"}
        The feature: codes of all regions side by side, or their mean.
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.n_masked = max(1, int(settings.mask_ratio * n_regions))
        edge_filters, slope = settings.edge_filters, settings.slope
        self.width, self.threshold, self.readout = (
            settings.width,
            settings.threshold,
            settings.readout,
        )
        self.first = EdgeToEdge(1, edge_filters, n_regions)
        self.second = EdgeToEdge(edge_filters, edge_filters, n_regions)
        self.nodes = EdgeToNode(edge_filters, self.width, n_regions)
        self.activation = nn.LeakyReLU(slope)
        self.signals = SignalEncoder(self.width, slope) if settings.signals else None
        self.decoder = GraphConvolution(self.width, self.width)
        self.group_graph = nn.Buffer(torch.zeros(n_regions, n_regions))

    def set_group_graph(self, mean_fc: Tensor) -> None:
        """Join the regions whose group-mean FC reaches the threshold.

        A participant's own graph would tell the decoder which of the masked connections are strong.
        """
        graph = (mean_fc >= self.threshold).to(self.group_graph)
        self.group_graph.copy_(graph.fill_diagonal_(0))

    def training_loss(self, batch: Any, draws: Any) -> Tensor:
        """The loss above; batch is (batch, regions, regions), or that with a list of series."""
        fc, series = parted(batch)
        visible = self.choose_visible(fc.shape[-1], draws)  # (batch, regions)
        noise = draws.normal(fc.shape[-1], self.width)
        codes = torch.where(visible.unsqueeze(-1), self.codes(fc, series, visible), noise)
        codes = self.decoder(codes, self.group_graph)  # (batch, regions, width)
        hidden = ~(visible.unsqueeze(-1) & visible.unsqueeze(-2))  # (batch, regions, regions)
        return (codes @ codes.transpose(-1, -2) - fc)[hidden].square().mean()

    def choose_visible(self, n_regions: int, draws: Any) -> Tensor:
        """Which regions are visible, the same number for everyone: (batch, regions) of bool."""
        return draws.uniform(n_regions).argsort(-1).argsort(-1) >= self.n_masked

    def codes(self, fc: Tensor, series: Sequence[Tensor] | None, visible: Tensor) -> Tensor:
        """Codes of the regions, of which only the visible ones mean something: (batch, regions, width)."""
        block = (visible.unsqueeze(-1) & visible.unsqueeze(-2)).unsqueeze(
            1
        )  # (batch, 1, regions, regions)
        block = block * (visible.shape[-1] / visible.sum(-1)).view(-1, 1, 1, 1)
        edges = self.activation(
            self.first(fc.unsqueeze(1) * block)
        )  # (batch, filters, regions, regions)
        edges = self.activation(self.second(edges * block))
        codes = self.activation(self.nodes(edges * block))
        return codes if self.signals is None else codes + self.signals(series or [])

    def embed(self, batch: Any) -> Tensor:
        """Codes with nothing masked: (batch, regions · width), or (batch, width) for their mean."""
        fc, series = parted(batch)
        everything = torch.ones(fc.shape[:2], dtype=torch.bool, device=fc.device)
        codes = self.codes(fc, series, everything)
        return codes.mean(1) if self.readout == "mean" else codes.flatten(1)


def parted(batch: Any) -> tuple[Tensor, Sequence[Tensor] | None]:
    """FC and, if the batch has them, time series."""
    return (batch, None) if isinstance(batch, Tensor) else (batch[0], batch[1])
