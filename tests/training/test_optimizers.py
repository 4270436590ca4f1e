"""Our optimisers are torch's to the last bit, also after a pause and behind a scaler, without torch's compiler."""

import pytest
import torch

from nerve.training import TrainingSettings
from nerve.training.optimizers import Optimizer

KINDS = {
    "adamw": lambda p: torch.optim.AdamW(p, 0.1, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, fused=True),
    "adam": lambda p: torch.optim.Adam(p, 0.1, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "sgd without momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.0, weight_decay=0.01),
}


def ours(kind):
    momentum = 0.0 if "without" in kind else 0.9
    settings = TrainingSettings(optimizer=kind.split()[0], lr=0.1, weight_decay=0.01, momentum=momentum)
    return lambda parameters: Optimizer(torch.nn.ParameterList(parameters), settings)


def moved(build, scaler=None):
    """Weights, and what is remembered, after five steps: one weight has no gradient at first, the rate changes."""
    torch.manual_seed(0)
    late, always = parameters = torch.nn.ParameterList([torch.randn(3), torch.randn(4, 3)])
    optimizer = build(list(parameters))
    for step in range(5):
        optimizer.lr = optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        parameters.zero_grad()
        loss = (always**2).sum() if step < 2 else ((always * late) ** 2).sum()
        (loss if scaler is None else scaler.scale(loss)).backward()
        optimizer.step() if scaler is None else scaler.step(optimizer)
        scaler.update() if scaler else None
    memory = [value for p in (late, always) for value in optimizer.state.get(p, {}).values() if value is not None]
    return [late.detach(), always.detach(), *memory]


@pytest.mark.slow  # the classes of torch import its compiler
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaled", [False, True])
def test_steps_are_those_of_torch_to_the_last_bit(kind, scaled):
    mine, torchs = (
        moved(build, torch.amp.GradScaler("cpu") if scaled else None) for build in (ours(kind), KINDS[kind])
    )
    assert len(mine) == len(torchs)
    assert all(torch.equal(a, b) for a, b in zip(mine, torchs, strict=True))
