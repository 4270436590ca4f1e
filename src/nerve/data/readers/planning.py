"""The plan of an ingest: which scans of which participants are read, how, and who is left out.

`make_plan` is the one function that decides. `nerve ingest` and `nerve.read_cohort` follow the plan
and keep it with the cohort; `nerve ingest --dry-run` prints it and writes nothing
(`nerve.data.readers.previewing`). One participant never counts twice unnoticed: several scans are
averaged, or one is chosen by a stated rule.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve._utils.errors import NerveError, listed, printable, problem
from nerve.data.readers.base import Options, Reader, SampledScans, ScanData, ScanFile
from nerve.data.readers.ids import counted, natural_key, normal_id
from nerve.data.readers.joining import join_participants
from nerve.data.readers.matrices import apply_measure, decide_values
from nerve.data.readers.names import path_below
from nerve.data.readers.opening import describe_seen, require_file
from nerve.data.readers.plan_lines import (
    PlanLine,
    state_content,
    state_files,
    state_header,
    state_ids,
    state_labels,
    state_measure,
    state_repeats,
)
from nerve.data.readers.regions import Regions, plan_regions
from nerve.data.readers.registry import READERS, get_reader
from nerve.data.readers.used_options import refuse_options_of_content, refuse_unused_options

_N_SAMPLED = 20  # scans that are read before all others, to learn regions and values


@dataclass
class Plan:  # numpydoc ignore=PR02
    """What is read, how, and into what.

    Parameters
    ----------
    source : Path
    reader : Reader
    options : Options
        The user's, completed with what the source itself says.
    files : list of ScanFile
        Every scan that the reader found, with those that are left out.
    candidates : list of ScanFile
        Those of the session and task that the user asked for, with normalised ids.
    scans : dict
        Participant → the scans that are read.
    table : DataFrame
        Rows of the participants table, in the same order.
    excluded : dict
        Participant → reason, of those without data or without a row in the table.
    sampled : dict
        What was read to make the plan, by `ScanFile.entry`; it is not read again.
    planned_regions : Regions, optional
        See `regions`.
    refusal : NerveError or MemoryError, optional
        Why nothing can be read, where no scan could be, or the regions are not known.
    values : {"r", "z"}
        What matrices hold, where the format does not say.
    values_are_stated : bool
        The user or the format said so. A participant that does not fit is then left out; otherwise
        the decision is in doubt, and nothing of the source is read.
    notes : list of str
        What the user should know.
    lines : list of PlanLine
        The plan in words: each decision with what shows it.
    wanted_scans : list of ScanFile
        Scans of the session and task that the user asked for, after the rule for several scans.
    """

    source: Path
    reader: Reader
    options: Options
    files: list[ScanFile]
    candidates: list[ScanFile]
    scans: dict[str, list[ScanFile]]
    table: pd.DataFrame
    excluded: dict[str, str]
    sampled: dict[Any, ScanData]
    planned_regions: Regions | None
    refusal: NerveError | MemoryError | None
    values: str
    values_are_stated: bool
    notes: list[str]
    lines: list[PlanLine]
    wanted_scans: list[ScanFile]

    @property
    def regions(self) -> Regions:
        """The regions of the cohort; raises the refusal where nothing can be read."""
        if self.refusal is not None:
            raise self.refusal
        if self.planned_regions is None:
            raise NerveError(f"{self.source}: its regions are not known.")
        return self.planned_regions

    @property
    def n_scans(self) -> int:
        """How many scans were found in all."""
        return _n_readable(self.files)

    def without_participants(self) -> Plan:
        """Copy the plan without participants: the copy is sent with every call to a process."""
        return replace(
            self,
            options=replace(self.options, participants=None),
            files=[],
            candidates=[],
            scans={},
            table=pd.DataFrame(),
            excluded={},
            sampled={},
            notes=[],
            lines=[],
            wanted_scans=[],
        )


def make_plan(source: Path, options: Options) -> Plan:
    """Find the scans of a source, join them with the participants, and decide how to read them.

    Parameters
    ----------
    source : Path
        A folder or a file.
    options : Options

    Returns
    -------
    Plan
    """
    # files: which reader, and which scans there are
    reader, files = find_scans(source, options)
    # an id from a file name that is not UTF-8 cannot be held by every kind of pandas column
    files = [replace(scan, participant=printable(scan.participant)) for scan in files]
    options = reader.complete_options(options, files)

    # participants and sessions: whose each scan is, and which of several are read
    candidates = _filter_scans(files, options)
    scans, repeat_notes = _group_scans(candidates, options.repeats)
    n_scans = _n_readable(files)
    n_found = f"{counted(n_scans, 'scan')} of {counted(len(scans))}"
    notes = [f"format {reader.name}: {reader.describe}; {n_found}", *repeat_notes]
    reasons = Counter(scan.left_out for scan in files if scan.left_out)
    for reason, n_files in reasons.items():
        are = "file is" if n_files == 1 else "files are"
        notes.append(f"{n_files} {are} left out: {reason}")

    # exclusions: who has no data, or no row in the table
    if isinstance(options.participants, (str, os.PathLike)):
        notes.append(f"participants from {options.participants}")
    refuse_unused_options(options, reader, candidates)
    wanted_scans = list(itertools.chain.from_iterable(scans.values()))
    join = join_participants(scans, options)
    notes += join.row_notes + join.code_notes
    scans = {participant: scans[participant] for participant in join.table["participant_id"]}

    # shape and values: learned from some scans, before all others are read
    sampled: SampledScans = []
    regions: Regions | None = None
    region_notes: list[str] = []
    refusal: NerveError | MemoryError | None = None
    try:
        sampled = _read_sample(reader, scans, options)
        first_scan, first_data = sampled[0]
        regions, region_notes = plan_regions(first_data, options, first_scan.where)
        notes += region_notes
        refuse_options_of_content(options, sampled, regions.match)
    except (NerveError, MemoryError) as error:  # `--dry-run` still says what each file is
        refusal = error
    values, values_are_stated, value_notes = decide_values(sampled, options, source)
    notes += value_notes
    lines = [
        state_files(source, reader, files, candidates, options),
        state_content(sampled),
        state_header(sampled),
        state_labels(regions, region_notes),
        state_ids(candidates, options),
        state_repeats(scans, repeat_notes),
        state_measure(sampled, options, values, value_notes),
        PlanLine("phenotypes", join.rows, "; ".join(join.row_notes)),
        PlanLine("missing codes", join.codes, "; ".join(join.code_notes)),
    ]

    return Plan(
        source=source,
        reader=reader,
        options=options,
        files=files,
        candidates=candidates,
        scans=scans,
        table=join.table,
        excluded=join.excluded,
        sampled={scan.entry: data for scan, data in sampled},
        planned_regions=regions,
        refusal=refusal,
        values=values,
        values_are_stated=values_are_stated,
        notes=notes,
        lines=lines,
        wanted_scans=wanted_scans,
    )


def find_scans(source: Path, options: Options) -> tuple[Reader, list[ScanFile]]:
    """Choose the reader of a source and list its scans.

    Of all readers it is the one that finds most scans (of equals, the first in `READERS`). The
    readers of files without any convention (`fallback`), which stand last, are asked only when no
    other finds anything. If none does, the refusal of one that knows the layout is raised.

    Parameters
    ----------
    source : Path
    options : Options
        With the `format`, and the `id_pattern` that names the participants.

    Returns
    -------
    reader : Reader
    scans : list of ScanFile
    """
    if not source.exists():
        require_file(source)  # raises with the reason
    if (source / "cohort.json").is_file():
        remedy = "Use it as it is, or `nerve.Cohort.load(...).align(...)`."
        raise problem(source, "this is a cohort already", remedy=remedy)
    names = list(READERS) if options.format == "auto" else [options.format]
    readers = [get_reader(name) for name in names]
    best: Reader | None = None
    scans: list[ScanFile] = []
    refusals: list[NerveError] = []
    for reader in readers:
        if reader.fallback and (scans or refusals):
            break
        try:
            scans_of_reader = reader.find(source, options)
        except NerveError as error:  # it knows the layout and asks the user to choose
            refusals.append(error)
            continue
        if _n_readable(scans_of_reader) > _n_readable(scans):
            best = reader
            scans = scans_of_reader
    if best is not None:
        return best, _apply_id_pattern(options.id_pattern, scans, source)
    if refusals:
        raise refusals[0]
    seen, remedy = describe_seen(source)
    if options.format == "auto":
        expected = f"one of {listed(READERS, most=20)}"
        remedy += " See docs/howto/bring-your-own-cohort for the layouts."
    else:
        expected = readers[0].describe
        remedy += " Try --format auto."
    cause = f"no scans were found among {seen}"
    raise problem(source, cause, expected=expected, remedy=remedy)


def _filter_scans(scans: Sequence[ScanFile], options: Options) -> list[ScanFile]:
    """Keep the scans of the session and task that the user asked for, and normalise their ids.

    Parameters
    ----------
    scans : sequence of ScanFile
    options : Options

    Returns
    -------
    list of ScanFile
    """
    kept = [
        replace(scan, participant=normal_id(scan.participant))
        for scan in scans
        if not scan.left_out
    ]
    for entity in ("session", "task"):
        wanted = getattr(options, entity)
        if wanted is None:
            continue
        wanted = str(wanted).removeprefix("ses-").removeprefix("task-")
        present: list[str] = sorted({getattr(scan, entity) for scan in kept}, key=natural_key)
        kept = [scan for scan in kept if getattr(scan, entity) == wanted]
        if kept:
            continue
        if any(present):
            choices = f"one of {listed(word for word in present if word)}"
        else:
            choices = f"none, since the files name no {entity}"
        raise NerveError(f"--{entity} is {wanted!r} and no scan has it, expected {choices}.")
    return kept


def _group_scans(
    scans: Sequence[ScanFile], rule: str = "average"
) -> tuple[dict[str, list[ScanFile]], list[str]]:
    """Group scans by participant, in natural order of ids, and apply the rule for several scans.

    Parameters
    ----------
    scans : sequence of ScanFile
        With normalised ids.
    rule : {"average", "first", "last", "refuse"}
        Keep all (they are averaged in Fisher z after reading), the first or last by session and
        run, or refuse.

    Returns
    -------
    groups : dict
        Participant → scans.
    notes : list of str
        What to tell the user.
    """
    groups: dict[str, list[ScanFile]] = {}
    for scan in sorted(scans, key=_sort_key):
        groups.setdefault(scan.participant, []).append(scan)
    repeated = [participant for participant, group in groups.items() if len(group) > 1]
    if not repeated:
        return groups, []
    who = f"{counted(len(repeated))} {'has' if len(repeated) == 1 else 'have'}"
    if rule == "refuse":
        first = repeated[0]
        example = listed([scan.path.name for scan in groups[first]], most=3)
        ids = listed(repeated, most=3)
        raise NerveError(
            f"{who} several scans ({ids}; for {first}: {example}), expected one each. "
            "Choose with --session, --task or --repeats average (or first, or last)."
        )
    if rule == "average":
        return groups, [f"{who} several scans, averaged in Fisher z (--repeats average)"]
    position = 0 if rule == "first" else -1
    chosen = {participant: [group[position]] for participant, group in groups.items()}
    note = f"{who} several scans, reduced to the {rule} one by session and run (--repeats {rule})"
    return chosen, [note]


def _read_sample(
    reader: Reader, scans: dict[str, list[ScanFile]], options: Options
) -> SampledScans:
    """Read scans of participants all over the source, to learn what it holds.

    One scan is enough where it is not in question whether matrices hold r or Fisher z.

    Parameters
    ----------
    reader : Reader
    scans : dict
        Participant → scans.
    options : Options

    Returns
    -------
    list of (ScanFile, ScanData)
        At least one: if no scan can be read, the error of the first is raised.
    """
    first_scans = [group[0] for group in scans.values()]
    n_spaced = min(_N_SAMPLED, len(first_scans))
    positions = np.linspace(0, len(first_scans) - 1, n_spaced).astype(int)
    spaced = [first_scans[position] for position in positions]
    further = []
    for group in scans.values():
        further += group[1:]
    sampled: SampledScans = []
    refusals: list[NerveError | MemoryError] = []
    for number, scan in enumerate([*spaced, *further[:_N_SAMPLED]]):
        if sampled:
            values_are_known = options.values != "auto" or sampled[-1][1].values_are_known
            if values_are_known or number >= len(spaced):
                break
        try:
            sampled.append((scan, read_scan(reader, scan, options)))
        except (NerveError, MemoryError) as error:  # reported when the participant is read
            refusals.append(error)
    if not sampled:
        raise refusals[0]
    return sampled


def read_scan(reader: Reader, scan: ScanFile, options: Options) -> ScanData:
    """Read one scan; errors of the system become a `NerveError`.

    Parameters
    ----------
    reader : Reader
    scan : ScanFile
    options : Options

    Returns
    -------
    ScanData
        With the notes of the scan before its own.
    """
    try:
        data = reader.read(scan, options)
    except OSError as error:
        raise problem(scan.where, f"it cannot be read ({error.strerror or error})") from error
    except NerveError as error:
        raise NerveError(str(error).replace(f"{scan.path}:", f"{scan.where}:", 1)) from error
    shape = data.array.shape
    if not shape:
        raise problem(scan.where, "it holds a single number", expected="a matrix or a time series")
    if data.series is not None and len(shape) != 2:
        cause = f"the time series has shape {shape}"
        raise problem(scan.where, cause, expected="(volumes, regions)")
    data = apply_measure(data, options, scan.where)
    return replace(data, notes=(*scan.notes, *data.notes))


def _n_readable(scans: Sequence[ScanFile]) -> int:
    return sum(not scan.left_out for scan in scans)


def _apply_id_pattern(pattern: str | None, scans: list[ScanFile], source: Path) -> list[ScanFile]:
    """Name participants (and session, task, run) by the user's `--id-pattern`.

    Files that it does not match are left out; entries of one file keep the ids of the file.
    """
    if pattern is None:
        return scans
    compiled = re.compile(pattern)
    named = []
    for scan in scans:
        if scan.key is not None or scan.left_out:
            named.append(scan)
            continue
        match = compiled.search(path_below(scan.path, source))
        if not match or not match["id"]:
            named.append(replace(scan, left_out="--id-pattern does not match it"))
            continue
        entities: dict[str, Any] = {
            name: word or ""
            for name, word in match.groupdict().items()
            if name in ("session", "task", "run")
        }
        named.append(replace(scan, participant=match["id"], **entities))
    if not _n_readable(named):
        paths = listed([path_below(scan.path, source) for scan in scans], most=3)
        raise NerveError(
            f"--id-pattern is {pattern!r} and matches none of {len(scans)} files ({paths})."
        )
    return named


def _sort_key(scan: ScanFile) -> tuple[object, ...]:
    words = (scan.participant, scan.session, scan.task, scan.run, str(scan.path))
    return tuple(natural_key(word) for word in words)
