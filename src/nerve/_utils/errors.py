"""Error classes and the sentences of error messages.

An error says what was expected, what came, where, and what to do.
"""

from __future__ import annotations

import difflib
import html
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sklearn.exceptions import NotFittedError

_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxlevel = 2
_SHORT_REPR.maxstring = 80
_SHORT_REPR.maxother = 80

# Control characters (C0 and C1), marks that are invisible or change the direction of text, and
# unpaired surrogates. A line end and a tab are ordinary text.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)

# `--id-map FILE`, `--motion none`, `--id-pattern '(?P<id>.+)'`, `--visit`: an option, and its value
# if one follows
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?: ('[^']+'|[\w.=,+-]*\w))?")
# words that follow an option in a sentence and are not its value
_NOT_VALUES = [
    "a",
    "an",
    "and",
    "are",
    "as",
    "can",
    "cannot",
    "changes",
    "chooses",
    "does",
    "draws",
    "for",
    "has",
    "holds",
    "is",
    "keeps",
    "leaves",
    "makes",
    "maps",
    "names",
    "needs",
    "of",
    "or",
    "out",
    "runs",
    "says",
    "shows",
    "so",
    "takes",
    "that",
    "to",
    "turns",
    "what",
    "where",
    "with",
    "would",
    "writes",
]


class NerveError(ValueError):
    """A problem that the user can solve.

    The command line prints its sentence and no traceback.
    """


class NerveWarning(UserWarning):
    """Something that does not stop the work but belongs in a report."""


class MissingInput(NerveError):
    """A method needs an input, such as time series, that a cohort does not have."""


class NotFitted(NerveError, NotFittedError):
    """A method was used before `fit`; it is an instance of scikit-learn's NotFittedError too."""


class OtherRegions(NerveError):
    """Data are not in the regions that are needed.

    Parameters
    ----------
    cause : str
        What does not fit, as a sentence.
    wanted : Parcellation
        The regions that are needed.
    remedy : str, optional
        What to do. By default, how to resample; commands put in exactly what to type
        (`nerve.data.common_space.naming_resampling`).
    """

    def __init__(self, cause: str, wanted: Any, remedy: str | None = None) -> None:
        self.cause = cause
        self.wanted = wanted
        if remedy is None:
            remedy = (
                "Data are resampled to other regions only where asked for: in Python by "
                f"`cohort.resample({wanted.name!r})`, as a folder by `nerve resample COHORT OUT "
                f"--parcellation {wanted.name}`."
            )
        super().__init__(f"{cause} {remedy}")


class ParticipantError(NerveError):
    """A problem with some participants, who are given by their rows.

    The code that finds the problem sees arrays, but no ids. A caller that knows the ids calls it
    inside `naming_participants`, which puts them into the sentence.

    Parameters
    ----------
    rows : sequence of int
        Positions of the participants in the data at hand.
    sentence : str
        The problem, with ``{people}`` where the participants are named.

    Examples
    --------
    >>> with naming_participants(["a", "b", "c", "d"]), placing([1, 3]):
    ...     raise ParticipantError([1], "There is nothing to learn from {people}.")
    Traceback (most recent call last):
    nerve._utils.errors.NerveError: There is nothing to learn from d.
    """

    def __init__(self, rows: Iterable[Any], sentence: str) -> None:
        self.rows = [int(row) for row in rows]
        self.sentence = sentence
        numbers = listed((row + 1 for row in self.rows), most=5)
        if len(self.rows) == 1:
            participants = f"the participant of row {numbers}"
        else:
            participants = f"the participants of rows {numbers}"
        super().__init__(sentence.replace("{people}", participants))


@contextmanager
def naming_participants(ids: Any) -> Iterator[None]:
    """Turn a `ParticipantError` that is raised inside into an error that names their ids.

    Parameters
    ----------
    ids : sequence or array
        The id of each row of the data that are used inside.
    """
    try:
        yield
    except ParticipantError as error:
        participants = listed((ids[row] for row in error.rows), most=5)
        raise NerveError(error.sentence.replace("{people}", participants)) from None


@contextmanager
def placing(positions: Any) -> Iterator[None]:
    """Translate the rows of a `ParticipantError` that is raised inside into those of the caller.

    Parameters
    ----------
    positions : sequence or array of int
        For each row of the data that are used inside, its row in the data of the caller.
    """
    try:
        yield
    except ParticipantError as error:
        rows = [positions[row] for row in error.rows]
        raise ParticipantError(rows, error.sentence) from None


def in_python(sentence: str) -> str:
    """Replace options of the command line in a sentence by parameters of Python.

    Commands in backticks are left as they are.

    Parameters
    ----------
    sentence : str

    Returns
    -------
    str

    Examples
    --------
    >>> sentence = "Say --motion none, --id-map FILE, or leave --n-folds out: `nerve run --seed 1`."
    >>> print(in_python(sentence))
    Say motion="none", id_map=FILE, or leave n_folds out: `nerve run --seed 1`.
    """
    parts = sentence.split("`")  # every second one is in backticks
    parts[::2] = [_OPTION.sub(_as_parameter, part) for part in parts[::2]]
    return "`".join(parts)


@contextmanager
def naming_parameters() -> Iterator[None]:
    """Make errors that are raised inside name parameters of Python instead of options.

    The code that raises them is shared with the command line, so its messages name options.
    """
    try:
        yield
    except NerveError as error:
        error.args = (in_python(str(error)),)
        raise


