"""The plan of an ingest: which scans of which participants are read, how, and who is left out.

`make_plan` is the one function that decides. `nerve ingest` and `nerve.read_cohort` follow the plan;
`nerve ingest --dry-run` prints it as a table (`describe_files`) and writes nothing. One participant
never counts twice unnoticed: several scans are averaged, or one is chosen by a stated rule.
"""

from __future__ import annotations

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
from nerve.data.readers.base import Options, Probes, Reader, ScanData, ScanFile
from nerve.data.readers.ids import counted, natural_key, normal_id
from nerve.data.readers.matrices import clean_matrix, decide_values
from nerve.data.readers.names import path_below
from nerve.data.readers.opening import TEXT, files_below, is_data, require_file
from nerve.data.readers.options import check_options
from nerve.data.readers.participants_table import join_participants
from nerve.data.readers.regions import Regions, plan_regions
from nerve.data.readers.registry import READERS, get_reader

#: Columns of the table that `--dry-run` prints.
FILE_COLUMNS = (
    "file",
    "participant",
    "session",
    "task",
    "run",
    "shape",
    "values",
    "what becomes of it",
)
_DATA_ENDINGS = (*TEXT, ".npy", ".npz", ".mat", ".h5", ".nii", ".nii.gz")
_N_PROBES = 20  # scans that are read before all others, to learn regions and values


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
    probes : dict
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
    """

    source: Path
    reader: Reader
    options: Options
    files: list[ScanFile]
    candidates: list[ScanFile]
    scans: dict[str, list[ScanFile]]
    table: pd.DataFrame
    excluded: dict[str, str]
    probes: dict[Any, ScanData]
    planned_regions: Regions | None
    refusal: NerveError | MemoryError | None
    values: str
    values_are_stated: bool
    notes: list[str]

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
            probes={},
            notes=[],
        )


def make_plan(source: Path, options: Options) -> Plan:
    """Find the scans of a source, join them with the participants table, and decide how to read them.

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
    candidates = filter_scans(files, options)
    scans, repeat_notes = group_scans(candidates, options.repeats)
    n_scans = _n_readable(files)
    found = f"{counted(n_scans, 'scan')} of {counted(len(scans))}"
    notes = [f"format {reader.name}: {reader.describe}; {found}", *repeat_notes]
    reasons = Counter(scan.left_out for scan in files if scan.left_out)
    for reason, n_files in reasons.items():
        are = "file is" if n_files == 1 else "files are"
        notes.append(f"{n_files} {are} left out: {reason}")

    # exclusions: who has no data, or no row in the table
    if isinstance(options.participants, (str, os.PathLike)):
        notes.append(f"participants from {options.participants}")
    table, excluded, table_notes = join_participants(scans, options)
    notes += table_notes
    scans = {participant: scans[participant] for participant in table["participant_id"]}

    # shape and values: learned from some scans, before all others are read
    probes: Probes = []
    regions: Regions | None = None
    refusal: NerveError | MemoryError | None = None
    try:
        probes = read_probes(reader, scans, options)
        first_scan, first_data = probes[0]
        regions, region_notes = plan_regions(first_data, options, first_scan.where)
        notes += region_notes
    except (NerveError, MemoryError) as error:  # `--dry-run` still says what each file is
        refusal = error
    values, values_are_stated, value_notes = decide_values(probes, options, source)
    notes += value_notes

    return Plan(
        source=source,
        reader=reader,
        options=options,
        files=files,
        candidates=candidates,
        scans=scans,
        table=table,
        excluded=excluded,
        probes={scan.entry: data for scan, data in probes},
        planned_regions=regions,
        refusal=refusal,
        values=values,
        values_are_stated=values_are_stated,
        notes=notes,
    )


