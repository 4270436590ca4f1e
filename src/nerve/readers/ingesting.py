"""From a source to a cohort on disk: find, join, read in parallel, write one matrix after another.

Nothing is kept in memory but the scans being read; nothing is on disk under its final name until all went well.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError, NerveWarning, listed, problem
from nerve.cohort import Cohort
from nerve.parcellation import Parcellation
from nerve.quality import check_order
from nerve.readers import get_reader
from nerve.readers.base import Options, Scan
from nerve.readers.discover import discover
from nerve.readers.matrices import describe_missing, missing_regions
from nerve.readers.missing import MOST_MISSING, Spool, group_mean, imputed, without_regions
from nerve.readers.parallel import in_order
from nerve.readers.participants import join_participants, parse_columns
from nerve.readers.person import Person, Recipe, read_person, scan_name
from nerve.readers.regions import Regions, plan_regions
from nerve.readers.repeats import filter_scans, group_scans
from nerve.readers.settings import Settings
from nerve.store import CohortWriter, writing_cohort

log = logging.getLogger("nerve.readers")
_DOUBT = "WARNING:"
_PROBES = 20  # scans tried to learn the regions of a source


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


@dataclass
class _Plan:
    """Who is read, how, and who was left out before reading began."""

    recipe: Recipe
    people: dict[str, list[Scan]]
    table: pd.DataFrame
    n_scans: int
    excluded: dict[str, str]
    notes: list[str]


def read_cohort(
    source: str | os.PathLike[str],
    *,
    parcellation: Parcellation | str | None = None,
    participants: pd.DataFrame | str | os.PathLike[str] | None = None,
    format: str = "auto",
    **settings: Any,
) -> Cohort:
    """A cohort from the files people really have.

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
        raise problem(out, "it already exists", remedy="Choose another folder, or say --overwrite.")
    plan = _plan(Path(source), chosen)
    report = Report(out, plan.recipe.reader, plan.n_scans, notes=plan.notes)
    people = _Reader(plan, chosen)
    if chosen.missing == "drop-participant":
        with writing_cohort(out, plan.recipe.regions.target, dtype=chosen.dtype, overwrite=chosen.overwrite) as writer:
            mean = _append_all(writer, people.complete())
            report.notes += _order_notes(mean, writer)
            _finish(writer, people, plan, chosen, Path(source), report)
    else:
        _ingest_in_two_passes(people, plan, chosen, Path(source), report)
    for note in report.notes:
        log.info(note)
    return report


def _plan(source: Path, settings: Settings) -> _Plan:
    options = settings.options(source)
    reader, found = discover(source, settings.format, options)
    people, notes = group_scans(filter_scans(found, options), settings.repeats)
    notes.insert(0, f"format {reader.name}: {reader.describe}; {len(found)} scans of {_people(len(people))}")
    table = settings.participants_source(source)
    if table is not None and settings.participants is None:
        notes.append(f"participants from {table}")
    joined = join_participants(
        table,
        list(people),
        columns=parse_columns(settings.columns),
        sessions={person: {scan.session for scan in scans} for person, scans in people.items()},
        repeats=settings.repeats,
    )
    notes += joined.notes
    excluded = dict.fromkeys(joined.without_data, "in the participants table, but no data were found")
    excluded |= dict.fromkeys(joined.without_row, "data were found, but no row in the participants table")
    for people_left, what in (
        (joined.without_data, "without data"),
        (joined.without_row, "without a row in the table"),
    ):
        if people_left:
            notes.append(f"{_people(len(people_left))} {what} ({listed(people_left, most=5)})")
    people = {person: people[person] for person in joined.table["participant_id"]}
    regions, region_notes = _probe(reader.name, people, options, settings.outside)
    return _Plan(
        Recipe(reader.name, options, regions), people, joined.table, len(found), excluded, notes + region_notes
    )


def _probe(reader: str, people: dict[str, list[Scan]], options: Options, outside: str) -> tuple[Regions, list[str]]:
    """Plan the regions from the first scan that can be read; if none can, say why the first cannot."""
    scans = [scan for theirs in people.values() for scan in theirs]
    first: NerveError | None = None
    for scan in scans[:_PROBES]:
        try:
            reading = get_reader(reader).read(scan, options)
            array = reading.series if reading.series is not None else reading.matrix
            if array is None or np.ndim(array) != 2:
                raise problem(scan_name(scan), "it holds neither a matrix nor a time series")
        except NerveError as error:
            first = first or error
            continue
        return plan_regions(array.shape[1], reading.labels, options, outside, scan_name(scan))
    raise first or NerveError("There are no scans to read.")


