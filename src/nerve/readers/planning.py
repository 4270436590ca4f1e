"""What will be read: the scans of whom, by which reader, into which regions; and who is left out before reading."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.readers import get_reader
from nerve.readers.base import Options, Scan
from nerve.readers.discover import discover
from nerve.readers.participants import Joined, join_participants, parse_columns
from nerve.readers.person import Recipe, scan_name
from nerve.readers.regions import Regions, plan_regions
from nerve.readers.repeats import filter_scans, group_scans
from nerve.readers.settings import Settings

_PROBES = 20  # scans tried to learn the regions of a source


@dataclass
class Plan:
    """Who is read and how.

    Parameters
    ----------
    recipe : Recipe
        What is done to every scan.
    people : dict
        Scans of each participant.
    table : DataFrame
        Their rows of the participants table, in the same order.
    n_scans : int
        How many scans were found in all.
    excluded : dict
        Participant → reason, of those without data or without a row.
    notes : list of str
        What the user should know.
    """

    recipe: Recipe
    people: dict[str, list[Scan]]
    table: pd.DataFrame
    n_scans: int
    excluded: dict[str, str]
    notes: list[str]


def make_plan(source: Path, settings: Settings) -> Plan:
    """Find the scans, join them with the table and learn the regions."""
    options = settings.options(source)
    reader, found = discover(source, settings.format, options)
    people, notes = group_scans(filter_scans(found, options), settings.repeats)
    notes.insert(0, f"format {reader.name}: {reader.describe}; {len(found)} scans of {count_people(len(people))}")
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
    excluded, left_over = _left_over(joined)
    people = {person: people[person] for person in joined.table["participant_id"]}
    options = reader.completed(options, found)
    regions, region_notes = _probe(reader.name, people, options, settings.outside)
    notes += [*joined.notes, *left_over, *region_notes]
    return Plan(Recipe(reader.name, options, regions), people, joined.table, len(found), excluded, notes)


def count_people(n: int) -> str:
    """`1 participant`, `2 participants`."""
    return "1 participant" if n == 1 else f"{n} participants"


def _left_over(joined: Joined) -> tuple[dict[str, str], list[str]]:
    excluded = dict.fromkeys(joined.without_data, "in the participants table, but no data were found")
    excluded |= dict.fromkeys(joined.without_row, "data were found, but no row in the participants table")
    sides = ((joined.without_data, "without data"), (joined.without_row, "without a row in the table"))
    notes = [f"{count_people(len(side))} {what} ({listed(side, most=5)})" for side, what in sides if side]
    return excluded, notes


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
        except OSError as error:
            first = first or problem(scan_name(scan), f"it cannot be read ({error.strerror or error})")
            continue
        return plan_regions(array.shape[1], reading.labels, options, outside, scan_name(scan))
    raise first or NerveError("There are no scans to read.")
