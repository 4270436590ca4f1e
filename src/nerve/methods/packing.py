"""A cohort as encoders read it: its matrices in a view, packed by patch once.

The view of a cohort on disk is kept beside its matrices: pretraining computes it, embedding and evaluation read it.
`.views/KEY.npy` in the cohort's folder holds the entries on and above the diagonal, (n, R (R + 1) / 2), in float32. KEY
is a digest of the view, of what it has learned and of the matrices, so that another view or a changed cohort has
another file; the last two are kept. It is only a short cut: a cohort in memory, some participants of one, a folder
that cannot be written to or more than 2 GiB is computed when it is asked for.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nerve.checks import NerveError, naming, problem
from nerve.cohort import Cohort
from nerve.files import atomic_file
from nerve.methods.data import chunks
from nerve.methods.recentring import SiteShifts
from nerve.parcellation import Parcellation
from nerve.patching import Patching
from nerve.store import VIEWS, digest_of, text_digest
from nerve.training import ArraySource
from nerve.training.distributed import current_processes
from nerve.training.sources import check_numbers
from nerve.views import View

IN_MEMORY_BELOW = 2 * 2**30  # bytes of packed matrices
LARGEST = 2 * 2**30  # bytes of a view that is kept
PACKED = "packed.npy"
_KEPT = 2  # files


class ViewedCohort:
    """The matrices of a cohort in a view that was fitted."""

    def __init__(self, cohort: Cohort, view: View) -> None:
        self.cohort, self.view = cohort, view
        self.above = np.triu_indices(cohort.n_regions)
        self.shape = len(cohort), len(self.above[0])
        self.path = self._path()
        self.entries = None if self.path is None else _opened(self.path, len(cohort))

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """(k, R (R + 1) / 2) float32: the matrices of these participants on and above the diagonal."""
        if self.entries is None:  # in the order that kept ones have, so that products with them have the same bits
            return np.ascontiguousarray(self.matrices(rows)[:, *self.above])
        return self.entries[rows]

    def matrices(self, rows: np.ndarray) -> np.ndarray:
        """(k, R, R) float32 of these participants."""
        if self.entries is None:
            fc = self.cohort.inputs("fc", rows)
            check_numbers(fc, self.cohort, rows)
            with naming(self.cohort.participants["participant_id"].to_numpy(object)[rows]):
                return self.view.apply(fc)
        out = np.empty((len(rows), *self.cohort.shape[1:]), np.float32)
        out[:, self.above[0], self.above[1]] = out[:, self.above[1], self.above[0]] = self.entries[rows]
        return out

    def keep(self) -> None:
        """Write everyone's matrices beside the cohort, if that is possible and was not done."""
        if self.path is not None and self.entries is None:
            _keep(self.path, self.shape, map(self.vectors, chunks(len(self.cohort))), _KEPT)
            self.entries = _opened(self.path, len(self.cohort))

    def _path(self) -> Path | None:
        """Where the view is kept; FC itself, cohorts that are not on disk and large ones have no such place."""
        folder, view = self.cohort.folder, self.view
        if view.name == "fc" or folder is None or 4 * self.shape[0] * self.shape[1] > LARGEST:
            return None
        settings = {name: value for name, value in vars(view).items() if name != "arrays"}
        learned = [f"{name} {digest_of([view.arrays[name]])}" for name in view.shapes(self.cohort.n_regions)]
        return folder / VIEWS / f"{text_digest(view.name, str(settings), self.cohort.fingerprint, *learned)}.npy"


class PackingSource:
    """Packs the matrices of a batch when they are asked for: right for data that are read once."""

    shifts: SiteShifts | None = None

    def __init__(self, cohort: Cohort, patching: Patching, view: View | None = None) -> None:
        self.cohort, self.patching, self.viewed = cohort, patching, ViewedCohort(cohort, view or View())

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
    for rows in chunks(len(cohort)) if view.name != "fc" else ():  # FC itself is checked when it is packed
        check_numbers(cohort.inputs("fc", rows), cohort, rows)
    with naming(cohort.participants["participant_id"].to_numpy(object)):
        return view.fit(cohort.connectivity)


def packed_source(source: PackingSource, run_dir: Path | None = None) -> ArraySource:
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
        return ArraySource(array)
    processes = current_processes()
    with tempfile.TemporaryDirectory() if run_dir is None else nullcontext(run_dir) as folder:
        path = Path(folder) / PACKED
        if processes.first or run_dir is None:
            _write(path, shape, dtype, (source.packed(rows) for rows in chunks(len(source))))
        processes.wait()
        return ArraySource(np.load(path, mmap_mode="r", allow_pickle=False))  # a map outlives its file


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
    if grid := re.fullmatch(r"grid(\d+)", name):
        return Patching.grid(parcellation.n_regions, int(grid[1]))
    if permuted := re.fullmatch(r"permuted(\d+)", name):
        return Patching.from_parcellation(parcellation).permuted(int(permuted[1]))
    try:
        return Patching.from_parcellation(parcellation.with_networks_of(name))
    except NerveError as error:
        remedy = "Other choices: networks, grid16, permuted0 (any number)."
        raise problem(f"patching is {name!r}", f"{error}", remedy=remedy) from error


def kept_features(folder: Path, key: str, n: int, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Features of n participants, which `embed` or `evaluate` may have made before; KEY says of whom, by which model.

    `.views/features/KEY.npy` in the cohort's folder; the last eight are kept.
    """
    path = folder / VIEWS / "features" / f"{key}.npy"
    kept = _opened(path, n)
    if kept is not None:
        return np.array(kept)
    features = make()
    _keep(path, features.shape, [features], 8)
    return features


def _opened(path: Path, n: int) -> np.ndarray | None:
    """The array that is kept here; None if there is none of so many participants."""
    with suppress(OSError, ValueError):
        kept = np.load(path, mmap_mode="r", allow_pickle=False)
        return kept if len(kept) == n and kept.dtype == np.float32 else None
    return None


def _keep(path: Path, shape: tuple[int, ...], parts: Iterable[np.ndarray], most: int) -> None:
    """Write an array, if that is possible, and leave only so many of the last ones in its folder."""
    with suppress(NerveError, OSError):  # a participant that has no view is refused where the matrix is asked for
        _write(path, shape, np.float32, parts)
        for old in sorted(path.parent.glob("*.npy"), key=os.path.getmtime)[:-most]:
            old.unlink(missing_ok=True)


def _write(path: Path, shape: tuple[int, ...], dtype: Any, parts: Iterable[np.ndarray]) -> None:
    """An array on disk, part by part, by ordinary writes: through a map, a full disk would end the process."""
    with atomic_file(path) as stream:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
        for part in parts:
            stream.write(np.ascontiguousarray(part, dtype).data)
