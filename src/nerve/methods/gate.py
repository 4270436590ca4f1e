"""GATE: participants are nodes of a population graph, seen in different windows of their scans.

It reads FC of windows of each scan, projected to principal components. A training step takes all
participants at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor, nn

from nerve._utils.errors import known_columns, problem
from nerve._utils.linalg import principal_components
from nerve.core.training import TrainingSettings, choose_device
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.methods.brainmass import shrunk_correlation
from nerve.methods.graph_layers import GraphConvolution
from nerve.methods.inputs import required_timeseries
from nerve.methods.parameters import (
    TORCH_BETAS,
    TORCH_EPS,
    Count,
    Device,
    Epochs,
    Names,
    NotNegative,
    Positive,
    Seed,
    Share,
    Width,
)
from nerve.methods.trained import Encoder

# windows, at most, that the projection is fitted on: at R = 400 they take 0.6 GiB
_MOST_WINDOWS_FOR_COMPONENTS = 2048
_TOLERANCE = 2.0  # two numbers are alike if they differ by less (years of age, in the release)

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "n_components": 128,
        "width": 128,
        "epochs": 600,
        "lr": 0.003,
    },
}


class GATE(Encoder):
    """GATE: participants are nodes of a graph, and one window of a scan must agree with the next.

    With A and B the embeddings of two views of all participants, columns standardised: L = 1 -
    mean_i cos(A_i, sg(B_i)) + 0.2 [D(A) + D(B)], D(Z) being the mean squared entry of ZᵀZ/N - I.
    The feature is the mean embedding over the windows.

    *The method's own*: 15 windows of 30 volumes, 15 apart, and windows of 10 to 50 volumes about
    the same centres; FC of a window by the Ledoit–Wolf covariance (nilearn's default, which the
    release takes); edges by a Gaussian of the correlation distance of 512 principal component
    scores, to the nearest participant in one view and the nearest five in the other; feature and
    edge drop of 0.3; one graph convolution to 256, ELU, linear; AdamW at 1e-3, weight decay 1e-5,
    400 steps on the whole population.

    *Ours*: FC entries (79,800 at R = 400) are first projected to 512 principal components, fitted
    on at most 2,048 windows of the training participants; the release fits such a projection and
    trains on the entries. The release places windows of the other lengths at random, and chooses
    graph and features of the second view independently; ours belong to the same window and have the
    same centre as a window of the usual length. Edge weights are used, whereas the release loses
    them when it calls its library. Affinity of phenotype is off by default, because it would put
    age, sex and site, which are removed later, into the features; `phenotypes` names columns that
    multiply the edges. In scans that are too short for all windows, these are spread evenly.

    *Transductive*: an embedding depends on the other participants in its cohort, through the graph.
    `transform` builds the graph of the cohort it is given; a participant's features differ between
    cohorts, and between a cohort and a part of it.

    *Not said* by the paper whose tables we follow: windows and scan lengths used, projection,
    phenotypes.

    Parameters
    ----------
    n_components : int
        Principal components that the graph convolution reads.
    width : int
        Width of the embedding.
    n_windows : int
        Windows per scan.
    window : int
        Volumes of a window.
    stride : int
        Volumes between the starts of two windows.
    other_windows : tuple of int
        Lengths of the second family of windows.
    n_neighbours : int
        Neighbours per participant in the second view; the first has one.
    feature_drop : float
        Share of components set to zero for all participants, in each view.
    edge_drop : float
        Share of edges removed, in each view.
    dropout : float
        Share of single numbers set to zero, in each view.
    decorrelation : float
        Weight of the loss that keeps dimensions uncorrelated.
    phenotypes : tuple of str
        Columns of the participants table that multiply the edges.
    epochs : int
        Steps: an epoch is one step on the whole population.
    lr : float
        Learning rate.
    weight_decay : float
        Weight decay.
    seed : int
        Fixes initial weights, split, data order and whatever else is random.
    device : str
        auto, cpu, cuda, cuda:1, mps.

    Examples
    --------
    >>> import nerve
    >>> cohort = nerve.simulate_cohort(12, "schaefer100-7", timepoints=60)
    >>> GATE(n_components=8, width=8, epochs=4, device="cpu").fit(cohort).transform(cohort).shape
    (12, 8)
    """

    title: ClassVar[str] = "GATE"
    citation: ClassVar[str] = (
        "Peng et al. (2023) GATE: graph CCA for temporal self-supervised learning for "
        "label-efficient fMRI analysis. IEEE Trans. Med. Imaging 42:391-402."
    )
    adapted: ClassVar[str] = "Reads 512 principal components of FC; no phenotypes in the graph."
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    inputs: ClassVar[str] = "timeseries"

    def __init__(
        self,
        *,
        n_components: Width = 512,
        width: Width = 256,
        n_windows: Annotated[int, Field(ge=2, le=10000)] = 15,
        window: Annotated[int, Field(ge=2, le=10**9)] = 30,
        stride: Count = 15,
        other_windows: Annotated[tuple[int, ...], Field(strict=False)] = (10, 20, 40, 50),
        n_neighbours: Count = 5,
        feature_drop: Share = 0.3,
        edge_drop: Share = 0.3,
        dropout: Share = 0.2,
        decorrelation: NotNegative = 0.2,
        phenotypes: Names = (),
        epochs: Epochs = 400,
        lr: Positive = 1e-3,
        weight_decay: NotNegative = 1e-5,
        seed: Seed = 0,
        device: Device = "auto",
    ) -> None:
        self.n_components = n_components
        self.width = width
        self.n_windows = n_windows
        self.window = window
        self.stride = stride
        self.other_windows = other_windows
        self.n_neighbours = n_neighbours
        self.feature_drop = feature_drop
        self.edge_drop = edge_drop
        self.dropout = dropout
        self.decorrelation = decorrelation
        self.phenotypes = phenotypes
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.seed = seed
        self.device = device

    def build(self, parcellation: Parcellation) -> GATEModel:
        """Make the untrained module."""
        return GATEModel(
            parcellation.n_regions,
            n_components=self.n_components,
            width=self.width,
            feature_drop=self.feature_drop,
            edge_drop=self.edge_drop,
            dropout=self.dropout,
            decorrelation=self.decorrelation,
        )

    def training_settings(self) -> TrainingSettings:
        """How it is trained."""
        return TrainingSettings(
            epochs=self.epochs,
            # one sample is the whole population: no participants are held out
            batch_size=1,
            lr=self.lr,
            weight_decay=self.weight_decay,
            betas=TORCH_BETAS,
            eps=TORCH_EPS,
            schedule="constant",
            clip=None,
            validation_fraction=0.0,
            keep="last",
            precision="float32",
            seed=self.seed,
            device=self.device,
        )

    def dataset(self, cohort: Cohort) -> PopulationDataset:
        """The population, as one sample."""
        return PopulationDataset(
            cohort,
            self.module_,
            n_windows=self.n_windows,
            window=self.window,
            other_windows=self.other_windows,
            stride=self.stride,
            n_neighbours=self.n_neighbours,
            phenotypes=self.phenotypes,
        )

    def prepare_module(self, module: Any, dataset: Any, rows: np.ndarray) -> None:
        """Fit the projection: mean and principal components of a random choice of windows."""
        cohort = dataset.cohort
        n_total = len(cohort) * self.n_windows
        order = np.random.default_rng([self.seed, 3]).permutation(n_total)
        chosen = np.sort(order[:_MOST_WINDOWS_FOR_COMPONENTS])
        participant, window = np.divmod(chosen, self.n_windows)
        entries = np.empty((len(chosen), module.mean.shape[0]), np.float32)
        for row in np.unique(participant):
            series = cohort.inputs("timeseries", [row])[0]
            fc = dataset.windows(torch.tensor(series), self.window)  # (windows, entries)
            is_chosen = participant == row
            entries[is_chosen] = fc[window[is_chosen]].numpy()
        mean, components, _ = principal_components(entries, module.components.shape[0])
        module.mean.copy_(torch.from_numpy(mean))
        module.components.zero_()  # fewer windows than components leave the last ones empty
        module.components[: components.shape[1]] = torch.from_numpy(components.T)

    def validation_split(
        self, cohort: Cohort, settings: TrainingSettings, groups: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """One training sample, the population; no validation."""
        return np.arange(1), np.zeros(0, int)

    def finish(self, module: Any, dataset: Any) -> None:
        """Record the number of participants, because `fit` has counted one sample."""
        self.data_["n_training"] = len(dataset.cohort)

    @torch.inference_mode()
    def features(self, cohort: Cohort) -> np.ndarray:
        """(n, width): mean over windows, in the graph of the participants given here."""
        module = self.module_.to(choose_device(self.device)).eval()
        features, neighbours, weights = self.dataset(cohort).graphs([self.window], 1)
        total: Any = 0
        for window in range(self.n_windows):
            total = total + module.embed(
                features[0, window], neighbours[0, window], weights[0, window]
            )
        return (total / self.n_windows).cpu().numpy()


class PopulationDataset:
    """One sample, the whole population: projected windows, and a graph of participants in each.

    The sample is computed when it is first read, because the projection is fitted before that.

    Parameters
    ----------
    cohort : Cohort
        With time series.
    module : GATEModel
        Whose projection is used.
    n_windows, window : int
        Windows per scan, and their volumes.
    other_windows : tuple of int
        Lengths of the second family.
    stride : int
        Volumes between the starts of two windows.
    n_neighbours : int
        Neighbours per participant.
    phenotypes : tuple of str
        Columns of the participants table that multiply the edges.
    """

    def __init__(
        self,
        cohort: Cohort,
        module: GATEModel,
        *,
        n_windows: int,
        window: int,
        other_windows: Sequence[int],
        stride: int,
        n_neighbours: int,
        phenotypes: Sequence[str],
    ) -> None:
        series = required_timeseries(
            cohort, "GATE reads windows of", "It cannot be run on this cohort."
        )
        for row in np.flatnonzero(series.lengths < window):
            raise problem(
                cohort.participants["participant_id"].iloc[row],
                f"the scan has {series.lengths[row]} volumes",
                expected=f"at least {window}, the length of GATE's windows",
                remedy="Leave the participant out or use a smaller window.",
            )
        self.cohort = cohort
        self.module = module
        self.n_windows = n_windows
        self.window = window
        self.other_windows = other_windows
        self.stride = stride
        self.n_neighbours = n_neighbours
        self.phenotypes = _phenotype_codes(cohort, phenotypes)
        self._sample: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return 1

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        """What `GATEModel.training_loss` reads, on the device of the module."""
        if not self._sample:
            lengths = [self.window, *self.other_windows]
            features, neighbours, weights = self.graphs(lengths, self.n_neighbours)
            self._sample = {"features": features, "neighbours": neighbours, "weights": weights}
        return self._sample

    @torch.no_grad()
    def graphs(self, lengths: Sequence[int], k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Windows of each length of all participants, and their nearest participants in each.

        Parameters
        ----------
        lengths : sequence of int
            Volumes of a window.
        k : int
            Neighbours.

        Returns
        -------
        features : (lengths, windows, participants, components) tensor
        neighbours, weights : (lengths, windows, participants, k) tensors
        """
        module = self.module
        device = module.mean.device
        n_components = module.components.shape[0]
        features = torch.empty(len(lengths), self.n_windows, len(self.cohort), n_components)
        for row in range(len(self.cohort)):
            series = torch.tensor(self.cohort.inputs("timeseries", [row])[0], device=device)
            for i, length in enumerate(lengths):
                features[i, :, row] = module.project(self.windows(series, length)).cpu()
        neighbours = []
        weights = []
        for window_features in features.flatten(0, 1):  # (participants, components)
            nearest, similarity = nearest_participants(window_features, k, *self.phenotypes)
            neighbours.append(nearest)
            weights.append(similarity)
        shape = features.shape[:2]
        return (
            features.to(device),
            torch.stack(neighbours).unflatten(0, shape).to(device),
            torch.stack(weights).unflatten(0, shape).to(device),
        )

    def windows(self, series: Tensor, length: int) -> Tensor:
        """FC of every window of a scan, of a length: (windows, R (R - 1) / 2)."""
        return window_connectivity(
            series, length, window=self.window, n_windows=self.n_windows, stride=self.stride
        )


