"""Many models of one shape trained as one module: weights stacked, one batched product where there would be K.

Each member keeps the gradient, the clipping and the update that it would have alone: the loss is the sum of the losses
of the members, Adam works on each weight by itself, and gradients are clipped member by member.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel


class Ensemble(nn.Module):
    """K models whose parameters have the same shapes.

    Parameters
    ----------
    models : sequence of MaskedAutoencoder
        The members, with the same settings and number of patches; only regions may be grouped differently.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        weights, buffers = stack_module_state(list(models))  # each (K, …)
        self.names = list(weights)
        self.weights = nn.ParameterList(nn.Parameter(weights[name].detach().clone()) for name in self.names)
        self.buffer_names = list(buffers)
        for i, name in enumerate(self.buffer_names):
            self.register_buffer(f"buffer{i}", buffers[name])
        self._template = [_Loss(copy.deepcopy(models[0]).to("meta"))]  # in a list: its weights are not ours
        self.n_patches: int = models[0].patching.n_patches  # type: ignore[assignment, union-attr]

    def training_loss(self, batch: torch.Tensor, draws: Any) -> torch.Tensor:
        """Sum of the members' losses on (subjects, K, S) packed patches; all see the same masks."""
        masks = _Given(draws.uniform(self.n_patches))

        def one(weights: dict[str, torch.Tensor], packed: torch.Tensor) -> torch.Tensor:
            return functional_call(self._template[0], weights, (packed, masks))

        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels cannot be batched: they would run member by member
            return vmap(one, in_dims=(0, 1))(self._stacked("model."), batch).sum()

    def clip_gradients(self, largest: float) -> torch.Tensor:
        """Scale each member's gradient to at most the largest norm; returns the root mean square of the norms."""
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0)  # (K,)
        scale = (largest / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        if math.isfinite(largest):
            for gradient in gradients:
                gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))
        return squares.mean().sqrt()

    def state_of(self, member: int) -> dict[str, torch.Tensor]:
        """Weights and buffers of one member, by the names they have in the model."""
        return {name: tensor[member] for name, tensor in self._stacked("").items()}

    def _stacked(self, prefix: str) -> dict[str, torch.Tensor]:
        named = {prefix + name: weight for name, weight in zip(self.names, self.weights, strict=True)}
        return named | {prefix + name: getattr(self, f"buffer{i}") for i, name in enumerate(self.buffer_names)}


class _Loss(nn.Module):
    """A model as a function of its batch, as `functional_call` wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, packed: torch.Tensor, draws: Any) -> torch.Tensor:
        return self.model.training_loss(packed, draws)  # type: ignore[operator]


class _Given:
    """Random numbers drawn beforehand."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers

    def uniform(self, *shape: int) -> torch.Tensor:
        return self.numbers
