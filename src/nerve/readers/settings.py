"""What a user can say about an ingest; each field is an option of `nerve ingest` and an argument of `read_cohort`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from nerve.checks import NerveError, did_you_mean, listed, one_of
from nerve.connectivity import CONNECTIVITY
from nerve.parcellation import Parcellation, load_parcellation
from nerve.readers import READERS
from nerve.readers.base import Options
from nerve.readers.ids import normal_id
from nerve.readers.missing import POLICIES
from nerve.readers.participants import parse_columns, table_ids
from nerve.readers.repeats import RULES
from nerve.readers.text import read_lines
from nerve.readers.unfolding import ORDERS
from nerve.store import DTYPES


@dataclass(frozen=True)
class Settings:
    """How a source becomes a cohort.

    Parameters
    ----------
    parcellation : Parcellation or str, optional
        The regions that the cohort shall have: a built-in name, a table, or the object. Files with labels are matched
        by label; files without are taken to be in this order, or in `order`.
    order : Parcellation or str, optional
        The order of the rows in files without labels, where it is not that of `parcellation`.
    participants : DataFrame or path, optional
        Table joined by id; `participants.tsv` beside the data is used when none is given.
    columns : mapping, str or path, optional
        Our column name → the table's: ``age=AGE_AT_SCAN,site=SITE_ID`` or a YAML file of the same.
    format : str
        "auto" or a name in `READERS`.
    values : {"auto", "r", "z"}
        Whether matrices hold correlations or Fisher z; "auto" decides once for the source, from what they prove.
    unfolding : {"auto", "upper", "lower"}
        How vectors become matrices: the upper triangle row by row (NumPy's triu_indices, CBIG) or the lower one
        (nilearn, MATLAB's triu); "auto" takes the one that gives matrices of correlations, and refuses to guess.
    id_pattern : str, optional
        A regular expression with a group named `id` (and perhaps `session`, `task`, `run`) that is searched in the path
        of each file below the source; files that it does not match are left out.
    kind : {"pearson", "partial", "ledoit_wolf"}
        FC of time series.
    data : {"auto", "fc", "series"}
        Whether to read matrices or time series where there are both.
    fd_threshold : float, optional
        Volumes with more framewise displacement than this (mm) are left out, where there is a motion file.
    session, task : str, optional
        Read only these.
    repeats : {"average", "first", "last", "refuse"}
        What to do with several scans of a participant.
    missing : {"drop-participant", "drop-region", "impute-group-mean"}
        What to do when regions have no data.
    outside : {"drop", "keep"}
        What to do with regions that the parcellation does not have (subcortical ones).
    atlas, variable, ids, atlas_image, denoise
        See `nerve.readers.base.Options`; `ids` is a sequence or a file with one id per line.
    timeseries : bool
        Keep time series in the cohort.
    dtype : {"float32", "float16"}
    jobs : int, optional
        Processes; as many as there are cores by default.
    name : str, optional
        Of the cohort; the name of the output folder by default.
    strict : bool
        Stop at the first participant who cannot be read instead of leaving them out.
    overwrite : bool
        Replace an existing output folder.
    progress : bool
        Show progress on standard error.
    """

    parcellation: Parcellation | str | None = None
    order: Parcellation | str | None = None
    participants: pd.DataFrame | str | os.PathLike[str] | None = None
    columns: Mapping[str, str] | str | os.PathLike[str] | None = None
    format: str = "auto"
    values: str = "auto"
    unfolding: str = "auto"
    id_pattern: str | None = None
    kind: str = "pearson"
    data: str = "auto"
    fd_threshold: float | None = None
    session: str | None = None
    task: str | None = None
    repeats: str = "average"
    missing: str = "drop-participant"
    outside: str = "drop"
    atlas: str | None = None
    variable: str | None = None
    ids: Any = None
    atlas_image: str | os.PathLike[str] | None = None
    denoise: str | None = None
    timeseries: bool = False
    dtype: str = "float32"
    jobs: int | None = None
    name: str | None = None
    strict: bool = False
    overwrite: bool = False
    progress: bool = False

    def __post_init__(self) -> None:
        one_of("--format", self.format, ["auto", *READERS])
        one_of("--values", self.values, ("auto", "r", "z"))
        one_of("--unfolding", self.unfolding, ("auto", *ORDERS))
        one_of("--kind", self.kind, list(CONNECTIVITY))
        one_of("--data", self.data, ("auto", "fc", "series"))
        one_of("--repeats", self.repeats, RULES)
        one_of("--missing", self.missing, POLICIES)
        one_of("--outside", self.outside, ("drop", "keep"))
        one_of("--dtype", self.dtype, DTYPES)
        if self.jobs is not None and self.jobs < 1:
            raise NerveError(f"--jobs is {self.jobs}, expected at least 1.")
        if self.fd_threshold is not None and not self.fd_threshold > 0:
            raise NerveError(f"--fd-threshold is {self.fd_threshold}, expected a displacement above 0 mm.")
        if self.id_pattern is not None:
            _require_pattern(self.id_pattern)

    def changed(self, **changes: Any) -> Settings:
        """The same with other values; an unknown name is refused with the nearest known one."""
        known = [one.name for one in fields(self)]
        for name in changes:
            if name not in known:
                raise NerveError(
                    f"There is no setting {name!r}, expected one of {listed(known, most=40)}."
                    + did_you_mean(name, known)
                )
        return replace(self, **changes)

    def options(self, source: Path) -> Options:
        """What the readers need of this."""
        table = self.participants_source(source)
        ids = _listed_ids(self.ids) if self.ids is not None else table_ids(table, parse_columns(self.columns))
        return Options(
            parcellation=None if self.parcellation is None else load_parcellation(self.parcellation),
            order=None if self.order is None else load_parcellation(self.order),
            atlas_image=None if self.atlas_image is None else Path(self.atlas_image),
            ids=ids,
            **{
                name: getattr(self, name)
                for name in (
                    "atlas", "session", "task", "values", "unfolding", "id_pattern",
                    "data", "variable", "denoise", "kind", "fd_threshold",
                    "timeseries",
                )
            },
        )  # fmt: skip

    def participants_source(self, source: Path) -> pd.DataFrame | str | os.PathLike[str] | None:
        """The table that the user gave, or the `participants.tsv` beside the data."""
        if self.participants is not None:
            return self.participants
        beside = (source if source.is_dir() else source.parent) / "participants.tsv"
        return beside if beside.is_file() else None

    def as_notes(self) -> dict[str, Any]:
        """The settings that differ from the defaults, as plain JSON values."""
        notes: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Parcellation):
                value = value.name
            elif isinstance(value, pd.DataFrame):
                value = "a table"
            if one.name in ("overwrite", "progress", "jobs", "ids") or value is None or value == one.default:
                continue
            notes[one.name] = value if isinstance(value, (bool, int, float, dict)) else str(value)
        return notes


def _require_pattern(pattern: str) -> None:
    example = "for example 'S(?P<id>[0-9]+)'"
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise NerveError(
            f"--id-pattern is {pattern!r}, which is no regular expression at character {error.pos}; expected {example}."
        ) from error
    if "id" not in groups:
        raise NerveError(f"--id-pattern is {pattern!r}, expected a group named id, {example}.")


def _listed_ids(ids: Any) -> tuple[str, ...]:
    if isinstance(ids, (str, os.PathLike)):
        ids = [re.split(r"[\t,;]", line)[0].strip() for line in read_lines(Path(ids))]
        if ids and ids[0] in ("participant_id", "id", "eid", "subject"):
            ids = ids[1:]
    return tuple(normal_id(one) for one in ids)
