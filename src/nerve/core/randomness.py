"""Random numbers of one training step, the same however many processes share its batch."""

from __future__ import annotations

import hashlib

import torch

# Validation draws the same numbers at every epoch, so that its losses compare.
VALIDATION_STEP = -1


class Draws:
    """Random numbers per sample, derived from (seed, step) and the place in the global batch.

    Parameters
    ----------
    seed, step : int
        Together they fix every number.
    total : int
        Samples in the global batch.
    rows : slice, optional
        The part of the global batch that this process holds; all of it by default.
    device : torch.device or str
        Where numbers are wanted. They are always drawn on the CPU: a GPU run sees the same masks.

    Examples
    --------
    >>> all_rows = Draws(seed=0, step=3, total=4).uniform(2)
    >>> last_rows = Draws(seed=0, step=3, total=4, rows=slice(2, 4)).uniform(2)
    >>> torch.equal(all_rows[2:], last_rows)
    True
    """

    def __init__(
        self,
        seed: int,
        step: int,
        total: int,
        rows: slice | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.total = total
        self.rows = slice(0, total) if rows is None else rows
        self.device = torch.device(device)
        self.generator = torch.Generator().manual_seed(mixed_seed(seed, step))

    def uniform(self, *shape: int) -> torch.Tensor:
        """Uniform on [0, 1): (local samples, *shape)."""
        numbers = torch.rand(self.total, *shape, generator=self.generator)
        return numbers[self.rows].to(self.device)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal: (local samples, *shape)."""
        numbers = torch.randn(self.total, *shape, generator=self.generator)
        return numbers[self.rows].to(self.device)

    def shared_uniform(self, *shape: int) -> torch.Tensor:
        """Uniform on [0, 1), one draw for the whole batch: (*shape)."""
        return torch.rand(*shape, generator=self.generator).to(self.device)


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed what dropout on this device draws from.

    `torch.manual_seed` would seed the generators of every kind of device, and for each kind that
    is not there it formats and keeps the whole stack, at each step.

    Parameters
    ----------
    seed : int
        The seed.
    device : torch.device
        Where the module computes.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def mixed_seed(*numbers: int) -> int:
    """One 63-bit seed from several whole numbers; neighbouring numbers give unrelated seeds.

    Parameters
    ----------
    *numbers : int
        A seed and a step, say.

    Returns
    -------
    int

    Examples
    --------
    >>> mixed_seed(0, 1) == mixed_seed(0, 1), mixed_seed(0, 1) == mixed_seed(1, 0)
    (True, False)
    """
    text = repr(tuple(int(number) for number in numbers))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
