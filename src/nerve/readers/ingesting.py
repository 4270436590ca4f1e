"""From a source to a cohort on disk: find, join, read in parallel, write one matrix after another.

Nothing is kept in memory but the scans being read; nothing is on disk under its final name until all went well.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveWarning, problem
from nerve.cohort import Cohort
from nerve.files import drop_left_lock
from nerve.parcellation import Parcellation
from nerve.quality import check_order
from nerve.readers.ids import counted
from nerve.readers.missing import completed
from nerve.readers.options import options_of, said
from nerve.readers.person import Person
from nerve.readers.planning import make_plan
from nerve.readers.reading import PeopleReader
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
    **options: Any,
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
    **options
        The other fields of `nerve.readers.Options`: order, columns, values, repeats, missing, …

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
        report = ingest(source, out, parcellation=parcellation, participants=participants, format=format, **options)
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
    report = Report(out, plan.recipe.reader, plan.n_scans, notes=plan.notes)
    reader = PeopleReader(plan)
    record = {
        "source": str(source),
        "format": plan.recipe.reader,
        "region_match": plan.recipe.regions.match,
        "settings": said(options),
        "log": report.notes,
    }
    with (
        completed(reader, chosen.missing, plan.recipe.regions.target, out, report.notes) as (regions, people),
        writing_cohort(out, regions, dtype=chosen.dtype, overwrite=chosen.overwrite) as writer,
    ):
        report.notes += _order_notes(_append_all(writer, people), writer.parcellation)
        _account(reader, report)
        measure = "pearson" if reader.first is None else reader.first.measure
        name = chosen.name or out.name
        writer.finish(reader.table(), name=name, measure=measure, exclusions=report.exclusions, notes=record)
    for note in report.notes:
        log.info(note)
    return report


def _append_all(writer: CohortWriter, people: Iterable[Person]) -> np.ndarray:
    """Write everyone; returns the (R, R) group mean."""
    total = np.zeros((writer.parcellation.n_regions,) * 2)
    for person in people:
        writer.append(person.matrix[None], None if person.series is None else [np.nan_to_num(person.series)])
        total += person.matrix
    return total / max(writer.n_written, 1)


def _order_notes(mean: np.ndarray, regions: Parcellation) -> list[str]:
    """A warning when the group mean fits another order of the parcellation clearly better."""
    order = check_order(mean, regions)
    if not order.better:
        return []
    return [
        f"{_DOUBT} the region order looks wrong: read as {order.better} the network contrast is "
        f"{order.others[order.better]:.3f}, as {regions.name} {order.contrast:.3f} (--order {order.better}?)"
    ]


def _account(reader: PeopleReader, report: Report) -> None:
    """Who was read, who was left out, and what readers said."""
    if not reader.rows:
        raise reader.nobody_left()
    report.n_participants = len(reader.rows)
    report.exclusions = pd.DataFrame(list(reader.excluded.items()), columns=["participant_id", "reason"])
    report.notes += [note if n == 1 else f"{note} ({n} scans)" for note, n in reader.said.items()]
    unread = len(reader.excluded) - len(reader.plan.excluded)
    if unread:
        report.notes.append(f"{counted(unread)} could not be used; exclusions.tsv says why")
