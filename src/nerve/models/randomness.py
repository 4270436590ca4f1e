"""What a model asks of the random numbers of a training step; `nerve.training.Draws` provides it."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Draws(Protocol):
    """Random numbers that do not depend on how many processes share a batch."""

    def uniform(self, *shape: int) -> Tensor:
        """Uniform on [0, 1): (samples, *shape)."""

    def normal(self, *shape: int) -> Tensor:
        """Standard normal: (samples, *shape)."""

    def shared_uniform(self, *shape: int) -> Tensor:
        """Uniform on [0, 1), one draw for the whole batch: (*shape)."""
