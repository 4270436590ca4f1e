"""AdamW, Adam and SGD: the arithmetic is torch's, the few lines around it are ours.

torch's optimiser classes import its compiler when the first of them is made, which takes as long as importing torch
itself (two seconds per process). Its functions, which do the work, do not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from nerve.training.settings import TrainingSettings


class Optimizer:
    """The trainable parameters of a module, and what is remembered of each between two steps, under torch's names."""

    def __init__(self, module: torch.nn.Module, settings: TrainingSettings) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.param_groups = [{"params": parameters}]  # as torch's scaler expects
        self.parameters, self.settings, self.lr = parameters, settings, settings.lr
        self.state: dict[torch.Tensor, dict[str, torch.Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """One step down the gradients, for each parameter that has one."""
        moved: list[Any] = [parameter for parameter in self.parameters if parameter.grad is not None]
        arguments = {"lr": self.lr, "weight_decay": self.settings.weight_decay, "maximize": False}
        move = self._sgd if self.settings.optimizer == "sgd" else self._adam
        move(moved, [parameter.grad for parameter in moved], arguments)

    def _adam(self, moved: list[torch.Tensor], gradients: list[torch.Tensor], arguments: dict[str, Any]) -> None:
        for parameter in moved:
            if parameter not in self.state:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                self.state[parameter] = {"step": torch.tensor(0.0)} | zeros
        memory = [self.state[parameter] for parameter in moved]
        averages, squares, steps = ([one[name] for one in memory] for name in ("exp_avg", "exp_avg_sq", "step"))
        function = adamw if self.settings.optimizer == "adamw" else adam  # the decay of AdamW is not in the gradient
        beta1, beta2 = self.settings.betas
        arguments |= {"beta1": beta1, "beta2": beta2, "eps": self.settings.eps, "amsgrad": False}
        arguments["fused"] = moved[0].device.type == "cpu" or None  # one pass per parameter; elsewhere as torch chooses
        function(moved, gradients, averages, squares, [], steps, **arguments)

    def _sgd(self, moved: list[torch.Tensor], gradients: list[torch.Tensor], arguments: dict[str, Any]) -> None:
        buffers = [self.state.get(parameter, {}).get("momentum_buffer") for parameter in moved]
        sgd(moved, gradients, buffers, momentum=self.settings.momentum, dampening=0.0, nesterov=False, **arguments)
        for parameter, buffer in zip(moved, buffers, strict=True):
            if buffer is not None:
                self.state[parameter] = {"momentum_buffer": buffer}
