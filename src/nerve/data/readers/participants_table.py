"""The participants table: read from any file, with columns and codes in our spelling."""

from __future__ import annotations

import io
import itertools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from nerve._utils.errors import NerveError, known_columns, listed, problem
from nerve._utils.files import read_yaml
from nerve.data.readers import excel, table_files
from nerve.data.readers.ids import counted, match_ids, normal_id
from nerve.data.readers.opening import keep_latest
from nerve.data.readers.text import is_number, read_lines, read_table

Table = pd.DataFrame | str | os.PathLike[str]
MISSING = ["n/a", "-9999", "-9999.0", "NA", "N/A", "NaN", "nan", "null", "None", "#N/A", "."]
ID_COLUMNS = (
    "participant_id", "FILE_ID", "BIDS_ID", "participant", "subject_id", "subjectkey",
    "src_subject_id", "subject", "Subject", "SUB_ID", "sub", "eid", "id", "ID", "record_id",
    "Record ID",
)  # fmt: skip
# names in the releases of ABIDE, ABCD, HCP, UK Biobank and RBC → ours
_KNOWN_COLUMNS = {
    "SITE_ID": "site", "site_id_l": "site", "study_site": "site", "scanner": "site",
    "AGE_AT_SCAN": "age", "Age_in_Yrs": "age", "Age": "age", "AGE": "age",
    "SEX": "sex", "Sex": "sex", "Gender": "sex", "gender": "sex",
    "func_mean_fd": "mean_fd", "meanFD": "mean_fd", "mean_framewise_displacement": "mean_fd",
    "rel_family_id": "family_id", "Family_ID": "family_id",
    "ses": "session_id", "session": "session_id", "eventname": "session_id",
    "redcap_event_name": "session_id", "Event Name": "session_id", "visit": "session_id",
    "p_factor_mcelroy_harmonized_all_samples": "p_factor",
    "internalizing_mcelroy_harmonized_all_samples": "internalizing",
    "externalizing_mcelroy_harmonized_all_samples": "externalizing",
    "attention_mcelroy_harmonized_all_samples": "attention",
}  # fmt: skip

# columns in which REDCap names the form that a participant filled in several times
_REPEAT_COLUMNS = ("redcap_repeat_instrument", "Repeat Instrument")

# columns of ours that are text, and those that no code for missing touches unless it names them
_WORDS = ("participant_id", "session_id", "family_id")
_NOT_MEASURED = (*_WORDS, "site")


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


def load_table(source: Table, words: Iterable[str] = (), sheet: str | None = None) -> pd.DataFrame:
    """Read a participants table as it is.

    Ids are text, the usual marks of missing values are missing.

    Parameters
    ----------
    source : DataFrame or path
        Text, a workbook of Excel, Parquet, Feather, SPSS or Stata.
    words : iterable of str
        Further columns that are text.
    sheet : str, optional
        Name or number of the sheet of a workbook.

    Returns
    -------
    DataFrame
        `attrs["notes"]` is what to tell the user.
    """
    path = None if isinstance(source, pd.DataFrame) else Path(source)
    is_workbook = path is not None and path.suffix.lower() in (*excel.ENDINGS, *excel.NOT_READ)
    if sheet is not None and not is_workbook:
        name = "a DataFrame" if path is None else path.name
        raise NerveError(
            f"--sheet names a sheet of an Excel workbook, and the participants table is {name}: "
            "it would change nothing. Leave it out."
        )
    if isinstance(source, pd.DataFrame):
        table = table_files.with_named_index(source)
        table = table.replace({-9999: None, "-9999": None, "n/a": None})
        return _without_extra_rows(table, tuple(words))
    table = _read_table(Path(source), tuple(words), sheet)
    return table.copy()  # in one block of memory: thousands of columns come in pieces


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
    for theirs, ours in _KNOWN_COLUMNS.items():
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
    table = table.rename(columns=renames)
    table.attrs["their_names"] = {ours: theirs for theirs, ours in renames.items()}
    return table, notes


def open_table(
    source: Table, columns: Mapping[str, str], sheet: str | None = None
) -> tuple[pd.DataFrame, list[str], object]:
    """Read a participants table in our names.

    Parameters
    ----------
    source : DataFrame or path
    columns : mapping
        The user's: our name → the table's.
    sheet : str, optional
        Name or number of the sheet of a workbook.

    Returns
    -------
    table : DataFrame
        `attrs["their_names"]` is our name → the table's, where they differ.
    notes : list of str
        What to tell the user.
    where : object
        What errors call the table.
    """
    where = "the participants table" if isinstance(source, pd.DataFrame) else source
    ids = [theirs for ours, theirs in columns.items() if ours in _WORDS]
    table = load_table(source, ids, sheet)
    notes = list(table.attrs.get("notes", ()))
    table, rename_notes = rename_columns(table, columns, where)
    return table, notes + rename_notes, where


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
    wanted_ids = list(dict.fromkeys(wanted))

    def n_matching(name: str) -> int:
        return len(set(wanted_ids) & set(table[name].dropna().map(normal_id)))

    if not candidates:
        cause = f"there is no column of ids among {listed(table.columns, most=12)}"
        remedy = "Say which it is: --columns participant_id=THEIRS."
        best = max(table.columns, key=n_matching, default="")
        if wanted_ids and n_matching(best):
            remedy += f" Column {best} holds {n_matching(best)} of the ids of the data."
        raise problem(where, cause, remedy=remedy)
    best = max(candidates, key=n_matching)
    if n_matching(best) or not wanted_ids:
        return best

    def n_similar(name: str) -> int:
        ids = [normal_id(word) for word in table[name].dropna().tolist()]
        return len(match_ids(wanted_ids, ids).pairs)

    return max(candidates, key=n_similar)


