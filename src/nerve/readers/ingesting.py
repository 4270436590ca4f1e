"""From a source to a cohort on disk: find, join, read in parallel, write one matrix after another.

Nothing is kept in memory but the scans being read; nothing is on disk under its final name until all went well.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveWarning, problem
from nerve.cohort import Cohort
from nerve.files import clear_errors, drop_left_lock
from nerve.parcellation import Parcellation
from nerve.quality import check_order
from nerve.readers.ids import counted
from nerve.readers.missing import Spool, group_mean, imputed, without_regions
from nerve.readers.person import Person
from nerve.readers.planning import make_plan
from nerve.readers.reading import PeopleReader
from nerve.readers.settings import Settings
from nerve.store import CohortWriter, writing_cohort

log = logging.getLogger("nerve.readers")
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
    **settings: Any,
) -> Cohort:
    """A cohort from the files that labs really have.

    Parameters
    ----------
    source : path
        A folder or a file in one of the layouts of `nerve.readers.READERS`.
    parcellation : Parcellation or str, optional
        The regions that the cohort shall have; needed where files have no labels.
    participants : DataFrame or path, optional
        Table joined by id.
    format : str
        A name in `READERS`, or "auto".
    **settings
        The other fields of `nerve.readers.settings.Settings`: order, columns, values, repeats, missing, …

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
        report = ingest(source, out, parcellation=parcellation, participants=participants, format=format, **settings)
        for note in report.notes:
            if note.startswith(_DOUBT):
                warnings.warn(note.removeprefix(_DOUBT).strip(), NerveWarning, stacklevel=2)
        return Cohort.load(report.path)  # what is mapped stays readable after the folder is gone


def ingest(source: str | os.PathLike[str], out: str | os.PathLike[str], **settings: Any) -> Report:
    """Read a source into a cohort folder, streaming; see `read_cohort` for the settings."""
    chosen = Settings().changed(**settings)
    out = Path(out)
    if out.exists() and not chosen.overwrite and (not out.is_dir() or any(out.iterdir())):
        drop_left_lock(out)
        raise problem(out, "it already exists", remedy="Choose another folder, or say --overwrite.")
    plan = make_plan(Path(source), chosen)
    report = Report(out, plan.recipe.reader, plan.n_scans, notes=plan.notes)
    people = PeopleReader(plan, chosen)
    if chosen.missing == "drop-participant":
        with writing_cohort(out, plan.recipe.regions.target, dtype=chosen.dtype, overwrite=chosen.overwrite) as writer:
            mean = _append_all(writer, people.complete())
            report.notes += _order_notes(mean, writer)
            _finish(writer, people, Path(source), report)
    else:
        _ingest_in_two_passes(people, Path(source), report)
    for note in report.notes:
        log.info(note)
    return report


def _ingest_in_two_passes(people: PeopleReader, source: Path, report: Report) -> None:
    """Put everyone aside first, because which regions are kept, or the group mean, depends on all of them."""
    settings, target = people.settings, people.plan.recipe.regions.target
    try:
        report.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        spool = Spool(report.path.absolute().parent, target.n_regions)
        for person in people.usable():
            spool.append(person)
    except OSError as error:
        raise clear_errors("write", report.path, error) from error
    with closing(spool):
        if not len(spool):
            raise people.nobody_left()
        kept = np.arange(target.n_regions)
        if settings.missing == "drop-region":
            kept, notes = without_regions(spool, target)
            report.notes += notes
        if len(kept) < target.n_regions:
            target = target.subset(kept, name=f"{target.name} less {target.n_regions - len(kept)}")
        mean = group_mean(spool, target) if settings.missing == "impute-group-mean" else None
        n_filled = sum(row["n_missing_regions"] > 0 for row in people.rows)
        if mean is not None and n_filled:
            report.notes.append(f"{counted(n_filled)} had missing regions filled in with the group mean")
        with writing_cohort(report.path, target, dtype=settings.dtype, overwrite=settings.overwrite) as writer:
            report.notes += _order_notes(_append_all(writer, _completed(spool, kept, mean)), writer)
            _finish(writer, people, source, report)


def _completed(spool: Spool, kept: np.ndarray, mean: np.ndarray | None) -> Iterator[Person]:
    for person in spool:
        assert person.matrix is not None
        person.matrix = person.matrix[np.ix_(kept, kept)] if mean is None else imputed(person.matrix, mean)
        person.series = None if person.series is None else person.series[:, kept]
        yield person


def _append_all(writer: CohortWriter, people: Iterable[Person]) -> np.ndarray:
    """Write everyone; returns the (R, R) group mean."""
    total = np.zeros((writer.parcellation.n_regions,) * 2)
    for person in people:
        assert person.matrix is not None
        writer.append(person.matrix[None], None if person.series is None else [np.nan_to_num(person.series)])
        total += person.matrix
    return total / max(writer.n_written, 1)


def _order_notes(mean: np.ndarray, writer: CohortWriter) -> list[str]:
    """A warning when the group mean fits another order of the parcellation clearly better."""
    order = check_order(mean, writer.parcellation)
    if not order.better:
        return []
    return [
        f"{_DOUBT} the region order looks wrong: read as {order.better} the network contrast is "
        f"{order.others[order.better]:.3f}, as {writer.parcellation.name} {order.contrast:.3f} "
        f"(--order {order.better}?)"
    ]


def _finish(writer: CohortWriter, people: PeopleReader, source: Path, report: Report) -> None:
    if not people.rows:
        raise people.nobody_left()
    report.n_participants = len(people.rows)
    report.exclusions = pd.DataFrame(list(people.excluded.items()), columns=["participant_id", "reason"])
    report.notes += [note if n == 1 else f"{note} ({n} scans)" for note, n in people.said.items()]
    unread = len(people.excluded) - len(people.plan.excluded)
    if unread:
        report.notes.append(f"{counted(unread)} could not be used; exclusions.tsv says why")
    writer.finish(
        people.table(),
        name=people.settings.name or report.path.name,
        measure=people.measure or "pearson",
        exclusions=report.exclusions,
        notes={
            "source": str(source),
            "format": people.plan.recipe.reader,
            "region_match": people.plan.recipe.regions.match,
            "settings": people.settings.as_notes(),
            "log": report.notes,
        },
    )