def window_connectivity(
    series: Tensor, length: int, *, window: int, n_windows: int, stride: int
) -> Tensor:
    """FC of every window of a scan, by the Ledoit–Wolf covariance.

    Windows of another length have the same centres as those of the usual length.

    Parameters
    ----------
    series : (volumes, R) tensor
        The scan.
    length : int
        Volumes of the windows to cut.
    window, n_windows, stride : int
        Windows of the usual length: their volumes, their number, volumes between two starts.

    Returns
    -------
    (windows, R (R - 1) / 2) tensor
        Entries above the diagonal.
    """
    n_volumes, n_regions = series.shape
    length = min(length, n_volumes)
    centres = window_starts(n_volumes, window, n_windows, stride) + window / 2
    starts = np.clip((centres - length / 2).astype(int), 0, n_volumes - length)
    # (windows, length, R)
    windows = torch.stack([series[start : start + length] for start in starts])
    fc = shrunk_correlation(windows)  # (windows, R, R)
    rows, columns = torch.triu_indices(n_regions, n_regions, 1, device=series.device)
    return fc[:, rows, columns]


def window_starts(n_volumes: int, length: int, n_windows: int, stride: int) -> np.ndarray:
    """First volumes of the windows: `stride` apart, or spread evenly in a short scan.

    Parameters
    ----------
    n_volumes : int
        Of the scan.
    length : int
        Of a window.
    n_windows : int
    stride : int

    Returns
    -------
    (n_windows,)

    Examples
    --------
    >>> window_starts(100, 30, 4, 15).tolist(), window_starts(60, 30, 4, 15).tolist()
    ([0, 15, 30, 45], [0, 10, 20, 30])
    """
    if (n_windows - 1) * stride + length <= n_volumes:
        return np.arange(n_windows) * stride
    return np.linspace(0, n_volumes - length, n_windows).round().astype(int)


