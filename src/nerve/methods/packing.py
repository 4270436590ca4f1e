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
from nerve.files import atomic_file, write_npy
from nerve.methods.inputs import chunks
from nerve.methods.recentring import SiteShifts, sites_of
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
        self.ids = cohort.participants["participant_id"].to_numpy(object)
        self.above = np.triu_indices(cohort.n_regions)
        self.shape = len(cohort), len(self.above[0])
        self.path = _path(cohort, view) if 4 * self.shape[0] * self.shape[1] <= LARGEST else None
        self.entries = self._opened()

    def matrices(self, rows: np.ndarray) -> np.ndarray:
        """(k, R, R) float32 of these participants."""
        if self.entries is None:
            fc = self.cohort.inputs("fc", rows)
            check_numbers(fc, self.cohort, rows)
            with naming(self.ids[rows]):
                return self.view.apply(fc)
        out = np.empty((len(rows), *self.cohort.shape[1:]), np.float32)
        out[:, self.above[0], self.above[1]] = out[:, self.above[1], self.above[0]] = self.entries[rows]
        return out

    def keep(self) -> None:
        """Write everyone's matrices beside the cohort, if that is possible and was not done."""
        if self.path is None or self.entries is not None:
            return
        with suppress(NerveError):  # a participant that has no view is refused where the matrix is asked for
            parts = (self.matrices(rows)[:, *self.above] for rows in chunks(len(self.cohort)))
            _write(self.path, self.shape, np.float32, parts)
            for path in sorted(self.path.parent.glob("*.npy"), key=os.path.getmtime)[:-_KEPT]:
                path.unlink(missing_ok=True)
        self.entries = self._opened()

    def _opened(self) -> Any:
        """The kept entries; None if there are none of this shape."""
        if self.path is not None and self.path.is_file():
            with suppress(OSError, ValueError):
                entries = np.load(self.path, mmap_mode="r", allow_pickle=False)
                return entries if entries.shape == self.shape and entries.dtype == np.float32 else None
        return None


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


def fit_view(view: View, cohort: Cohort) -> None:
    """Fit a view on a cohort; what is no number or has no logarithm is refused by name."""
    for rows in chunks(len(cohort)) if view.name != "fc" else ():  # FC itself is checked when it is packed
        check_numbers(cohort.inputs("fc", rows), cohort, rows)
    with naming(cohort.participants["participant_id"].to_numpy(object)):
        view.fit(cohort.connectivity)


def packed_source(source: PackingSource, run_dir: Path | None = None) -> ArraySource:
    """Everyone packed, (n, S), for data that are read at every epoch.

    FC in float16 stays so until a batch is read. A large array goes to a file in `run_dir` (written by the
    first process, read by all), or to a temporary one.
    """
    source.viewed.keep()
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
    if numbered := re.fullmatch(r"(grid|permuted)(\d+)", name):
        number = int(numbered[2])
        if numbered[1] == "grid":
            return Patching.grid(parcellation.n_regions, number)
        return Patching.from_parcellation(parcellation).permuted(number)
    try:
        return Patching.from_parcellation(parcellation.with_networks_of(name))
    except NerveError as error:
        raise problem(
            f"patching is {name!r}", f"{error}", remedy="Other choices: networks, grid16, permuted0 (any number)."
        ) from error


def kept_features(cohort: Cohort, key: str, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Features of a cohort on disk, which `embed` or `evaluate` may have made before; KEY says of which model.

    `.views/features/KEY.npy` in the cohort's folder; the last eight are kept.
    """
    if cohort.folder is None:
        return make()
    path = cohort.folder / VIEWS / "features" / f"{text_digest(cohort.fingerprint, key)}.npy"
    with suppress(OSError, ValueError):
        features = np.load(path, allow_pickle=False)
        if len(features) == len(cohort) and features.dtype == np.float32:
            return features
    features = make()
    with suppress(NerveError, OSError):  # a folder that cannot be written to
        write_npy(path, features)
        for old in sorted(path.parent.glob("*.npy"), key=os.path.getmtime)[:-8]:
            old.unlink(missing_ok=True)
    return features


def _path(cohort: Cohort, view: View) -> Path | None:
    """Where the view is kept; FC itself and cohorts that are not on disk have no such place."""
    if view.name == "fc" or cohort.folder is None:
        return None
    settings = {name: value for name, value in vars(view).items() if name != "arrays"}
    learned = [f"{name} {digest_of([view.arrays[name]])}" for name in view.shapes(cohort.n_regions)]
    return cohort.folder / VIEWS / f"{text_digest(view.name, str(settings), cohort.fingerprint, *learned)}.npy"


def _write(path: Path, shape: tuple[int, int], dtype: Any, parts: Iterable[np.ndarray]) -> None:
    """An array on disk, part by part, by ordinary writes: through a map, a full disk would end the process."""
    with atomic_file(path) as stream:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)  # type: ignore[arg-type]
        for part in parts:
            stream.write(np.ascontiguousarray(part, dtype).data)
