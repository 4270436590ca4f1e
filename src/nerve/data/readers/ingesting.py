"""From a source to a cohort, in memory (`read_cohort`) or as a folder (`ingest`).

Both follow the same plan (`nerve.data.readers.planning`) and read the same participants
(`nerve.data.readers.participant_data`). `ingest` keeps nothing in memory but the scans being read,
and its folder takes its name only when all went well.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from nerve._utils.errors import (
    NerveError,
    NerveWarning,
    in_python,
    listed,
    naming_parameters,
    problem,
)
from nerve._utils.files import drop_left_lock
from nerve._utils.locks import explaining_write_errors
from nerve.data.cohort import Cohort
from nerve.data.cohort_files import as_read_back, writing_cohort
from nerve.data.parcellation import Parcellation
from nerve.data.quality import check_order
from nerve.data.readers.base import WARNING
from nerve.data.readers.ids import counted
from nerve.data.readers.options import check_options, record_options
from nerve.data.readers.participant_data import ParticipantData, ParticipantReader
from nerve.data.readers.plan_lines import PlanLine
from nerve.data.readers.planning import Plan, make_plan

log = logging.getLogger("nerve.data.readers")
# a participant's matrix (R, R), and time series (volumes, R) where these are kept
Arrays = tuple[np.ndarray, np.ndarray | None]


@dataclass
class IngestReport:  # numpydoc ignore=PR02
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
    plan : list of PlanLine
        The decisions that were followed, each with what shows it.
    notes : list of str
        What the user should know, in the order in which it came up.
    """

    path: Path
    format: str = ""
    n_scans: int = 0
    n_participants: int = 0
    exclusions: pd.DataFrame = field(default_factory=pd.DataFrame)
    plan: list[PlanLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_cohort(
    source: str | os.PathLike[str],
    *,
    parcellation: Parcellation | str | None = None,
    participants: pd.DataFrame | str | os.PathLike[str] | None = None,
    format: str = "auto",
    **options: Any,
) -> Cohort:
    """Read a cohort into memory, from the files that labs really have.

    A cohort that does not fit into memory is written with `nerve ingest` and opened with
    `Cohort.load`; both give the same cohort.

    Parameters
    ----------
    source : path
        A folder or a file in one of the layouts of `nerve.data.readers.READERS`.
    parcellation : Parcellation or str, optional
        The regions that the cohort shall have; needed where files have no labels.
    participants : DataFrame or path, optional
        Table joined by id.
    format : str
        A name in `READERS`, or "auto".
    **options
        The other fields of `nerve.data.readers.Options`: order, columns, values, repeats, missing,
        na_values, visit, sessions, id_map, allow_exclusions, …

    Returns
    -------
    Cohort

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for participant in "ab":
    ...     series = np.random.default_rng(0).normal(size=(100, 150))
    ...     np.save(folder / f"sub-{participant}.npy", np.corrcoef(series))
    >>> read_cohort(folder, parcellation="schaefer100-17", format="plain")
    Cohort('cohort': 2 participants, schaefer100-17)
    """
    options |= {"parcellation": parcellation, "participants": participants, "format": format}
    with naming_parameters():
        return _read_into_memory(source, options)


def ingest(
    source: str | os.PathLike[str], out: str | os.PathLike[str], **options: Any
) -> IngestReport:
    """Read a source into a cohort folder, one participant after another.

    Parameters
    ----------
    source : path
        A folder or a file in one of the layouts of `nerve.data.readers.READERS`.
    out : path
        The folder of the cohort.
    **options
        As in `read_cohort`; `overwrite` replaces a cohort.

    Returns
    -------
    IngestReport
    """
    out = Path(out)
    checked = check_options(Path(source), options)
    if out.exists() and not checked.overwrite and (not out.is_dir() or any(out.iterdir())):
        drop_left_lock(out)
        raise problem(out, "it already exists", remedy="Choose another folder, or say --overwrite.")
    plan = make_plan(Path(source), checked)
    reader = ParticipantReader(plan)
    notes = list(plan.notes)
    with (
        _file_beside(out, needed=checked.missing != "drop-participant") as aside,
        _complete_arrays(reader, plan, aside, notes) as (regions, participant_arrays),
        writing_cohort(out, regions, dtype=checked.dtype, overwrite=checked.overwrite) as writer,
    ):
        total = np.zeros((regions.n_regions, regions.n_regions))
        for matrix, series in participant_arrays:
            writer.append(matrix[None], None if series is None else [np.nan_to_num(series)])
            total += matrix
        notes += _doubt_about_order(total, reader.n_participants, regions)
        notes += reader.notes()
        exclusions = reader.exclusions()
        lines = [*plan.lines, reader.losses_line()]
        writer.finish(
            reader.participants(),
            name=checked.name or out.name,
            measure=reader.measure,
            exclusions=exclusions,
            notes=_record(source, plan, options, lines, notes),
        )
    for note in notes:
        log.info(note)
    return IngestReport(
        path=out,
        format=plan.reader.name,
        n_scans=plan.n_scans,
        n_participants=reader.n_participants,
        exclusions=exclusions,
        plan=lines,
        notes=notes,
    )


def _read_into_memory(source: str | os.PathLike[str], options: dict[str, Any]) -> Cohort:
    """What `read_cohort` does, with messages that name options."""
    checked = check_options(Path(source), options)
    plan = make_plan(Path(source), checked)
    reader = ParticipantReader(plan)
    notes = list(plan.notes)
    aside = io.BytesIO()
    with _complete_arrays(reader, plan, aside, notes) as (regions, participant_arrays):
        n_regions = regions.n_regions
        # memory is taken when it is written to: places of participants that are left out cost none
        stack = np.empty((len(plan.scans), n_regions, n_regions), checked.dtype)
        all_series = []
        total = np.zeros((n_regions, n_regions))
        for row, (matrix, series) in enumerate(participant_arrays):
            stack[row] = matrix
            total += matrix
            if series is not None:
                all_series.append(np.nan_to_num(series).astype(np.float32))
    notes += _doubt_about_order(total, reader.n_participants, regions)
    notes += reader.notes()
    for note in notes:
        log.info(note)
        if note.startswith(WARNING):
            sentence = in_python(note.removeprefix(WARNING).strip())
            warnings.warn(sentence, NerveWarning, stacklevel=3)
    return Cohort(
        stack[: reader.n_participants],
        as_read_back(reader.participants()),
        regions,
        all_series or None,
        checked.name or "cohort",
        measure=reader.measure,
        exclusions=reader.exclusions(),
        notes=_record(source, plan, options, [*plan.lines, reader.losses_line()], notes),
    )


def _record(
    source: object,
    plan: Plan,
    options: dict[str, Any],
    lines: list[PlanLine],
    notes: list[str],
) -> Any:
    """How the cohort was made, as `Cohort.notes` keeps it."""
    return {
        "source": str(source),
        "format": plan.reader.name,
        "region_match": plan.regions.match,
        "settings": record_options(options),
        "plan": [line.as_dict() for line in lines],
        "log": notes,
    }


def _doubt_about_order(
    total: np.ndarray, n_participants: int, regions: Parcellation
) -> Iterator[str]:
    """A warning, if networks stand out more when the mean is read in another region order."""
    order = check_order(total / max(n_participants, 1), regions)
    if order.better:
        better_contrast = order.others[order.better]
        yield (
            f"{WARNING} the region order looks wrong: "
            f"read as {order.better} the network contrast is {better_contrast:.3f}, "
            f"as {regions.name} {order.contrast:.3f} (--order {order.better}?)"
        )


@contextmanager
def _file_beside(out: Path, *, needed: bool) -> Iterator[BinaryIO]:
    """A temporary file without a name in the folder of `out`, which has room for the cohort."""
    if not needed:
        yield io.BytesIO()
        return
    with explaining_write_errors(out):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        stream = tempfile.TemporaryFile(dir=out.absolute().parent)  # noqa: SIM115, closed below
    with stream:
        yield stream


@contextmanager
def _complete_arrays(
    participants: Iterable[ParticipantData], plan: Plan, aside: BinaryIO, notes: list[str]
) -> Iterator[tuple[Parcellation, Iterable[Arrays]]]:
    """The regions of the cohort, and the arrays of each participant with data in all of them.

    With `--missing drop-region` or `impute-group-mean` both depend on everyone: so all participants
    are read first, and their arrays are kept in `aside`.

    Parameters
    ----------
    participants : iterable of ParticipantData
        With data in every region if the policy is `drop-participant`.
    plan : Plan
        With the policy and the regions.
    aside : file
        Where arrays can be kept until everyone is read.
    notes : list of str
        What to tell the user is added here.
    """
    policy = plan.options.missing
    target = plan.regions.target
    if policy == "drop-participant":
        yield target, ((data.matrix, data.series) for data in participants)
        return
    kept = _KeptArrays(aside, target, participants)
    if policy == "drop-region":
        yield kept.drop_regions(notes)
    else:
        yield target, kept.impute(notes)


class _KeptArrays:
    """Arrays of all participants, kept in a file until it is known which regions everyone has."""

    def __init__(
        self, file: BinaryIO, target: Parcellation, participants: Iterable[ParticipantData]
    ) -> None:
        self.file = file
        self.target = target
        self.has_series = False
        self.total = np.zeros((target.n_regions, target.n_regions))
        missing = []
        for data in participants:
            self.total += np.nan_to_num(data.matrix, nan=0.0)
            missing.append(data.missing)
            np.save(file, data.matrix)
            if data.series is not None:  # everyone has one, or nobody
                self.has_series = True
                np.save(file, data.series)
        self.missing = np.array(missing, bool)
        self.missing = self.missing.reshape(-1, target.n_regions)  # (participants, regions)

    def __iter__(self) -> Iterator[Arrays]:
        self.file.seek(0)
        for _ in self.missing:
            matrix = np.load(self.file, allow_pickle=False)
            series = np.load(self.file, allow_pickle=False) if self.has_series else None
            yield matrix, series

    def drop_regions(self, notes: list[str]) -> tuple[Parcellation, Iterable[Arrays]]:
        """The regions that everyone has, and the arrays of everyone with these alone."""
        is_lacking = np.any(self.missing, axis=0)
        kept = np.flatnonzero(~is_lacking)
        dropped = self._labels(is_lacking)
        if len(kept) < 2:
            remedy = "Use --missing drop-participant, or check the parcellation"
            raise NerveError(f"No two regions have data in every participant. {remedy}.")
        if not dropped:
            return self.target, self
        are = "is" if len(dropped) == 1 else "are"
        n_dropped = counted(len(dropped), "region")
        notes.append(f"{n_dropped} that someone lacks {are} left out ({listed(dropped, 6)})")
        regions = self.target.subset(kept, name=f"{self.target.name} less {len(dropped)}")
        arrays = (
            (matrix[np.ix_(kept, kept)], None if series is None else series[:, kept])
            for matrix, series in self
        )
        return regions, arrays

    def impute(self, notes: list[str]) -> Iterable[Arrays]:
        """The arrays of everyone; missing entries are the mean over participants who have them."""
        unknown = self._labels(np.all(self.missing, axis=0))
        if unknown and len(self.missing):
            raise NerveError(
                f"No participant has data in {counted(len(unknown), 'region')} "
                f"({listed(unknown, 6)}), so that there is no group mean to fill in. Use "
                "--missing drop-region."
            )
        n_lacking = int(self.missing.any(axis=1).sum())
        if n_lacking:
            notes.append(f"{counted(n_lacking)} had missing regions filled in with the group mean")
        present = (~self.missing).astype(np.float64)  # (participants, regions)
        n_present = present.T @ present  # (regions, regions): participants who have both
        # of two regions that nobody has both of nothing is known: 0
        mean = (self.total / np.maximum(n_present, 1)).astype(np.float32)
        return ((np.where(np.isnan(matrix), mean, matrix), series) for matrix, series in self)

    def _labels(self, is_chosen: np.ndarray) -> list[str]:
        return [self.target.labels[region] for region in np.flatnonzero(is_chosen)]
