"""What will be read: the scans of whom, by which reader, into which regions; and who is left out before reading."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed, problem
from nerve.readers import get_reader
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.discover import discover
from nerve.readers.ids import counted
from nerve.readers.participants import Joined, join_participants, parse_columns
from nerve.readers.person import Recipe, scan_name
from nerve.readers.regions import plan_regions
from nerve.readers.repeats import filter_scans, group_scans, named_by
from nerve.readers.settings import Settings
from nerve.readers.valuing import decided_values, shown_values

_PROBES = 20  # scans tried to learn the regions of a source
_LOOKED_AT, _THOROUGHLY = 20, 5  # matrices from which r or Fisher z is decided; of some their eigenvalues


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
    reader, found = find_scans(source, settings, options)
    people, notes = group_scans(filter_scans(found, options), settings.repeats)
    n_scans = sum(not scan.left_out for scan in found)
    notes.insert(0, f"format {reader.name}: {reader.describe}; {counted(n_scans, 'scan')} of {counted(len(people))}")
    notes += [f"{n} {'file is' if n == 1 else 'files are'} left out: {why}" for why, n in left_out_of(found).items()]
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
    first = _first_reading(reader.name, people, options)
    regions, region_notes = plan_regions(
        first.n_regions, first.reading.labels, options, settings.outside, first.where, stated=first.reading.stated
    )
    said = options.values != "auto" or first.reading.series is not None or first.reading.values is not None
    chosen: tuple[str, list[str]] = ("z" if options.values == "z" else "r", [])
    values, value_notes = chosen if said else decide_values(reader.name, people, options, source)
    notes += [*joined.notes, *left_over, *region_notes, *value_notes]
    recipe = Recipe(reader.name, options, regions, values, said)
    return Plan(recipe, people, joined.table, n_scans, excluded, notes)


def find_scans(source: Path, settings: Settings, options: Options) -> tuple[Reader, list[Scan]]:
    """The reader and its scans, with the participants that `--id-pattern` says."""
    reader, found = discover(source, settings.format, options)
    return reader, named_by(options.id_pattern, found, source if source.is_dir() else source.parent)


def left_out_of(scans: list[Scan]) -> dict[str, int]:
    """Why files are left out, and how many."""
    return dict(Counter(scan.left_out for scan in scans if scan.left_out))


def decide_values(reader: str, people: dict[str, list[Scan]], options: Options, source: Path) -> tuple[str, list[str]]:
    """r or Fisher z for the whole source, from matrices of participants all over it."""
    first = [scans[0] for scans in people.values()]
    shown: dict[str, str] = {}
    for i in dict.fromkeys(np.linspace(0, len(first) - 1, min(_LOOKED_AT, len(first))).astype(int).tolist()):
        try:
            reading = get_reader(reader).read(first[i], options)
        except (NerveError, OSError):  # reported when it is read
            continue
        if reading.matrix is None or reading.values is not None:
            return "r", []
        shown[str(first[i].path.name if first[i].key is None else first[i].participant)] = shown_values(
            reading.matrix, thorough=len(shown) < _THOROUGHLY
        )
    return decided_values(shown, source)


def _left_over(joined: Joined) -> tuple[dict[str, str], list[str]]:
    excluded = dict.fromkeys(joined.without_data, "in the participants table, but no data were found")
    excluded |= dict.fromkeys(joined.without_row, "data were found, but no row in the participants table")
    sides = ((joined.without_data, "without data"), (joined.without_row, "without a row in the table"))
    notes = [f"{counted(len(side))} {what} ({listed(side, most=5)})" for side, what in sides if side]
    return excluded, notes


@dataclass(frozen=True)
class _First:
    """The first scan that can be read."""

    reading: Reading
    n_regions: int
    where: str


def _first_reading(reader: str, people: dict[str, list[Scan]], options: Options) -> _First:
    """The first scan that can be read, from which the regions are learned; if none can, why the first cannot."""
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
        return _First(reading, array.shape[1], scan_name(scan))
    raise first or NerveError("There are no scans to read.")
