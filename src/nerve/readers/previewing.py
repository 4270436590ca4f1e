"""What would become of every file: the table of `nerve ingest --dry-run`. Nothing is written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nerve.checks import NerveError
from nerve.readers.base import Options, Reader, Reading, Scan
from nerve.readers.browse import TEXT, files_below, is_data
from nerve.readers.ids import counted
from nerve.readers.matrices import clean_matrix
from nerve.readers.names import inside
from nerve.readers.options import options_of
from nerve.readers.person import read_scan
from nerve.readers.planning import decide_values, find_scans, join_table, look_at
from nerve.readers.repeats import filter_scans, group_scans

COLUMNS = ("file", "participant", "session", "task", "run", "shape", "values", "what becomes of it")
_DATA = (*TEXT, ".npy", ".npz", ".mat", ".h5", ".nii", ".nii.gz")


def preview(source: str | os.PathLike[str], **options: Any) -> pd.DataFrame:
    """A row per file (or entry of a file): participant, session, task, run, shape, values, and what becomes of it.

    Takes the options of `nerve.read_cohort`. Every file is read, so that what is wrong with one is in the table.
    """
    path = Path(source)
    chosen = options_of(path, options)
    reader, found = find_scans(path, chosen)
    wanted = filter_scans(found, chosen)
    people, _ = group_scans(wanted, chosen.repeats)
    fate = _fates(people, wanted, chosen)
    looked: list[tuple[Scan, Reading]] = []
    with suppress(NerveError):  # what is wrong with each file is in the table
        looked = look_at(reader.name, people, chosen)
    values, _, _ = decide_values(looked, chosen, path)
    root = path if path.is_dir() else path.parent
    rows = [_row(reader.name, scan, chosen, values, fate, root) for scan in wanted]
    known = {scan.path for scan in wanted}
    rows += [_left_out(scan, root) for scan in found if scan.left_out]
    rows += [_left_out(scan, root, "of another session or task") for scan in found if scan.path not in known]
    listed_paths = {scan.path for scan in found}
    others = [one for one in files_below(path, *_DATA) if one not in listed_paths]
    rows += [_left_out(Scan("", one), root, _why_not(one, reader)) for one in others]
    return pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(["file", "participant", "session", "task", "run"])


def _fates(people: dict[str, list[Scan]], scans: list[Scan], options: Options) -> dict[Any, str]:
    """What becomes of each scan, before it is read."""
    without = set(join_table(people, options).without_row)
    fates: dict[Any, str] = {}
    for scan in scans:
        kept = people.get(scan.participant, [])
        n_others = len(kept) - 1
        if scan.participant in without:
            fate = "left out: no row in the participants table"
        elif scan not in kept:
            fate = f"left out: --repeats {options.repeats}"
        else:
            fate = f"averaged with {counted(n_others, 'other')}" if n_others else "read"
        fates[_key(scan)] = fate
    return fates


def _key(scan: Scan) -> tuple[Any, ...]:
    return scan.path, scan.key, scan.participant


def _row(reader: str, scan: Scan, options: Options, values: str, fates: dict[Any, str], root: Path) -> tuple[str, ...]:
    shape, kind, fate = "", "", fates[_key(scan)]
    try:
        reading = read_scan(reader, scan, options)
        shape = " x ".join(map(str, np.shape(reading.array)))
        kind = "series" if reading.series is not None else reading.values or values
        if reading.matrix is not None:
            clean_matrix(reading.matrix, scan.path.name, kind)
    except NerveError as error:
        fate = f"left out: {error}"
    return inside(scan.path, root), scan.participant, scan.session, scan.task, scan.run, shape, kind, fate


def _left_out(scan: Scan, root: Path, reason: str = "") -> tuple[str, ...]:
    fate = f"left out: {scan.left_out or reason}"
    return inside(scan.path, root), "", scan.session, scan.task, scan.run, "", "", fate


def _why_not(path: Path, reader: Reader) -> str:
    return f"not read by --format {reader.name}" if is_data(path) else "a table or list beside the data"
