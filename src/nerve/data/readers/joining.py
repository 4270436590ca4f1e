"""Which row of the participants table belongs to which scan: by participant and session, exactly.

Ids and names of sessions may be written differently on the two sides. A change of spelling is used
only where it makes the match one to one, and is then part of the plan. Rows of several visits are
never averaged, and the first is never taken for the others.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from nerve._utils.errors import NerveError, listed, problem
from nerve.data.quality.codes import ages_in_words
from nerve.data.readers.base import Options, ScanFile
from nerve.data.readers.ids import both_sides, counted, match_ids, natural_key, normal_id
from nerve.data.readers.participants_table import (
    apply_na_values,
    find_id_column,
    open_table,
)

_NO_DATA = "in the participants table, but no data were found"
_NO_ROW = "data were found, but no row in the participants table"
MOST_EXCLUDED = 0.2  # share of the scans: more are left out only with --allow-exclusions
_Scans = Mapping[str, Sequence[ScanFile]]


@dataclass
class Join:  # numpydoc ignore=PR02
    """The participants table, joined with those who have data.

    Parameters
    ----------
    table : DataFrame
        One row per participant who has data and a row, in the order of the data.
    excluded : dict
        Participant → reason, of those without data or without a row.
    rows : str
        Which row of the table belongs to which scan, for the plan.
    row_notes : list of str
        What shows it.
    codes : str
        Which codes are missing values, for the plan.
    code_notes : list of str
        How many cells they emptied.
    """

    table: pd.DataFrame
    excluded: dict[str, str] = field(default_factory=dict)
    rows: str = "there is no participants table"
    row_notes: list[str] = field(default_factory=list)
    codes: str = "none: there is no participants table"
    code_notes: list[str] = field(default_factory=list)


def join_participants(scans: _Scans, options: Options) -> Join:
    """Join the participants who have data with the participants table.

    Parameters
    ----------
    scans : mapping
        Normalised ids of those who have data → their scans.
    options : Options
        With the table (None gives a table of ids alone), its columns, and how ids, sessions and
        missing values are written in it.

    Returns
    -------
    Join
    """
    with_data = list(scans)
    if options.participants is None:
        return Join(pd.DataFrame({"participant_id": pd.Series(with_data, dtype=object)}))
    table, notes, where = open_table(options.participants, options.columns, options.sheet)
    their_names = dict(table.attrs["their_names"])

    # ids in our spelling
    id_column = "participant_id"
    if "participant_id" not in options.columns:
        id_column = find_id_column(table, [*with_data, *options.id_map.values()], where)
    if id_column != "participant_id":
        notes.append(f"ids are in column {id_column}")
        table = table.drop(columns="participant_id", errors="ignore")
        table = table.rename(columns={id_column: "participant_id"})
    table = table.dropna(subset=["participant_id"])
    table = table.assign(participant_id=table["participant_id"].map(normal_id))
    # ABIDE's mark of participants without usable data
    table = table[table["participant_id"] != "no_filename"]
    pairs, id_note = _pair_ids(with_data, table, options, where)
    notes += id_note

    # one row per participant, named as the data name them
    data_id_of = {table_id: data_id for data_id, table_id in pairs.items()}
    table_ids = dict.fromkeys(table["participant_id"])
    without_data = [table_id for table_id in table_ids if table_id not in data_id_of]
    table = table[table["participant_id"].isin(data_id_of)]
    table = table.assign(participant_id=table["participant_id"].map(data_id_of))
    all_rows = table
    table, rows, row_notes, other_sessions = _row_of_each(table, scans, options, where)
    notes += row_notes
    ages = ages_in_words(table["age"]) if "age" in table.columns else ""
    if ages:
        raise problem(
            where,
            f"column {their_names.get('age', 'age')} holds {ages}",
            expected="years as numbers",
            remedy="Give a column of numbers (--columns age=THEIRS), or keep this one under "
            f"another name: --columns age_in_words={their_names.get('age', 'age')}.",
        )
    table, codes, code_notes = apply_na_values(table, options.na_values, where)

    # who is left out
    excluded = dict.fromkeys(without_data, _NO_DATA)
    excluded |= other_sessions
    without_row = [data_id for data_id in with_data if data_id not in pairs]
    excluded |= dict.fromkeys(without_row, _NO_ROW)
    if without_data:
        ids = listed(without_data, most=5)
        notes.append(f"{counted(len(without_data))} without data ({ids})")
    if without_row:
        ids = listed(without_row, most=5)
        notes.append(f"{counted(len(without_row))} without a row in the table ({ids})")
    matched = [
        data_id for data_id in with_data if data_id in pairs and data_id not in other_sessions
    ]
    if not matched:
        all_scans = itertools.chain.from_iterable(scans.values())
        sessions = sorted({scan.session for scan in all_scans})
        raise problem(
            where,
            f"no participant has a row of the session of their scan ({listed(sessions)})",
            remedy="Say whose row counts for everyone: --visit VALUE "
            f"({_values(all_rows['session_id'])}).",
        )
    table = table.set_index("participant_id").loc[matched].reset_index()
    return Join(table, excluded, rows, notes, codes, code_notes)


def _bare_session(session: object) -> str:
    """The name of a session without `ses-`, and without the `.0` of a column of numbers."""
    return str(session).strip().removeprefix("ses-").removesuffix(".0")


def _normal_session(session: str) -> str:
    """The name of a session without case, separators and leading zeros.

    Parameters
    ----------
    session : str

    Returns
    -------
    str

    Examples
    --------
    >>> _normal_session("ses-baselineYear1Arm1"), _normal_session("baseline_year_1_arm_1")
    ('baselineyear1arm1', 'baselineyear1arm1')
    >>> _normal_session("01")
    '1'
    """
    words = re.sub(r"(?<![0-9])0+(?=[0-9])", "", _bare_session(session).casefold())
    return re.sub(r"[^a-z0-9]", "", words)


def _pair_ids(
    with_data: Sequence[str], table: pd.DataFrame, options: Options, where: object
) -> tuple[dict[str, str], list[str]]:
    """The id of the table of each participant with data, and how they were matched."""
    ids = list(dict.fromkeys(table["participant_id"]))
    notes = []
    if options.id_map:
        pairs = _mapped_ids(with_data, ids, options.id_map)
        notes.append(f"ids are matched by --id-map, {len(pairs)} of {len(with_data)}")
    else:
        match = match_ids(with_data, ids)
        pairs = match.pairs
        if match.changes:
            ours, theirs = next((ours, theirs) for ours, theirs in pairs.items() if ours != theirs)
            notes.append(
                f"ids are matched {' and '.join(match.changes)}, one to one "
                f"({ours} of the data is {theirs} of the table)"
            )
    n_lost = len(with_data) - len(pairs)
    if not pairs or (n_lost > MOST_EXCLUDED * len(with_data) and not options.allow_exclusions):
        unmatched = [data_id for data_id in with_data if data_id not in pairs]
        partners = set(pairs.values())
        unused = [table_id for table_id in ids if table_id not in partners]
        cause = (
            f"{len(pairs)} of the {len(with_data)} participants with data have a row among its "
            f"{len(ids)} ids; {both_sides(unmatched, unused)}"
        )
        remedy = (
            "Say which column holds the ids (--columns participant_id=THEIRS), or give a file of "
            "two columns, id of the data and id of the table (--id-map FILE)"
        )
        if pairs:
            remedy += ", or leave the others out (--allow-exclusions)"
        raise problem(where, cause, remedy=f"{remedy}.")
    return pairs, notes


def _mapped_ids(
    with_data: Sequence[str], ids: Sequence[str], id_map: Mapping[str, str]
) -> dict[str, str]:
    """The pairs of the user's map that both sides have."""
    known_data = set(with_data)
    known_table = set(ids)
    pairs = {
        ours: theirs
        for ours, theirs in id_map.items()
        if ours in known_data and theirs in known_table
    }
    if not pairs:
        raise NerveError(
            f"--id-map names {listed(id_map.items(), most=2)}, and no pair is an id of the data "
            f"({listed(with_data, most=3)}) and an id of the table ({listed(ids, most=3)})."
        )
    return pairs


