"""What a user can say about an ingest; each field is an option of `nerve ingest` and an argument of `read_cohort`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from nerve.checks import NerveError, did_you_mean, listed, one_of, problem
from nerve.connectivity import CONNECTIVITY
from nerve.parcellation import Parcellation, load_parcellation
from nerve.readers import READERS
from nerve.readers.base import Options
from nerve.readers.ids import normal_id
from nerve.readers.missing import POLICIES
from nerve.readers.participants import parse_columns, table_ids
from nerve.readers.repeats import RULES
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
    values : {"r", "z"}
        Whether matrices hold correlations or Fisher z.
    kind : {"pearson", "partial", "ledoit_wolf"}
        FC of time series.
    data : {"auto", "fc", "series"}
        Whether to read matrices or time series where there are both.
    fd_threshold : float, optional
        Volumes with more framewise displacement than this (mm) are left out, where there is a motion file.
    session, task : str, optional
        Read only these.
    repeats : {"average", "first", "last", "refuse"}
        What to do with several scans of a person.
    missing : {"drop-participant", "drop-region", "impute-group-mean"}
        What to do when regions have no data.
    outside : {"drop", "keep"}
        What to do with regions that the parcellation does not have (subcortical ones).
    atlas, variable, ids, atlas_image, denoise
        See `nerve.readers.base.Options`; `ids` is a sequence or a file with one id a line.
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
    values: str = "r"
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
        one_of("format", self.format, ["auto", *READERS])
        one_of("values", self.values, ("r", "z"))
        one_of("kind", self.kind, list(CONNECTIVITY))
        one_of("data", self.data, ("auto", "fc", "series"))
        one_of("repeats", self.repeats, RULES)
        one_of("missing", self.missing, POLICIES)
        one_of("outside", self.outside, ("drop", "keep"))
        one_of("dtype", self.dtype, DTYPES)
        if self.jobs is not None and self.jobs < 1:
            raise NerveError(f"jobs is {self.jobs}, expected at least 1.")
        if self.fd_threshold is not None and not self.fd_threshold > 0:
            raise NerveError(f"fd_threshold is {self.fd_threshold}, expected a displacement above 0 mm.")

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
                    "atlas", "session", "task", "values", "data", "variable", "denoise", "kind", "fd_threshold",
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


def _listed_ids(ids: Any) -> tuple[str, ...]:
    if isinstance(ids, (str, os.PathLike)):
        path = Path(ids)
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, ValueError) as error:
            raise problem(
                path, f"the ids cannot be read ({error})", expected="a text file with one id a line"
            ) from error
        ids = [line.split("\t")[0].strip() for line in lines if line.strip()]
        if ids and ids[0] in ("participant_id", "id", "eid", "subject"):
            ids = ids[1:]
    return tuple(normal_id(one) for one in ids)
