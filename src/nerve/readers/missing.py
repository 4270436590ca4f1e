"""What happens when some participants lack some regions: leave out either, or fill in the mean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nerve.checks import NerveError, listed
from nerve.files import clear_errors
from nerve.parcellation import Parcellation
from nerve.readers.ids import counted
from nerve.readers.person import Person

MOST_MISSING = 0.5  # of the regions: whoever lacks more is left out under any policy


@contextmanager
def completed(
    people: Iterable[Person], policy: str, target: Parcellation, out: Path, notes: list[str]
) -> Iterator[tuple[Parcellation, Iterable[Person]]]:
    """The regions that the cohort gets, and the participants with data in all of them.

    Which regions are kept, or what is filled in, depends on everyone: so they are put aside first, beside `out`.

    Parameters
    ----------
    people : iterable of Person
        With data in every region if the policy is `drop-participant`.
    policy : {"drop-participant", "drop-region", "impute-group-mean"}
    target : Parcellation
    out : Path
    notes : list of str
        What to tell the user is added to it.
    """
    if policy == "drop-participant":
        yield target, people
        return
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        stream: BinaryIO = tempfile.TemporaryFile(dir=out.absolute().parent)  # noqa: SIM115, closed below
        spool = Spool(stream, target, people)
    except OSError as error:
        raise clear_errors("write", out, error) from error
    with stream:
        if not spool.people:
            yield target, ()
        elif policy == "drop-region":
            yield spool.without_regions(notes)
        else:
            yield target, spool.imputed(notes)


class Spool:
    """Matrices (and series) put aside on disk until it is known which regions everyone has.

    Counts, for each entry of the matrix, how many participants have it, and sums it.
    """

    def __init__(self, stream: BinaryIO, target: Parcellation, people: Iterable[Person]) -> None:
        self.stream, self.target = stream, target
        self.total = np.zeros((target.n_regions, target.n_regions))
        self.count = np.zeros_like(self.total, np.int64)
        self.n_lacking = 0  # participants who lack some region
        self.people: list[Person] = []
        for person in people:
            self._append(person)

    def _append(self, person: Person) -> None:
        known = np.isfinite(person.matrix)
        self.total[known] += person.matrix[known]
        self.count += known
        self.n_lacking += not known.diagonal().all()
        for array in (person.matrix, person.series):
            if array is not None:
                np.save(self.stream, array)
        nothing = np.empty((0, 0))
        self.people.append(replace(person, matrix=nothing, series=None if person.series is None else nothing))

    def __iter__(self) -> Iterator[Person]:
        self.stream.seek(0)
        for person in self.people:
            matrix = np.load(self.stream, allow_pickle=False)
            series = None if person.series is None else np.load(self.stream, allow_pickle=False)
            yield replace(person, matrix=matrix, series=series)

    def without_regions(self, notes: list[str]) -> tuple[Parcellation, Iterable[Person]]:
        """The regions that everyone has, and everyone with these."""
        everyone = self.count.diagonal() == len(self.people)
        kept, gone = np.flatnonzero(everyone), [self.target.labels[i] for i in np.flatnonzero(~everyone)]
        if len(kept) < 2:
            raise NerveError(
                "No two regions have data in everyone. Use --missing drop-participant, or check the parcellation."
            )
        if not gone:
            return self.target, self
        are = "is" if len(gone) == 1 else "are"
        notes.append(f"{counted(len(gone), 'region')} that someone lacks {are} left out ({listed(gone, 6)})")
        less = self.target.subset(kept, name=f"{self.target.name} less {len(gone)}")
        return less, (person.at(kept) for person in self)

    def imputed(self, notes: list[str]) -> Iterable[Person]:
        """Everyone, with missing entries taken from the mean over the participants who have them."""
        nobody = [self.target.labels[i] for i in np.flatnonzero(self.count.diagonal() == 0)]
        if nobody:
            raise NerveError(
                f"Nobody has data in {counted(len(nobody), 'region')} ({listed(nobody, 6)}), so that there is no group "
                "mean to fill in. Use --missing drop-region."
            )
        if self.n_lacking:
            notes.append(f"{counted(self.n_lacking)} had missing regions filled in with the group mean")
        # two regions that nobody has both of: no relation is known, and 0 says so
        mean = (self.total / np.maximum(self.count, 1)).astype(np.float32)
        return (replace(person, matrix=np.where(np.isfinite(person.matrix), person.matrix, mean)) for person in self)
