"""A training run on disk: `last.safetensors` (everything needed to go on), `best.safetensors` (weights), `history.tsv`.

A checkpoint is one file: tensors of the module and the optimiser, and the counters as JSON in the header. It is written
whole or not at all, so there is no moment at which a kill leaves half a checkpoint. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from nerve.checks import NerveError, listed
from nerve.files import atomic_file, read_tsv, write_tsv
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
    metadata = None if state is None else {"state": json.dumps(state)}
    with atomic_file(path) as stream:
        stream.write(save(plain, metadata))


def load_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read named tensors, with one sentence if the file is missing, cut short or of another kind."""
    path = Path(path)
    if not path.is_file():
        raise NerveError(f"{path}: there is no such file; a complete run folder holds it.")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise NerveError(f"{path}: is not a readable safetensors file ({error}). Copy it again.") from error


def half_precision(path: Path) -> bytes:
    """A file of named tensors with every real number in half precision, as bytes."""
    tensors = load_tensors(path)
    largest = {name: float(t.abs().max()) for name, t in tensors.items() if t.is_floating_point() and t.numel()}
    too_large = [name for name, value in largest.items() if not value < torch.finfo(torch.float16).max]
    if too_large:
        raise NerveError(f"{path}: {listed(too_large)} cannot be written in half precision: numbers are too large.")
    return save({name: t.half() if t.is_floating_point() else t for name, t in tensors.items()})


def single_precision(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors that were written in half precision as modules compute with them."""
    return {name: t.float() if t.dtype == torch.float16 else t for name, t in tensors.items()}


def load_state(path: Path) -> dict[str, Any]:
    """Read the JSON state in the header of a checkpoint."""
    try:
        with open(path, "rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            header = json.loads(stream.read(min(length, 100_000_000)))
        return dict(json.loads(header["__metadata__"]["state"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        raise NerveError(f"{path}: is not a checkpoint of this package ({error}). Start without --resume.") from error


def restore_weights(module: torch.nn.Module, tensors: dict[str, torch.Tensor], where: object) -> None:
    """Load weights, naming what is missing, superfluous or of another shape or type."""
    check_weights(module, tensors, where)
    module.load_state_dict(tensors)


def check_weights(module: torch.nn.Module, tensors: dict[str, torch.Tensor], where: object) -> None:
    """Refuse weights that are not those of the module; one without numbers (on the device `meta`) will do."""
    own = module.state_dict()
    wrong = [
        f"{name} is {tuple(tensors[name].shape)}, expected {tuple(own[name].shape)}"
        for name in own.keys() & tensors.keys()
        if own[name].shape != tensors[name].shape
    ]
    wrong += [
        f"{name} holds {str(tensors[name].dtype).removeprefix('torch.')}, expected "
        f"{str(own[name].dtype).removeprefix('torch.')}"
        for name in own.keys() & tensors.keys()
        if own[name].dtype != tensors[name].dtype
    ]
    wrong += [f"{name} is missing" for name in sorted(own.keys() - tensors.keys())]
    wrong += [f"{name} is not known" for name in sorted(tensors.keys() - own.keys())]
    if wrong:
        raise NerveError(f"{where}: the weights do not fit the model: {listed(sorted(wrong), most=3)}.")


def training_tensors(module: torch.nn.Module, optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Weights, buffers and the optimiser's memory under readable names."""
    tensors = {f"module/{name}": tensor for name, tensor in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer/{name}/{key}"] = value
    return tensors


def restore_training(
    module: torch.nn.Module, optimizer: Optimizer, tensors: dict[str, torch.Tensor], where: object
) -> None:
    """The inverse of `training_tensors`."""
    weights = {name.removeprefix("module/"): t for name, t in tensors.items() if name.startswith("module/")}
    restore_weights(module, weights, where)
    for name, parameter in module.named_parameters():
        prefix = f"optimizer/{name}/"
        memory = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
        if memory:  # Adam keeps its step counter on the CPU, moments beside the parameter
            optimizer.state[parameter] = {k: t if k == "step" else t.to(parameter.device) for k, t in memory.items()}


def write_history(run_dir: Path, rows: list[dict[str, Any]]) -> None:
    """Write the curve so far."""
    write_tsv(run_dir / HISTORY, pd.DataFrame(rows))


def read_history(run_dir: Path, step: int) -> list[dict[str, Any]]:
    """The rows up to a step; later ones, of a run that was killed after its checkpoint, are made again."""
    path = run_dir / HISTORY
    if not path.is_file():
        return []
    table = read_tsv(path, dtype=str)  # converted by Python, whose reading of a written float is exact
    try:
        rows = [_row(record) for record in table.to_dict("records")]
        return [row for row in rows if row["step"] <= step]
    except (KeyError, TypeError, ValueError) as error:
        raise NerveError(
            f"{path}: is not the curve of a training run ({error}). Remove it: the run goes on from its checkpoint, "
            "and only the curve before is lost."
        ) from error


def _row(record: dict[Any, Any]) -> dict[str, Any]:
    """A line of the curve as numbers; every line has a step and, after the first step, a training loss."""
    row: dict[str, Any] = {
        str(name): None if pd.isna(value) else int(value) if name in ("epoch", "step") else float(value)
        for name, value in record.items()
    }
    if row["step"] is None or (row["step"] and row["training_loss"] is None):
        raise ValueError("a line has no step or no training loss")
    return row


class StopRequest:
    """Whether someone asked the run to stop; `signal_number` says how."""

    def __init__(self) -> None:
        self.signal_number = 0

    def __bool__(self) -> bool:
        return self.signal_number != 0


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a request; a second one ends the process at once."""
    request = StopRequest()
    old: dict[int, Any] = {}

    def ask(number: int, _frame: Any) -> None:
        request.signal_number = number
        signal.signal(number, old[number])

    try:
        for number in (int(signal.SIGINT), int(signal.SIGTERM)):
            old[number] = signal.signal(number, ask)
    except ValueError:  # signals belong to the main thread; elsewhere the caller is in charge
        old = {}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
