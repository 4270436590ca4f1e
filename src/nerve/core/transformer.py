"""The pre-norm transformer block of a ViT: x + attention(norm(x)), then x + mlp(norm(x))."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from nerve._utils.errors import NerveError


class Attention(nn.Module):
    """Multi-head self-attention with biases."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise NerveError(f"A width of {dim} cannot be shared by {heads} attention heads. Choose a divisor of it.")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def _split(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = self.qkv(x).split(x.shape[-1], -1)  # split along the width: one copy fewer on the way back than unbind
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]  # (…, heads, tokens, …)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(participants, tokens, dim) → the same shape."""
        query, key, value = self._split(x)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))  # (participants, tokens, dim)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """Attention maps softmax(q kᵀ / √(dim / heads)): (participants, heads, tokens, tokens), rows sum to one."""
        query, key, _ = self._split(x)
        return (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(-1)


class Block(nn.Module):
    """One transformer layer; the MLP is `mlp_ratio` times as wide, with GELU."""

    def __init__(self, dim: int, heads: int, mlp_ratio: int = 4) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_ratio * dim), nn.GELU(), nn.Linear(mlp_ratio * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(participants, tokens, dim) → the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def initialise_linears(module: nn.Module) -> None:
    """Draw linear layers as ViTs do: Xavier-uniform weights, zero biases."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)
