"""The matrices of a cohort as encoders read them: in a view, recentred, and packed by patch."""

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
from nerve.core.views import FCView, OwnWhitenings, View
from nerve.data.cohort import Cohort
from nerve.methods.inputs import check_numbers, chunks
from nerve.methods.recentring import SiteShifts

IN_MEMORY_BELOW = 2 * 2**30  # bytes; larger arrays of packed matrices are written to disk
PACKED = "packed.npy"


class ViewedCohort:
    """The matrices of a cohort in a fitted view, computed when they are read.

    Parameters
    ----------
    cohort : Cohort
    view : View
        Fitted.
    whitenings : OwnWhitenings, optional
        Of each participant, by the mean of their own cohort or site; by default the view whitens
        all participants alike.
    """

    def __init__(self, cohort: Cohort, view: View, whitenings: OwnWhitenings | None = None) -> None:
        self.cohort = cohort
        self.view = view
        self.whitenings = whitenings
        self.on_and_above_diagonal = np.triu_indices(cohort.n_regions)
        self.shape = (len(cohort), len(self.on_and_above_diagonal[0]))

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """(k, R (R + 1) / 2) float32: matrices of these participants on and above the diagonal."""
        return np.ascontiguousarray(self.matrices(rows)[:, *self.on_and_above_diagonal])

    def matrices(self, rows: np.ndarray) -> np.ndarray:
        """(k, R, R) float32 of these participants."""
        fc = self.cohort.inputs("fc", rows)
        check_numbers(fc, self.cohort, rows)
        ids = self.cohort.participants["participant_id"].to_numpy(object)[rows]
        whitenings = None if self.whitenings is None else self.whitenings.take(rows)
        with naming_participants(ids):
            return self.view.apply(fc, whitenings)


class PatchDataset:
    """The packed matrices of a cohort in a view, computed when a batch is read.

    For data that are read once; `packed_dataset` is for data that are read at every epoch.

    Parameters
    ----------
    cohort : Cohort
    patching : Patching
    view : View, optional
        Fitted; FC itself by default.
    whitenings : OwnWhitenings, optional
        As in `ViewedCohort`.
    """

    def __init__(
        self,
        cohort: Cohort,
        patching: Patching,
        view: View | None = None,
        whitenings: OwnWhitenings | None = None,
    ) -> None:
        self.cohort = cohort
        self.patching = patching
        self.viewed = ViewedCohort(cohort, view or FCView(), whitenings)
        self.sites: np.ndarray | None = None
        self.shifts: SiteShifts | None = None

    def recentre(self, shifts: SiteShifts, sites: np.ndarray) -> None:
        """Shift matrices by site from now on; sites without a shift get one from this cohort."""
        self.sites = sites
        self.shifts = shifts.with_new_sites(self.viewed.matrices, sites)

    def __len__(self) -> int:
        return len(self.cohort)

    def batch(self, rows: np.ndarray) -> torch.Tensor:
        """(participants, S) float32 tensor: packed matrices."""
        return torch.from_numpy(self.packed(rows))

    def packed(self, rows: np.ndarray) -> np.ndarray:
        """(participants, S) float32 array: packed matrices."""
        return self.patching.pack(self.matrices(rows))

    def matrices(self, rows: np.ndarray) -> np.ndarray:
        """(participants, R, R): the matrices before they are cut into patches."""
        matrices = self.viewed.matrices(rows)
        if self.shifts is None or self.sites is None:
            return matrices
        return self.shifts.apply(matrices, self.sites[rows])


def fit_view(view: View, cohort: Cohort, whitenings: OwnWhitenings | None = None) -> View:
    """Fit a view on a cohort; errors name the participant whose FC cannot be used.

    Parameters
    ----------
    view : View
    cohort : Cohort
    whitenings : OwnWhitenings, optional
        As in `ViewedCohort`.

    Returns
    -------
    View
        The same, fitted.
    """
    if view.name != "fc":  # FC itself is checked when it is packed
        for rows in chunks(len(cohort)):
            check_numbers(cohort.inputs("fc", rows), cohort, rows)
    with naming_participants(cohort.participants["participant_id"].to_numpy(object)):
        return view.fit(cohort.connectivity, whitenings)


def packed_dataset(dataset: PatchDataset, run_dir: Path | None = None) -> ArrayDataset:
    """Pack all participants once, (n, S), for data that are read at every epoch.

    FC stored as float16 is kept as float16, and becomes float32 when a batch is read.

    Parameters
    ----------
    dataset : PatchDataset
    run_dir : path, optional
        Where a large array is written, by the first process for all; by default each process
        writes its own to a temporary folder.

    Returns
    -------
    ArrayDataset
    """
    is_half = dataset.cohort.connectivity.dtype == np.float16 and dataset.viewed.view.name == "fc"
    dtype = np.dtype(np.float16 if is_half else np.float32)
    shape = (len(dataset), dataset.patching.n_entries)
    if shape[0] * shape[1] * dtype.itemsize < IN_MEMORY_BELOW:
        array = np.empty(shape, dtype)
        for rows in chunks(len(dataset)):
            array[rows] = dataset.packed(rows)
        return ArrayDataset(array)

    processes = current_processes()
    with tempfile.TemporaryDirectory() if run_dir is None else nullcontext(run_dir) as folder:
        path = Path(folder) / PACKED
        if processes.first or run_dir is None:
            parts = (dataset.packed(rows) for rows in chunks(len(dataset)))
            _write_in_parts(path, shape, dtype, parts)
        processes.wait()
        # the map stays readable after a temporary folder is deleted
        return ArrayDataset(np.load(path, mmap_mode="r", allow_pickle=False))


def _write_in_parts(
    path: Path, shape: tuple[int, ...], dtype: Any, parts: Iterable[np.ndarray]
) -> None:
    """Write a .npy file part by part.

    With ordinary writes, because a full disk is then an error. Written through a memory map, it
    would kill the process.
    """
    with atomic_file(path) as stream:
        header = {
            "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
        for part in parts:
            stream.write(np.ascontiguousarray(part, dtype).data)
