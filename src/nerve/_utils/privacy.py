"""The gate between the user's strings and files that are mailed: reports, protocols, tables, models, kept probes.

What a user's string may become there:

names (columns, classes, cohorts, sites, regions)   as they are, without control characters: `printable`
ids of participants                                 a count: `Note`; in sentences of others "[participant]"
paths                                               nothing, or the name of the file: `Identifiers`, `shared_command`
values of columns                                   only levels that several participants share: `shared_levels`

Cohorts and parcellations make their names printable when they are made; `nerve._utils.files` does it again with every text
and JSON file that it writes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Self

from nerve._utils.errors import UNPRINTABLE, printable

if TYPE_CHECKING:  # `nerve --help` imports this file too
    import pandas as pd

FEWEST_OF_LEVEL = 5  # participants who share a value of a column, before the value may be passed on
LONGEST_NAME = 200
PARTICIPANT = "[participant]"
OTHER = "other"
PATH = "PATH"
_DATE = re.compile(
    r"(?<![A-Za-z\d])(?:19|20)\d\d[-/. ]?(?:0[1-9]|1[0-2])[-/. ]?(?:0[1-9]|[12]\d|3[01])(?!\d)"  # 1987-06-05, 19870605
    r"|(?<!\d)\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d\d)(?!\d)"  # 5.6.1987, 06/05/87
    r"|\b\d{1,2}[- ](?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- ](?:\d{4}|\d\d)\b",  # 5 June 1987
    re.IGNORECASE,
)


# ---- names


def printable_name(text: object, most: int = LONGEST_NAME) -> str:
    """A name on one line, of at most `most` characters, without control characters.

    Examples
    --------
    >>> printable_name("my\\n cohort\\x07"), printable_name("x" * 30, most=5)
    ('my cohort\\\\x07', 'xxxx…')
    """
    line = " ".join(printable(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def name_in_results(cohort_name: str) -> str:
    """What results call a cohort: its name without slashes, since folders are called so too.

    Examples
    --------
    >>> name_in_results("wave 1/of 2"), name_in_results("/")
    ('wave 1 of 2', 'cohort')
    """
    words = re.sub(r"[\\/\0\s]+", " ", printable(cohort_name))
    return words.strip()[:100] or "cohort"


def printable_json(text: str) -> str:
    """JSON whose control characters are written as JSON escapes, so that reading it gives them back."""
    return UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable_table(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose names of columns and text cells are printable; itself where they are."""
    names = [_printable_cell(name) for name in table.columns]
    if names != list(table.columns):
        table = table.set_axis(names, axis=1)
    for place in range(table.shape[1]):
        column = table.iloc[:, place]
        text = (
            {value for value in column if isinstance(value, str)}
            if column.dtype.kind in "OT"
            else set()
        )
        if any(UNPRINTABLE.search(value) for value in text):
            table = table.copy()
            table.isetitem(place, column.map(_printable_cell).array)
    return table


def printable_tree(content: Any) -> Any:
    """Plain JSON values, nested, whose texts and names are printable."""
    if isinstance(content, dict):
        return {_printable_cell(name): printable_tree(value) for name, value in content.items()}
    if isinstance(content, list):
        return [printable_tree(value) for value in content]
    return _printable_cell(content)


