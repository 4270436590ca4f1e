"""The participants table: column names and ids in our spelling, one row per participant, joined with the data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from nerve._utils.errors import NerveError, did_you_mean, known_columns, listed, problem
from nerve._utils.files import read_yaml
from nerve.data.readers.base import Options, ScanFile
from nerve.data.readers.ids import counted, normal_id
from nerve.data.readers.opening import keep_latest
from nerve.data.readers.text import read_table

Table = pd.DataFrame | str | os.PathLike[str]
Joined = tuple[pd.DataFrame, dict[str, str], list[str]]
MISSING = ["n/a", "-9999", "-9999.0", "NA", "N/A", "NaN", "nan", "null", "None", "#N/A", "."]
ID_COLUMNS = (
    "participant_id", "FILE_ID", "BIDS_ID", "participant", "subject_id", "subjectkey", "src_subject_id", "subject",
    "Subject", "SUB_ID", "sub", "eid", "id", "ID",
)  # fmt: skip
# names in the releases of ABIDE, ABCD, HCP, UK Biobank and RBC → ours
KNOWN_COLUMNS = {
    "SITE_ID": "site", "site_id_l": "site", "study_site": "site", "scanner": "site",
    "AGE_AT_SCAN": "age", "Age_in_Yrs": "age", "Age": "age", "AGE": "age",
    "SEX": "sex", "Sex": "sex", "Gender": "sex", "gender": "sex",
    "func_mean_fd": "mean_fd", "meanFD": "mean_fd", "mean_framewise_displacement": "mean_fd",
    "rel_family_id": "family_id", "Family_ID": "family_id",
    "ses": "session_id", "session": "session_id", "eventname": "session_id",
    "p_factor_mcelroy_harmonized_all_samples": "p_factor",
    "internalizing_mcelroy_harmonized_all_samples": "internalizing",
    "externalizing_mcelroy_harmonized_all_samples": "externalizing",
    "attention_mcelroy_harmonized_all_samples": "attention",
}  # fmt: skip


def parse_columns(columns: str | Mapping[str, str] | os.PathLike[str] | None) -> dict[str, str]:
    """`age=AGE_AT_SCAN,site=SITE_ID`, a YAML file of the same, or a mapping: our name → theirs.

    Examples
    --------
    >>> parse_columns("age=AGE_AT_SCAN, site=SITE_ID")
    {'age': 'AGE_AT_SCAN', 'site': 'SITE_ID'}
    """
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        return {str(ours): str(theirs) for ours, theirs in columns.items()}
    text = os.fspath(columns)
    if Path(text).suffix.lower() in (".yaml", ".yml", ".json"):
        content = read_yaml(text)
        content = content.get("columns", content)
        if not isinstance(content, dict) or not all(
            isinstance(one, str | int | float) for one in content.values()
        ):
            raise problem(
                text, "it holds no names of columns", expected="lines such as `age: AGE_AT_SCAN`"
            )
        return parse_columns(content)
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(middle and ours.strip() and theirs.strip() for ours, middle, theirs in pairs):
        raise NerveError(
            f"--columns is {text!r}, expected name=THEIRS,name=THEIRS or a YAML file of such pairs."
        )
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def load_table(source: Table, words: Iterable[str] = ()) -> pd.DataFrame:
    """The table as it is, with ids (and `words`) as words and the usual marks of missing values as missing."""
    if isinstance(source, pd.DataFrame):
        return source.reset_index(drop=True).replace({-9999: None, "-9999": None, "n/a": None})
    return _read_table(
        Path(source), tuple(words)
    ).copy()  # whole again: thousands of columns come in pieces


@keep_latest
def _read_table(source: Path, words: tuple[str, ...]) -> pd.DataFrame:
    """The file is read once for the ids and for the join."""
    as_words = (*ID_COLUMNS, "session_id", "family_id", "rel_family_id", "Family_ID", *words)
    return read_table(source, dtype=dict.fromkeys(as_words, str), na_values=MISSING)


def rename_columns(
    table: pd.DataFrame, columns: Mapping[str, str], where: object
) -> tuple[pd.DataFrame, list[str]]:
    """Give columns our names: those that the user mapped, then those of the releases that we know.

    A known name is left alone when our name is taken, so that nothing is overwritten.
    """
    known_columns(columns.values(), table.columns, where)
    renames = {theirs: ours for ours, theirs in columns.items()}
    taken = (set(table.columns) - set(renames)) | set(columns)
    said = []
    for theirs, ours in KNOWN_COLUMNS.items():
        if theirs in table.columns and theirs not in renames and ours not in taken:
            renames[theirs] = ours
            taken.add(ours)
            said.append(f"{theirs} as {ours}")
    table = table.drop(
        columns=[ours for ours in columns if ours in table.columns and ours not in renames]
    )
    notes = [f"columns are read as: {', '.join(said)} (--columns changes this)"] if said else []
    return table.rename(columns=renames), notes


def _renamed(source: Table, columns: Mapping[str, str]) -> tuple[pd.DataFrame, list[str], object]:
    """The table in our names, what to tell the user, and what sentences call it."""
    where = "the participants table" if isinstance(source, pd.DataFrame) else source
    ids = [
        theirs
        for ours, theirs in columns.items()
        if ours in ("participant_id", "session_id", "family_id")
    ]
    return *rename_columns(load_table(source, ids), columns, where), where


def find_id_column(table: pd.DataFrame, wanted: Iterable[str], where: object) -> str:
    """The column whose values match most of the ids of the data; of equals, the first in `ID_COLUMNS`."""
    candidates = [name for name in ID_COLUMNS if name in table.columns]
    if not candidates:
        found = f"there is no column of ids among {listed(table.columns, most=12)}"
        raise problem(where, found, remedy="Say which it is: --columns participant_id=THEIRS.")
    people = set(wanted)
    return max(candidates, key=lambda name: len(people & set(table[name].dropna().map(normal_id))))


def one_row_each(
    table: pd.DataFrame, sessions: Iterable[str], repeats: str, where: object
) -> pd.DataFrame:
    """One row per participant. Several rows are accepted only where sessions tell them apart."""
    if not table["participant_id"].duplicated().any():
        return table
    table = table.drop_duplicates()
    if "session_id" in table.columns:
        read = {_bare_session(session) for session in sessions if session}
        here = table["session_id"].map(_bare_session).isin(read)
        known = table["participant_id"].isin(table.loc[here, "participant_id"])
        table = table[
            here | ~known
        ]  # the rows of the sessions that were read, where there are such
    repeated = table["participant_id"][table["participant_id"].duplicated()].unique()
    if not len(repeated):
        return table
    if "session_id" not in table.columns or repeats == "refuse":
        have = "has" if len(repeated) == 1 else "have"
        found = f"{counted(len(repeated))} {have} several rows ({listed(repeated, 4)})"
        remedy = "Remove the others, or give a column session_id and choose with --session."
        raise problem(where, found, expected="one row per participant", remedy=remedy)
    groups = table.groupby("participant_id", sort=False)
    if repeats in ("first", "last"):
        return groups.head(1) if repeats == "first" else groups.tail(1)
    numeric = set(table.select_dtypes("number"))
    rules = {
        name: "mean" if name in numeric else "first"
        for name in table.columns.drop("participant_id")
    }
    return groups.agg(rules).reset_index()


def join_participants(scans_of: Mapping[str, Sequence[ScanFile]], options: Options) -> Joined:
    """The rows of the participants who have data, in their order; who is left over and why; and notes.

    Parameters
    ----------
    scans_of : mapping
        Normalised ids of those who have data, and their scans: sessions choose among several rows of a participant.
    options : Options
        With the table (None gives a table of ids alone), its columns, and what to do with several rows that sessions
        do not tell apart (`repeats`).
    """
    people = list(scans_of)
    if options.participants is None:
        return pd.DataFrame({"participant_id": pd.Series(people, dtype=str)}), {}, []
    table, notes, where = _renamed(options.participants, options.columns)
    id_column = (
        "participant_id"
        if "participant_id" in options.columns
        else find_id_column(table, people, where)
    )
    if id_column != "participant_id":
        notes.append(f"ids are in column {id_column}")
        table = table.drop(columns="participant_id", errors="ignore").rename(
            columns={id_column: "participant_id"}
        )
    table = table.dropna(subset=["participant_id"])
    table = table.assign(participant_id=table["participant_id"].map(normal_id))
    table = table[
        table["participant_id"] != "no_filename"
    ]  # ABIDE's mark of participants without usable data
    sessions = {scan.session for scans in scans_of.values() for scan in scans}
    table = one_row_each(table, sessions, options.repeats, where)
    ids, wanted = dict.fromkeys(table["participant_id"]), set(people)
    matched = [person for person in people if person in ids]
    if not matched:
        found = f"none of its {len(table)} ids ({listed(ids, most=3)}) is among the {len(people)} of the data"
        remedy = "Say which column holds the ids: --columns participant_id=THEIRS."
        remedy += did_you_mean(people[0] if people else "", list(ids)[:2000])
        raise problem(where, f"{found} ({listed(people, most=3)})", remedy=remedy)
    without_data = [person for person in ids if person not in wanted]
    without_row = [person for person in people if person not in ids]
    for side, what in ((without_data, "without data"), (without_row, "without a row in the table")):
        notes += [f"{counted(len(side))} {what} ({listed(side, most=5)})"] if side else []
    why = dict.fromkeys(without_data, "in the participants table, but no data were found")
    why |= dict.fromkeys(without_row, "data were found, but no row in the participants table")
    return table.set_index("participant_id").loc[matched].reset_index(), why, notes


def table_ids(
    source: Table | None, columns: Mapping[str, str] | None = None
) -> tuple[str, ...] | None:
    """The ids of a table in the order of its rows: who the rows of a stacked array are."""
    if source is None:
        return None
    table, _, where = _renamed(source, columns or {})
    return tuple(table[find_id_column(table, (), where)].map(normal_id))


def _bare_session(session: object) -> str:
    return str(session).strip().removeprefix("ses-").removesuffix(".0")
