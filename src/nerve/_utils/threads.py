"""Many small operations in one thread: to wake the other threads for each of them takes longer than the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import once_differentiable


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


Function = Callable[[torch.Tensor], torch.Tensor]


class _OneThread(torch.autograd.Function):
    """Keeps the graph of the small operations to itself, so that its way back is one step of the outer graph."""

    @staticmethod
    def forward(ctx: Any, function: Function, x: torch.Tensor, *parameters: Any) -> Any:
        with torch.enable_grad(), _one_thread():
            inside = x.detach().requires_grad_(x.requires_grad)
            ctx.result = function(inside)
        ctx.sources = (inside, *parameters)
        return ctx.result.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        wanted = [source for source in ctx.sources if source.requires_grad]
        with torch.enable_grad(), _one_thread():
            # of a scalar: handed a gradient, torch would first import its compiler to compare two shapes
            along = (ctx.result * gradient).sum()
            found = iter(torch.autograd.grad(along, wanted, allow_unused=True))
        return None, *(next(found) if source.requires_grad else None for source in ctx.sources)


def in_one_thread(
    function: Function, x: torch.Tensor, parameters: Iterable[torch.Tensor]
) -> torch.Tensor:
    """``function(x)``, forwards and backwards in one thread of the processor.

    Parameters
    ----------
    function : callable
        Of one tensor, with a tensor as its result.
    x : tensor
    parameters : iterable of tensors
        All others that the function uses and that gradients are wanted of.
    """
    if torch.is_grad_enabled():
        return _OneThread.apply(function, x, *parameters)  # type: ignore[no-any-return]
    with _one_thread():
        return function(x)
