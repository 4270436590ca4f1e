"""A training run on disk, and named tensors in files. Nothing is ever unpickled.

    last.safetensors    everything that is needed to go on: weights, optimiser, counters, curve
    best.safetensors    the weights of least validation loss
    history.tsv         the training curve, one row per epoch

A checkpoint is one file, written whole or not at all: tensors of the module and the optimiser, and
counters and curve as JSON in its header. There is no moment at which a kill leaves half of one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from nerve._utils.archives import require_regular_file
from nerve._utils.errors import NerveError, listed
from nerve._utils.files import atomic_file, write_tsv

LAST = "last.safetensors"
BEST = "best.safetensors"
HISTORY = "history.tsv"
_LARGEST_HEADER = 10**8  # bytes
# errors while the header of a damaged file is read
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


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
        """Whether there is a checkpoint to go on from."""
        return (self.folder / LAST).is_file()

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and state of the last checkpoint."""
        path = self.folder / LAST
        return load_tensors(path), load_state(path)

    def save(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Keep everything that is needed to go on."""
        save_tensors(self.folder / LAST, tensors, state)

    def load_best(self) -> dict[str, torch.Tensor]:
        """The weights of least validation loss."""
        return load_tensors(self.folder / BEST)

    def save_best(self, weights: dict[str, torch.Tensor]) -> None:
        """Keep the weights of least validation loss."""
        save_tensors(self.folder / BEST, weights)

    def save_history(self, rows: list[dict[str, Any]]) -> None:
        """Keep the training curve, one row per epoch."""
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
        A safetensors file; one that is missing, cut short or of another format is refused.

    Returns
    -------
    dict of str to tensor
    """
    try:
        # read here: safetensors opens no name that is not UTF-8
        require_regular_file(Path(path))
        header, n_header_bytes = _read_header(Path(path))
        ends = [0]
        for name, tensor in header.items():
            if name != "__metadata__":
                ends.append(int(tensor["data_offsets"][1]))
        # before the numbers are read: a file of many gigabytes may hold none
        size = os.path.getsize(path)
        if n_header_bytes + max(ends) != size:
            raise ValueError(f"it has {size:,} bytes and says {n_header_bytes + max(ends):,}")
        return load(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise NerveError(
            f"{path}: there is no such file; a complete run folder holds it."
        ) from error
    except (SafetensorError, *_DAMAGED) as error:
        raise NerveError(
            f"{path}: is not a readable safetensors file ({error}). Copy it again."
        ) from error


def load_state(path: Path) -> dict[str, Any]:
    """Read the state in the header of a checkpoint.

    Parameters
    ----------
    path : path
        A file of `save_tensors`.

    Returns
    -------
    dict
    """
    try:
        require_regular_file(path)
        header, _ = _read_header(path)
        return dict(json.loads(header["__metadata__"]["state"]))
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


def half_precision(path: Path) -> bytes:
    """A file of named tensors with every real number in half precision, as bytes.

    Parameters
    ----------
    path : path
        A safetensors file.

    Returns
    -------
    bytes
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
    """Tensors that were written in half precision as modules compute with them.

    Parameters
    ----------
    tensors : dict of str to tensor
        Of any type.

    Returns
    -------
    dict of str to tensor
    """
    singles = {}
    for name, tensor in tensors.items():
        singles[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return singles
