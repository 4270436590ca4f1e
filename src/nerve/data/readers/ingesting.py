"""From a source to a cohort on disk: plan, read, leave out or fill in what is missing, write one after another.

Nothing is kept in memory but the scans being read; nothing is on disk under its final name until all went well.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, NerveWarning, listed, problem
from nerve._utils.files import drop_left_lock
from nerve._utils.locks import clear_errors
from nerve.data.cohort import Cohort
from nerve.data.parcellation import Parcellation
from nerve.data.quality import check_order
from nerve.data.readers.ids import counted
from nerve.data.readers.options import options_of, said
from nerve.data.readers.person import PeopleReader, Person
from nerve.data.readers.planning import Plan, make_plan
from nerve.data.store import writing_cohort

log = logging.getLogger("nerve.data.readers")
Arrays = tuple[
    np.ndarray, np.ndarray | None
]  # a participant's matrix, and time series where these are kept
_DOUBT = "WARNING:"


@dataclass
class Report:
    """What an ingest did.

    Parameters
    ----------
    path : Path
        The cohort.
    format : str
        The reader that was used.
    n_scans, n_participants : int
        Scans found, participants written.
    exclusions : DataFrame
        participant_id and reason of everyone who was left out.
    notes : list of str
        What the user should know, in the order in which it came up.
    """

    path: Path
    format: str = ""
    n_scans: int = 0
    n_participants: int = 0
    exclusions: pd.DataFrame = field(default_factory=pd.DataFrame)
    notes: list[str] = field(default_factory=list)


def read_cohort(
    source: str | os.PathLike[str],
    *,
    parcellation: Parcellation | str | None = None,
    participants: pd.DataFrame | str | os.PathLike[str] | None = None,
    format: str = "auto",
    **options: Any,
) -> Cohort:
    """A cohort from the files that labs really have.

    Parameters
    ----------
    source : path
        A folder or a file in one of the layouts of `nerve.data.readers.READERS`.
    parcellation : Parcellation or str, optional
        The regions that the cohort shall have; needed where files have no labels.
    participants : DataFrame or path, optional
        Table joined by id.
    format : str
        A name in `READERS`, or "auto".
    **options
        The other fields of `nerve.data.readers.Options`: order, columns, values, repeats, missing, …

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for person in "ab":
    ...     np.save(folder / f"sub-{person}.npy", np.corrcoef(np.random.default_rng(0).normal(size=(100, 150))))
    >>> read_cohort(folder, parcellation="schaefer100-17", format="plain")
    Cohort('cohort': 2 participants, schaefer100-17)
    """
    with tempfile.TemporaryDirectory(prefix="nerve-") as folder:
        out = Path(folder) / "cohort"
        report = ingest(
            source,
            out,
            parcellation=parcellation,
            participants=participants,
            format=format,
            **options,
        )
        for note in report.notes:
            if note.startswith(_DOUBT):
                warnings.warn(note.removeprefix(_DOUBT).strip(), NerveWarning, stacklevel=2)
        return Cohort.load(report.path)  # what is mapped stays readable after the folder is gone


def ingest(source: str | os.PathLike[str], out: str | os.PathLike[str], **options: Any) -> Report:
    """Read a source into a cohort folder, streaming; see `read_cohort` for the options."""
    chosen, out = options_of(Path(source), options), Path(out)
    if out.exists() and not chosen.overwrite and (not out.is_dir() or any(out.iterdir())):
        drop_left_lock(out)
        raise problem(out, "it already exists", remedy="Choose another folder, or say --overwrite.")
    plan = make_plan(Path(source), chosen)
    notes, reader = plan.notes, PeopleReader(plan)
    record: dict[str, Any] = {
        "source": str(source),
        "format": plan.reader.name,
        "region_match": plan.regions.match,
    }
    record |= {"settings": said(options), "log": notes}
    with (
        completed(reader, plan, out) as (regions, people),
        writing_cohort(out, regions, dtype=chosen.dtype, overwrite=chosen.overwrite) as writer,
    ):
        total = np.zeros((regions.n_regions,) * 2)
        for matrix, series in people:
            writer.append(matrix[None], None if series is None else [np.nan_to_num(series)])
            total += matrix
        order = check_order(total / max(writer.matrices.n_rows, 1), regions)
        if order.better:
            as_other = (
                f"read as {order.better} the network contrast is {order.others[order.better]:.3f}"
            )
            as_this = f"as {regions.name} {order.contrast:.3f}"
            notes.append(
                f"{_DOUBT} the region order looks wrong: {as_other}, {as_this} (--order {order.better}?)"
            )
        notes += reader.account()
        exclusions = pd.DataFrame(
            list(reader.excluded.items()), columns=["participant_id", "reason"]
        )
        name, measure = (
            chosen.name or out.name,
            "pearson" if reader.first is None else reader.first.measure,
        )
        writer.finish(
            reader.table(), name=name, measure=measure, exclusions=exclusions, notes=record
        )
    for note in notes:
        log.info(note)
    return Report(out, plan.reader.name, plan.n_scans, len(reader.rows), exclusions, notes)


@contextmanager
def completed(
    people: Iterable[Person], plan: Plan, out: Path
) -> Iterator[tuple[Parcellation, Iterable[Arrays]]]:
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
        yield (
            spool.without_regions(notes)
            if policy == "drop-region"
            else (target, spool.imputed(notes))
        )


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
        self.missing = np.array(missing, bool).reshape(
            -1, target.n_regions
        )  # (participants, regions)

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
            remedy = "Use --missing drop-participant, or check the parcellation"
            raise NerveError(f"No two regions have data in everyone. {remedy}.")
        if not gone:
            return self.target, self
        are = "is" if len(gone) == 1 else "are"
        notes.append(
            f"{counted(len(gone), 'region')} that someone lacks {are} left out ({listed(gone, 6)})"
        )
        people = (
            (matrix[np.ix_(kept, kept)], None if series is None else series[:, kept])
            for matrix, series in self
        )
        return self.target.subset(kept, name=f"{self.target.name} less {len(gone)}"), people

    def imputed(self, notes: list[str]) -> Iterable[Arrays]:
        """Everyone, with missing entries taken from the mean over the participants who have them."""
        nobody = self._labels(np.all(self.missing, axis=0))
        if nobody and len(self.missing):
            found = f"Nobody has data in {counted(len(nobody), 'region')} ({listed(nobody, 6)})"
            raise NerveError(
                f"{found}, so that there is no group mean to fill in. Use --missing drop-region."
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
