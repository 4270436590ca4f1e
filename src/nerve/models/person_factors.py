"""A participant's own factors, found from the visible patches: the group's factors, moved by a few learned steps.

A correlation matrix is positive and nearly of low rank, so its masked patches follow from the visible ones: with one
factor matrix F_l (regions of l × rank) for each network, a patch is

    x̂_lm = F_l F_mᵀ + C_lm

The group has factors D (leading eigenvectors of the mean M, times the roots of their eigenvalues) and a remainder
C = M - D Dᵀ: before anything is known of a participant the prediction is the group mean. Their F starts at D and takes
T steps of descent with momentum on the visible patches alone, V being the velocity and ∘ the product entry by entry:

    N = F + b_t V;    G = [visible ∘ (N Nᵀ + C - x)] N;    V ← b_t V - s a_t ∘ G;    F ← F + V
    s = 1 / (√f ‖visible ∘ x‖),   f the visible share of the entries

D, C, the sizes a (T × rank) and the momenta b (T) are trained through the steps, with the loss of the masked patches.
What sets the participant apart is the displacement F - D.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from nerve.core.masked_autoencoder import _other_patches, count_visible
from nerve.core.patching import Patching

STEPS = 12  # T
STEP, LARGEST_STEP, MOMENTUM = (
    0.55,
    1.0,
    0.8,
)  # a and b before training; a is kept below the largest
QUICKER = 10.0  # a and b learn at ten times the rate of D and C: they are logits, and few
LARGEST_MOVE = (
    0.5  # a step moves F by at most this share of the size of D, so that no matrix makes it diverge
)


class PersonFactors(nn.Module):
    """Predicts all patches of a participant from the visible ones, and represents the participant by F - D.

    Parameters
    ----------
    patching : Patching
    rank : int
        Columns of the factors; at most one per region.
    mask_ratio : float
        Share of the patches that is masked in training.
    n_components : int
        Numbers that `embed` reduces F - D to.
    """

    def __init__(
        self, patching: Patching, rank: int, mask_ratio: float = 0.5, n_components: int = 256
    ) -> None:
        super().__init__()
        n_regions = patching.n_regions
        rank = min(rank, n_regions)
        self.n_patches, self.n_visible = (
            patching.n_patches,
            count_visible(patching.n_patches, mask_ratio),
        )
        factors = torch.randn(n_regions, rank)
        if not factors.is_meta:  # arithmetic without numbers would import the compiler
            factors = factors * 0.5 * rank**-0.5
        self.factors = nn.Parameter(factors)  # D, until `fit_mean` knows better
        self.remainder = nn.Parameter(torch.zeros(n_regions, n_regions))  # C
        self.step = nn.Parameter(torch.full((STEPS, rank), _logit(STEP / LARGEST_STEP) / QUICKER))
        self.momentum = nn.Parameter(torch.full((STEPS,), _logit(MOMENTUM) / QUICKER))
        self.diagonal = nn.Buffer(
            torch.ones(n_regions)
        )  # FC of a region with itself, the same for everyone
        self.components = nn.Buffer(torch.zeros(n_regions * rank, n_components))
        place = np.zeros(
            (n_regions, n_regions), int
        )  # where the packed layout has each entry of the matrix
        place[patching.cols, patching.rows] = place[patching.rows, patching.cols] = np.arange(
            patching.n_entries
        )
        self.place, self.patch_at = _fixed(place), _fixed(patching.patch_of[place])
        self.patch_of, self.sizes = _fixed(patching.patch_of), _fixed(patching.sizes)
        self.entry = _fixed(patching.rows * n_regions + patching.cols)

    @torch.no_grad()
    def fit_mean(self, mean: torch.Tensor) -> None:
        """Set D and C from the packed mean FC of training participants, (S,)."""
        matrix = mean[self.place].double()  # (R, R)
        matrix = (matrix + matrix.T) / 2
        values, vectors = torch.linalg.eigh(matrix)
        rank = self.factors.shape[1]
        factors = vectors[:, -rank:] * values[-rank:].clamp_min(0).sqrt()  # (R, rank)
        self.factors.copy_(factors)
        self.remainder.copy_(matrix - factors @ factors.T)
        self.diagonal.copy_(matrix.diagonal())

    def training_loss(self, packed: torch.Tensor, draws: Any) -> torch.Tensor:
        """Mean over participants and masked patches of the mean squared error within a patch."""
        order = draws.uniform(self.n_patches).argsort(1)
        visible, masked = order[:, : self.n_visible], order[:, self.n_visible :]
        squared = (
            self.patches(self.person(packed, visible)) - packed
        ).square()  # (participants, S)
        errors = (
            squared.new_zeros(len(packed), self.n_patches).index_add(1, self.patch_of, squared)
            / self.sizes
        )
        return errors.gather(1, masked).mean()

    def reconstruct(self, packed: torch.Tensor, masked: torch.Tensor | None = None) -> torch.Tensor:
        """Every patch as predicted from those that are not masked, (participants, K) of them: (participants, S)."""
        visible = None if masked is None else _other_patches(masked, self.n_patches)
        return self.patches(self.person(packed, visible))

    def patches(self, factors: torch.Tensor) -> torch.Tensor:
        """F Fᵀ + C in the packed layout: (participants, R, rank) → (participants, S)."""
        with torch.autocast(factors.device.type, enabled=False):
            return (factors @ factors.mT + self._symmetric_remainder()).flatten(1)[:, self.entry]

    def features(self, packed: torch.Tensor) -> torch.Tensor:
        """F - D with nothing masked: (participants, R · rank)."""
        return (self.person(packed, None) - self.factors).flatten(1)

    def embed(self, packed: torch.Tensor) -> torch.Tensor:
        """The same on its principal components: (participants, n_components)."""
        return self.features(packed) @ self.components

    def person(self, packed: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """F of each participant: (participants, R, rank)."""
        with torch.autocast(
            packed.device.type, enabled=False
        ):  # differences of near-equal numbers, twelve times
            seen = self._seen(packed, visible)  # (participants or 1, R, R)
            eye = torch.eye(len(self.diagonal), dtype=torch.bool, device=packed.device)
            known = torch.where(seen > 0, packed[:, self.place], 0.0)
            known = torch.where(
                eye, self.diagonal, known
            )  # of a masked patch not even the diagonal is read
            share = seen.mean((1, 2), keepdim=True)
            size = known.square().sum((1, 2), keepdim=True).sqrt().clamp_min(1e-6)
            scale = 1 / (share.sqrt() * size)  # (participants, 1, 1)
            target = known - self._symmetric_remainder() * seen
            largest = LARGEST_MOVE * self.factors.detach().square().sum().sqrt().clamp_min(1e-6)
            factors = self.factors.expand(len(packed), -1, -1)
            velocity = torch.zeros_like(factors)
            sizes = LARGEST_STEP * (QUICKER * self.step).sigmoid()  # a
            momenta = (QUICKER * self.momentum).sigmoid()  # b
            for step, momentum in zip(sizes, momenta, strict=True):
                ahead = factors + momentum * velocity
                gradient = (ahead @ ahead.mT * seen - target) @ ahead  # (participants, R, rank)
                velocity = momentum * velocity - scale * step * gradient
                moved = velocity.detach().square().sum((1, 2), keepdim=True).sqrt()
                velocity = velocity * (largest / moved.clamp_min(1e-12)).clamp_max(1.0)
                factors = factors + velocity
            return factors

    def _seen(self, packed: torch.Tensor, visible: torch.Tensor | None) -> torch.Tensor:
        """1 where an entry may be looked at, else 0; the diagonal is known of everyone."""
        if visible is None:
            return packed.new_ones(1, *self.place.shape)
        patches = packed.new_zeros(len(packed), self.n_patches).scatter(
            1, visible, 1.0
        )  # (participants, P)
        eye = torch.eye(len(self.diagonal), dtype=packed.dtype, device=packed.device)
        return torch.maximum(patches[:, self.patch_at], eye)  # (participants, R, R)

    def _symmetric_remainder(self) -> torch.Tensor:
        return (self.remainder + self.remainder.T) / 2


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _fixed(numbers: np.ndarray) -> nn.Buffer:
    return nn.Buffer(torch.from_numpy(numbers), persistent=False)
