"""How a module is trained: every number of the loop, with its default."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from nerve._utils.errors import NerveError

MOST = 10**9  # of any number: above, torch and the clock do not count
Count = Annotated[int, Field(ge=1, le=MOST)]
Positive = Annotated[float, Field(gt=0, le=MOST)]
NotNegative = Annotated[float, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainingSettings(BaseModel):
    """Settings of the training loop. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    epochs: Annotated[int, Field(ge=0, le=MOST)] = 200
    """Passes over the training participants; 0: none, a control."""
    max_steps: Count | None = None
    """Stop after this many steps, whatever `epochs` says."""
    batch_size: Count = 128
    """Participants per step, in all processes together."""
    equal_batches: bool = True
    """Batches of equal size, none above batch_size; False: full ones, then a smaller last one."""
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    """Which optimiser."""
    lr: Positive = 1e-3
    """Largest learning rate."""
    min_lr: NotNegative = 0.0
    """Learning rate at the end of the schedule."""
    weight_decay: NotNegative = 1e-2
    """Weight decay, on every parameter."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Momenta of Adam and AdamW."""
    eps: Positive = 1e-6
    """Stabiliser of Adam and AdamW."""
    momentum: Share = 0.9
    """Momentum of SGD."""
    schedule: Literal["cosine", "constant", "step"] = "cosine"
    """After the warm-up."""
    warmup_epochs: NotNegative = 0.0
    """Epochs of linear warm-up."""
    warmup: Literal["steps", "steps_from_zero", "epochs"] = "steps"
    """How it rises: at every step, at every step from lr 0 on, or at every epoch."""
    decay_epochs: Count = 20
    """Schedule `step`: epochs between two cuts."""
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Schedule `step`: factor of a cut."""
    clip: Positive | None = 1.0
    """Largest norm of the gradient; none to leave it."""
    validation_fraction: Share = 0.1
    """Share of each cohort held out for validation."""
    validate_every: Count = 1
    """Epochs between two validations."""
    keep: Literal["best", "last"] = "best"
    """Weights at the end: of least validation loss, or last."""
    precision: Literal["auto", "float32", "bf16", "fp16"] = "auto"
    """auto: bf16 or fp16 autocast on CUDA, float32 on CPU."""
    compile: bool = False
    """Use torch.compile."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps."""
    checkpoint_seconds: NotNegative = 60.0
    """Seconds between checkpoints; 0 for every step."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Fixes split, data order, masks and dropout."""

    def total_steps(self, steps_per_epoch: int) -> int:
        """Steps of the whole run."""
        steps = self.epochs * steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def learning_rate(self, step: int, steps_per_epoch: int) -> float:
        """Learning rate of a step: linear warm-up, then cosine, constant or stepwise decay.

        With T steps of which W are warm-up, and the step t counted from 0:

        - warm-up ``steps``: lr (t + 1) / W; ``steps_from_zero``: lr t / W; ``epochs``: lr (e + 1) / E in epoch e of
          the E of `warmup_epochs`;
        - cosine: min_lr + (lr - min_lr) · ½ (1 + cos(π (t - W) / (T - W))).

        Examples
        --------
        >>> settings = TrainingSettings(epochs=10, warmup_epochs=2, lr=1.0)
        >>> [settings.learning_rate(step, steps_per_epoch=2) for step in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
        """
        total = self.total_steps(steps_per_epoch)
        warmup = min(round(self.warmup_epochs * steps_per_epoch), total)
        if step < warmup:
            if self.warmup == "epochs":
                epoch = step // steps_per_epoch
                return self.lr * min(1.0, (epoch + 1) / self.warmup_epochs)
            first = 0 if self.warmup == "steps_from_zero" else 1
            return self.lr * (step + first) / warmup
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "step":
            return self.lr * self.decay_factor ** ((step // steps_per_epoch) // self.decay_epochs)
        done = (step - warmup) / max(total - warmup, 1)
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done))

    def autocast_dtype(self, device: torch.device) -> torch.dtype | None:
        """The reduced precision to compute in, or None for float32."""
        if self.precision == "auto":
            if device.type != "cuda":
                return None
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        if self.precision != "float32" and device.type == "cpu":  # some processors stop at bf16 with a signal
            raise NerveError(f"precision is {self.precision!r}, which is for GPUs. On a CPU use auto or float32.")
        return {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """A device by name; ``auto`` takes CUDA (the process's own card), then Apple's MPS, then the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank % torch.cuda.device_count())
        name = "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise NerveError(f"The device is {name!r}, expected auto, cpu, cuda, cuda:<number> or mps.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise NerveError(f"The device is {name!r}, but this machine's torch sees no CUDA card. Use --device cpu.")
    if device.type == "cpu":
        keep_freed_memory()
    return device


def keep_freed_memory() -> None:
    """Let glibc reuse freed blocks of up to 256 MB instead of returning each to the system.

    A tensor beyond its threshold (32 MB at most by default) is otherwise mapped anew at every step and cleared page by
    page: a tenth of the time of a step. Nothing happens where the C library is another one.
    """
    mmap_threshold, trim_threshold = -3, -1  # the names that <malloc.h> has for them
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(mmap_threshold, 2**28)
        mallopt(trim_threshold, 2**31 - 1)
