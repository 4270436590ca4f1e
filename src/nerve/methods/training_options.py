"""Settings of the training loop as users give them: checked, with a sentence for each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from nerve.core.training import TrainingSettings

MOST = 10**9  # of any number: above, torch and the clock do not count
Count = Annotated[int, Field(ge=1, le=MOST)]
Positive = Annotated[float, Field(gt=0, le=MOST)]
NotNegative = Annotated[float, Field(ge=0, le=MOST)]
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainingOptions(BaseModel):
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

    def training_settings(self) -> TrainingSettings:
        """The same as the training loop reads them."""
        names = TrainingSettings.__dataclass_fields__
        return TrainingSettings(**{name: getattr(self, name) for name in names})