def read_map(path: str | os.PathLike[str] | Mapping[Any, Any], option: str) -> dict[str, str]:
    """Read a map of two columns: ours, theirs.

    Parameters
    ----------
    path : path or mapping
        A text file whose lines hold two words between tabs, commas or semicolons; a first line that
        says `data` and `table` is passed over.
    option : str
        The option that names it, for errors.

    Returns
    -------
    dict
    """
    if isinstance(path, Mapping):
        return {str(ours): str(theirs) for ours, theirs in path.items()}
    pairs: dict[str, str] = {}
    partners = set()
    for number, line in enumerate(read_lines(Path(path)), start=1):
        words = [word.strip().strip('"') for word in re.split(r"[\t,;]", line)]
        if number == 1 and [word.lower() for word in words] == ["data", "table"]:
            continue
        if len(words) != 2 or not all(words):
            raise problem(
                path,
                f"line {number} of {option} holds {len(words)} words",
                expected="two: that of the data, that of the table",
            )
        ours, theirs = words
        if pairs.get(ours, theirs) != theirs or (option == "--id-map" and theirs in partners):
            raise problem(path, f"line {number} of {option} names {ours} or {theirs} again")
        pairs[ours] = theirs
        partners.add(theirs)
    if not pairs:
        raise problem(path, f"{option} holds no pairs", expected="two words per line")
    return pairs


def parse_na_values(codes: Any) -> dict[str, tuple[str, ...]]:
    """Parse the user's codes for missing values.

    Parameters
    ----------
    codes : str, number, sequence or mapping, optional
        `999,-9,sex=9`, a sequence of codes, or a mapping of columns to codes.

    Returns
    -------
    dict
        Column → codes; the codes of every column stand under the empty name.

    Examples
    --------
    >>> parse_na_values("999, -9, sex=9")
    {'': ('999', '-9'), 'sex': ('9',)}
    """
    if codes is None:
        return {}
    by_column: dict[str, list[str]] = {}
    if isinstance(codes, Mapping):
        for column, values in codes.items():
            is_one = isinstance(values, (str, int, float))
            of_column = [values] if is_one else list(values)
            by_column.setdefault(str(column), []).extend(str(value) for value in of_column)
    else:
        if isinstance(codes, (int, float)):
            codes = [codes]
        parts = codes.split(",") if isinstance(codes, str) else [str(code) for code in codes]
        for part in parts:
            column, equals, code = part.rpartition("=")
            if not code.strip() or (equals and not column.strip()):
                raise NerveError(
                    f"--na-values is {codes!r}, expected codes separated by commas, "
                    "for example 999,-9,sex=9."
                )
            by_column.setdefault(column.strip(), []).append(code.strip())
    return {column: tuple(values) for column, values in by_column.items()}


def apply_na_values(
    table: pd.DataFrame, codes: Mapping[str, tuple[str, ...]], where: object
) -> tuple[pd.DataFrame, str, list[str]]:
    """Empty the cells that hold a code for missing.

    Parameters
    ----------
    table : DataFrame
        In our names.
    codes : mapping
        As `parse_na_values` returns it.
    where : object
        The table, as errors name it.

    Returns
    -------
    table : DataFrame
    codes : str
        The codes, in words.
    notes : list of str
        How many cells of which columns were emptied.
    """
    known_columns([name for name in codes if name], table.columns, where)
    usual = f"the usual ones ({', '.join(MISSING[:4])} …)"
    if not codes:
        return table, usual, []
    table = table.copy()
    emptied = []
    n_emptied_by = dict.fromkeys(itertools.chain.from_iterable(codes.values()), 0)
    for name in table.columns:
        of_column = codes.get(str(name), ())
        if name not in _NOT_MEASURED:
            of_column = (*codes.get("", ()), *of_column)
        is_code = pd.Series(False, index=table.index)
        for code in of_column:
            is_this_code = _equals_code(table[name], code)
            n_emptied_by[code] += int(is_this_code.sum())
            is_code |= is_this_code
        if is_code.any():
            table[name] = _numbers_if_all_are(table[name].mask(is_code))
            emptied.append(f"{is_code.sum()} of {name}")
    words = []
    for column, values in codes.items():
        words += [f"{column}={code}" if column else code for code in values]
    unused = [code for code, n_cells in n_emptied_by.items() if not n_cells]
    if len(unused) == len(n_emptied_by):
        raise problem(
            where,
            f"no cell holds {listed(words)}",
            expected="codes that occur (--na-values)",
            remedy="Leave the option out, or mend it.",
        )
    notes = [f"cells emptied: {listed(emptied, most=12)}"]
    if unused:
        notes.append(f"no cell holds {listed(unused)}")
    return table, f"{', '.join(words)} (--na-values), and {usual}", notes