def _phenotype_codes(cohort: Cohort, columns: Sequence[str]) -> tuple[Tensor | None, Tensor | None]:
    """Columns as numbers, and the difference below which two participants are alike.

    Parameters
    ----------
    cohort : Cohort
    columns : sequence of str
        Of the participants table.

    Returns
    -------
    codes : (participants, columns) tensor, or None without columns
    tolerances : (columns,) tensor, or None without columns
    """
    names = known_columns(columns, cohort.participants.columns, f"Cohort {cohort.name!r}")
    if not names:
        return None, None
    codes = []
    tolerances = []
    for name in names:
        column = cohort.participants[name]
        is_number = pd.api.types.is_numeric_dtype(column) and column.nunique() > 10
        values = column if is_number else column.astype("category").cat.codes
        codes.append(values.astype(float).to_numpy(np.float32))
        tolerances.append(_TOLERANCE if is_number else 0.5)
    return torch.from_numpy(np.stack(codes, -1)), torch.tensor(tolerances)


class GATEModel(nn.Module):
    """One graph convolution, ELU and a linear layer; and the projection of FC that it reads.

    The loss of two views, embedded as A and B with columns brought to zero mean and unit variance
    over the N participants:

    L = 1 - mean_i cos(A_i, sg(B_i)) + γ [D(A) + D(B)],  D(Z) = mean over entries of (Zᵀ Z / N - I)²

    with sg the stop of the gradient: the views agree, and the dimensions of each stay uncorrelated,
    which is the soft form of canonical correlation analysis.

    Parameters
    ----------
    n_regions : int
        Regions of FC, R.
    n_components : int
        Principal components that the graph convolution reads.
    width : int
        Of convolution and embedding.
    feature_drop, edge_drop, dropout : float
        Share of components set to zero for all participants, of edges removed, and of single
        numbers set to zero, in each view.
    decorrelation : float
        γ above.
    """

    def __init__(
        self,
        n_regions: int,
        *,
        n_components: int,
        width: int,
        feature_drop: float,
        edge_drop: float,
        dropout: float,
        decorrelation: float,
    ) -> None:
        super().__init__()
        self.feature_drop = feature_drop
        self.edge_drop = edge_drop
        self.decorrelation = decorrelation
        n_features = n_regions * (n_regions - 1) // 2
        n_components = min(n_components, n_features)
        self.dropout = nn.Dropout(dropout)
        self.convolution = PopulationConvolution(n_components, width)
        # columns are standardised: a bias would have no gradient
        self.linear = nn.Linear(width, width, bias=False)
        self.mean = nn.Buffer(torch.zeros(n_features))
        self.components = nn.Buffer(torch.zeros(n_components, n_features))

    def project(self, upper: Tensor) -> Tensor:
        """Principal components of FC entries: (…, n_features) → (…, n_components)."""
        return (upper - self.mean) @ self.components.T

    def training_loss(self, batch: dict[str, Tensor], draws: Any) -> Tensor:
        """The loss above, for two views of all participants.

        View a is a random window with edges to the nearest participant, view b the next window with
        all edges; half of the time b has another length.

        Parameters
        ----------
        batch : dict
            `features` (lengths, windows, participants, components), the usual length first;
            `neighbours` and `weights` (lengths, windows, participants, k), nearest first.
        draws : Draws
            Which windows, and which length.

        Returns
        -------
        scalar tensor
        """
        n_lengths, n_windows = batch["features"].shape[:2]
        window_draw, family_draw, length_draw = draws.shared_uniform(3).tolist()
        window = int(window_draw * (n_windows - 1))
        length = 0  # position in `features`: the usual length
        if family_draw >= 0.5 and n_lengths > 1:
            length = 1 + int(length_draw * (n_lengths - 1))
        a = self.view(batch, 0, window, 1, draws)
        b = self.view(batch, length, window + 1, batch["weights"].shape[-1], draws)
        return agreement_loss(a, b, self.decorrelation)

    def view(
        self, batch: dict[str, Tensor], length: int, window: int, k: int, draws: Any
    ) -> Tensor:
        """Embed one window in the graph of the k nearest, with drops: (participants, width)."""
        x = batch["features"][length, window]  # (participants, components)
        neighbours = batch["neighbours"][length, window, :, :k]  # (participants, k)
        weights = batch["weights"][length, window, :, :k]  # (participants, k)
        x = x * (draws.shared_uniform(x.shape[-1]) >= self.feature_drop)
        weights = weights * (draws.shared_uniform(*weights.shape) >= self.edge_drop)
        return self.embed(self.dropout(x), neighbours, weights)

    def embed(self, x: Tensor, neighbours: Tensor, weights: Tensor) -> Tensor:
        """(participants, components) and their graph → (participants, width)."""
        return self.linear(nn.functional.elu(self.convolution(x, neighbours, weights)))


