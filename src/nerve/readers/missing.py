"""What happens when some participants lack some regions: leave out either, or fill in the mean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nerve.checks import NerveError, listed
from nerve.parcellation import Parcellation
from nerve.readers.ids import counted
from nerve.readers.matrices import missing_regions
from nerve.readers.person import Person

POLICIES = ("drop-participant", "drop-region", "impute-group-mean")
MOST_MISSING = 0.5  # of the regions: whoever lacks more is left out under any policy


class Spool:
    """Matrices (and series) put aside on disk until it is known which regions everyone has.

    Counts, for each entry of the matrix, how many participants have it, and sums it.
    """

    def __init__(self, folder: Path, n_regions: int) -> None:
        self.n_regions = n_regions
        self.total = np.zeros((n_regions, n_regions))
        self.count = np.zeros((n_regions, n_regions), np.int64)
        self.lacking = np.zeros(n_regions, np.int64)
        self._people: list[tuple[Person, int]] = []
        self._matrices: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115, closed by close()
        self._series: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, person: Person) -> None:
        """Put one participant aside."""
        matrix, series = person.matrix, person.series
        assert matrix is not None
        known = np.isfinite(matrix)
        self.total[known] += matrix[known]
        self.count += known
        self.lacking += missing_regions(matrix)
        self._matrices.write(np.ascontiguousarray(matrix, np.float32).data)
        if series is not None:
            self._series.write(np.ascontiguousarray(series, np.float32).data)
        person.matrix = person.series = None
        self._people.append((person, -1 if series is None else len(series)))

    def __len__(self) -> int:
        return len(self._people)

    def __iter__(self) -> Iterator[Person]:
        self._matrices.seek(0)
        self._series.seek(0)
        r = self.n_regions
        for person, n_volumes in self._people:
            person.matrix = np.frombuffer(self._matrices.read(4 * r * r), np.float32).reshape(r, r).copy()
            if n_volumes >= 0:
                data = self._series.read(4 * r * n_volumes)
                person.series = np.frombuffer(data, np.float32).reshape(n_volumes, r).copy()
            yield person
            person.matrix = person.series = None

    def close(self) -> None:
        """Give the disk space back."""
        self._matrices.close()
        self._series.close()


def without_regions(spool: Spool, target: Parcellation) -> tuple[np.ndarray, list[str]]:
    """Positions of the regions that everyone has, and what to tell the user."""
    kept = np.flatnonzero(spool.lacking == 0)
    gone = [label for label, lacking in zip(target.labels, spool.lacking, strict=True) if lacking]
    if len(kept) < 2:
        raise NerveError(
            "No two regions have data in everyone. Use --missing drop-participant, or check the parcellation."
        )
    are = "is" if len(gone) == 1 else "are"
    notes = [f"{counted(len(gone), 'region')} that someone lacks {are} left out ({listed(gone, 6)})"] if gone else []
    return kept, notes


def group_mean(spool: Spool, target: Parcellation) -> np.ndarray:
    """The mean of every entry over the participants who have it."""
    nobody = [label for label, n in zip(target.labels, np.diagonal(spool.count), strict=True) if n == 0]
    if nobody:
        raise NerveError(
            f"Nobody has data in {counted(len(nobody), 'region')} ({listed(nobody, 6)}), so that there is no group "
            "mean to fill in. Use --missing drop-region."
        )
    # two regions that nobody has both of: no relation is known, and 0 says so
    return spool.total / np.maximum(spool.count, 1)


def imputed(matrix: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The matrix with its missing entries taken from the group mean."""
    return np.where(np.isfinite(matrix), matrix, mean).astype(np.float32)
