"""What the user said about a source, checked and opened: each name is an option of `nerve ingest`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from nerve.checks import NerveError, did_you_mean, listed, one_of
from nerve.connectivity import CONNECTIVITY
from nerve.parcellation import Parcellation, load_parcellation
from nerve.readers import READERS
from nerve.readers.base import Options
from nerve.readers.ids import normal_id
from nerve.readers.participants import parse_columns, table_ids
from nerve.readers.text import read_lines
from nerve.readers.unfolding import ORDERS
from nerve.store import DTYPES

CHOICES = {
    "format": ("auto", *READERS),
    "values": ("auto", "r", "z"),
    "unfolding": ("auto", *ORDERS),
    "kind": tuple(CONNECTIVITY),
    "data": ("auto", "fc", "series"),
    "repeats": ("average", "first", "last", "refuse"),
    "missing": ("drop-participant", "drop-region", "impute-group-mean"),
    "outside": ("drop", "keep"),
    "dtype": DTYPES,
}
_UNSAID = ("overwrite", "progress", "jobs", "ids")  # what is not part of a cohort's record


def options_of(source: Path, given: Mapping[str, Any]) -> Options:
    """Checked, with files and names opened, the table beside the data where none is named, and its ids."""
    known = [one.name for one in fields(Options)]
    for name, value in given.items():
        if name not in known:
            expected = f"expected one of {listed(known, most=40)}."
            raise NerveError(f"There is no setting {name!r}, {expected}" + did_you_mean(name, known))
        if name in CHOICES:
            one_of(f"--{name}", value, CHOICES[name])
    _check_numbers(**{name: given.get(name) for name in ("jobs", "fd_threshold", "id_pattern")})
    named = {name: value for name, value in given.items() if value is not None}
    beside = (source if source.is_dir() else source.parent) / "participants.tsv"
    table = named.get("participants", beside if beside.is_file() else None)
    columns = parse_columns(named.get("columns"))
    opened: dict[str, Any] = {"participants": table, "columns": columns}
    opened |= {name: load_parcellation(named[name]) for name in ("parcellation", "order") if name in named}
    opened |= {name: Path(named[name]) for name in ("atlas_image",) if name in named}
    opened["ids"] = _listed_ids(named["ids"]) if "ids" in named else table_ids(table, columns)
    return Options(**{**named, **opened})


def said(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the user said, as plain JSON values: the options that differ from the defaults."""
    notes: dict[str, Any] = {}
    for one in fields(Options):
        value = given.get(one.name)
        if isinstance(value, pd.DataFrame):
            value = "a table"
        elif isinstance(value, Parcellation):
            value = value.name
        if one.name in _UNSAID or value is None or value == one.default:
            continue
        notes[one.name] = value if isinstance(value, (bool, int, float, dict)) else str(value)
    return notes


def _check_numbers(jobs: int | None, fd_threshold: float | None, id_pattern: str | None) -> None:
    if jobs is not None and jobs < 1:
        raise NerveError(f"--jobs is {jobs}, expected at least 1.")
    if fd_threshold is not None and not fd_threshold > 0:
        raise NerveError(f"--fd-threshold is {fd_threshold}, expected a displacement above 0 mm.")
    if id_pattern is not None:
        _check_pattern(id_pattern)


def _check_pattern(pattern: str) -> None:
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
