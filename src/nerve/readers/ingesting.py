"""From a source to a cohort on disk: find, join, read in parallel, write one matrix after another.

Nothing is kept in memory but the scans being read; nothing is on disk under its final name until all went well.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, NerveWarning, listed, problem
from nerve.cohort import Cohort
from nerve.connectivity import in_words
from nerve.files import drop_left_lock
from nerve.parcellation import Parcellation
from nerve.progress import tracked
from nerve.quality import check_order
from nerve.readers.ids import counted
from nerve.readers.missing import MOST_MISSING, completed
from nerve.readers.options import options_of, said
from nerve.readers.parallel import in_order
from nerve.readers.person import Person, read_person
from nerve.readers.planning import Plan, make_plan
from nerve.store import writing_cohort

log = logging.getLogger("nerve.readers")
_DOUBT = "WARNING:"
_ADVICE = "; --missing drop-region or impute-group-mean would keep the participant"


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
    notes, reader = plan.notes, PeopleReader(plan)
    record: dict[str, Any] = {"source": str(source), "format": plan.reader.name, "region_match": plan.regions.match}
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
            notes.append(
                f"{_DOUBT} the region order looks wrong: read as {order.better} the network contrast is "
                f"{order.others[order.better]:.3f}, as {regions.name} {order.contrast:.3f} (--order {order.better}?)"
            )
        notes += reader.account()
        exclusions = pd.DataFrame(list(reader.excluded.items()), columns=["participant_id", "reason"])
        name, measure = chosen.name or out.name, "pearson" if reader.first is None else reader.first.measure
        writer.finish(reader.table(), name=name, measure=measure, exclusions=exclusions, notes=record)
    for note in notes:
        log.info(note)
    return Report(out, plan.reader.name, plan.n_scans, len(reader.rows), exclusions, notes)


class PeopleReader:
    """Reads the participants of a plan in parallel, keeping account of who is left out and of what readers say."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.options = plan.options
        self.excluded = dict(plan.excluded)
        self.first: Person | None = None  # what it holds, everyone must
        self.said: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Person]:
        """Participants with a matrix of which nothing is missing, or at most half where `--missing` allows it."""
        people = list(self.plan.people.values())
        stacked = any(scan.key is not None for scans in people for scan in scans)
        jobs = 1 if stacked else self.options.jobs  # one open file is read by one process
        results = in_order(partial(read_person, self.plan), people, jobs)
        for person in tracked(results, "reading", len(people), unit="participants", shown=self.options.progress):
            self.said.update(person.notes)
            reason = person.reason or self._unlike_others(person) or self._too_much(person)
            if not reason:
                yield person
                kept = {name: getattr(person, name) for name in ("participant", "mean_fd", "n_volumes", "n_scans")}
                self.rows.append(kept | {"n_missing_regions": person.missing.sum()})
            elif self.options.strict:
                raise NerveError(f"Participant {person.participant}: {reason}" + ("" if reason.endswith(".") else "."))
            else:
                self.excluded[person.participant] = reason

    def account(self) -> list[str]:
        """What readers said and how many could not be used; an error, if none could."""
        if not self.rows:
            reasons = [f"participant {who}: {why}" for who, why in self.excluded.items() if who in self.plan.people]
            first = f"{reasons[0].rstrip('.')}."
            if len(reasons) == 1:
                raise NerveError(f"The only participant was left out, nothing was written: {first}")
            raise NerveError(f"All {len(reasons)} participants were left out, nothing was written. The first: {first}")
        notes = [note if n == 1 else f"{note} ({n} scans)" for note, n in self.said.items()]
        unread = len(self.excluded) - len(self.plan.excluded)
        return notes + [f"{counted(unread)} could not be used; exclusions.tsv says why"] * bool(unread)

    def table(self) -> pd.DataFrame:
        """The rows of the participants who were used, with what their files told of motion, volumes and scans."""
        rows = pd.DataFrame(self.rows)
        table = self.plan.table.set_index("participant_id").loc[rows["participant"]].reset_index()
        if rows["mean_fd"].notna().any():
            table["mean_fd"] = table.get("mean_fd", rows["mean_fd"]).fillna(rows["mean_fd"])
        for name, common in (("n_volumes", 0), ("n_scans", 1), ("n_missing_regions", 0)):
            if (rows[name] != common).any() and name not in table.columns:
                table[name] = rows[name]
        return table

    def _unlike_others(self, person: Person) -> str:
        """What a participant's scans lack that those of the first hold; a time series that only they have is let go."""
        if self.first is None:
            self.first = person
            if self.options.timeseries and person.series is None:
                self.said["the source has no time series to keep (--timeseries)"] += 1
        if person.measure != self.first.measure:
            return f"it holds {in_words(person.measure)}, the others {in_words(self.first.measure)}"
        if self.first.series is None:
            person.series = None
        elif person.series is None:
            return "it has no time series, which the others have (--no-timeseries keeps it)"
        return ""

    def _too_much(self, person: Person) -> str:
        """Which regions are missing, where they are too many."""
        share = person.missing.mean()
        if share <= (0.0 if self.options.missing == "drop-participant" else MOST_MISSING):
            return ""
        labels = self.plan.regions.target.labels
        names = [labels[i] for i in np.flatnonzero(person.missing)]
        found = f"{len(names)} of {len(labels)} regions have no data ({listed(names, most=4)})"
        where = self.plan.people[person.participant][0].where
        return f"{where}: {found}{_ADVICE if share <= MOST_MISSING else ''}"
