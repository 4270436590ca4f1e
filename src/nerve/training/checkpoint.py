"""A training run on disk: `last.safetensors` (everything needed to go on), `best.safetensors` (weights), `history.tsv`.

A checkpoint is one file: tensors of the module and the optimiser, and counters and curve as JSON in the header. It is
written whole or not at all, so there is no moment at which a kill leaves half a checkpoint. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from nerve._utils.errors import NerveError, listed
from nerve._utils.files import atomic_file
from nerve.training.optimizers import Optimizer

LAST, BEST, HISTORY = "last.safetensors", "best.safetensors", "history.tsv"


class TrainingStopped(KeyboardInterrupt):  # not an Exception: code that catches those must not swallow a Ctrl-C
    """Training was asked to stop (Ctrl-C or SIGTERM); a checkpoint was written."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


def save_tensors(path: Path, tensors: dict[str, torch.Tensor], state: dict[str, Any] | None = None) -> None:
    """Write named tensors and a JSON state in one file."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_file(path) as stream:
        stream.write(save(plain, None if state is None else {"state": json.dumps(state)}))


def load_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read named tensors, with one sentence if the file is missing, cut short or of another kind."""
    try:
        return load(Path(path).read_bytes())  # safetensors opens no name that is not UTF-8
    except FileNotFoundError as error:
        raise NerveError(f"{path}: there is no such file; a complete run folder holds it.") from error
    except (SafetensorError, OSError) as error:
        raise NerveError(f"{path}: is not a readable safetensors file ({error}). Copy it again.") from error


def load_state(path: Path) -> dict[str, Any]:
    """Read the JSON state in the header of a checkpoint."""
    try:
        with open(path, "rb") as stream:
            header = json.loads(stream.read(min(int.from_bytes(stream.read(8), "little"), 10**8)))
        return dict(json.loads(header["__metadata__"]["state"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NerveError(f"{path}: is not a checkpoint of this package ({error}). Start without --resume.") from error


def half_precision(path: Path) -> bytes:
    """A file of named tensors with every real number in half precision, as bytes."""
    tensors = load_tensors(path)
    halves = {name: t.half() if t.is_floating_point() else t for name, t in tensors.items()}
    too_large = [name for name, half in halves.items() if not half.isfinite().all()]
    if too_large:
        raise NerveError(f"{path}: {listed(too_large)} cannot be written in half precision: numbers are too large.")
    return save(halves)


def single_precision(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors that were written in half precision as modules compute with them."""
    return {name: t.float() if t.dtype == torch.float16 else t for name, t in tensors.items()}


def restore_weights(module: torch.nn.Module, tensors: dict[str, torch.Tensor], where: object) -> None:
    """Load weights, naming what is missing, superfluous or of another shape or type."""
    check_weights(module, tensors, where)
    module.load_state_dict(tensors)


def check_weights(module: torch.nn.Module, tensors: dict[str, torch.Tensor], where: object) -> None:
    """Refuse weights that are not those of the module; one without numbers (on the device `meta`) will do."""
    own, given = ({name: _described(t) for name, t in some.items()} for some in (module.state_dict(), tensors))
    names = sorted({name for name, _ in own.items() ^ given.items()})
    if names:
        wrong = [f"{name} is {given.get(name, 'missing')}, expected {own.get(name, 'none')}" for name in names]
        raise NerveError(f"{where}: the weights do not fit the model: {listed(wrong, most=3)}.")


def _described(tensor: torch.Tensor) -> str:
    kind = "" if tensor.dtype == torch.float32 else f" of {str(tensor.dtype).removeprefix('torch.')}"
    return f"{tuple(tensor.shape)}{kind}"


def training_tensors(module: torch.nn.Module, optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Weights, buffers and the optimiser's memory under readable names."""
    tensors = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        memory = optimizer.state.get(parameter, {})
        tensors |= {f"optimizer/{name}/{key}": value for key, value in memory.items()}
    return tensors


def restore_training(
    module: torch.nn.Module, optimizer: Optimizer, tensors: dict[str, torch.Tensor], where: object
) -> None:
    """The inverse of `training_tensors`."""
    restore_weights(module, _below("module/", tensors), where)
    for name, parameter in module.named_parameters():
        memory = _below(f"optimizer/{name}/", tensors)
        if memory:  # Adam keeps its step counter on the CPU, moments beside the parameter
            optimizer.state[parameter] = {k: t if k == "step" else t.to(parameter.device) for k, t in memory.items()}


def _below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


@contextmanager
def stop_on_signals(wanted: bool) -> Iterator[list[int]]:
    """Turn the first Ctrl-C or SIGTERM into a request, by its number; a second one ends the process at once."""
    asked: list[int] = []
    old: dict[int, Any] = {}

    def ask(number: int, _frame: Any) -> None:
        asked.append(number)
        signal.signal(number, old[number])

    with suppress(ValueError):  # signals belong to the main thread; elsewhere the caller is in charge
        for number in (int(signal.SIGINT), int(signal.SIGTERM)) if wanted else ():
            old[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
