"""AdamW, Adam and SGD: the arithmetic is torch's, the few lines around it are ours.

torch's optimiser classes import its compiler when the first of them is made, which takes as long as importing torch
itself (two seconds per process). Its functions, which do the work, do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd


class Optimizer:
    """Parameters with what is remembered of each between two steps, under torch's names."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]  # as torch's scaler expects
        self.weight_decay = weight_decay
        self.state: dict[torch.Tensor, dict[str, torch.Tensor]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        del set_to_none
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One step down the gradients, for each parameter that has one."""
        (group,) = self.param_groups
        moved = [parameter for parameter in group["params"] if parameter.grad is not None]
        self.move(moved, [parameter.grad for parameter in moved], group["lr"])

    def move(self, moved: list[torch.Tensor], gradients: list[torch.Tensor], lr: float) -> None:
        """Move parameters, in place."""
        raise NotImplementedError


class Adam(Optimizer):
    """Adam, or AdamW, whose weight decay is no part of the gradient."""

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        lr: float,
        weight_decay: float,
        *,
        betas: tuple[float, float],
        eps: float,
        decoupled: bool,
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        self.betas, self.eps, self.function = betas, eps, adamw if decoupled else adam

    def move(self, moved: list[torch.Tensor], gradients: list[torch.Tensor], lr: float) -> None:
        """See `Optimizer`."""
        for parameter in moved:
            if parameter not in self.state:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": torch.tensor(0.0)} | zeros
        averages, squares, steps = (
            [self.state[parameter][name] for parameter in moved] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        beta1, beta2 = self.betas
        self.function(
            moved, gradients, averages, squares, [], steps,
            amsgrad=False, beta1=beta1, beta2=beta2, eps=self.eps, maximize=False, lr=lr,
            weight_decay=self.weight_decay,
        )  # fmt: skip


class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    def __init__(
        self, parameters: Iterable[torch.nn.Parameter], lr: float, weight_decay: float, *, momentum: float
    ) -> None:
        super().__init__(parameters, lr, weight_decay)
        self.momentum = momentum

    def move(self, moved: list[torch.Tensor], gradients: list[torch.Tensor], lr: float) -> None:
        """See `Optimizer`."""
        buffers = [self.state.get(parameter, {}).get("momentum_buffer") for parameter in moved]
        sgd(
            moved, gradients, buffers,
            momentum=self.momentum, dampening=0.0, nesterov=False, maximize=False, lr=lr,
            weight_decay=self.weight_decay,
        )  # fmt: skip
        for parameter, buffer in zip(moved, buffers, strict=True):
            if buffer is not None:
                self.state[parameter] = {"momentum_buffer": buffer}
