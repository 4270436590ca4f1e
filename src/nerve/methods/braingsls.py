"""BrainGSLs: masked regions' connections rebuilt from those of visible regions (self-supervised)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from nerve.core.training import Dataset
from nerve.data.cohort import Cohort
from nerve.methods.data import CohortDataset, series_of
from nerve.methods.settings import Count, Epochs, NotNegative, Part, Positive, Share, Width
from nerve.methods.trained import Encoder, mean_sample
from nerve.models.braingsls import BrainGSLsModel


@dataclass(kw_only=True, eq=False, repr=False)
class BrainGSLs(Encoder):
    """BrainGSLs: a quarter of the regions is masked, and their connections are rebuilt from those of the others.

    With codes H (from the visible block for visible regions, random for masked ones), Z = GCN(H) and V the visible
    regions, the loss is the mean over pairs not both in V of ((Z Zᵀ)_ij - FC_ij)².

    *The method's own*: a BrainNetCNN-like encoder of the visible block (two edge-to-edge layers of 8, edge-to-node to
    48, leaky ReLU of 0.33), one graph convolution as decoder, inner products as rebuilt connections; SGD at 5e-3 with
    momentum 0.9, weight decay 0.01, batches of 32; a graph of the group's mean FC of at least 0.15.

    *Ours*: masks are drawn anew for each participant and step, where the release draws one for all
    participants and keeps it, so that a quarter of the regions never enters its features. The
    random vectors of masked regions are drawn anew with the mask, where the release draws them once
    for each participant and region. The loss is the mean over the hidden pairs, where the release
    counts the visible ones as zeros. The feature is the codes of all regions side by side (48 R),
    which is what the release's own classifier reads; ``readout="mean"`` gives 48 numbers. The
    release has no code for the paper's signal part: with ``signals=True`` two temporal convolutions
    encode each region's BOLD signal, added to the codes of visible regions.

    *Not said* by the paper whose tables we follow: readout, epochs, and whether signals were used (the cohort of which
    it had FC only suggests not, so they are off by default).

    Parameters
    ----------
    edge_filters, width : int
        Channels of the edge-to-edge layers; width of a region's code.
    mask_ratio, threshold, slope : float
        Share of regions masked; mean FC from which regions are joined; of the leaky ReLU.
    readout : {"flat", "mean"}
        Codes of all regions side by side, or their mean.
    signals : bool
        Also encode the time series; a cohort without them is refused.
    epochs, batch_size, lr, momentum, weight_decay, seed, device
        Of the training loop.

    Examples
    --------
    >>> fc = np.stack([np.corrcoef(np.random.default_rng(i).normal(size=(10, 40))) for i in range(12)])
    >>> BrainGSLs(width=6, epochs=1).fit(fc).transform(fc).shape
    (12, 60)
    """

    model: ClassVar[Any] = BrainGSLsModel
    batch_size_apply: ClassVar[int] = 32

    edge_filters: Width = 8
    width: Width = 48
    mask_ratio: Part = 0.25
    threshold: Annotated[float, Field(ge=-1, lt=1)] = 0.15
    slope: NotNegative = 0.33
    readout: Literal["flat", "mean"] = "flat"
    signals: bool = False
    epochs: Epochs = 100
    batch_size: Count = 32
    lr: Positive = 5e-3
    momentum: Share = 0.9
    weight_decay: NotNegative = 0.01

    @property
    def n_features(self) -> int:
        """The width of a code, for each region or of their mean."""
        return self.width * (1 if self.readout == "mean" else self.n_features_in_)

    def source(self, cohort: Cohort) -> Dataset:
        """FC, with time series if signals are encoded."""
        if not self.signals:
            return CohortDataset(cohort, "fc")
        series_of(cohort, "BrainGSLs with signals=True reads", "Use signals=False.")
        return _WithSeries(cohort)

    def prepare(self, module: Any, source: Dataset, rows: np.ndarray) -> None:
        """The decoder's graph, from the mean FC of the training participants."""
        module.set_group_graph(mean_sample(source, rows))


class _WithSeries:
    """Batches of (FC, list of time series)."""

    def __init__(self, cohort: Cohort) -> None:
        self.fc, self.series = CohortDataset(cohort, "fc"), CohortDataset(cohort, "timeseries")

    def __len__(self) -> int:
        return len(self.fc)

    def batch(self, rows: np.ndarray) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The participants at these positions."""
        return self.fc.batch(rows), self.series.batch(rows)