def preview(source: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """Make the plan of an ingest and describe what becomes of every file (`--dry-run`).

    Parameters
    ----------
    source : path
        A folder or a file.
    **options
        Those of `nerve.read_cohort`.

    Returns
    -------
    DataFrame
        As `describe_files` returns it.
    """
    folder = Path(source)
    return describe_files(make_plan(folder, check_options(folder, options)))


def describe_files(plan: Plan) -> pd.DataFrame:
    """Describe what becomes of every file; each is read, so that what is wrong with it is told.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    DataFrame
        A row per file (or entry of a file) with `FILE_COLUMNS`.
    """
    rows = []

    def add_row(scan: ScanFile, participant: str, shape: str, values: str, fate: str) -> None:
        name = path_below(scan.path, plan.source)
        rows.append((name, participant, scan.session, scan.task, scan.run, shape, values, fate))

    # the scans that the user asked for
    for scan in plan.candidates:
        shape = ""
        values = ""
        fate = _fate(scan, plan)
        try:
            data = plan.probes.get(scan.entry) or read_scan(plan.reader, scan, plan.options)
            shape = " x ".join(str(size) for size in data.array.shape)
            values = "series" if data.series is not None else data.values or plan.values
            if data.matrix is not None:
                clean_matrix(data.matrix, scan.path.name, values)
        except NerveError as error:
            fate = f"left out: {error}"
        add_row(scan, scan.participant, shape, values, fate)

    # other scans that the reader found
    candidates = {scan.entry for scan in plan.candidates}
    for scan in plan.files:
        if scan.entry not in candidates:
            reason = scan.left_out or "of another session or task"
            add_row(scan, "", "", "", f"left out: {reason}")

    # files that the reader passed over
    found = {scan.path for scan in plan.files}
    for path in files_below(plan.source, *_DATA_ENDINGS):
        if path in found:
            continue
        if is_data(path):
            reason = f"not read by --format {plan.reader.name}"
        else:
            reason = "a table or list beside the data"
        add_row(ScanFile("", path), "", "", "", f"left out: {reason}")

    table = pd.DataFrame(rows, columns=list(FILE_COLUMNS))
    return table.drop_duplicates(["file", "participant", "session", "task", "run"])


def _fate(scan: ScanFile, plan: Plan) -> str:
    """What becomes of a scan that can be read, beside the others of its participant."""
    if scan.participant in plan.excluded:
        return f"left out: {plan.excluded[scan.participant]}"
    scans = plan.scans[scan.participant]
    if scan not in scans:
        return f"left out: --repeats {plan.options.repeats}"
    if len(scans) > 1:
        return f"averaged with {counted(len(scans) - 1, 'other')}"
    return "read"


def find_scans(source: Path, options: Options) -> tuple[Reader, list[ScanFile]]:
    """Choose the reader of a source and list its scans.

    Of all readers it is the one that finds most scans (of equals, the first in `READERS`). The
    reader of files without any convention, the last, is asked only when no other finds anything. If
    none does, the refusal of one that knows the layout is raised.

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
    if options.format == "auto":
        expected = f"one of {listed(READERS, most=20)}"
        remedy = "See docs/howto/bring-your-own-cohort for the layouts, or name one with --format."
    else:
        expected = readers[0].describe
        remedy = "Try --format auto."
    raise problem(source, "no scans were found", expected=expected, remedy=remedy)


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


def filter_scans(scans: Sequence[ScanFile], options: Options) -> list[ScanFile]:
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


def group_scans(
    scans: Sequence[ScanFile], rule: str = "average"
) -> tuple[dict[str, list[ScanFile]], list[str]]:
    """Group scans by participant, in natural order of ids, and apply the rule for several scans.

    Parameters
    ----------
    scans : sequence of ScanFile
        With normalised ids.
    rule : {"average", "first", "last", "refuse"}
        Keep all (they are averaged in Fisher z after reading), the first or last by session and run,
        or refuse.

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
            "Choose with --session, --task or --repeats average|first|last."
        )
    if rule == "average":
        return groups, [f"{who} several scans, averaged in Fisher z (--repeats average)"]
    position = 0 if rule == "first" else -1
    chosen = {participant: [group[position]] for participant, group in groups.items()}
    note = f"{who} several scans, reduced to the {rule} one by session and run (--repeats {rule})"
    return chosen, [note]


def _sort_key(scan: ScanFile) -> tuple[object, ...]:
    words = (scan.participant, scan.session, scan.task, scan.run, str(scan.path))
    return tuple(natural_key(word) for word in words)


def read_probes(reader: Reader, scans: dict[str, list[ScanFile]], options: Options) -> Probes:
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
    n_spaced = min(_N_PROBES, len(first_scans))
    positions = np.linspace(0, len(first_scans) - 1, n_spaced).astype(int)
    spaced = [first_scans[position] for position in positions]
    further = [scan for group in scans.values() for scan in group[1:]]
    probes: Probes = []
    refusals: list[NerveError | MemoryError] = []
    for number, scan in enumerate([*spaced, *further[:_N_PROBES]]):
        if probes:
            values_are_known = options.values != "auto" or probes[-1][1].values_are_known
            if values_are_known or number >= len(spaced):
                break
        try:
            probes.append((scan, read_scan(reader, scan, options)))
        except (NerveError, MemoryError) as error:  # reported when the participant is read
            refusals.append(error)
    if not probes:
        raise refusals[0]
    return probes


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
        found = f"the time series has shape {shape}"
        raise problem(scan.where, found, expected="(volumes, regions)")
    return replace(data, notes=(*scan.notes, *data.notes))
