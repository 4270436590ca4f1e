"""FC packed by patch, once: in memory when it is small, in a memory-mapped file when it is not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from nerve.checks import NerveError, problem
from nerve.cohort import Cohort
from nerve.files import atomic_file
from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.training import ArraySource
from nerve.training.distributed import current_processes
from nerve.training.sources import check_numbers

IN_MEMORY_BELOW = 2 * 2**30  # bytes
PACKED = "packed.npy"
_CHUNK = 64  # people packed at a time


class PackingSource:
    """Packs the matrices of a batch when they are asked for: right for data that are read once."""

    def __init__(self, cohort: Cohort, patching: Patching) -> None:
        self.cohort, self.patching = cohort, patching

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> torch.Tensor:
        """(people, S) float32."""
        return torch.from_numpy(_packed(self.cohort, self.patching, rows))


def packed_source(cohort: Cohort, patching: Patching, run_dir: Path | None = None) -> ArraySource:
    """All people packed, (n, S), for data that are read at every epoch.

    float16 matrices stay float16 until a batch is read. A large array goes to a file in `run_dir` (written by the
    first process, read by all), or to a nameless temporary file.
    """
    dtype = np.dtype(np.float16 if cohort.connectivity.dtype == np.float16 else np.float32)
    shape = (len(cohort), patching.n_entries)
    processes = current_processes()
    if shape[0] * shape[1] * dtype.itemsize < IN_MEMORY_BELOW:
        array: Any = np.empty(shape, dtype)
        for rows, packed in _in_chunks(cohort, patching):
            array[rows] = packed
    elif run_dir is None:
        nameless = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the map
        _write(nameless, cohort, patching, dtype)
        array = np.memmap(nameless, dtype, "r", shape=shape)
    else:
        if processes.first:
            with atomic_file(run_dir / PACKED) as stream:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
                _write(stream, cohort, patching, dtype)
        processes.wait()
        array = np.load(run_dir / PACKED, mmap_mode="r", allow_pickle=False)
    return ArraySource(array)


def remove_packed(run_dir: Path | None) -> None:
    """Delete the file that `packed_source` may have made; it can be made again."""
    if run_dir is not None and current_processes().first:
        (run_dir / PACKED).unlink(missing_ok=True)


def patching_for(parcellation: Parcellation, name: str) -> Patching:
    """A patching by its name in configurations.

    Parameters
    ----------
    parcellation : Parcellation
    name : str
        ``networks``; ``grid<size>``, consecutive regions; ``permuted<seed>``, networks with regions assigned at
        random; or a parcellation (name or table) whose networks group the same regions, ``schaefer400-7`` say.
    """
    if name == "networks":
        return Patching.from_parcellation(parcellation)
    for prefix in ("grid", "permuted"):
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit():
            number = int(name.removeprefix(prefix))
            if prefix == "grid":
                return Patching.grid(parcellation.n_regions, number)
            return Patching.from_parcellation(parcellation).permuted(number)
    try:
        return Patching.from_parcellation(parcellation.with_networks_of(name))
    except NerveError as error:
        raise problem(
            f"patching is {name!r}", f"{error}", remedy="Other choices: networks, grid16, permuted0 (any number)."
        ) from error


def _write(stream: IO[bytes], cohort: Cohort, patching: Patching, dtype: np.dtype) -> None:
    """Everyone, by ordinary writes: a full disk is an error then; through a map it would end the process."""
    for _, packed in _in_chunks(cohort, patching):
        stream.write(np.ascontiguousarray(packed, dtype).data)
    stream.flush()


def _in_chunks(cohort: Cohort, patching: Patching) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and their packed matrices, some people at a time."""
    for start in range(0, len(cohort), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(cohort)))
        yield rows, _packed(cohort, patching, rows)


def _packed(cohort: Cohort, patching: Patching, rows: np.ndarray) -> np.ndarray:
    packed = patching.pack(cohort.inputs("fc", rows))  # (people, S)
    check_numbers(packed, cohort, rows)
    return packed