def agreement_loss(a: Tensor, b: Tensor, decorrelation: float) -> Tensor:
    """GATE's loss of two embedded views, (participants, width) each."""
    a = standardised(a)
    b = standardised(b)
    agreement = nn.functional.cosine_similarity(a, b.detach(), dim=-1).mean()
    return 1 - agreement + decorrelation * (_decorrelation_loss(a) + _decorrelation_loss(b))


def standardised(x: Tensor) -> Tensor:
    """Columns with zero mean and unit variance."""
    centred = x - x.mean(0)
    return centred / (centred.square().mean(0) + 1e-8).sqrt()


def _decorrelation_loss(x: Tensor) -> Tensor:
    """Mean squared difference of the columns' correlation matrix from the identity."""
    identity = torch.eye(x.shape[-1], device=x.device)
    return (x.T @ x / len(x) - identity).square().mean()


def nearest_participants(
    features: Tensor,
    k: int,
    phenotypes: Tensor | None = None,
    tolerances: Tensor | None = None,
    block: int = 1024,
) -> tuple[Tensor, Tensor]:
    """The k most similar others of each participant, and the weights of the edges to them.

    The weight is exp(-d² / (2 σ²)), d = 1 - r being the correlation distance of features and σ its
    mean over all pairs; with phenotypes, times the number of them that differ by less than their
    tolerance. Rows are computed a block at a time: a population of tens of thousands needs no
    square matrix.

    Parameters
    ----------
    features : (participants, components)
    k : int
    phenotypes : (participants, columns), optional
    tolerances : (columns,), optional
    block : int
        Participants whose distances are computed at a time.

    Returns
    -------
    neighbours : (participants, k)
        Positions, nearest first.
    weights : (participants, k)
    """
    unit = features - features.mean(-1, keepdim=True)
    unit = unit / unit.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    n = len(unit)
    sigma = max(1 - (float(unit.sum(0).double().square().sum()) - n) / max(n * (n - 1), 1), 1e-6)
    neighbours = []
    weights = []
    for start in range(0, n, block):
        rows = slice(start, start + block)
        distance = 1 - unit[rows] @ unit.T  # (block, participants)
        similarity = torch.exp(-distance.square() / (2 * sigma**2))
        if phenotypes is not None and tolerances is not None:
            difference = phenotypes[rows].unsqueeze(1) - phenotypes
            is_close = difference.abs() < tolerances  # (block, participants, columns)
            similarity = similarity * is_close.sum(-1)
        own = torch.arange(len(similarity), device=unit.device)
        similarity[own, own + start] = -1.0  # never a neighbour of itself
        nearest = similarity.topk(min(k, n - 1))
        neighbours.append(nearest.indices)
        weights.append(nearest.values)
    return torch.cat(neighbours), torch.cat(weights)