def _row_of_each(
    table: pd.DataFrame, scans: _Scans, options: Options, where: object
) -> tuple[pd.DataFrame, str, list[str], dict[str, str]]:
    """One row per participant: that of the visit or of the session of the scan.

    Returns the table, which rows were taken, what shows it, and who has no row of the session.
    """
    table = table.drop_duplicates()
    has_sessions = "session_id" in table.columns
    if options.visit is not None:
        return _rows_of_visit(table, options.visit, where)
    scan_sessions = {
        participant: {scan.session for scan in group} for participant, group in scans.items()
    }
    all_sessions: set[str] = set().union(*scan_sessions.values())
    named = sorted(all_sessions - {""})
    if not has_sessions or not named:
        if options.sessions:
            lacking = "the table has no column session_id" if named else "the files name no session"
            raise NerveError(f"--sessions cannot be used: {lacking}. Leave it out.")
        if table["participant_id"].duplicated().any():
            raise _several_rows(table, table, where)
        return table, "the only row of each participant", [], {}

    # names of sessions: the user's map, the same, or the same once normalised
    visits = sorted({str(visit) for visit in table["session_id"].dropna()}, key=natural_key)
    visit_of, match_note = _match_sessions(named, visits, options.sessions, where)
    rows = []
    other_sessions = {}
    bare_sessions = table["session_id"].map(_bare_session)
    for participant, group in table.groupby("participant_id", sort=False):
        wanted = {visit_of.get(session, session) for session in scan_sessions[str(participant)]}
        if len(wanted) > 1:
            raise problem(
                where,
                f"the scans of several sessions of participant {participant} "
                f"({listed(sorted(wanted), most=4)}) are put together, and the table has a row "
                "per session",
                expected="scans of one session",
                remedy="Choose with --session, or --repeats first, or say whose row counts for "
                "everyone: --visit VALUE.",
            )
        chosen = group[bare_sessions.loc[group.index].isin(wanted)]
        if chosen.empty:
            other_sessions[str(participant)] = (
                f"no row of session {listed(wanted)} in the participants table"
            )
        rows.append(chosen)
    chosen_rows = pd.concat(rows) if rows else table.iloc[:0]
    if chosen_rows["participant_id"].duplicated().any():
        raise _several_rows(chosen_rows, table, where)
    which_rows = "the row of the same participant and session"
    return chosen_rows, which_rows, [match_note], other_sessions


