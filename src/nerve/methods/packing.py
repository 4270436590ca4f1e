"""Matrices packed by patch, once: in memory when they are small, in a memory-mapped file when they are not."""

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
from nerve.methods.kept_views import ViewedCohort
from nerve.methods.recentring import SiteShifts, sites_of
from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.training import ArraySource, Source
from nerve.training.distributed import current_processes
from nerve.views import View

IN_MEMORY_BELOW = 2 * 2**30  # bytes
PACKED = "packed.npy"
_CHUNK = 64  # participants packed at a time


class PackingSource:
    """Packs the matrices of a batch when they are asked for: right for data that are read once.

    With `recentring`, the shifts of sites and the column that names a participant's, the matrices are recentred; sites
    that have no shift get theirs from the participants of the cohort, in a pass over them.
    """

    def __init__(
        self,
        cohort: Cohort,
        patching: Patching,
        view: View | None = None,
        recentring: tuple[SiteShifts, str] | None = None,
    ) -> None:
        self.cohort, self.patching, self.viewed = cohort, patching, ViewedCohort(cohort, view or View())
        self.shifts: SiteShifts | None = None
        if recentring is not None:
            shifts, column = recentring
            self.sites = sites_of(cohort, column)
            self.shifts = shifts.meeting(self.viewed.matrices, self.sites)

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> torch.Tensor:
        """(participants, S) float32."""
        return torch.from_numpy(self.packed(rows))

    def packed(self, rows: np.ndarray) -> np.ndarray:
        """The same as an array."""
        return self.patching.pack(self.matrices(rows))

    def matrices(self, rows: np.ndarray) -> np.ndarray:
        """(participants, R, R) that are cut into patches."""
        viewed = self.viewed.matrices(rows)
        return viewed if self.shifts is None else self.shifts.apply(viewed, self.sites[rows])

    def chunks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and their packed matrices, some participants at a time."""
        for start in range(0, len(self), _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, len(self)))
            yield rows, self.packed(rows)


class Chosen:
    """Some samples of another source, by their rows."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        self.source, self.rows = source, rows

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: np.ndarray) -> Any:
        """The samples at these places among the chosen."""
        return self.source.batch(self.rows[rows])


class Masked:
    """Another source's samples, each with numbers of its own: masked patches, or uniform draws."""

    def __init__(self, source: Source, numbers: np.ndarray) -> None:
        if len(numbers) != len(source):
            raise problem("masked", f"{len(numbers)} rows", expected=f"one for each of {len(source)} participants")
        self.source, self.numbers = source, torch.from_numpy(np.ascontiguousarray(numbers))

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, rows: np.ndarray) -> tuple[Any, torch.Tensor]:
        """(samples, numbers) at these rows."""
        return self.source.batch(rows), self.numbers[torch.from_numpy(rows)]


def packed_source(source: PackingSource, run_dir: Path | None = None) -> ArraySource:
    """Everyone packed, (n, S), for data that are read at every epoch.

    FC in float16 stays so until a batch is read. A large array goes to a file in `run_dir` (written by the
    first process, read by all), or to a nameless temporary file.
    """
    source.viewed.keep()
    half = source.cohort.connectivity.dtype == np.float16 and source.viewed.view.name == "fc"
    dtype = np.dtype(np.float16 if half else np.float32)
    shape = (len(source), source.patching.n_entries)
    processes = current_processes()
    if shape[0] * shape[1] * dtype.itemsize < IN_MEMORY_BELOW:
        array: Any = np.empty(shape, dtype)
        for rows, packed in source.chunks():
            array[rows] = packed
    elif run_dir is None:
        nameless = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the map
        _write(nameless, source, dtype)
        array = np.memmap(nameless, dtype, "r", shape=shape)
    else:
        if processes.first:
            with atomic_file(run_dir / PACKED) as stream:
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
                _write(stream, source, dtype)
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


def _write(stream: IO[bytes], source: PackingSource, dtype: np.dtype) -> None:
    """Everyone, by ordinary writes: a full disk is an error then; through a map it would end the process."""
    for _, packed in source.chunks():
        stream.write(np.ascontiguousarray(packed, dtype).data)
    stream.flush()
