"""Which texts of users may appear in files that are shared: reports, protocols, tables, models.

- names (of columns, classes, cohorts, sites, regions) appear without control characters
  (`printable`);
- ids of participants become a count (`Note`) or, in messages of other packages, "[participant]"
  (`Identifiers`);
- paths are removed, except for the name of the file (`Identifiers`, `shared_command`);
- values of columns appear only if several participants share them (`shared_levels`).

Cohorts and parcellations make their names printable when they are made; `nerve._utils.files` does
so again for every text and JSON file that it writes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from typing import Any, Self

import pandas as pd

from nerve._utils.errors import UNPRINTABLE, listed, printable

FEWEST_OF_LEVEL = 5  # participants who must share a value of a column before it may be shown
_LONGEST_NAME = 200
_PARTICIPANT = "[participant]"
OTHER = "other"
PATH = "PATH"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATE = re.compile(
    # 1987-06-05, 19870605
    r"(?<![A-Za-z\d])(?:19|20)\d\d[-/. ]?(?:0[1-9]|1[0-2])[-/. ]?(?:0[1-9]|[12]\d|3[01])(?!\d)"
    # 5.6.1987, 06/05/87
    r"|(?<!\d)\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d\d)(?!\d)"
    # 5 June 1987
    rf"|\b\d{{1,2}}[- ]{_MONTH}[- ](?:\d{{4}}|\d\d)\b",
    re.IGNORECASE,
)


# Names


def printable_name(text: object, most: int = _LONGEST_NAME) -> str:
    """Write a name on one line, without control characters.

    Parameters
    ----------
    text : object
        The name.
    most : int
        Characters, at most.

    Returns
    -------
    str
        The name, which ends in "…" if it was too long.

    Examples
    --------
    >>> printable_name("my\\n cohort\\x07"), printable_name("x" * 30, most=5)
    ('my cohort\\\\x07', 'xxxx…')
    """
    line = " ".join(printable(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def name_in_results(cohort_name: str) -> str:
    """Name a cohort in results, where folders have its name: without slashes.

    Parameters
    ----------
    cohort_name : str
        The cohort's own name.

    Returns
    -------
    str
        At most 100 characters.

    Examples
    --------
    >>> name_in_results("wave 1/of 2"), name_in_results("/")
    ('wave 1 of 2', 'cohort')
    """
    words = re.sub(r"[\\/\0\s]+", " ", printable(cohort_name))
    return words.strip()[:100] or "cohort"


def printable_json(text: str) -> str:
    """Write control characters as JSON escapes, so that reading gives them back."""
    return UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def printable_table(table: pd.DataFrame) -> pd.DataFrame:
    """Make column names and text cells of a table printable; the same table if they already are."""
    names = [_printable_cell(name) for name in table.columns]
    if names != list(table.columns):
        table = table.set_axis(names, axis=1)
    # by types first: a table may have a hundred thousand columns of numbers
    text_positions = [k for k, dtype in enumerate(table.dtypes) if dtype.kind in "OT"]
    for position in text_positions:
        column = table.iloc[:, position]
        texts = {value for value in column if isinstance(value, str)}
        if any(UNPRINTABLE.search(text) for text in texts):
            table = table.copy()
            table.isetitem(position, column.map(_printable_cell).array)
    return table


def printable_tree(content: Any) -> Any:
    """Make all texts and names in nested JSON values printable."""
    if isinstance(content, dict):
        return {_printable_cell(name): printable_tree(value) for name, value in content.items()}
    if isinstance(content, list):
        return [printable_tree(value) for value in content]
    return _printable_cell(content)


def _printable_cell(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


# Participants


class Note(str):
    """A sentence with counts, for files, with a second sentence with ids, for the screen.

    Used as text it is the sentence for files, so that ids are never written by mistake.

    Examples
    --------
    >>> note = Note.about("2 participants have no features", ["a", "b"])
    >>> note, note.with_ids
    ('2 participants have no features.', '2 participants have no features: a, b.')
    """

    with_ids: str

    @classmethod
    def about(cls, sentence: str, ids: Iterable[object], most: int = 8) -> Self:
        """Make a note from a sentence without its full stop, and the participants it is about."""
        note = cls(f"{sentence}.")
        note.with_ids = f"{sentence}: {listed(ids, most)}."
        return note


def for_screen(note: str) -> str:
    """The sentence with ids of a note; other text is returned as it is."""
    return note.with_ids if isinstance(note, Note) else note


# Values of columns


def is_date(value: object) -> bool:
    """Whether a value looks like a date.

    Parameters
    ----------
    value : object
        A cell of a table.

    Returns
    -------
    bool
        True if it contains a date.

    Examples
    --------
    >>> is_date("scan of 1987-06-05"), is_date("5.6.87"), is_date("site 12")
    (True, True, False)
    """
    return _DATE.search(str(value)) is not None


def shared_levels(values: pd.Series, least: int = FEWEST_OF_LEVEL) -> list[str]:
    """Find the levels of a column that may be shown: shared by several participants, not dates.

    Parameters
    ----------
    values : Series
        The column.
    least : int
        Number of participants who must share a level.

    Returns
    -------
    list of str
        The levels, sorted.

    Examples
    --------
    >>> shared_levels(pd.Series(["F", "M", "F", "1987-06-05", "1987-06-05"]), least=2)
    ['F']
    """
    counts = values.dropna().astype(str).value_counts()
    return sorted(str(level) for level, n in counts.items() if n >= least and not is_date(level))


def shared_counts(values: pd.Series, least: int = FEWEST_OF_LEVEL) -> pd.Series:
    """Count participants per level, most frequent first; levels of few participants are "other"."""
    words = values.dropna().astype(str)
    levels = shared_levels(words, least)
    return words.where(words.isin(levels), OTHER).value_counts()


# Paths and ids in sentences


def shared_command(command: str, options: Collection[str], words: Collection[str]) -> str:
    """Write a command as it may be shown to others: paths become PATH.

    Parameters
    ----------
    command : str
        What the user typed.
    options : collection of str
        Options whose values are shown, such as `--targets`.
    words : collection of str
        Words that are shown wherever they stand: names of methods.

    Returns
    -------
    str
        The command with names of options, values that may be shown, and PATH for all others.

    Examples
    --------
    >>> typed = "nerve evaluate my/cohort --targets age --features raw,runs/a"
    >>> shared_command(typed, options=["--targets"], words=["raw"])
    'nerve evaluate PATH --targets age --features raw,PATH'
    >>> typed = "nerve evaluate my/cohort --features finetune:runs/a:layers=2"
    >>> shared_command(typed, options=[], words=["finetune"])
    'nerve evaluate PATH --features finetune:PATH:layers=2'
    """
    try:
        typed = shlex.split(command)
    except ValueError:  # a quotation mark that does not end
        return ""
    shown = typed[:2]
    value_is_shown = False
    for word in typed[2:]:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            if equals:
                word = f"{name}={_shown_value(value, name in options, words)}"
            shown.append(word)
            value_is_shown = name in options and not equals
        else:
            shown.append(_shown_value(word, value_is_shown, words))
            value_is_shown = False
    return printable_name(shlex.join(shown), most=2000)


def _shown_value(value: str, is_shown: bool, words: Collection[str]) -> str:
    if is_shown or _is_number(value):
        return value
    return ",".join(_shown_feature(part, words) for part in value.split(","))


def _shown_feature(text: str, words: Collection[str]) -> str:
    """A method with its settings, `finetune:PATH:layers=2`; anything else is a path."""
    method, *settings = text.split(":")
    if method not in words:
        return PATH
    shown = [method]
    for setting in settings:
        name, equals, value = setting.partition("=")
        is_path = not equals or "/" in value or "\\" in value
        if is_path:
            setting = f"{name}={PATH}" if equals else PATH
        shown.append(setting)
    return ":".join(shown)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# a participant as BIDS writes it, also one who is not in the data
_BIDS = re.compile(r"\bsub-[A-Za-z0-9]+")
# A folder may be called "Li, Ann (old)": its name may have blanks, commas and brackets, but no
# character that ends a path, and no name of a file that is followed by a blank.
_FOLDER = r"[^\s/\\:;\"<>](?:(?!\.[A-Za-z]\w{0,5}[\s,'])[^/\\:;\"<>\n]){0,80}"
# a name of a file with blanks is recognised by its ending
_FILE = r"[^\s/\\:,;'\"<>()]+(?: [^\s/\\:,;'\"<>()]+){0,3}"
_LAST = rf"(?:{_FILE}\.\w{{1,6}}\b|[^\s/\\:,;'\"<>()]*)"
_PATH = re.compile(
    # from a root, or . or ~
    rf"(?<![\w.…\]/\\])(?:[A-Za-z]:[/\\]|\\\\|~/|\.{{1,2}}/|/)(?:{_FOLDER}[/\\])+{_LAST}"
    # relative: any word with a slash
    r"|(?<![\w.…\]/\\])(?:[^\s/\\:,;'\"<>()\[\]]+[/\\])+[^\s/\\:,;'\"<>()\[\]]*"
)
_NO_PATHS = {"and/or", "r/z", "n/a", "N/A", "true/false", "True/False", "training/test"}
# places where a participant is named: after such a word, and before the first colon
_NAMED = re.compile(
    r"\b(?:participant|person|people|subject)s? [\w.-]+(?:, [\w.-]+)*|^[\w.-]+(?=: )",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w.-]*[\w-]")
_PART_OF_WORD = re.compile(r"[^\W_]+")


class Identifiers:
    """Remove ids and paths from errors and warnings before a report repeats them.

    Too much is removed rather than too little. A path is anything that begins like one, and every
    word with a slash; its folders may have blanks, commas and brackets. The name of the file is
    kept, but only its ending if it has digits, as ids do.

    Parameters
    ----------
    ids : iterable of str
        Ids of participants, with or without "sub-".

    Examples
    --------
    >>> Identifiers(["sub-01"]).removed_from("sub-01: /data/my study/sub-01/fc.tsv is empty")
    '[participant]: […]/fc.tsv is empty'
    """

    def __init__(self, ids: Iterable[str]) -> None:
        with_prefix = {str(participant) for participant in ids}
        without_prefix = {participant.removeprefix("sub-") for participant in with_prefix}
        self._ids = (with_prefix | without_prefix) - {""}
        simplified = {_simplified(participant) for participant in self._ids}
        self._simplified_ids = {participant for participant in simplified if len(participant) > 3}
        inside_words = []
        for participant in self._ids:
            # an id of letters may stand inside a longer word (a file name)
            is_long_word = len(participant) > 3 and not participant.isdigit()
            # an id with blanks is not one word
            is_several_words = not re.fullmatch(r"[\w.-]+", participant)
            if is_long_word or is_several_words:
                inside_words.append(participant)
        self._ids_inside_words = sorted(inside_words, key=len, reverse=True)

    def removed_from(self, text: object) -> str:
        """Remove identifiers, dates and control characters from a text."""
        sentence = printable(text)
        for participant in self._ids_inside_words:
            sentence = sentence.replace(participant, _PARTICIPANT)
        sentence = _BIDS.sub(_PARTICIPANT, sentence)
        sentence = _PATH.sub(lambda match: _shortened(match[0]), sentence)
        sentence = _NAMED.sub(lambda match: _WORD.sub(self._replace_id, match[0]), sentence)
        sentence = _WORD.sub(self._replace_id_unless_count, sentence)
        sentence = _PART_OF_WORD.sub(self._replace_id_in_word, sentence)
        return _DATE.sub("[date]", sentence)

    def _replace_id(self, word: re.Match[str]) -> str:
        """Replace any id, in a place where a participant is named."""
        return _PARTICIPANT if word[0] in self._ids else word[0]

    def _replace_id_unless_count(self, word: re.Match[str]) -> str:
        """Replace an id that is not a short number, which may be a count."""
        may_be_count = word[0].isdigit() and len(word[0]) <= 3
        if word[0] in self._ids and not may_be_count:
            return _PARTICIPANT
        return word[0]

    def _replace_id_in_word(self, part: re.Match[str]) -> str:
        """Replace an id that is a part of a word, also in another spelling of it."""
        is_id = part[0] in self._ids
        if _simplified(part[0]) in self._simplified_ids:
            return _PARTICIPANT
        if is_id and not part[0].isdigit():
            return _PARTICIPANT
        # a number is an id if a name follows: 12_fc.tsv
        before_underline = part.string[part.end() : part.end() + 1] == "_"
        return _PARTICIPANT if is_id and before_underline else part[0]


def _simplified(participant: str) -> str:
    """An id in lower case without signs: NDAR_INV1 and ndarinv1 are the same participant."""
    return "".join(filter(str.isalnum, participant)).lower()


def _shortened(path: str) -> str:
    """The name of a file without its folders, and without the name if that may be an id."""
    if path.rstrip(".") in _NO_PATHS:
        return path
    name = re.split(r"[/\\]", path)[-1]
    stem, dot, ending = name.rpartition(".")
    if any(character.isdigit() for character in stem or name):
        name = f"[file]{dot}{ending}" if dot else "[folder]"
    return f"[…]/{name}"
