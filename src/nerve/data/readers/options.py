"""What the user said about a source, checked and opened: each name is an option of `nerve ingest`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError, did_you_mean, listed, one_of
from nerve.data.connectivity import CONNECTIVITY
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers import READERS
from nerve.data.readers.base import Options
from nerve.data.readers.ids import normal_id
from nerve.data.readers.participants import parse_columns, table_ids
from nerve.data.readers.text import read_lines
from nerve.data.readers.unfolding import ORDERS
from nerve.data.store import DTYPES

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
_UNSAID = ("overwrite", "jobs", "ids")  # what is not part of a cohort's record


def options_of(source: Path, given: Mapping[str, Any]) -> Options:
    """Checked, with files and names opened, the table beside the data where none is named, and its ids."""
    known = [one.name for one in fields(Options)]
    for name, value in given.items():
        if name not in known:
            found = f"There is no setting {name!r}, expected one of {listed(known, most=40)}."
            raise NerveError(found + did_you_mean(name, known))
        if name in CHOICES:
            one_of(f"--{name}", value, CHOICES[name])
    named = {name: value for name, value in given.items() if value is not None}
    if named.get("jobs", 1) < 1:
        raise NerveError(f"--jobs is {named['jobs']}, expected at least 1.")
    if not named.get("fd_threshold", 1) > 0:
        raise NerveError(
            f"--fd-threshold is {named['fd_threshold']}, expected a displacement above 0 mm."
        )
    _check_pattern(named.get("id_pattern", "(?P<id>)"))
    beside = (source if source.is_dir() else source.parent) / "participants.tsv"
    table = named.get("participants", beside if beside.is_file() else None)
    columns = parse_columns(named.get("columns"))
    ids = _listed_ids(named["ids"]) if "ids" in named else table_ids(table, columns)
    open_as: dict[str, Any] = {
        "parcellation": load_parcellation,
        "order": load_parcellation,
        "atlas_image": Path,
    }
    opened = {name: open_one(named[name]) for name, open_one in open_as.items() if name in named}
    return Options(**named | opened | {"participants": table, "columns": columns, "ids": ids})


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


def _check_pattern(pattern: str) -> None:
    is_, example = f"--id-pattern is {pattern!r}", "for example 'S(?P<id>[0-9]+)'"
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        found = f"{is_}, which is no regular expression at character {error.pos}"
        raise NerveError(f"{found}; expected {example}.") from error
    if "id" not in groups:
        raise NerveError(f"{is_}, expected a group named id, {example}.")


def _listed_ids(ids: Any) -> tuple[str, ...]:
    if isinstance(ids, (str, os.PathLike)):
        ids = [re.split(r"[\t,;]", line)[0].strip() for line in read_lines(Path(ids))]
        if ids and ids[0] in ("participant_id", "id", "eid", "subject"):
            ids = ids[1:]
    return tuple(normal_id(one) for one in ids)