def _printable_cell(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


# ---- participants


class Note(str):
    """A sentence for files, with counts only, that knows its other form, for the screen, with ids.

    It is the form for files wherever it is used as text, so that forgetting which is which names nobody.

    Examples
    --------
    >>> note = Note.about("2 participants have no features", ["a", "b"])
    >>> note, note.with_ids
    ('2 participants have no features.', '2 participants have no features: a, b.')
    """

    with_ids: str

    @classmethod
    def about(cls, sentence: str, ids: Iterable[object], most: int = 8) -> Self:
        """The note of a sentence without its full stop, and the participants whom it is about."""
        words = [str(one) for one in ids]
        more = f" and {len(words) - most} more" if len(words) > most else ""
        note = cls(f"{sentence}.")
        note.with_ids = f"{sentence}: {', '.join(words[:most])}{more}."
        return note


def for_screen(note: str) -> str:
    """The form of a note with ids, where it has one."""
    return note.with_ids if isinstance(note, Note) else note


# ---- values of columns


def is_date(value: object) -> bool:
    """Whether a value looks like a date.

    Examples
    --------
    >>> is_date("scan of 1987-06-05"), is_date("5.6.87"), is_date("site 12")
    (True, True, False)
    """
    return _DATE.search(str(value)) is not None


def shared_levels(values: pd.Series, least: int = FEWEST_OF_LEVEL) -> list[str]:
    """The levels of a column of words that may be passed on: no dates, and held by `least` participants or more.

    Examples
    --------
    >>> import pandas as pd
    >>> shared_levels(pd.Series(["F", "M", "F", "1987-06-05", "1987-06-05"]), least=2)
    ['F']
    """
    counts = values.dropna().astype(str).value_counts()
    return sorted(str(level) for level, n in counts.items() if n >= least and not is_date(level))


def shared_counts(values: pd.Series, least: int = FEWEST_OF_LEVEL) -> pd.Series:
    """How many participants have each level, the most frequent first; what may not be passed on is "other"."""
    words = values.dropna().astype(str)
    levels = shared_levels(words, least)
    return words.where(words.isin(levels), OTHER).value_counts()


# ---- paths and ids in sentences


def shared_command(command: str, options: Collection[str], words: Collection[str]) -> str:
    """A command as it may be passed on: names of options, some of their values, and PATH for everything else.

    Parameters
    ----------
    command : str
    options : collection of str
        Options whose value is shown, `--targets` say.
    words : collection of str
        What is shown wherever it stands: names of methods.

    Examples
    --------
    >>> shared_command("nerve evaluate my/cohort --targets age --features raw,runs/a", ["--targets"], ["raw"])
    'nerve evaluate PATH --targets age --features raw,PATH'
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
            shown.append(
                f"{name}={_shown_value(value, name in options, words)}" if equals else name
            )
            value_is_shown = name in options and not equals
        else:
            shown.append(_shown_value(word, value_is_shown, words))
            value_is_shown = False
    return printable_name(shlex.join(shown), most=2000)


def _shown_value(value: str, whole: bool, words: Collection[str]) -> str:
    if whole or _is_number(value):
        return value
    parts = [part if part.split(":")[0] in words else PATH for part in value.split(",")]
    return ",".join(parts)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


_BIDS = re.compile(r"\bsub-[A-Za-z0-9]+")  # what BIDS calls a participant, known here or not
# a folder in a path may be "Li, Ann (old)": anything but a sign that ends a path, or the name of a file and a blank
_PART = r"[^\s/\\:;\"<>](?:(?!\.[A-Za-z]\w{0,5}[\s,'])[^/\\:;\"<>\n]){0,80}"
_NAME = r"[^\s/\\:,;'\"<>()]+(?: [^\s/\\:,;'\"<>()]+){0,3}"
_LAST = (
    rf"(?:{_NAME}\.\w{{1,6}}\b|[^\s/\\:,;'\"<>()]*)"  # a name with blanks is known by its ending
)
_PATH = re.compile(
    rf"(?<![\w.…\]/\\])(?:[A-Za-z]:[/\\]|\\\\|~/|\.{{1,2}}/|/)(?:{_PART}[/\\])+{_LAST}"  # from a root, or . or ~
    r"|(?<![\w.…\]/\\])(?:[^\s/\\:,;'\"<>()\[\]]+[/\\])+[^\s/\\:,;'\"<>()\[\]]*"  # relative: any word with a slash
)
_NO_PATHS = {"and/or", "r/z", "n/a", "N/A", "true/false", "True/False", "training/test"}
_WHO = re.compile(
    r"\b(?:participant|person|people|subject)s? [\w.-]+(?:, [\w.-]+)*|^[\w.-]+(?=: )", re.IGNORECASE
)


class Identifiers:
    """Ids and paths that are taken out of sentences of others: errors and warnings that a report repeats.

    Too much is taken rather than too little. A path is whatever begins like one, and every word with a slash; blanks,
    commas and brackets may stand in its folders. What stays of it is the name of the file, and of that only the ending
    if there are digits in it, as in ids.

    Examples
    --------
    >>> Identifiers(["sub-01"]).removed_from("sub-01: /data/my study/sub-01/fc.tsv is empty")
    '[participant]: […]/fc.tsv is empty'
    """

    def __init__(self, ids: Iterable[str]) -> None:
        given = {str(one) for one in ids}
        self._words = known = (given | {one.removeprefix("sub-") for one in given}) - {""}
        self._folded = {_folded(one) for one in known if len(_folded(one)) > 3}
        # an id of letters may stand inside a longer word (a file name), and one with blanks is no word
        long = (
            one
            for one in known
            if (len(one) > 3 and not one.isdigit()) or not re.fullmatch(r"[\w.-]+", one)
        )
        self._inside = sorted(long, key=len, reverse=True)

    def removed_from(self, text: object) -> str:
        """The text without identifiers, dates and control characters."""
        sentence = printable(text)
        for one in self._inside:
            sentence = sentence.replace(one, PARTICIPANT)
        sentence = _BIDS.sub(PARTICIPANT, sentence)
        sentence = _PATH.sub(lambda path: _shortened(path[0]), sentence)
        sentence = _WHO.sub(lambda found: re.sub(r"[\w.-]*[\w-]", self._named, found[0]), sentence)
        sentence = re.sub(r"[\w.-]*[\w-]", self._whole, sentence)
        sentence = re.sub(r"[^\W_]+", self._part, sentence)
        return _DATE.sub("[date]", sentence)

    def _named(self, word: re.Match[str]) -> str:
        """A word where a participant is named: every id."""
        return PARTICIPANT if word[0] in self._words else word[0]

    def _whole(self, word: re.Match[str]) -> str:
        """A word anywhere: an id, but a short number may be a count."""
        return (
            PARTICIPANT
            if word[0] in self._words and (len(word[0]) > 3 or not word[0].isdigit())
            else word[0]
        )

    def _part(self, word: re.Match[str]) -> str:
        """A part of a word, between underlines and the like: an id, also as others write it; a number beside a name."""
        if _folded(word[0]) in self._folded or (not word[0].isdigit() and word[0] in self._words):
            return PARTICIPANT
        beside = word.string[word.end() : word.end() + 1] == "_"
        return PARTICIPANT if beside and word[0] in self._words else word[0]


def _folded(one: str) -> str:
    """An id without its case and signs: NDAR_INV1 and ndarinv1 are the same child."""
    return "".join(filter(str.isalnum, one)).lower()


def _shortened(path: str) -> str:
    if path.rstrip(".") in _NO_PATHS:
        return path
    name = re.split(r"[/\\]", path)[-1]
    stem, dot, ending = name.rpartition(".")
    if any(character.isdigit() for character in stem or name):
        name = f"[file]{dot}{ending}" if dot else "[folder]"
    return f"[…]/{name}"