class PopulationConvolution(GraphConvolution):
    """A graph convolution over participants whose graph is a list of neighbours per participant.

    With weights A_ij from participant i to its neighbours j, self-loops added and both degrees of A
    + I taken: H'_i = Σ_j (A + I)_ij / √(out_i · in_j) · H_j W + b. The (participants ×
    participants) matrix is never formed.
    """

    def forward(self, x: Tensor, neighbours: Tensor, weights: Tensor) -> Tensor:  # type: ignore[override]
        """Convolve over the neighbours of each participant.

        Parameters
        ----------
        x : (participants, width_in)
        neighbours : (participants, k) of int
        weights : (participants, k)

        Returns
        -------
        (participants, width_out)
        """
        outgoing = 1 + weights.sum(-1)  # (participants,)
        incoming = torch.ones_like(outgoing).index_add(0, neighbours.flatten(), weights.flatten())
        projected = self.linear(x)  # (participants, width_out)
        received = projected / incoming.sqrt().unsqueeze(-1)
        # `embedding` adds gradients in a fixed order, unlike received[neighbours]
        of_neighbours = nn.functional.embedding(
            neighbours, received
        )  # (participants, k, width_out)
        total = received + (of_neighbours * weights.unsqueeze(-1)).sum(1)
        return total / outgoing.sqrt().unsqueeze(-1) + self.bias
