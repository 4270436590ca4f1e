"""What will be read: the scans of whom, by which reader, into which regions; and who is left out before reading.

One participant never counts twice unnoticed: scans are averaged, or one is chosen by a stated rule. `preview` tells
what becomes of every file (`nerve ingest --dry-run`), and writes nothing.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.readers import READERS, get_reader
from nerve.data.readers.base import Looked, Options, Reader, Reading, Scan
from nerve.data.readers.ids import counted, natural_key, normal_id
from nerve.data.readers.matrices import clean_matrix, decided_values
from nerve.data.readers.names import inside
from nerve.data.readers.opening import TEXT, files_below, is_data, require_file
from nerve.data.readers.options import options_of
from nerve.data.readers.participants import join_participants
from nerve.data.readers.regions import Regions, plan_regions

People = dict[str, list[Scan]]
COLUMNS = ("file", "participant", "session", "task", "run", "shape", "values", "what becomes of it")
_DATA = (*TEXT, ".npy", ".npz", ".mat", ".h5", ".nii", ".nii.gz")
_LOOKED_AT = 20  # scans from which regions and values are learned


@dataclass
class Plan:
    """Who is read and how.

    Parameters
    ----------
    reader : Reader
    options : Options
        With what the source itself says.
    regions : Regions
    values : {"r", "z"}
        What matrices hold, where the format does not say.
    said : bool
        The user or the format said so: who does not fit is left out, and the source is not doubted.
    looked : dict
        What was read to learn this, by `Scan.entry`; it is not read again.
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

    reader: Reader
    options: Options
    regions: Regions
    values: str
    said: bool
    looked: dict[Any, Reading]
    people: People
    table: pd.DataFrame
    n_scans: int
    excluded: dict[str, str]
    notes: list[str]

    def for_workers(self) -> Plan:
        """The plan without what is known of participants: it is sent with every call to another process."""
        options = replace(self.options, participants=None)
        return replace(
            self, options=options, looked={}, people={}, table=pd.DataFrame(), excluded={}, notes=[]
        )


def make_plan(source: Path, options: Options) -> Plan:
    """Find the scans, join them with the table and learn the regions."""
    reader, found = find_scans(source, options)
    options = reader.completed(options, found)
    people, notes = group_scans(filter_scans(found, options), options.repeats)
    n_scans = _n_readable(found)
    notes.insert(
        0,
        f"format {reader.name}: {reader.describe}; {counted(n_scans, 'scan')} of {counted(len(people))}",
    )
    left_out = Counter(scan.left_out for scan in found if scan.left_out)
    notes += [
        f"{n} {'file is' if n == 1 else 'files are'} left out: {why}" for why, n in left_out.items()
    ]
    if isinstance(options.participants, (str, os.PathLike)):
        notes.append(f"participants from {options.participants}")
    table, excluded, table_notes = join_participants(people, options)
    people = {person: people[person] for person in table["participant_id"]}
    looked = look_at(reader, people, options)
    regions, region_notes = plan_regions(looked[0][1], options, looked[0][0].where)
    values, said, value_notes = decided_values(looked, options, source)
    notes += [*table_notes, *region_notes, *value_notes]
    read = {scan.entry: reading for scan, reading in looked}
    return Plan(
        reader, options, regions, values, said, read, people, table, n_scans, excluded, notes
    )


def find_scans(source: Path, options: Options) -> tuple[Reader, list[Scan]]:
    """The reader and its scans, with the participants that `--id-pattern` says.

    Of all readers it is the one that finds most scans (of equals, the first in `READERS`); that of files without any
    convention, the last, is asked only when no other finds anything. If none does, the refusal of one that knows the
    layout is raised.
    """
    if not source.exists():
        require_file(source)  # says why
    if (source / "cohort.json").is_file():
        remedy = "Use it as it is, or `nerve.Cohort.load(...).align(...)`."
        raise problem(source, "this is a cohort already", remedy=remedy)
    readers = [
        get_reader(name) for name in (READERS if options.format == "auto" else [options.format])
    ]
    best: Reader | None = None
    scans: list[Scan] = []
    refusals: list[NerveError] = []
    for reader in readers:
        if reader.fallback and (scans or refusals):
            break
        try:
            found = reader.find(source, options)
        except NerveError as error:  # it knows the layout and wants a choice made
            refusals.append(error)
            continue
        if _n_readable(found) > _n_readable(scans):
            best, scans = reader, found
    if best is not None:
        return best, named_by(options.id_pattern, scans, source)
    if refusals:
        raise refusals[0]
    expected, remedy = readers[0].describe, "Try --format auto."
    if options.format == "auto":
        expected = f"one of {listed(READERS, most=20)}"
        remedy = "See docs/howto/bring-your-own-cohort for the layouts, or name one with --format."
    raise problem(source, "no scans were found", expected=expected, remedy=remedy)