class _Reader:
    """Reads the people of a plan, keeping account of who is left out and of what readers say."""

    def __init__(self, plan: _Plan, settings: Settings) -> None:
        self.plan = plan
        self.settings = settings
        self.excluded = dict(plan.excluded)
        self.said: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    def usable(self) -> Iterator[Person]:
        """People with a matrix of which at most half is missing."""
        for person in self._read():
            self.said.update(person.notes)
            if person.matrix is None:
                self._exclude(person, person.reason)
                continue
            missing = missing_regions(person.matrix)
            if missing.mean() > MOST_MISSING:
                self._exclude(person, self._missing_phrase(person, missing))
                continue
            yield person
            self._note_row(person, int(missing.sum()))

    def complete(self) -> Iterator[Person]:
        """People with data in every region."""
        for person in self.usable():
            assert person.matrix is not None
            missing = missing_regions(person.matrix)
            if missing.any():
                phrase = self._missing_phrase(person, missing)
                self._exclude(
                    person, f"{phrase}; --missing drop-region or impute-group-mean would keep the participant"
                )
            else:
                yield person

    def _missing_phrase(self, person: Person, missing: np.ndarray) -> str:
        first = self.plan.people[person.participant][0]
        return f"{scan_name(first)}: {describe_missing(missing, self.plan.recipe.regions.target.labels)}"

    def _exclude(self, person: Person, reason: str) -> None:
        if self.settings.strict:
            raise NerveError(f"Participant {person.participant}: {reason}" + ("" if reason.endswith(".") else "."))
        self.excluded[person.participant] = reason

    def _note_row(self, person: Person, n_missing: int) -> None:
        if person.participant not in self.excluded:
            self.rows.append(
                {
                    "participant_id": person.participant,
                    "mean_fd": person.mean_fd,
                    "n_volumes": person.n_volumes,
                    "n_scans": person.n_scans,
                    "n_missing_regions": n_missing,
                }
            )

    def _read(self) -> Iterator[Person]:
        people = self.plan.people
        stacked = any(scan.key is not None for scans in people.values() for scan in scans)
        jobs = 1 if stacked else self.settings.jobs  # one open file is read by one process
        results = in_order(partial(_read_item, self.plan.recipe), people.items(), len(people), jobs)
        return iter(_tracked(results, len(people), self.settings.progress))


def _read_item(recipe: Recipe, item: tuple[str, list[Scan]]) -> Person:
    return read_person(recipe, *item)


def _ingest_in_two_passes(people: _Reader, plan: _Plan, settings: Settings, source: Path, report: Report) -> None:
    """Put everyone aside first, because which regions are kept, or the group mean, depends on all of them."""
    target = plan.recipe.regions.target
    report.path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with closing(Spool(report.path.absolute().parent, target.n_regions)) as spool:
        for person in people.usable():
            spool.append(person)
        if not len(spool):
            raise _nobody_left(people, plan)
        kept = np.arange(target.n_regions)
        if settings.missing == "drop-region":
            kept, notes = without_regions(spool, target)
            report.notes += notes
        if len(kept) < target.n_regions:
            target = target.subset(kept, name=f"{target.name} less {target.n_regions - len(kept)}")
        mean = group_mean(spool, target) if settings.missing == "impute-group-mean" else None
        with writing_cohort(report.path, target, dtype=settings.dtype, overwrite=settings.overwrite) as writer:
            report.notes += _order_notes(_append_all(writer, _completed(spool, kept, mean)), writer)
            _finish(writer, people, plan, settings, source, report)
    n_filled = sum(row["n_missing_regions"] > 0 for row in people.rows)
    if mean is not None and n_filled:
        report.notes.append(f"{_people(n_filled)} had missing regions filled in with the group mean")


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


def _finish(
    writer: CohortWriter, people: _Reader, plan: _Plan, settings: Settings, source: Path, report: Report
) -> None:
    if not people.rows:
        raise _nobody_left(people, plan)
    report.n_participants = len(people.rows)
    report.exclusions = pd.DataFrame(list(people.excluded.items()), columns=["participant_id", "reason"])
    report.notes += [note if n == 1 else f"{note} ({n} scans)" for note, n in people.said.items()]
    unread = len(people.excluded) - len(plan.excluded)
    if unread:
        report.notes.append(f"{_people(unread)} could not be used; exclusions.tsv says why")
    writer.finish(
        _with_readings(plan.table, pd.DataFrame(people.rows)),
        name=settings.name or report.path.name,
        exclusions=report.exclusions,
        notes={
            "source": str(source),
            "format": plan.recipe.reader,
            "settings": settings.as_notes(),
            "log": report.notes,
        },
    )


def _with_readings(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The table of the people who were written, with what their files told of motion, volumes and scans."""
    table = table.set_index("participant_id").loc[rows["participant_id"]].reset_index()
    if rows["mean_fd"].notna().any():
        read = rows["mean_fd"].to_numpy()
        table["mean_fd"] = table["mean_fd"].fillna(pd.Series(read)) if "mean_fd" in table.columns else read
    for name, common in (("n_volumes", 0), ("n_scans", 1), ("n_missing_regions", 0)):
        if (rows[name] != common).any() and name not in table.columns:
            table[name] = rows[name].to_numpy()
    return table


def _nobody_left(people: _Reader, plan: _Plan) -> NerveError:
    reasons = [reason for person, reason in people.excluded.items() if person in plan.people]
    if not reasons:
        return NerveError("No participant is left, nothing was written.")
    return NerveError(
        f"All of {_people(len(reasons))} were left out, nothing was written. The first: {reasons[0].rstrip('.')}."
    )


def _people(n: int) -> str:
    return "1 participant" if n == 1 else f"{n} participants"


def _tracked(results: Iterable[Person], total: int, shown: bool) -> Iterator[Person]:
    """The results, with a progress bar on standard error while they come."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    results = iter(results)
    first = list(islice(results, 1))  # so that reading processes are forked before the bar starts its thread
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        for result in chain(first, results):
            yield result
            bar.advance(task)