def _rows_of_visit(
    table: pd.DataFrame, visit: str, where: object
) -> tuple[pd.DataFrame, str, list[str], dict[str, str]]:
    """The rows of one visit, for everyone."""
    if "session_id" not in table.columns:
        raise problem(
            where,
            "--visit needs a column of visits and there is none",
            remedy="Say which it is: --columns session_id=THEIRS.",
        )
    is_visit = table["session_id"].map(_bare_session) == _bare_session(visit)
    if not is_visit.any():
        visits = sorted({str(name) for name in table["session_id"].dropna()}, key=natural_key)
        raise problem(where, f"no row is of visit {visit!r}", expected=f"one of {listed(visits)}")
    without = table.loc[~table["participant_id"].isin(table.loc[is_visit, "participant_id"])]
    reason = f"no row of visit {visit} in the participants table"
    excluded = dict.fromkeys(without["participant_id"].astype(str), reason)
    chosen = table[is_visit]
    if chosen["participant_id"].duplicated().any():
        raise _several_rows(chosen, table, where)
    return chosen, f"the row of visit {visit}, for everyone (--visit)", [], excluded


def _match_sessions(
    named: Sequence[str], visits: Sequence[str], user_map: Mapping[str, str], where: object
) -> tuple[dict[str, str], str]:
    """Session of the scans → bare session of the table, and how they were matched."""
    bare_visits = dict.fromkeys(_bare_session(visit) for visit in visits)
    if user_map:
        visit_of = {session: _bare_session(visit) for session, visit in user_map.items()}
        unknown = [visit for visit in visit_of.values() if visit not in bare_visits]
        if unknown or not set(visit_of) & set(named):
            raise NerveError(
                f"--sessions maps {listed(user_map.items(), most=3)}, expected sessions of the "
                f"scans ({listed(named)}) and sessions of the table ({listed(visits)})."
            )
        return visit_of, "names of sessions are mapped by --sessions"
    if all(session in bare_visits for session in named):
        return {}, f"sessions have the same names on both sides ({listed(named, most=4)})"
    normal_named = _by_normal_name(named)
    normal_visits = _by_normal_name(bare_visits)
    shared = set(normal_named) & set(normal_visits)
    is_one_to_one = all(
        len(normal_named[name]) == 1 and len(normal_visits[name]) == 1 for name in shared
    )
    exact = {session for session in named if session in bare_visits}
    if shared and is_one_to_one and len(shared) > len(exact):
        visit_of = {normal_named[name][0]: normal_visits[name][0] for name in shared}
        examples = [f"{ours} is {theirs}" for ours, theirs in sorted(visit_of.items())]
        return visit_of, f"names of sessions match once normalised ({listed(examples, most=4)})"
    if exact:
        return {}, f"sessions with the same names on both sides: {listed(sorted(exact), most=4)}"
    raise problem(
        where,
        f"its sessions ({listed(visits)}) are not those of the scans ({listed(named)})",
        expected="the same names",
        remedy=f"Say whose row counts for everyone (--visit {visits[0] if visits else 'VALUE'}), "
        "or give a file of two columns, session of the scans and session of the table "
        "(--sessions FILE).",
    )