def problem(where: object, cause: str, *, expected: str = "", remedy: str = "") -> NerveError:
    """Make an error from the parts of its sentence.

    Parameters
    ----------
    where : object
        The file, column or option that the problem is about.
    cause : str
        What is wrong: what came.
    expected : str
        What was expected.
    remedy : str
        What to do, as a sentence of its own.

    Returns
    -------
    NerveError
        To be raised by the caller.

    Examples
    --------
    >>> print(problem("sub-01.tsv", "the matrix is 400 x 399", expected="a square matrix",
    ...               remedy="Write it again."))
    sub-01.tsv: the matrix is 400 x 399, expected a square matrix. Write it again.
    """
    expectation = f", expected {expected}" if expected else ""
    return NerveError(f"{where}: {cause}{expectation}. {remedy}".rstrip())


def require(where: object, *rules: tuple[bool, str, str]) -> None:
    """Raise an error for the first rule that does not hold.

    Parameters
    ----------
    where : object
        What the rules are about.
    *rules : (bool, str, str)
        Whether the rule holds, what is wrong if it does not, and what was expected.
    """
    for holds, cause, expected in rules:
        if not holds:
            raise problem(where, cause, expected=expected)


def one_of(name: str, value: Any, allowed: Sequence[str]) -> Any:
    """Check that a value is one of the allowed values.

    Parameters
    ----------
    name : str
        What the value is, for the error.
    value : object
        The value.
    allowed : sequence of str
        The allowed values, which the error lists.

    Returns
    -------
    object
        The value.
    """
    if value in allowed:
        return value
    suggestion = did_you_mean(str(value), allowed)
    choices = listed([repr(choice) for choice in allowed], most=40)
    raise NerveError(f"{name} is {brief(value)}, expected one of {choices}.{suggestion}")


def known_columns(wanted: Iterable[str], columns: Iterable[str], where: object) -> list[str]:
    """Check that every wanted name is a column.

    Parameters
    ----------
    wanted : iterable of str
        Names that a user gave.
    columns : iterable of str
        Names of the columns that there are.
    where : object
        The table, for the error.

    Returns
    -------
    list of str
        The wanted names.
    """
    columns = [str(column) for column in columns]
    wanted = list(wanted)
    for name in wanted:
        if name not in columns:
            raise problem(
                where,
                f"there is no column {name!r}",
                expected=f"one of {listed(columns, most=20)}",
                remedy=did_you_mean(name, columns).strip(),
            )
    return wanted


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggest the known word that is nearest to a misspelt one.

    Parameters
    ----------
    word : str
        What the user typed.
    known : iterable of str
        Words that exist.

    Returns
    -------
    str
        The sentence ' Did you mean x?', or an empty string.
    """
    names = {str(name).lower(): str(name) for name in known}
    nearest = difflib.get_close_matches(str(word).lower(), list(names), n=1, cutoff=0.6)
    if not nearest:
        return ""
    return f" Did you mean {names[nearest[0]]!r}?"


def listed(items: Iterable[object], most: int = 8) -> str:
    """Join items by commas, and count those that are too many to list.

    Parameters
    ----------
    items : iterable
        What is listed.
    most : int
        How many items are written out.

    Returns
    -------
    str
        The list.

    Examples
    --------
    >>> listed("abc"), listed("abcd", most=2)
    ('a, b, c', 'a, b and 2 more')
    """
    words = [str(item) for item in items]
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def brief(value: Any) -> str:
    """Write a value as Python does, but short: settings may be long, nested or recursive.

    Parameters
    ----------
    value : object
        A value that a user gave.

    Returns
    -------
    str
        Its representation.

    Examples
    --------
    >>> brief("abc"), brief([1, 2]), brief([[["deep"]]])
    ("'abc'", '[1, 2]', '[[[...]]]')
    """
    return _SHORT_REPR.repr(value)


def printable(text: object) -> str:
    """Write control characters, and bytes that are not UTF-8, as escapes.

    Parameters
    ----------
    text : object
        Text in which names that users gave may stand.

    Returns
    -------
    str
        Text that changes no terminal.

    Examples
    --------
    >>> printable("red \\x1b[31m, α"), printable("a\\nb"), printable("sub-\\udcff")
    ('red \\\\x1b[31m, α', 'a\\nb', 'sub-\\\\udcff')
    """
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


def as_utf8(text: object) -> str:
    """Write bytes that are not UTF-8, which names of files may hold, as escapes.

    Parameters
    ----------
    text : object
        A name of a file, for example.

    Returns
    -------
    str
        Text that can be encoded.
    """
    return str(text).encode("utf-8", "backslashreplace").decode()


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """Write named facts as an HTML table; names that look like HTML are escaped.

    Parameters
    ----------
    title : str
        The caption.
    facts : mapping of str to object
        One row per fact.

    Returns
    -------
    str
        The table.

    Examples
    --------
    >>> facts_html("<b>", {"regions": 400})
    '<table><caption>&lt;b&gt;</caption><tr><th>regions</th><td>400</td></tr></table>'
    """
    rows = [
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    ]
    return f"<table><caption>{html.escape(title)}</caption>{''.join(rows)}</table>"


def _as_parameter(option: re.Match[str]) -> str:
    flag, value = option.groups()
    name = flag.replace("-", "_")
    if value is None:
        return name
    if value in _NOT_VALUES:
        return f"{name} {value}"
    if value.startswith("'"):
        return f"{name}=r{value}" if "\\" in value else f"{name}={value}"
    is_placeholder = value.isupper() or value.replace(".", "").isdigit()
    return f"{name}={value}" if is_placeholder else f'{name}="{value}"'
