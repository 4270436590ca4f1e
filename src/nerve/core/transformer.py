"""The pre-norm transformer layer of a ViT: x + attention(norm(x)), then x + mlp(norm(x))."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from nerve._utils.errors import NerveError


class SelfAttention(nn.Module):
    """Multi-head self-attention with biases.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    heads : int
        Attention heads; a divisor of `dim`.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise NerveError(
                f"A width of {dim} cannot be shared by {heads} attention heads. Choose a divisor "
                "of it."
            )
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Mix the tokens of each participant: (participants, tokens, dim) → the same shape."""
        query, key, value = self._heads_of(x)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).flatten(2))  # (participants, tokens, dim)

    def weights(self, x: torch.Tensor) -> torch.Tensor:
        """Attention maps softmax(q kᵀ / √(dim / heads)), whose rows sum to one.

        Parameters
        ----------
        x : (participants, tokens, dim) tensor
            Tokens.

        Returns
        -------
        (participants, heads, tokens, tokens) tensor
        """
        query, key, _ = self._heads_of(x)
        scale = query.shape[-1] ** -0.5
        return (query @ key.transpose(-2, -1) * scale).softmax(-1)

    def _heads_of(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Query, key and value, each (participants, heads, tokens, dim / heads)."""
        # split along the width: one copy fewer in the backward pass than unbind
        parts = self.qkv(x).split(x.shape[-1], -1)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]


class TransformerLayer(nn.Module):
    """One pre-norm transformer layer with a GELU perceptron.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    heads : int
        Attention heads.
    mlp_ratio : int
        Hidden width of the perceptron, in multiples of `dim`.
    """

    def __init__(self, dim: int, heads: int, mlp_ratio: int = 4) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_ratio * dim), nn.GELU(), nn.Linear(mlp_ratio * dim, dim)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(participants, tokens, dim) → the same shape."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def initialise_linear_layers(module: nn.Module) -> None:
    """Draw linear layers as ViTs do: Xavier-uniform weights, zero biases.

    Parameters
    ----------
    module : torch.nn.Module
        Every linear layer in it is drawn again.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
