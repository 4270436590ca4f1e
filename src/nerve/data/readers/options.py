"""The options of `nerve ingest`: checked, with the files and names that they mention opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError, did_you_mean, listed, one_of
from nerve.data.cohort_files import DTYPES
from nerve.data.connectivity import CONNECTIVITY, STATED_MEASURES, measure_of
from nerve.data.parcellation import Parcellation, load_parcellation
from nerve.data.readers.base import Options
from nerve.data.readers.ids import normal_id
from nerve.data.readers.participants_table import (
    parse_columns,
    parse_na_values,
    read_map,
    table_ids,
)
from nerve.data.readers.registry import READERS
from nerve.data.readers.text import read_lines
from nerve.data.readers.unfolding import ORDERS

_CHOICES = {
    "format": ("auto", *READERS),
    "values": ("auto", "r", "z"),
    "unfolding": ("auto", *ORDERS),
    "kind": tuple(CONNECTIVITY),
    "data": ("auto", "fc", "series"),
    "repeats": ("average", "first", "last", "refuse"),
    "missing": ("drop-participant", "drop-region", "impute-group-mean"),
    "outside": ("drop", "keep"),
    "header": ("auto", "yes", "no"),
    "index": ("auto", "yes", "no"),
    "dtype": DTYPES,
}
_NOT_RECORDED = ("overwrite", "jobs", "ids", "id_map", "typed")
_ID_PATTERN_EXAMPLE = "for example 'S(?P<id>[0-9]+)'"


def check_options(source: Path, options: Mapping[str, Any]) -> Options:
    """Check the user's options and open what they name.

    Parameters
    ----------
    source : Path
        Where participants.tsv is looked for, if no table is named.
    options : mapping
        Fields of `Options`, as the user writes them: names and paths where objects are meant; None
        where nothing is said.

    Returns
    -------
    Options
    """
    known = [option.name for option in fields(Options) if option.name != "typed"]
    for name, value in options.items():
        if name not in known:
            sentence = f"There is no setting {name!r}, expected one of {listed(known, most=40)}."
            raise NerveError(sentence + did_you_mean(name, known))
        if name in _CHOICES:
            one_of(f"--{name}", value, _CHOICES[name])
    stated = {name: value for name, value in options.items() if value is not None}
    if "measure" in stated:
        stated["measure"] = _parse_measure(str(stated["measure"]))
    if stated.get("jobs", 1) < 1:
        raise NerveError(f"--jobs is {stated['jobs']}, expected at least 1.")
    if not stated.get("fd_threshold", 1) > 0:
        threshold = stated["fd_threshold"]
        raise NerveError(f"--fd-threshold is {threshold}, expected a displacement above 0 mm.")
    if "id_pattern" in stated:
        _check_id_pattern(stated["id_pattern"])

    folder = source if source.is_dir() else source.parent
    if "participants" not in stated and (folder / "participants.tsv").is_file():
        stated["participants"] = folder / "participants.tsv"
    stated["columns"] = parse_columns(stated.get("columns"))
    stated["na_values"] = parse_na_values(stated.get("na_values"))
    if "id_map" in stated:
        id_map = read_map(stated["id_map"], "--id-map")
        stated["id_map"] = {normal_id(ours): normal_id(theirs) for ours, theirs in id_map.items()}
    if "sessions" in stated:
        sessions = read_map(stated["sessions"], "--sessions")
        stated["sessions"] = {
            ours.removeprefix("ses-"): theirs for ours, theirs in sessions.items()
        }
    for name in ("visit", "sheet"):
        if name in stated:
            stated[name] = str(stated[name])
    if "ids" in stated:
        stated["ids"] = _read_ids(stated["ids"])
    else:
        stated["ids"] = table_ids(
            stated.get("participants"), stated["columns"], stated.get("sheet")
        )
    for name in ("parcellation", "order"):
        if name in stated:
            stated[name] = load_parcellation(stated[name])
    if "atlas_image" in stated:
        stated["atlas_image"] = Path(stated["atlas_image"])
    defaults = {option.name: option.default for option in fields(Options)}
    typed = [
        name
        for name, value in options.items()
        if value is not None and not (isinstance(value, (str, bool)) and value == defaults[name])
    ]
    return Options(**stated, typed=frozenset(typed))


def record_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Write down the options that differ from the defaults, as plain JSON values.

    Parameters
    ----------
    options : mapping
        As the user wrote them.

    Returns
    -------
    dict
        For the record of the cohort.
    """
    record: dict[str, Any] = {}
    for option in fields(Options):
        value = options.get(option.name)
        if isinstance(value, pd.DataFrame):
            value = "a table"
        elif isinstance(value, Parcellation):
            value = value.name
        if option.name in _NOT_RECORDED or value is None or value == option.default:
            continue
        is_plain = isinstance(value, (bool, int, float, dict))
        record[option.name] = value if is_plain else str(value)
    return record


def _parse_measure(words: str) -> str:
    """The measure that the user names, `mutual information` and `fa` too."""
    measure = measure_of(words)
    if measure in STATED_MEASURES and (measure != "other" or words.lower() == "other"):
        return measure
    if measure == "fisher_z":
        raise NerveError(
            f"--measure is {words!r}: say --values z, which makes correlations of Fisher z."
        )
    return one_of("--measure", words, STATED_MEASURES)


def _check_id_pattern(pattern: str) -> None:
    """Refuse what is not a regular expression with a group named id."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise NerveError(
            f"--id-pattern is {pattern!r}, which is no regular expression at character "
            f"{error.pos}; expected {_ID_PATTERN_EXAMPLE}."
        ) from error
    if "id" not in groups:
        raise NerveError(
            f"--id-pattern is {pattern!r}, expected a group named id, {_ID_PATTERN_EXAMPLE}."
        )


def _read_ids(ids: Any) -> tuple[str, ...]:
    """Ids as a sequence, or those of a file with one per line."""
    if isinstance(ids, (str, os.PathLike)):
        ids = [re.split(r"[\t,;]", line)[0].strip() for line in read_lines(Path(ids))]
        if ids and ids[0] in ("participant_id", "id", "eid", "subject"):
            ids = ids[1:]
    return tuple(normal_id(participant) for participant in ids)