def _n_readable(scans: Sequence[Scan]) -> int:
    return sum(not scan.left_out for scan in scans)


def named_by(pattern: str | None, scans: list[Scan], source: Path) -> list[Scan]:
    """The scans with the participants (and session, task, run) that the user's `--id-pattern` finds in their paths.

    Files that it does not match are left out; entries of one file keep the ids that the file gives them.
    """
    if pattern is None:
        return scans
    named = [_named(re.compile(pattern), scan, source) for scan in scans]
    if not _n_readable(named):
        paths = listed([inside(scan.path, source) for scan in scans], most=3)
        raise NerveError(
            f"--id-pattern is {pattern!r} and matches none of {len(scans)} files ({paths})."
        )
    return named


def _named(pattern: re.Pattern[str], scan: Scan, source: Path) -> Scan:
    if scan.key is not None or scan.left_out:
        return scan
    found = pattern.search(inside(scan.path, source))
    if not found or not found["id"]:
        return replace(scan, left_out="--id-pattern does not match it")
    groups: Any = {
        name: word or ""
        for name, word in found.groupdict().items()
        if name in ("session", "task", "run")
    }
    return replace(scan, participant=found["id"], **groups)


def filter_scans(scans: Sequence[Scan], options: Options) -> list[Scan]:
    """The scans of the session and task that the user asked for, with normalised ids."""
    kept = [
        replace(scan, participant=normal_id(scan.participant))
        for scan in scans
        if not scan.left_out
    ]
    for name in ("session", "task"):
        wanted = getattr(options, name)
        if wanted is None:
            continue
        wanted = str(wanted).removeprefix("ses-").removeprefix("task-")
        present = sorted(
            {getattr(scan, name) for scan in kept if getattr(scan, name)}, key=natural_key
        )
        kept = [scan for scan in kept if getattr(scan, name) == wanted]
        if not kept:
            choices = (
                f"one of {listed(present)}" if present else f"none, since the files name no {name}"
            )
            raise NerveError(f"--{name} is {wanted!r} and no scan has it, expected {choices}.")
    return kept


def group_scans(scans: Sequence[Scan], rule: str = "average") -> tuple[People, list[str]]:
    """Scans by participant, in natural order of ids, as the rule leaves them; and what to tell the user.

    Parameters
    ----------
    scans : sequence of Scan
        With normalised ids.
    rule : {"average", "first", "last", "refuse"}
        Keep all (they are averaged in Fisher z after reading), the first or last by session and run, or refuse.
    """
    people: People = {}
    for scan in sorted(scans, key=_order):
        people.setdefault(scan.participant, []).append(scan)
    several = [person for person, theirs in people.items() if len(theirs) > 1]
    if not several:
        return people, []
    who = f"{counted(len(several))} {'has' if len(several) == 1 else 'have'}"
    if rule == "refuse":
        example = listed([scan.path.name for scan in people[several[0]]], most=3)
        found = f"{who} several scans ({listed(several, most=3)}; for {several[0]}: {example}), expected one each"
        raise NerveError(f"{found}. Choose with --session, --task or --repeats average|first|last.")
    if rule == "average":
        return people, [f"{who} several scans, averaged in Fisher z (--repeats average)"]
    pick = 0 if rule == "first" else -1
    note = f"{who} several scans, reduced to the {rule} one by session and run (--repeats {rule})"
    return {person: [theirs[pick]] for person, theirs in people.items()}, [note]


def _order(scan: Scan) -> tuple[object, ...]:
    return tuple(
        natural_key(word)
        for word in (scan.participant, scan.session, scan.task, scan.run, str(scan.path))
    )