def table_ids(
    source: Table | None, columns: Mapping[str, str] | None = None, sheet: str | None = None
) -> tuple[str, ...] | None:
    """Read the ids of a table in the order of its rows: whose the rows of a stacked array are.

    Parameters
    ----------
    source : DataFrame or path, optional
    columns : mapping, optional
        Our name → the table's.
    sheet : str, optional
        Name or number of the sheet of a workbook.

    Returns
    -------
    tuple of str or None
        None where there is no table.
    """
    if source is None:
        return None
    table, _, where = open_table(source, columns or {}, sheet)
    return tuple(table[find_id_column(table, (), where)].map(normal_id))


@keep_latest
def _read_table(source: Path, words: tuple[str, ...], sheet: str | None) -> pd.DataFrame:
    """The file is read once for the ids and for the join."""
    options = {"dtype": _text_columns(words), "na_values": MISSING}
    ending = source.suffix.lower()
    if ending in (*excel.ENDINGS, *excel.NOT_READ):
        table = excel.read_workbook(source, options, sheet, (*ID_COLUMNS, *words))
    elif ending in table_files.ENDINGS:
        table = table_files.read_table_file(source, options)
    else:
        table = read_table(source, **options)
    return _without_extra_rows(table, words)


def _text_columns(words: Iterable[str]) -> dict[str, type[str]]:
    """The columns that are text: ids, sessions and families, by their names in any release."""
    known = [theirs for theirs, ours in _KNOWN_COLUMNS.items() if ours in _WORDS]
    return dict.fromkeys((*ID_COLUMNS, *_WORDS, *known, *words), str)


def _without_extra_rows(table: pd.DataFrame, words: tuple[str, ...]) -> pd.DataFrame:
    """The table without rows that are of no participant and visit."""
    notes = list(table.attrs.get("notes", ()))
    table, description_note = _without_descriptions(table, words)
    table, repeat_note = _without_repeated_forms(table)
    table.attrs["notes"] = notes + description_note + repeat_note
    return table


def _without_descriptions(
    table: pd.DataFrame, words: tuple[str, ...]
) -> tuple[pd.DataFrame, list[str]]:
    """The table without the second header row of NDA, which describes each column in a sentence."""
    ids = [name for name in ID_COLUMNS if name in table.columns]
    if len(table) < 2 or not ids:
        return table, []
    first, *others = table[ids[0]].astype(str)
    is_sentence = len(first.split()) > 2
    if not is_sentence or any(len(word.split()) > 2 for word in others):
        return table, []
    # text once more, so that columns of numbers are read as numbers
    text = io.StringIO(table.iloc[1:].to_csv(index=False))
    table = pd.read_csv(text, dtype=_text_columns(words), na_values=MISSING, low_memory=False)
    return table, ["a second header row, as NDA writes, describes the columns: dropped"]


def _without_repeated_forms(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table without REDCap's rows of a form that was filled in several times (medications …).

    Such a row has a value in the columns of its form alone; the participant has another row for all
    others.
    """
    columns = [name for name in _REPEAT_COLUMNS if name in table.columns]
    if not columns:
        return table, []
    is_repeated = table[columns[0]].notna()
    if not is_repeated.any():
        return table, []
    kept = table[~is_repeated].reset_index(drop=True)
    emptied = [
        str(name)
        for name in table.columns
        if kept[name].isna().all() and table[name].notna().any() and name != columns[0]
    ]
    forms = listed(table[columns[0]].dropna().unique(), most=4)
    note = (
        f"{counted(int(is_repeated.sum()), 'row')} of forms that REDCap repeats ({forms}) dropped"
        + (f", and with them columns {listed(emptied, most=6)}" if emptied else "")
    )
    return kept.drop(columns=[*emptied, columns[0]]), [note]


def _equals_code(column: pd.Series, code: str) -> pd.Series:
    """Which cells are the code, as a number or as text."""
    is_code = column.astype(str).str.strip() == code
    if is_number(code, "."):
        is_code |= pd.to_numeric(column.astype(str), errors="coerce") == float(code)
    return is_code & column.notna()


def _numbers_if_all_are(column: pd.Series) -> pd.Series:
    """The column as numbers, where nothing but a code kept it from being one."""
    numbers = pd.to_numeric(column.astype(object), errors="coerce")
    return numbers if numbers.notna().equals(column.notna()) else column
