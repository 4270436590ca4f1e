"""BrainGNN: two region-aware convolutions on dense, batched graphs, each followed by top-k pooling.

FC rows are the nodes' features, absolute partial correlations the edges.
"""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from nerve._utils.errors import NerveError, problem
from nerve.core.training import Dataset, TrainingSettings
from nerve.data.cohort import Cohort
from nerve.data.connectivity import partial, partial_from_fc
from nerve.data.parcellation import Parcellation
from nerve.methods.parameters import (
    TORCH_BETAS,
    TORCH_EPS,
    BatchOfSeveral,
    Count,
    Device,
    Factor,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Width,
)
from nerve.methods.trained import ScalarModule, SupervisedMethod

_LARGEST_R = 1 - 1e-6
# bytes of partial correlations that are kept in memory; others are computed for each batch
CACHE_BELOW = 2 * 2**30
SUBSTITUTE = "partial correlation from the shrunk inverse of FC, for want of time series"

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "width": 16,
        "n_communities": 4,
        "hidden": (16, 64),
        "epochs": 50,
        "batch_size": 32,
    },
}


class BrainGNN(SupervisedMethod):
    """A graph network with weights per region, which selects the most important regions.

    The method's own: node features are FC profiles in Fisher z, edges are absolute partial
    correlations; two convolutions whose weights are mixed from 8 community bases by the region's
    identity; top-k pooling to half the nodes after each, two-step edges before the second; readout
    max‖mean after each pooling; linear layers 32 and 512; top-k losses at 0.1 each; the release's
    initial weights; the epoch of least validation loss, pooling losses included; Adam 0.01 halved
    every 20 epochs, weight decay 5e-3, batches of 100, 100 epochs.

    Ours: squared error for a continuous target. The group-consistency loss compares participants of
    one class: two-valued targets keep it, a continuous one is cut at the training mean, and
    ``consistency_weight=0`` drops it. Where paper and release differ we follow the paper: ReLU
    after each convolution, scores standardised, top-k loss over all nodes (the release applies the
    sigmoid twice, and to kept nodes only). Neighbours' weights are scaled to sum to one (the
    release's softmax over a dense graph makes them nearly equal). Weights are never laid out as
    regions × in × out. A region's profile holds 0 for itself.

    FC-only cohorts have no partial correlation: it is computed from (1 - shrinkage)·FC +
    shrinkage·I, and `adapted_` says so. With time series, the inverse of the Ledoit–Wolf covariance
    is used.

    The NERVE paper does not say: how y was binned, what stood in for partial correlation in its
    FC-only cohort.

    Parameters
    ----------
    width : int
        Width of both convolutions.
    n_communities : int
        Bases that a region's weights are mixed from.
    ratio : float
        Share of the nodes that each pooling keeps.
    hidden : tuple of two int
        Widths of the linear layers.
    dropout : float
        In the linear layers, while training.
    pooling_weight : float
        Weight of the loss that separates kept from dropped nodes.
    consistency_weight : float
        Weight of the loss that makes participants of one group choose alike.
    shrinkage : float
        Towards the identity, before FC is inverted.
    epochs : int
        Passes over the training participants.
    batch_size : int
        Participants per step.
    lr : float
        Learning rate.
    decay_epochs : int
        Epochs between two cuts of the learning rate.
    decay_factor : float
        Factor of a cut.
    weight_decay : float
        Weight decay.
    validation_fraction : float
        Share of the training participants on whom the epoch is chosen.
    seed : int
        Fixes initial weights, split, data order and whatever else is random.
    device : str
        auto, cpu, cuda, cuda:1, mps.
    """

    title: ClassVar[str] = "BrainGNN"
    citation: ClassVar[str] = (
        "Li et al. (2021) BrainGNN: interpretable brain graph neural network for fMRI "
        "analysis. Med. Image Anal. 74:102233."
    )
    adapted: ClassVar[str] = (
        "Squared error; the consistency loss groups those above and below the mean; FC-only "
        "cohorts: partial correlation from the shrunk inverse of FC, for want of time series."
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    def __init__(
        self,
        *,
        width: Width = 32,
        n_communities: Width = 8,
        ratio: Part = 0.5,
        hidden: Annotated[tuple[Width, Width], Field(strict=False)] = (32, 512),
        dropout: Share = 0.5,
        pooling_weight: NotNegative = 0.1,
        consistency_weight: NotNegative = 0.1,
        shrinkage: Share = 0.1,
        epochs: Count = 100,
        batch_size: BatchOfSeveral = 100,
        lr: Positive = 0.01,
        decay_epochs: Count = 20,
        decay_factor: Factor = 0.5,
        weight_decay: NotNegative = 5e-3,
        validation_fraction: Share = 0.1,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.width = width
        self.n_communities = n_communities
        self.ratio = ratio
        self.hidden = hidden
        self.dropout = dropout
        self.pooling_weight = pooling_weight
        self.consistency_weight = consistency_weight
        self.shrinkage = shrinkage
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.decay_epochs = decay_epochs
        self.decay_factor = decay_factor
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.seed = seed
        self.device = device

    def build(self, parcellation: Parcellation) -> BrainGNNModel:
        """Make the untrained module."""
        return BrainGNNModel(
            parcellation.n_regions,
            width=self.width,
            n_communities=self.n_communities,
            ratio=self.ratio,
            hidden=self.hidden,
            dropout=self.dropout,
            pooling_weight=self.pooling_weight,
            consistency_weight=self.consistency_weight,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimizer="adam",
            lr=self.lr,
            weight_decay=self.weight_decay,
            betas=TORCH_BETAS,
            eps=TORCH_EPS,
            schedule="step",
            decay_epochs=self.decay_epochs,
            decay_factor=self.decay_factor,
            clip=None,
            validation_fraction=self.validation_fraction,
            seed=self.seed,
            device=self.device,
        )

    def dataset(self, cohort: Cohort) -> Dataset:
        """FC and absolute partial correlation of the same participants."""
        return GraphDataset(cohort, self.shrinkage)

    def prepare_module(self, module: Any, dataset: Any, rows: np.ndarray) -> None:
        """Set `adapted_`, which says whether the edges come from time series."""
        super().prepare_module(module, dataset, rows)
        if len(rows) < 2:
            raise NerveError("BrainGNN normalises over participants, expected at least 2 of them.")
        self.adapted_ = SUBSTITUTE if dataset.cohort.timeseries is None else ""


class GraphDataset:
    """FC and absolute partial correlation of participants, (batch, R, R) each.

    Partial correlations are computed once per participant, as far as they fit into memory.

    Parameters
    ----------
    cohort : Cohort
    shrinkage : float
        Towards the identity, before FC is inverted.
    """

    def __init__(self, cohort: Cohort, shrinkage: float) -> None:
        self.cohort = cohort
        self.shrinkage = shrinkage
        self._most_cached = CACHE_BELOW // (2 * cohort.n_regions**2)  # participants
        self._cache: dict[int, np.ndarray] = {}  # row → edges

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """FC and edges of these participants."""
        fc = self.cohort.inputs("fc", rows)
        edges = np.stack([self.edges(int(row)) for row in rows]).astype(np.float32)
        return torch.from_numpy(fc), torch.from_numpy(edges)

    def edges(self, row: int) -> np.ndarray:
        """Absolute partial correlations of a participant, diagonal 0: (R, R) float16."""
        if row in self._cache:
            return self._cache[row]
        edges = np.full(self.cohort.shape[1:], np.nan, np.float16)  # NaN if there is no inverse
        with suppress(np.linalg.LinAlgError):
            edges[:] = np.abs(self._partial(row))
        np.fill_diagonal(edges, 0)
        if not np.isfinite(edges).all():
            participant = self.cohort.participants["participant_id"].iloc[row]
            raise problem(
                f"Participant {participant}",
                "there is no partial correlation (FC is not positive definite, or a region is "
                "constant)",
                remedy="Leave the participant out, or use more shrinkage.",
            )
        if len(self._cache) < self._most_cached:
            self._cache[row] = edges
        return edges

    def _partial(self, row: int) -> np.ndarray:
        if self.cohort.timeseries is not None:
            return partial(self.cohort.inputs("timeseries", [row])[0])
        fc = self.cohort.inputs("fc", [row])[0]
        # raises where it is not positive definite
        np.linalg.cholesky((1 - self.shrinkage) * fc + self.shrinkage * np.eye(len(fc)))
        return partial_from_fc(fc, self.shrinkage)


class BrainGNNModel(ScalarModule):
    """FC and partial correlations → (convolution, pooling, readout) twice → linear layers → number.

    Parameters
    ----------
    n_regions : int
        Regions of FC.
    width : int
        Of both convolutions.
    n_communities : int
        Bases that a region's weights are mixed from.
    ratio : float
        Share of the nodes that each pooling keeps.
    hidden : tuple of two int
        Widths of the linear layers, each with batch norm and dropout.
    dropout : float
    pooling_weight : float
        Of the loss that separates kept from dropped nodes, for each pooling.
    consistency_weight : float
        Of the loss that makes participants of one group choose alike, for the first pooling.
    """

    def __init__(
        self,
        n_regions: int,
        *,
        width: int,
        n_communities: int,
        ratio: float,
        hidden: tuple[int, int],
        dropout: float,
        pooling_weight: float,
        consistency_weight: float,
    ) -> None:
        super().__init__()
        self.ratio = ratio
        self.pooling_weight = pooling_weight
        self.consistency_weight = consistency_weight
        self.convolutions = nn.ModuleList(
            RegionConv(in_width, width, n_regions, n_communities) for in_width in (n_regions, width)
        )
        self.pools = nn.ModuleList(TopKPool(width, self.ratio) for _ in range(2))
        head: list[nn.Module] = []
        for before, after in pairwise([4 * width, *hidden]):
            head += [
                nn.Linear(before, after),
                nn.ReLU(),
                nn.BatchNorm1d(after),
                nn.Dropout(dropout),
            ]
        self.head = nn.Sequential(*head, nn.Linear(hidden[-1], 1))

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """FC and |partial correlation|, (batch, R, R) each → (batch,)."""
        return self.with_gates(inputs)[0]

    def with_gates(self, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The output, and the gates of all nodes before each pooling: (batch, R), (batch, kept)."""
        fc, edges = inputs
        nodes = node_features(fc)  # (batch, R, R)
        regions = torch.arange(fc.shape[1], device=fc.device).expand(fc.shape[:2])  # (batch, R)
        readouts: list[Tensor] = []
        gates: list[Tensor] = []
        for convolution, pool in zip(self.convolutions, self.pools, strict=True):
            if readouts:
                edges = two_step_edges(edges)
            nodes = torch.relu(convolution(nodes, edges, regions))
            nodes, edges, regions, gate = pool(nodes, edges, regions)
            readouts += [nodes.amax(1), nodes.mean(1)]  # (batch, width) each
            gates.append(gate)
        return self.head(torch.cat(readouts, -1)).squeeze(-1), gates

    def training_loss(self, batch: tuple[tuple[Tensor, Tensor], Tensor], draws: Any) -> Tensor:
        """The error plus the losses of pooling.

        In validation too: the release picks the epoch by this sum.

        Parameters
        ----------
        batch : ((FC, partial correlations), targets)
        draws : Draws
            Not used: nothing here is random but dropout.

        Returns
        -------
        scalar tensor
        """
        inputs, target = batch
        predicted, gates = self.with_gates(inputs)
        loss = self.error(predicted, target)
        loss = loss + self.pooling_weight * sum(pooling_loss(gate, self.ratio) for gate in gates)
        # targets are 0 or 1, or z-scores: two groups, above and below the training mean
        middle = 0.5 if self.binary else 0.0
        return loss + self.consistency_weight * consistency_loss(gates[0], target > middle)


def node_features(fc: Tensor) -> Tensor:
    """Each region's FC profile in Fisher z, 0 for itself: (batch, R, R)."""
    z = torch.atanh(fc.clamp(-_LARGEST_R, _LARGEST_R))
    return z * (1 - torch.eye(fc.shape[-1], device=fc.device, dtype=fc.dtype))


class RegionConv(nn.Module):
    """Graph convolution whose weights depend on the region, by soft membership in communities.

    With region i's memberships α_i = relu(M_i) in K communities, its weights are
    W_i = B_0 + Σ_u α_iu B_u, and

        h'_i = W_i h_i + Σ_j e_ij W_j h_j + b,

    where the weights e_ij of i's neighbours sum to one. W_i h_i is computed as Σ_u α_iu (B_u h_i),
    so that no (R, in, out) weights are ever made.

    Initial weights are the release's, which are torch's of two linear layers, R → K → in · out:
    uniform within ±1/√R for M, ±1/√K for all B and ±1/√in for b.

    Parameters
    ----------
    in_width, out_width : int
    n_regions : int
    n_communities : int
    """

    def __init__(
        self, in_width: int, out_width: int, n_regions: int, n_communities: int = 8
    ) -> None:
        super().__init__()
        self.membership = nn.Parameter(torch.empty(n_regions, n_communities))
        # the last one is B_0
        self.bases = nn.Parameter(torch.empty(in_width, n_communities + 1, out_width))
        self.bias = nn.Parameter(torch.empty(out_width))
        _init_uniform(self.membership, fan_in=n_regions)
        _init_uniform(self.bases, fan_in=n_communities)
        _init_uniform(self.bias, fan_in=in_width)

    def forward(self, nodes: Tensor, edges: Tensor, regions: Tensor) -> Tensor:
        """Nodes (batch, n, in), edges (batch, n, n) ≥ 0, regions (batch, n) → (batch, n, out)."""
        alpha = nn.functional.embedding(regions, torch.relu(self.membership))  # (batch, n, K)
        mixing = torch.cat([alpha, torch.ones_like(alpha[..., :1])], dim=-1)  # (batch, n, K + 1)
        in_bases = nodes @ self.bases.flatten(1)  # (batch, n, (K + 1) · out)
        in_bases = in_bases.unflatten(-1, self.bases.shape[1:])  # (batch, n, K + 1, out)
        own = (mixing.unsqueeze(-2) @ in_bases).squeeze(-2)  # (batch, n, out)
        shares = edges / edges.sum(-1, keepdim=True).clamp(min=1e-8)
        return own + shares @ own + self.bias


class TopKPool(nn.Module):
    """Keep the nodes with the highest scores, each multiplied by its gate.

    Score s = h·w / ‖w‖, standardised over the nodes of a graph; gate g = sigmoid(s); the ⌈ratio·n⌉
    best are kept.

    Parameters
    ----------
    width : int
    ratio : float
    """

    def __init__(self, width: int, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio = ratio
        self.weight = nn.Parameter(torch.empty(width))
        _init_uniform(self.weight, fan_in=width)

    def forward(
        self, nodes: Tensor, edges: Tensor, regions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keep k of n nodes.

        Parameters
        ----------
        nodes : (batch, n, width)
        edges : (batch, n, n)
        regions : (batch, n)

        Returns
        -------
        nodes : (batch, k, width)
        edges : (batch, k, k)
        regions : (batch, k)
        gates : (batch, n)
            Of all nodes.
        """
        score = nodes @ (self.weight / self.weight.norm())  # (batch, n)
        centred = score - score.mean(-1, keepdim=True)
        gates = torch.sigmoid(centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-8))
        kept = gates.topk(_n_kept(nodes.shape[1], self.ratio), dim=-1).indices  # (batch, k)
        participant = torch.arange(len(nodes), device=nodes.device).unsqueeze(-1)  # (batch, 1)
        pooled = nodes[participant, kept] * gates[participant, kept].unsqueeze(-1)
        # (batch, k, k): edges among the nodes that are kept
        kept_edges = edges[participant.unsqueeze(-1), kept.unsqueeze(-1), kept.unsqueeze(-2)]
        return pooled, kept_edges, regions[participant, kept], gates


def _init_uniform(parameter: Tensor, fan_in: int) -> None:
    """Draw uniformly within ±1/√fan_in, in place."""
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(parameter, -bound, bound)


def _n_kept(n_nodes: int, ratio: float) -> int:
    """How many nodes pooling keeps: ⌈ratio·n⌉."""
    return math.ceil(ratio * n_nodes)


def two_step_edges(edges: Tensor) -> Tensor:
    """Edges between nodes at most two steps apart: (E + I)², without self-loops; (batch, n, n)."""
    identity = torch.eye(edges.shape[-1], device=edges.device, dtype=edges.dtype)
    looped = edges + identity
    return (looped @ looped) * (1 - identity)


def pooling_loss(gates: Tensor, ratio: float) -> Tensor:
    """Push gates of kept nodes towards one and of the others towards zero.

    -1/n (Σ_kept log g + Σ_dropped log(1 - g)), the mean over graphs.

    Parameters
    ----------
    gates : (batch, n)
    ratio : float
        Share of the nodes that is kept.

    Returns
    -------
    scalar tensor
    """
    ranked = gates.sort(-1, descending=True).values.clamp(1e-6, 1 - 1e-6)
    k = _n_kept(gates.shape[-1], ratio)
    kept = ranked[:, :k].log().sum(-1)  # (batch,)
    dropped = (1 - ranked[:, k:]).log().sum(-1)  # (batch,)
    return -(kept + dropped).mean() / gates.shape[-1]


def consistency_loss(gates: Tensor, group: Tensor) -> Tensor:
    """Let participants of one group choose the same regions.

    Σ_groups 1/(2 m²) Σ_{a,b in group} ‖g_a - g_b‖², with m participants in a group.

    Parameters
    ----------
    gates : (batch, n)
    group : (batch,) bool

    Returns
    -------
    scalar tensor
    """
    total = gates.new_zeros(())
    for member in (group, ~group):
        size = member.sum().clamp(min=1)
        weight = member.to(gates.dtype).unsqueeze(-1) / size  # (batch, 1)
        mean = (weight * gates).sum(0)  # (n,)
        # the mean squared distance to the mean is half of that between pairs
        total = total + (weight * (gates - mean).square()).sum()
    return total
