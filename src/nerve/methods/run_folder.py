"""A training run on disk, and named tensors in files. Nothing is ever unpickled.

    last.safetensors    the checkpoint: weights, optimiser, counters, training curve
    best.safetensors    the weights of least validation loss
    history.tsv         the training curve, one row per epoch

A checkpoint is one file: tensors of the module and the optimiser, with counters and curve as JSON
in its header. It is written whole or not at all, so that a killed run leaves the previous one.
`nerve.core.training` decides what a checkpoint holds and when it is written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save

from nerve._utils.archives import require_regular_file
from nerve._utils.errors import NerveError, listed
from nerve._utils.files import atomic_file, write_tsv

LAST = "last.safetensors"
_BEST = "best.safetensors"
HISTORY = "history.tsv"
_LARGEST_HEADER = 10**8  # bytes
# errors that reading the header of a damaged file may raise
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


class _State(BaseModel):
    """What a checkpoint holds besides tensors, as `nerve.core.training` writes it."""

    model_config = ConfigDict(extra="forbid")

    step: NonNegativeInt
    best_step: NonNegativeInt
    best_loss: float
    epoch_loss: float
    epoch_steps: NonNegativeInt
    seconds: float
    history: list[dict[str, Any]]
    scaler: dict[str, Any]
    identity: dict[str, Any]


class RunFolder:
    """Checkpoints in a folder, as `nerve.core.training.train` asks for them.

    Parameters
    ----------
    folder : path
        The folder of the run.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return (self.folder / LAST).is_file()

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and state of the checkpoint."""
        path = self.folder / LAST
        return load_tensors(path), _load_state(path)

    def save(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Write the checkpoint."""
        save_tensors(self.folder / LAST, tensors, state)

    def load_best(self) -> dict[str, torch.Tensor]:
        """Read the weights of least validation loss."""
        return load_tensors(self.folder / _BEST)

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        """Write the weights of least validation loss."""
        save_tensors(self.folder / _BEST, weights)

    def save_history(self, rows: list[dict[str, Any]]) -> None:
        """Write the training curve, one row per epoch."""
        write_tsv(self.folder / HISTORY, pd.DataFrame(rows))


def save_tensors(
    path: Path, tensors: dict[str, torch.Tensor], state: dict[str, Any] | None = None
) -> None:
    """Write named tensors, and a state in the header, as one safetensors file.

    Parameters
    ----------
    path : path
        The file.
    tensors : dict of str to tensor
        On any device.
    state : dict, optional
        Plain JSON values.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    metadata = None if state is None else {"state": json.dumps(state)}
    with atomic_file(path) as stream:
        stream.write(save(on_cpu, metadata))


def load_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Read named tensors.

    Parameters
    ----------
    path : path
        A safetensors file. If it is missing, cut short or of another format, it is an error.

    Returns
    -------
    dict of str to tensor
    """
    try:
        require_regular_file(Path(path))
        header, n_header_bytes = _read_header(Path(path))
        # compared before the numbers are read: a damaged file may be many gigabytes of nothing
        n_expected = n_header_bytes
        for name, tensor in header.items():
            if name != "__metadata__":
                n_expected = max(n_expected, n_header_bytes + int(tensor["data_offsets"][1]))
        n_bytes = os.path.getsize(path)
        if n_expected != n_bytes:
            raise ValueError(f"it has {n_bytes:,} bytes and should have {n_expected:,}")
        # opened by Python: safetensors cannot open a path that is not UTF-8
        return load(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise NerveError(
            f"{path}: there is no such file, which a complete run folder holds."
        ) from error
    except (SafetensorError, *_DAMAGED) as error:
        raise NerveError(
            f"{path}: is not a readable safetensors file ({error}). Copy it again."
        ) from error


def half_precision(path: Path) -> bytes:
    """Convert a file of named tensors to half precision.

    Parameters
    ----------
    path : path
        A safetensors file.

    Returns
    -------
    bytes
        Of a safetensors file.
    """
    halves = {}
    for name, tensor in load_tensors(path).items():
        halves[name] = tensor.half() if tensor.is_floating_point() else tensor
    too_large = [name for name, tensor in halves.items() if not tensor.isfinite().all()]
    if too_large:
        raise NerveError(
            f"{path}: {listed(too_large)} cannot be written in half precision: numbers are too "
            "large."
        )
    return save(halves)


def single_precision(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Convert tensors of half precision to float32, in which modules compute.

    Parameters
    ----------
    tensors : dict of str to tensor
        Of any type.

    Returns
    -------
    dict of str to tensor
        Those of other types are unchanged.
    """
    singles = {}
    for name, tensor in tensors.items():
        singles[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return singles


def _load_state(path: Path) -> dict[str, Any]:
    """Read the JSON state in the header of a checkpoint."""
    try:
        require_regular_file(path)
        header, _ = _read_header(path)
        return _State(**json.loads(header["__metadata__"]["state"])).model_dump()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        entry = ".".join(str(part) for part in first["loc"][:3])
        raise NerveError(
            f"{path}: its entry {entry} is not one of a checkpoint of this version "
            f"({first['msg']}). Train in a new folder."
        ) from None
    except _DAMAGED as error:
        raise NerveError(
            f"{path}: is not a checkpoint of this package ({error}). Start without --resume."
        ) from error


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and how many bytes precede the numbers."""
    with open(path, "rb") as stream:
        n_bytes = int.from_bytes(stream.read(8), "little")
        if n_bytes > _LARGEST_HEADER:
            raise ValueError(f"its header is said to have {n_bytes:,} bytes")
        header = json.loads(stream.read(n_bytes))
    return dict(header), 8 + n_bytes