def _by_normal_name(words: Iterable[str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for word in words:
        names.setdefault(_normal_session(word), []).append(word)
    return names


def _telling_column(table: pd.DataFrame) -> str:
    """A column that tells the several rows of participants apart, or an empty string."""
    is_repeated = table["participant_id"].duplicated(keep=False)
    rows = table[is_repeated]
    candidates = []
    for name in table.columns.drop(["participant_id", "session_id"], errors="ignore"):
        values = rows[name]
        is_complete = values.notna().all()
        is_unique = not rows.duplicated(["participant_id", name]).any()
        if is_complete and is_unique and 1 < values.nunique() <= max(12, len(rows) // 10):
            candidates.append((values.nunique(), str(name)))
    return min(candidates)[1] if candidates else ""


def _several_rows(rows: pd.DataFrame, table: pd.DataFrame, where: object) -> NerveError:
    """The error about several rows of a participant.

    The remedy tells all rows of the table apart.
    """
    repeated = rows.loc[rows["participant_id"].duplicated(), "participant_id"].unique()
    have = "has" if len(repeated) == 1 else "have"
    cause = f"{counted(len(repeated))} {have} several rows ({listed(repeated, 4)})"
    key = ["participant_id", "session_id"]
    telling_column = _telling_column(table)
    if "session_id" in table.columns and not table.duplicated(key).any():
        remedy = (
            f"Say whose row counts for everyone: --visit VALUE ({_values(table['session_id'])})."
        )
    elif telling_column:
        remedy = (
            f"Column {telling_column} tells them apart: say --columns session_id={telling_column}, "
            f"and --visit VALUE for the row that counts ({_values(table[telling_column])})."
        )
    else:
        remedy = "Remove the others, or name the column of visits: --columns session_id=THEIRS."
    return problem(where, cause, expected="one row per participant and session", remedy=remedy)


def _values(column: pd.Series) -> str:
    """The values of a column, listed."""
    words: set[str] = {str(value) for value in column.dropna().tolist()}
    ordered = sorted(words, key=natural_key)
    return listed(ordered, most=6)
