"""GATE (Peng et al., 2023): participants are nodes of a population graph, seen in different windows of their scans."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nerve.models.graph import GraphConvolution


class PopulationConvolution(GraphConvolution):
    """A graph convolution over participants whose graph is a list of neighbours per participant.

    With weights A_ij from participant i to its neighbours j, self-loops added and both degrees of A + I taken:
    H'_i = Σ_j (A + I)_ij / √(out_i · in_j) · H_j W + b. The (participants × participants) matrix is never formed.
    """

    def forward(self, x: Tensor, neighbours: Tensor, weights: Tensor) -> Tensor:  # type: ignore[override]
        """(subjects, width_in), (subjects, k) of whole numbers, (subjects, k) → (subjects, width_out)."""
        outgoing = 1 + weights.sum(-1)  # (participants,)
        incoming = torch.ones_like(outgoing).index_add(0, neighbours.flatten(), weights.flatten())
        projected = self.linear(x)  # (participants, width_out)
        received = projected / incoming.sqrt().unsqueeze(-1)
        # `embedding` adds gradients in a fixed order, unlike received[neighbours]
        theirs = nn.functional.embedding(neighbours, received) * weights.unsqueeze(-1)
        total = received + theirs.sum(1)  # (participants, width_out)
        return total / outgoing.sqrt().unsqueeze(-1) + self.bias


class GATEModel(nn.Module):
    """One graph convolution, ELU and a linear layer; and the projection of FC that it reads.

    The loss of two views, embedded as A and B with columns brought to zero mean and unit variance over the N
    participants:

    L = 1 - mean_i cos(A_i, sg(B_i)) + γ [D(A) + D(B)],  D(Z) = mean over entries of (Zᵀ Z / N - I)²

    with sg the stop of the gradient: the views agree, and the dimensions of each stay uncorrelated, which is the
    soft form of canonical correlation analysis.

    Parameters
    ----------
    n_regions : int
    settings : object
        The method, or whatever has these attributes.

    Attributes of the settings
    --------------------------
    n_components : int
        Principal components that the graph convolution reads.
    width : int
        Of convolution and embedding.
    feature_drop, edge_drop, dropout : float
        Share of components set to zero for everyone, of edges removed, and of single numbers set to zero, in each view.
    decorrelation : float
        γ above.
    """

    def __init__(self, n_regions: int, settings: Any) -> None:
        super().__init__()
        self.feature_drop, self.edge_drop = settings.feature_drop, settings.edge_drop
        self.decorrelation, width = settings.decorrelation, settings.width
        n_features = n_regions * (n_regions - 1) // 2
        n_components = min(settings.n_components, n_features)
        self.dropout = nn.Dropout(settings.dropout)
        self.convolution = PopulationConvolution(n_components, width)
        self.linear = nn.Linear(
            width, width, bias=False
        )  # columns are standardised: a bias would have no gradient
        self.mean = nn.Buffer(torch.zeros(n_features))
        self.components = nn.Buffer(torch.zeros(n_components, n_features))

    def project(self, upper: Tensor) -> Tensor:
        """Principal components of FC entries: (…, n_features) → (…, n_components)."""
        return (upper - self.mean) @ self.components.T

    def training_loss(self, batch: dict[str, Tensor], draws: Any) -> Tensor:
        """The loss above, for two views of everyone in `batch`.

        View a is a random window with edges to the nearest participant, view b the next window with all edges; half
        of the time b has another length.

        Parameters
        ----------
        batch : dict
            `features` (lengths, windows, participants, components), the usual length first; `neighbours` and `weights`
            (lengths, windows, participants, k), nearest first.
        """
        n_lengths, n_windows = batch["features"].shape[:2]
        place, other, which = draws.shared_uniform(3).tolist()
        window = int(place * (n_windows - 1))
        length = 1 + int(which * (n_lengths - 1)) if other >= 0.5 and n_lengths > 1 else 0
        a = self.view(batch, 0, window, 1, draws)
        b = self.view(batch, length, window + 1, batch["weights"].shape[-1], draws)
        return agreement_loss(a, b, self.decorrelation)

    def view(
        self, batch: dict[str, Tensor], length: int, window: int, k: int, draws: Any
    ) -> Tensor:
        """One window on the graph of the k nearest, some features and edges dropped: (participants, width)."""
        x, weights = batch["features"][length, window], batch["weights"][length, window, :, :k]
        x = x * (draws.shared_uniform(x.shape[-1]) >= self.feature_drop)
        weights = weights * (draws.shared_uniform(*weights.shape) >= self.edge_drop)
        return self.embed(self.dropout(x), batch["neighbours"][length, window, :, :k], weights)

    def embed(self, x: Tensor, neighbours: Tensor, weights: Tensor) -> Tensor:
        """(participants, components) and their graph → (participants, width)."""
        return self.linear(nn.functional.elu(self.convolution(x, neighbours, weights)))


def agreement_loss(a: Tensor, b: Tensor, decorrelation: float) -> Tensor:
    """GATE's loss of two embedded views, (participants, width) each."""
    a, b = standardised(a), standardised(b)
    agreement = nn.functional.cosine_similarity(a, b.detach(), dim=-1).mean()
    return 1 - agreement + decorrelation * (decorrelation_loss(a) + decorrelation_loss(b))


def standardised(x: Tensor) -> Tensor:
    """Columns with zero mean and unit variance."""
    centred = x - x.mean(0)
    return centred / (centred.square().mean(0) + 1e-8).sqrt()


def decorrelation_loss(x: Tensor) -> Tensor:
    """Mean squared difference of the columns' correlation matrix from the identity."""
    return (x.T @ x / len(x) - torch.eye(x.shape[-1], device=x.device)).square().mean()


def nearest_people(
    features: Tensor,
    k: int,
    phenotypes: Tensor | None = None,
    tolerances: Tensor | None = None,
    block: int = 1024,
) -> tuple[Tensor, Tensor]:
    """The k most similar others of each participant, and the weights of the edges to them: (participants, k) each.

    The weight is exp(-d² / (2 σ²)), d = 1 - r being the correlation distance of features and σ its mean over all pairs;
    with phenotypes, times the number of them that differ by less than their tolerance. Rows are computed a block at a
    time: a population of tens of thousands needs no square matrix.

    Parameters
    ----------
    features : (participants, components)
    phenotypes : (participants, columns), optional
    tolerances : (columns,), optional
    """
    unit = features - features.mean(-1, keepdim=True)
    unit = unit / unit.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    n = len(unit)
    sigma = max(1 - (float(unit.sum(0).double().square().sum()) - n) / max(n * (n - 1), 1), 1e-6)
    neighbours, weights = [], []
    for start in range(0, n, block):
        some = slice(start, start + block)
        similarity = torch.exp(
            -(1 - unit[some] @ unit.T).square() / (2 * sigma**2)
        )  # (block, participants)
        if phenotypes is not None and tolerances is not None:
            close = (
                phenotypes[some].unsqueeze(1) - phenotypes
            ).abs() < tolerances  # (block, participants, columns)
            similarity = similarity * close.sum(-1)
        own = torch.arange(len(similarity), device=unit.device)
        similarity[own, own + start] = -1.0  # nobody is a neighbour of their own
        nearest = similarity.topk(min(k, n - 1))
        neighbours.append(nearest.indices)
        weights.append(nearest.values)
    return torch.cat(neighbours), torch.cat(weights)
