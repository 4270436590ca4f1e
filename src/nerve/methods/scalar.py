"""Models that give one number per participant: what the supervised methods share."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class ScalarModel(nn.Module):
    """A module whose ``forward(inputs)`` is one number per participant, trained on (inputs, target) batches.

    The number is a z-score, learned by squared error, or the logit of a two-valued target, learned by cross-entropy;
    the estimator sets `binary` before training.
    """

    binary = False

    def predict(self, inputs: Any) -> Tensor:
        """(batch,) z-scores or logits."""
        return self(inputs)

    def error(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Mean squared error, or mean cross-entropy if the target is two-valued."""
        if self.binary:
            return functional.binary_cross_entropy_with_logits(predicted, target)
        return functional.mse_loss(predicted, target)

    def training_loss(self, batch: tuple[Any, Tensor], draws: Any) -> Tensor:
        """The error over a batch; in evaluation mode (validation) it has no dropout and no augmentation."""
        inputs, target = batch
        return self.error(self(inputs), target)
