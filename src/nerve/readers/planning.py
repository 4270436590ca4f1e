"""What will be read: the scans of whom, by which reader, into which regions; and who is left out before reading."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from nerve.checks import NerveError, listed
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.discover import discover
from nerve.readers.ids import counted
from nerve.readers.participants import Joined, join_participants
from nerve.readers.person import Recipe, read_scan
from nerve.readers.regions import plan_regions
from nerve.readers.repeats import filter_scans, group_scans, named_by
from nerve.readers.valuing import decided_values, shown_values

_LOOKED_AT, _THOROUGHLY = 20, 5  # scans from which regions and values are learned; of some the eigenvalues


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


def make_plan(source: Path, options: Options) -> Plan:
    """Find the scans, join them with the table and learn the regions."""
    reader, found = find_scans(source, options)
    people, notes = group_scans(filter_scans(found, options), options.repeats)
    n_scans = sum(not scan.left_out for scan in found)
    notes.insert(0, f"format {reader.name}: {reader.describe}; {counted(n_scans, 'scan')} of {counted(len(people))}")
    left_out = Counter(scan.left_out for scan in found if scan.left_out)
    notes += [f"{n} {'file is' if n == 1 else 'files are'} left out: {why}" for why, n in left_out.items()]
    if isinstance(options.participants, (str, os.PathLike)):
        notes.append(f"participants from {options.participants}")
    joined = join_table(people, options)
    people = {person: people[person] for person in joined.table["participant_id"]}
    options = reader.completed(options, found)
    looked = look_at(reader.name, people, options)
    scan, first = looked[0]
    regions, region_notes = plan_regions(first, options, scan.where)
    values, said, value_notes = decide_values(looked, options, source)
    notes += [*joined.notes, *_left_over(joined), *region_notes, *value_notes]
    return Plan(Recipe(reader.name, options, regions, values, said), people, joined.table, n_scans, joined.why, notes)


def find_scans(source: Path, options: Options) -> tuple[Reader, list[Scan]]:
    """The reader and its scans, with the participants that `--id-pattern` says."""
    reader, found = discover(source, options.format, options)
    return reader, named_by(options.id_pattern, found, source if source.is_dir() else source.parent)


def join_table(people: dict[str, list[Scan]], options: Options) -> Joined:
    """The rows of the participants table that belong to the scans."""
    sessions = {person: {scan.session for scan in scans} for person, scans in people.items()}
    return join_participants(
        options.participants, list(people), columns=options.columns, sessions=sessions, repeats=options.repeats
    )


def look_at(reader: str, people: dict[str, list[Scan]], options: Options) -> list[tuple[Scan, Reading]]:
    """Scans of participants all over the source that can be read; one, where r or Fisher z is not in question.

    If none can be read, it is said why the first cannot.
    """
    firsts = [scans[0] for scans in people.values()]
    spaced = np.linspace(0, len(firsts) - 1, min(_LOOKED_AT, len(firsts))).astype(int)
    others = [scan for scans in people.values() for scan in scans[1:]]
    refusals: list[NerveError] = []
    for scans in ([firsts[i] for i in dict.fromkeys(spaced.tolist())], others[:_LOOKED_AT]):
        found = list(_readable(reader, scans, options, refusals))
        if found:
            return found
    raise refusals[0] if refusals else NerveError("There are no scans to read.")


def _readable(
    reader: str, scans: list[Scan], options: Options, refusals: list[NerveError]
) -> Iterator[tuple[Scan, Reading]]:
    for scan in scans:
        try:
            reading = read_scan(reader, scan, options)
        except NerveError as error:  # reported when it is read
            refusals.append(error)
            continue
        yield scan, reading
        if options.values != "auto" or reading.series is not None or reading.values is not None:
            return


def decide_values(looked: list[tuple[Scan, Reading]], options: Options, source: Path) -> tuple[str, bool, list[str]]:
    """r or Fisher z for the whole source, whether the user or the format says so, and what to tell the user."""
    if options.values != "auto":
        return options.values, True, []
    if any(reading.series is not None or reading.values is not None for _, reading in looked):
        return "r", True, []
    shown: dict[str, str] = {}
    for i, (scan, reading) in enumerate(looked):
        name = scan.path.name if scan.key is None else scan.participant
        shown[name] = shown_values(np.asarray(reading.matrix), thorough=i < _THOROUGHLY)
    values, notes = decided_values(shown, source)
    return values, False, notes


def _left_over(joined: Joined) -> list[str]:
    sides = ((joined.without_data, "without data"), (joined.without_row, "without a row in the table"))
    return [f"{counted(len(side))} {what} ({listed(side, most=5)})" for side, what in sides if side]
