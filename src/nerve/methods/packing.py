"""A cohort as encoders read it: its matrices in a view, packed by patch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerve._utils.errors import naming_participants
from nerve._utils.files import atomic_file
from nerve.core.distributed import current_processes
from nerve.core.patching import Patching
from nerve.core.training import ArrayDataset
from nerve.core.views import FCView, View
from nerve.data.cohort import Cohort
from nerve.methods.data import check_numbers, chunks
from nerve.methods.recentring import SiteShifts

IN_MEMORY_BELOW = 2 * 2**30  # bytes of packed matrices
PACKED = "packed.npy"


class ViewedCohort:
    """The matrices of a cohort in a view that was fitted, computed when they are asked for."""

    def __init__(self, cohort: Cohort, view: View) -> None:
        self.cohort, self.view = cohort, view
        self.above = np.triu_indices(cohort.n_regions)
        self.shape = len(cohort), len(self.above[0])

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """(k, R (R + 1) / 2) float32: the matrices of these participants on and above the diagonal."""
        return np.ascontiguousarray(self.matrices(rows)[:, *self.above])

    def matrices(self, rows: np.ndarray) -> np.ndarray:
        """(k, R, R) float32 of these participants."""
        fc = self.cohort.inputs("fc", rows)
        check_numbers(fc, self.cohort, rows)
        with naming_participants(self.cohort.participants["participant_id"].to_numpy(object)[rows]):
            return self.view.apply(fc)


class PackingSource:
    """Packs the matrices of a batch when they are asked for: right for data that are read once."""

    shifts: SiteShifts | None = None

    def __init__(self, cohort: Cohort, patching: Patching, view: View | None = None) -> None:
        self.cohort, self.patching, self.viewed = (
            cohort,
            patching,
            ViewedCohort(cohort, view or FCView()),
        )

    def recentre(self, shifts: SiteShifts, sites: np.ndarray) -> None:
        """From now on recentred; sites without a shift get theirs from their participants, in a pass over them."""
        self.sites, self.shifts = sites, shifts.meeting(self.viewed.matrices, sites)

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


def fit_view(view: View, cohort: Cohort) -> View:
    """The view, fitted on a cohort; what is no number or has no logarithm is refused by name."""
    for rows in (
        chunks(len(cohort)) if view.name != "fc" else ()
    ):  # FC itself is checked when it is packed
        check_numbers(cohort.inputs("fc", rows), cohort, rows)
    with naming_participants(cohort.participants["participant_id"].to_numpy(object)):
        return view.fit(cohort.connectivity)


def packed_source(source: PackingSource, run_dir: Path | None = None) -> ArrayDataset:
    """Everyone packed, (n, S), for data that are read at every epoch.

    FC in float16 stays so until a batch is read. A large array goes to a file in `run_dir` (written by the
    first process, read by all), or to a temporary one.
    """
    half = source.cohort.connectivity.dtype == np.float16 and source.viewed.view.name == "fc"
    dtype = np.dtype(np.float16 if half else np.float32)
    shape = (len(source), source.patching.n_entries)
    if shape[0] * shape[1] * dtype.itemsize < IN_MEMORY_BELOW:
        array = np.empty(shape, dtype)
        for rows in chunks(len(source)):
            array[rows] = source.packed(rows)
        return ArrayDataset(array)
    processes = current_processes()
    with tempfile.TemporaryDirectory() if run_dir is None else nullcontext(run_dir) as folder:
        path = Path(folder) / PACKED
        if processes.first or run_dir is None:
            _write(path, shape, dtype, (source.packed(rows) for rows in chunks(len(source))))
        processes.wait()
        return ArrayDataset(
            np.load(path, mmap_mode="r", allow_pickle=False)
        )  # a map outlives its file


def _write(path: Path, shape: tuple[int, ...], dtype: Any, parts: Iterable[np.ndarray]) -> None:
    """An array on disk, part by part, by ordinary writes: through a map, a full disk would end the process."""
    with atomic_file(path) as stream:
        header = {
            "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
        for part in parts:
            stream.write(np.ascontiguousarray(part, dtype).data)
