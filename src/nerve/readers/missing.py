"""What happens when some participants lack some regions: leave out either, or fill in the mean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nerve.checks import NerveError, listed
from nerve.locks import clear_errors
from nerve.parcellation import Parcellation
from nerve.readers.ids import counted
from nerve.readers.person import Person
from nerve.readers.planning import Plan

Arrays = tuple[np.ndarray, np.ndarray | None]  # a participant's matrix, and time series where these are kept
MOST_MISSING = 0.5  # of the regions: whoever lacks more is left out under any policy


@contextmanager
def completed(people: Iterable[Person], plan: Plan, out: Path) -> Iterator[tuple[Parcellation, Iterable[Arrays]]]:
    """The regions that the cohort gets, and the arrays of the participants, with data in all of them.

    Which regions are kept, or what is filled in, depends on everyone: so they are put aside first, beside `out`.

    Parameters
    ----------
    people : iterable of Person
        With data in every region if the policy is `drop-participant`.
    plan : Plan
        With the policy and the regions; what to tell the user is added to its notes.
    out : Path
    """
    policy, target, notes = plan.options.missing, plan.regions.target, plan.notes
    if policy == "drop-participant":
        yield target, ((person.matrix, person.series) for person in people)
        return
    with clear_errors(out):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        stream: BinaryIO = tempfile.TemporaryFile(dir=out.absolute().parent)  # noqa: SIM115, closed below
        spool = Spool(stream, target, people)
    with stream:
        yield spool.without_regions(notes) if policy == "drop-region" else (target, spool.imputed(notes))


class Spool:
    """Matrices (and series) put aside on disk until it is known which regions everyone has."""

    def __init__(self, stream: BinaryIO, target: Parcellation, people: Iterable[Person]) -> None:
        self.stream, self.target, self.with_series = stream, target, False
        self.total = np.zeros((target.n_regions, target.n_regions))
        missing = []
        for person in people:
            self.total += np.nan_to_num(person.matrix, nan=0.0)
            missing.append(person.missing)
            np.save(stream, person.matrix)
            if person.series is not None:  # everyone has one, or nobody
                self.with_series = True
                np.save(stream, person.series)
        self.missing = np.array(missing, bool).reshape(-1, target.n_regions)  # (participants, regions)

    def __iter__(self) -> Iterator[Arrays]:
        self.stream.seek(0)
        for _ in self.missing:
            matrix = np.load(self.stream, allow_pickle=False)
            yield matrix, np.load(self.stream, allow_pickle=False) if self.with_series else None

    def without_regions(self, notes: list[str]) -> tuple[Parcellation, Iterable[Arrays]]:
        """The regions that everyone has, and everyone with these."""
        lacking = np.any(self.missing, axis=0)
        kept, gone = np.flatnonzero(~lacking), self._labels(lacking)
        if len(kept) < 2:
            raise NerveError(
                "No two regions have data in everyone. Use --missing drop-participant, or check the parcellation."
            )
        if not gone:
            return self.target, self
        are = "is" if len(gone) == 1 else "are"
        notes.append(f"{counted(len(gone), 'region')} that someone lacks {are} left out ({listed(gone, 6)})")
        people = ((matrix[np.ix_(kept, kept)], None if series is None else series[:, kept]) for matrix, series in self)
        return self.target.subset(kept, name=f"{self.target.name} less {len(gone)}"), people

    def imputed(self, notes: list[str]) -> Iterable[Arrays]:
        """Everyone, with missing entries taken from the mean over the participants who have them."""
        nobody = self._labels(np.all(self.missing, axis=0))
        if nobody and len(self.missing):
            raise NerveError(
                f"Nobody has data in {counted(len(nobody), 'region')} ({listed(nobody, 6)}), so that there is no group "
                "mean to fill in. Use --missing drop-region."
            )
        n_lacking = int(self.missing.any(axis=1).sum())
        if n_lacking:
            notes.append(f"{counted(n_lacking)} had missing regions filled in with the group mean")
        present = (~self.missing).astype(np.float64)
        # two regions that nobody has both of: no relation is known, and 0 says so
        mean = (self.total / np.maximum(present.T @ present, 1)).astype(np.float32)
        return ((np.where(np.isnan(matrix), mean, matrix), series) for matrix, series in self)

    def _labels(self, which: Any) -> list[str]:
        return [self.target.labels[i] for i in np.flatnonzero(which)]
