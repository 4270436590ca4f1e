"""The participants table: columns and ids in our spelling, one row per participant, joined with data."""

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
    """Parse the user's names of columns.

    Parameters
    ----------
    columns : str, path or mapping, optional
        `age=AGE_AT_SCAN,site=SITE_ID`, a YAML file of the same, or a mapping.

    Returns
    -------
    dict
        Our name → the table's.

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
            isinstance(name, str | int | float) for name in content.values()
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
    """Read a participants table as it is; ids are text, the usual marks of missing values are missing.

    Parameters
    ----------
    source : DataFrame or path
    words : iterable of str
        Further columns that are text.

    Returns
    -------
    DataFrame
    """
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

    Parameters
    ----------
    table : DataFrame
    columns : mapping
        The user's: our name → the table's.
    where : object
        The table, as errors name it.

    Returns
    -------
    table : DataFrame
    notes : list of str
        What to tell the user.
    """
    known_columns(columns.values(), table.columns, where)
    renames = {theirs: ours for ours, theirs in columns.items()}
    taken = (set(table.columns) - set(renames)) | set(columns)
    renamed = []
    for theirs, ours in KNOWN_COLUMNS.items():
        if theirs in table.columns and theirs not in renames and ours not in taken:
            renames[theirs] = ours
            taken.add(ours)
            renamed.append(f"{theirs} as {ours}")
    # a column of our name that the user says is another one
    replaced = [ours for ours in columns if ours in table.columns and ours not in renames]
    table = table.drop(columns=replaced)
    notes = []
    if renamed:
        notes.append(f"columns are read as: {', '.join(renamed)} (--columns changes this)")
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
    """Find the column whose values match most of the ids of the data.

    Parameters
    ----------
    table : DataFrame
    wanted : iterable of str
        Ids of the data.
    where : object
        The table, as errors name it.

    Returns
    -------
    str
        Of equals, the first in `ID_COLUMNS`.
    """
    candidates = [name for name in ID_COLUMNS if name in table.columns]
    if not candidates:
        found = f"there is no column of ids among {listed(table.columns, most=12)}"
        raise problem(where, found, remedy="Say which it is: --columns participant_id=THEIRS.")
    wanted_ids = set(wanted)

    def n_matching(name: str) -> int:
        return len(wanted_ids & set(table[name].dropna().map(normal_id)))

    return max(candidates, key=n_matching)


def one_row_each(
    table: pd.DataFrame, sessions: Iterable[str], repeats: str, where: object
) -> pd.DataFrame:
    """Reduce a table to one row per participant.

    Parameters
    ----------
    table : DataFrame
    sessions : iterable of str
        Sessions of the scans that are read.
    repeats : {"average", "first", "last", "refuse"}
        What to do with several rows, which are accepted only where sessions tell them apart.
    where : object
        The table, as errors name it.

    Returns
    -------
    DataFrame
    """
    if not table["participant_id"].duplicated().any():
        return table
    table = table.drop_duplicates()
    if "session_id" in table.columns:
        read = {_bare_session(session) for session in sessions if session}
        is_read = table["session_id"].map(_bare_session).isin(read)
        has_read_row = table["participant_id"].isin(table.loc[is_read, "participant_id"])
        # the rows of the sessions that were read, where there are such
        table = table[is_read | ~has_read_row]
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


def join_participants(
    scans: Mapping[str, Sequence[ScanFile]], options: Options
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """Join the participants who have data with the participants table.

    Parameters
    ----------
    scans : mapping
        Normalised ids of those who have data → their scans: sessions choose among several rows of a
        participant.
    options : Options
        With the table (None gives a table of ids alone), its columns, and what to do with several
        rows that sessions do not tell apart (`repeats`).

    Returns
    -------
    table : DataFrame
        The rows of those who have data, in their order.
    excluded : dict
        Participant → reason, of those without data or without a row.
    notes : list of str
        What to tell the user.
    """
    with_data = list(scans)
    if options.participants is None:
        return pd.DataFrame({"participant_id": pd.Series(with_data, dtype=object)}), {}, []
    table, notes, where = _renamed(options.participants, options.columns)

    # ids in our spelling
    id_column = "participant_id"
    if "participant_id" not in options.columns:
        id_column = find_id_column(table, with_data, where)
    if id_column != "participant_id":
        notes.append(f"ids are in column {id_column}")
        table = table.drop(columns="participant_id", errors="ignore")
        table = table.rename(columns={id_column: "participant_id"})
    table = table.dropna(subset=["participant_id"])
    table = table.assign(participant_id=table["participant_id"].map(normal_id))
    # ABIDE's mark of participants without usable data
    table = table[table["participant_id"] != "no_filename"]

    # one row per participant
    sessions = {scan.session for group in scans.values() for scan in group}
    table = one_row_each(table, sessions, options.repeats, where)
    in_table = dict.fromkeys(table["participant_id"])
    matched = [participant for participant in with_data if participant in in_table]
    if not matched:
        found = (
            f"none of its {len(table)} ids ({listed(in_table, most=3)}) is among the "
            f"{len(with_data)} of the data ({listed(with_data, most=3)})"
        )
        remedy = "Say which column holds the ids: --columns participant_id=THEIRS."
        remedy += did_you_mean(with_data[0] if with_data else "", list(in_table)[:2000])
        raise problem(where, found, remedy=remedy)

    # who is left out
    without_data = [participant for participant in in_table if participant not in scans]
    without_row = [participant for participant in with_data if participant not in in_table]
    if without_data:
        ids = listed(without_data, most=5)
        notes.append(f"{counted(len(without_data))} without data ({ids})")
    if without_row:
        ids = listed(without_row, most=5)
        notes.append(f"{counted(len(without_row))} without a row in the table ({ids})")
    excluded = dict.fromkeys(without_data, "in the participants table, but no data were found")
    excluded |= dict.fromkeys(without_row, "data were found, but no row in the participants table")
    return table.set_index("participant_id").loc[matched].reset_index(), excluded, notes


def table_ids(
    source: Table | None, columns: Mapping[str, str] | None = None
) -> tuple[str, ...] | None:
    """Read the ids of a table in the order of its rows: whose the rows of a stacked array are.

    Parameters
    ----------
    source : DataFrame or path, optional
    columns : mapping, optional
        Our name → the table's.

    Returns
    -------
    tuple of str or None
        None where there is no table.
    """
    if source is None:
        return None
    table, _, where = _renamed(source, columns or {})
    return tuple(table[find_id_column(table, (), where)].map(normal_id))


def _bare_session(session: object) -> str:
    return str(session).strip().removeprefix("ses-").removesuffix(".0")
