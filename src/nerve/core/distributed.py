"""Several processes that share one batch, started by torchrun.

They are joined with gloo (CPU) or nccl (GPUs).

Gradients are added up by hand rather than by a wrapper around the module: the loop then calls the
same verb in one process and in many, and a checkpoint is the same file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from nerve._utils.errors import NerveError
from nerve._utils.progress import silent


@dataclass(frozen=True)
class Processes:  # numpydoc ignore=PR02
    """This process among those that train together; one alone by default.

    Parameters
    ----------
    rank : int
        Number of this process.
    count : int
        How many there are.
    local_rank : int
        Number of this process on its machine.
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this process writes the files and shows the progress."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """The part of `total` samples that belongs to this process."""
        return equal_part(total, self.rank, self.count)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over processes, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def sum_gradients(self, module: torch.nn.Module) -> None:
        """Add the gradients of all processes, in one message."""
        if self.count == 1:
            return
        parameters = [p for p in module.parameters() if p.requires_grad]
        # a parameter unused by this part of the batch still takes part
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self.sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
        sizes = [p.numel() for p in parameters]
        for parameter, summed in zip(parameters, flat.split(sizes), strict=True):
            parameter.grad = summed.view_as(parameter)

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag is raised in any process."""
        return self.sum(torch.tensor(float(flag), device=device)).item() > 0

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.count > 1:
            dist.barrier()


def equal_part(total: int, number: int, count: int) -> slice:
    """One of `count` parts of `total` samples; parts differ by at most one sample.

    Parameters
    ----------
    total : int
        Samples.
    number : int
        Which part, counted from 0.
    count : int
        How many parts.

    Returns
    -------
    slice

    Examples
    --------
    >>> [equal_part(7, number, 3) for number in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return slice(number * total // count, (number + 1) * total // count)


def current_processes() -> Processes:
    """The processes that this one has joined, or itself alone.

    Returns
    -------
    Processes
    """
    if not dist.is_available() or not dist.is_initialized():
        return Processes()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return Processes(dist.get_rank(), dist.get_world_size(), local_rank)


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the processes that torchrun started, and leave them at the end; alone, do nothing.

    Yields
    ------
    Processes
        Only the first one shows progress.
    """
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        number = os.environ.get(name, "0")
        if not (number.isascii() and number.isdigit()):
            raise NerveError(
                f"The variable {name} is {number!r}, expected a whole number, as torchrun sets it. "
                "Start the command with torchrun, or unset it."
            )
    started_by_torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if not started_by_torchrun or dist.is_initialized():
        yield current_processes()
        return
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        if name not in os.environ:
            raise NerveError(
                f"WORLD_SIZE is set and {name} is not, expected both, as torchrun sets them. "
                "Start the command with torchrun, or unset WORLD_SIZE."
            )
    has_cuda = torch.cuda.is_available()
    if has_cuda:
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    dist.init_process_group("nccl" if has_cuda else "gloo")
    processes = current_processes()
    try:
        with silent(not processes.first):
            yield processes
    finally:
        dist.destroy_process_group()
