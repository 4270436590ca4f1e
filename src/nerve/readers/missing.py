"""What happens when some participants lack some regions: leave out either, or fill in the mean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nerve.checks import NerveError, listed
from nerve.locks import clear_errors
from nerve.parcellation import Parcellation
from nerve.readers.ids import counted
from nerve.readers.person import Person
from nerve.readers.planning import Plan

MOST_MISSING = 0.5  # of the regions: whoever lacks more is left out under any policy


@contextmanager
def completed(people: Iterable[Person], plan: Plan, out: Path) -> Iterator[tuple[Parcellation, Iterable[Person]]]:
    """The regions that the cohort gets, and the participants with data in all of them.

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
        yield target, people
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
        self.stream, self.target = stream, target
        self.total = np.zeros((target.n_regions, target.n_regions))
        self.people: list[Person] = []
        nothing = np.empty((0, 0))
        for person in people:
            self.total += np.nan_to_num(person.matrix, nan=0.0)
            for array in (person.matrix, person.series):
                if array is not None:
                    np.save(stream, array)
            self.people.append(replace(person, matrix=nothing, series=None if person.series is None else nothing))
        missing = [person.missing for person in self.people]
        self.missing = np.array(missing, bool).reshape(-1, target.n_regions)  # (participants, regions)

    def __iter__(self) -> Iterator[Person]:
        self.stream.seek(0)
        for person in self.people:
            matrix = np.load(self.stream, allow_pickle=False)
            series = None if person.series is None else np.load(self.stream, allow_pickle=False)
            yield replace(person, matrix=matrix, series=series)

    def without_regions(self, notes: list[str]) -> tuple[Parcellation, Iterable[Person]]:
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
        return self.target.subset(kept, name=f"{self.target.name} less {len(gone)}"), self._at(kept)

    def _at(self, kept: np.ndarray) -> Iterator[Person]:
        for person in self:
            series = None if person.series is None else person.series[:, kept]
            yield replace(person, matrix=person.matrix[np.ix_(kept, kept)], series=series)

    def imputed(self, notes: list[str]) -> Iterable[Person]:
        """Everyone, with missing entries taken from the mean over the participants who have them."""
        nobody = self._labels(np.all(self.missing, axis=0))
        if nobody and self.people:
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
        return (replace(person, matrix=np.where(np.isnan(person.matrix), mean, person.matrix)) for person in self)

    def _labels(self, which: Any) -> list[str]:
        return [self.target.labels[i] for i in np.flatnonzero(which)]
