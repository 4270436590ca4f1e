"""`nerve ingest --dry-run`: the plan, and what becomes of every file; nothing is written."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError
from nerve.data.readers.base import ScanFile
from nerve.data.readers.ids import counted
from nerve.data.readers.names import path_below
from nerve.data.readers.opening import files_below
from nerve.data.readers.options import check_options
from nerve.data.readers.participant_data import ParticipantReader, read_participant
from nerve.data.readers.plan_lines import DATA_ENDINGS, PlanLine, reason_of_unread
from nerve.data.readers.planning import Plan, make_plan, read_scan

#: Columns of the table of files.
_FILE_COLUMNS = (
    "file", "participant", "session", "task", "run", "shape", "values", "what becomes of it",
)  # fmt: skip


@dataclass(frozen=True)
class Preview:  # numpydoc ignore=PR02
    """What an ingest would do.

    Parameters
    ----------
    lines : list of PlanLine
        The plan that ingest follows and keeps with the cohort.
    files : DataFrame
        A row per file (or entry of a file) with `_FILE_COLUMNS`.
    n_participants : int
        How many would be written.
    refusal : NerveError or MemoryError, optional
        Why ingest would write nothing.
    """

    lines: list[PlanLine]
    files: pd.DataFrame
    n_participants: int
    refusal: NerveError | MemoryError | None = None


def preview(source: str | os.PathLike[str], **options: Any) -> Preview:
    """Make the plan of an ingest and find out what becomes of every file (`--dry-run`).

    Every scan is read and checked as ingest would, so that what is wrong with it is told.

    Parameters
    ----------
    source : path
        A folder or a file.
    **options
        Those of `nerve.read_cohort`.

    Returns
    -------
    Preview
    """
    folder = Path(source)
    plan = make_plan(folder, check_options(folder, options))
    reader = ParticipantReader(plan)
    shapes_and_values: dict[Any, tuple[str, str]] = {}
    reasons: dict[Any, str] = {}
    refusal = plan.refusal
    for scans in plan.scans.values():
        data_of_scan = {}
        for scan in scans:
            try:
                data = plan.sampled.get(scan.entry) or read_scan(plan.reader, scan, plan.options)
                data_of_scan[scan.entry] = data
            except NerveError as error:
                reasons[scan.entry] = str(error)
        if refusal is None:
            try:
                reader.accept(read_participant(replace(plan, sampled=data_of_scan), scans))
            except NerveError as error:  # r and Fisher z are mixed, or --strict
                refusal = error
        for entry, data in data_of_scan.items():
            shape = " x ".join(str(size) for size in data.array.shape)
            values = "series" if data.series is not None else data.values or plan.values
            shapes_and_values[entry] = shape, values
    if refusal is None:
        try:
            reader.notes()
        except NerveError as error:
            refusal = error

    # the scans that the user asked for, other scans, and files that the reader passed over
    rows = []
    for scan in plan.candidates:
        reason = reasons.get(scan.entry, "") or reader.lost.get(scan.entry, "")
        fate = _fate(scan, plan, reader, reason)
        shape, values = shapes_and_values.get(scan.entry, ("", ""))
        rows.append(_row(scan, plan, scan.participant, shape, values, fate))
    candidates = {scan.entry for scan in plan.candidates}
    for scan in plan.files:
        if scan.entry not in candidates:
            reason = scan.left_out or "of another session or task"
            rows.append(_row(scan, plan, fate=f"left out: {reason}"))
    known_paths = {scan.path for scan in plan.files}
    for path in files_below(plan.source, *DATA_ENDINGS):
        if path not in known_paths:
            reason = reason_of_unread(path, plan.reader)
            rows.append(_row(ScanFile("", path), plan, fate=f"left out: {reason}"))
    table = pd.DataFrame(rows, columns=list(_FILE_COLUMNS))
    table = table.drop_duplicates(["file", "participant", "session", "task", "run"])
    lines = [*plan.lines, reader.losses_line()]
    return Preview(lines, table, reader.n_participants, refusal)


def _fate(scan: ScanFile, plan: Plan, reader: ParticipantReader, reason: str) -> str:
    """What becomes of a scan, beside the others of its participant."""
    if reason or scan.participant in reader.excluded:
        reason = reason or reader.excluded[scan.participant]
        return f"left out: {reason.replace(scan.where, scan.path.name)}"
    scans = plan.scans[scan.participant]
    if scan not in scans:
        return f"left out: --repeats {plan.options.repeats}"
    if len(scans) > 1:
        return f"averaged with {counted(len(scans) - 1, 'other')}"
    return "read"


def _row(
    scan: ScanFile,
    plan: Plan,
    participant: str = "",
    shape: str = "",
    values: str = "",
    fate: str = "",
) -> tuple[str, ...]:
    name = path_below(scan.path, plan.source)
    return name, participant, scan.session, scan.task, scan.run, shape, values, fate
