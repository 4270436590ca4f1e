"""The view of a cohort, kept beside its matrices: pretraining computes it, embedding and evaluation read it.

`.views/KEY.npy` in a cohort's folder holds the entries on and above the diagonal, (n, R (R + 1) / 2), in float32. KEY
is a digest of the view, of what it has learned and of the matrices, so that another view or a changed cohort has
another file; the last two are kept. It is only a short cut: a cohort in memory, some participants of one, a folder
that cannot be written to or more than 2 GiB is computed when it is asked for.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nerve.checks import NerveError, naming
from nerve.cohort import Cohort
from nerve.contents import digest_of, text_digest
from nerve.files import atomic_file
from nerve.store import VIEWS
from nerve.training.sources import check_numbers
from nerve.views import View

LARGEST = 2 * 2**30  # bytes
_KEPT = 2  # files
_CHUNK = 64  # participants at a time


class ViewedCohort:
    """The matrices of a cohort in a view that was fitted."""

    def __init__(self, cohort: Cohort, view: View) -> None:
        self.cohort, self.view = cohort, view
        self.ids = cohort.participants["participant_id"].to_numpy(object)
        self.above = np.triu_indices(cohort.n_regions)
        self.shape = len(cohort), len(self.above[0])
        self.path = _path(cohort, view) if 4 * self.shape[0] * self.shape[1] <= LARGEST else None
        self.entries = _opened(self.path, self.shape)

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
            with atomic_file(self.path) as stream:
                np.lib.format.write_array_header_1_0(
                    stream, {"descr": "<f4", "fortran_order": False, "shape": self.shape}
                )
                for start in range(0, len(self.cohort), _CHUNK):
                    matrices = self.matrices(np.arange(start, min(start + _CHUNK, len(self.cohort))))
                    stream.write(np.ascontiguousarray(matrices[:, self.above[0], self.above[1]]).data)
            _remove_older(self.path.parent)
        self.entries = _opened(self.path, self.shape)


def _path(cohort: Cohort, view: View) -> Path | None:
    """Where the view is kept; FC itself and cohorts that are not on disk have no such place."""
    if view.name == "fc" or cohort.folder is None:
        return None
    settings = {name: value for name, value in vars(view).items() if name != "arrays"}
    learned = [f"{name} {digest_of([view.arrays[name]])}" for name in view.shapes(cohort.n_regions)]
    return cohort.folder / VIEWS / f"{text_digest(view.name, str(settings), cohort.fingerprint, *learned)}.npy"


def _opened(path: Path | None, shape: tuple[int, int]) -> Any:
    """The kept entries; None if there are none of this shape."""
    if path is None or not path.is_file():
        return None
    with suppress(OSError, ValueError):
        entries = np.load(path, mmap_mode="r", allow_pickle=False)
        return entries if entries.shape == shape and entries.dtype == np.float32 else None
    return None


def _remove_older(folder: Path) -> None:
    for path in sorted(folder.glob("*.npy"), key=os.path.getmtime)[:-_KEPT]:
        path.unlink(missing_ok=True)