def look_at(reader: Reader, people: People, options: Options) -> Looked:
    """Scans of participants all over the source that can be read; one, where r or Fisher z is not in question.

    If none can be read, it is said why the first cannot.
    """
    firsts = [scans[0] for scans in people.values()]
    spaced = np.linspace(0, len(firsts) - 1, min(_LOOKED_AT, len(firsts))).astype(int)
    some = [firsts[i] for i in spaced]
    others = [scan for scans in people.values() for scan in scans[1:]]
    looked: Looked = []
    refusals: list[NerveError | MemoryError] = []
    for i, scan in enumerate([*some, *others[:_LOOKED_AT]]):
        if looked and (options.values != "auto" or looked[-1][1].says_values or i >= len(some)):
            break
        try:
            looked.append((scan, read_scan(reader, scan, options)))
        except (NerveError, MemoryError) as error:  # reported when it is read
            refusals.append(error)
    if not looked:
        raise refusals[0]
    return looked


def read_scan(reader: Reader, scan: Scan, options: Options) -> Reading:
    """What stands in the file of a scan, with its notes; what the system stumbles into becomes a sentence too."""
    try:
        reading = reader.read(scan, options)
    except OSError as error:
        raise problem(scan.where, f"it cannot be read ({error.strerror or error})") from error
    except NerveError as error:
        raise NerveError(str(error).replace(f"{scan.path}:", f"{scan.where}:", 1)) from error
    shape = reading.array.shape
    if not shape:
        raise problem(scan.where, "it holds a single number", expected="a matrix or a time series")
    if reading.series is not None and len(shape) != 2:
        raise problem(
            scan.where, f"the time series has shape {shape}", expected="(volumes, regions)"
        )
    return replace(reading, notes=(*scan.notes, *reading.notes))


def preview(source: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """A row per file (or entry of a file): participant, session, task, run, shape, values, and what becomes of it.

    Takes the options of `nerve.read_cohort`. Every file is read, so that what is wrong with one is in the table.
    """
    path = Path(source)
    chosen = options_of(path, options)
    reader, found = find_scans(path, chosen)
    chosen = reader.completed(chosen, found)
    wanted = filter_scans(found, chosen)
    people, _ = group_scans(wanted, chosen.repeats)
    _, excluded, _ = join_participants(people, chosen)
    looked: Looked = []
    with suppress(NerveError):  # what is wrong with each file is in the table
        looked = look_at(reader, people, chosen)
    values, _, _ = decided_values(looked, chosen, path)
    read = {scan.entry: reading for scan, reading in looked}
    rows = []
    for scan in wanted:
        shape, kind = "", ""
        fate = _fate(scan, people[scan.participant], excluded, chosen)
        try:
            reading = read.get(scan.entry) or read_scan(reader, scan, chosen)
            shape = " x ".join(map(str, reading.array.shape))
            kind = "series" if reading.series is not None else reading.values or values
            if reading.matrix is not None:
                clean_matrix(reading.matrix, scan.path.name, kind)
        except NerveError as error:
            fate = f"left out: {error}"
        rows.append((scan, shape, kind, fate))
    entries, paths = {scan.entry for scan in wanted}, {scan.path for scan in found}
    others = [scan for scan in found if scan.entry not in entries]
    unread = {True: f"not read by --format {reader.name}", False: "a table or list beside the data"}
    others += [
        Scan("", one, left_out=unread[is_data(one)])
        for one in files_below(path, *_DATA)
        if one not in paths
    ]
    for scan in others:
        why = scan.left_out or "of another session or task"
        rows.append((replace(scan, participant=""), "", "", f"left out: {why}"))
    cells = [
        (inside(one.path, path), one.participant, one.session, one.task, one.run, *rest)
        for one, *rest in rows
    ]
    return pd.DataFrame(cells, columns=list(COLUMNS)).drop_duplicates(
        ["file", "participant", "session", "task", "run"]
    )


def _fate(scan: Scan, kept: list[Scan], excluded: dict[str, str], options: Options) -> str:
    """What becomes of a scan that can be read, beside the others of its participant that are kept."""
    if scan.participant in excluded:
        return f"left out: {excluded[scan.participant]}"
    if scan not in kept:
        return f"left out: --repeats {options.repeats}"
    return f"averaged with {counted(len(kept) - 1, 'other')}" if len(kept) > 1 else "read"
