"""How things are said to users. An error: what was expected, what came, where, and what to do."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother = 2, 80, 80


class NerveError(ValueError):
    """A problem that the user can mend. The command line prints its sentence and no traceback."""


class MissingInput(NerveError):
    """A method needs an input (time series, say) that a cohort does not have."""


class AboutPeople(NerveError):
    """A problem with some participants, known by their rows until a caller that knows their ids says who they are.

    Parameters
    ----------
    rows : sequence of int
        Positions of the participants in the data at hand.
    sentence : str
        The problem, with ``{people}`` where they are named.

    Examples
    --------
    >>> with naming(["a", "b", "c", "d", "e", "f", "g", "h"]), placing([4, 7]):
    ...     raise AboutPeople([1], "There is nothing to learn from {people}.")
    Traceback (most recent call last):
    nerve._utils.errors.NerveError: There is nothing to learn from h.
    """

    def __init__(self, rows: Any, sentence: str) -> None:
        self.rows, self.sentence = [int(row) for row in rows], sentence
        rows = listed((row + 1 for row in self.rows), most=5)
        who = (
            f"the participant{'s' * (len(self.rows) > 1)} of row{'s' * (len(self.rows) > 1)} {rows}"
        )
        super().__init__(sentence.replace("{people}", who))


@contextmanager
def naming(ids: Any) -> Iterator[None]:
    """Inside, an error about participants (`AboutPeople`) is given their ids."""
    try:
        yield
    except AboutPeople as somebody:
        who = listed((ids[row] for row in somebody.rows), most=5)
        raise NerveError(somebody.sentence.replace("{people}", who)) from None


@contextmanager
def placing(positions: Any) -> Iterator[None]:
    """Inside, an error about participants (`AboutPeople`) is told where the rows at hand stand in larger data."""
    try:
        yield
    except AboutPeople as somebody:
        raise AboutPeople([positions[row] for row in somebody.rows], somebody.sentence) from None


class NerveWarning(UserWarning):
    """Something that does not stop the work but belongs in a report."""


def problem(where: object, found: str, *, expected: str = "", remedy: str = "") -> NerveError:
    """One sentence that names the place, what came, what was expected and what to do.

    Examples
    --------
    >>> print(problem("sub-01.tsv", "the matrix is 400 x 399", expected="a square matrix",
    ...               remedy="Write it again."))
    sub-01.tsv: the matrix is 400 x 399, expected a square matrix. Write it again.
    """
    wanted = f", expected {expected}" if expected else ""
    return NerveError(f"{where}: {found}{wanted}. {remedy}".rstrip())


def require(where: object, *rules: tuple[bool, str, str]) -> None:
    """Refuse by the first rule (whether it holds, what was found, what was expected) that does not hold."""
    for holds, found, expected in rules:
        if not holds:
            raise problem(where, found, expected=expected)


def listed(items: Iterable[object], most: int = 8) -> str:
    """Items joined by commas, cut after `most` of them with a count of the rest.

    Examples
    --------
    >>> listed("abc"), listed("abcd", most=2)
    ('a, b, c', 'a, b and 2 more')
    """
    words = [str(item) for item in items]
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def as_utf8(text: object) -> str:
    """Text with bytes that were no UTF-8, as names of files may have them, spelt out."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def brief(value: Any) -> str:
    """A value of the user's as Python writes it, cut short: settings may be nested, long, or hold themselves.

    Examples
    --------
    >>> brief("abc"), brief([1, 2]), brief([[["deep"]]])
    ("'abc'", '[1, 2]', '[[[...]]]')
    """
    return _BRIEF.repr(value)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The sentence ' Did you mean x?' for the nearest known word, or an empty string."""
    folded = {str(name).lower(): str(name) for name in known}
    near = difflib.get_close_matches(str(word).lower(), list(folded), n=1, cutoff=0.6)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""


def one_of(name: str, value: Any, allowed: Sequence[str]) -> Any:
    """Return `value` if it is allowed, otherwise refuse it with the allowed values listed."""
    if value in allowed:
        return value
    expected = f"one of {listed(map(repr, allowed), most=40)}.{did_you_mean(str(value), allowed)}"
    raise NerveError(f"{name} is {brief(value)}, expected {expected}")


def known_columns(wanted: Iterable[str], columns: Iterable[str], where: object) -> list[str]:
    """Return `wanted` as a list if every name is a column, otherwise name the first that is not."""
    columns = [str(column) for column in columns]
    wanted = list(wanted)
    for name in wanted:
        if name not in columns:
            expected, remedy = (
                f"one of {listed(columns, most=20)}",
                did_you_mean(name, columns).strip(),
            )
            raise problem(where, f"there is no column {name!r}", expected=expected, remedy=remedy)
    return wanted


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A title and one line per fact; whatever names hold, nothing of it is taken for HTML.

    Examples
    --------
    >>> facts_html("<b>", {"regions": 400})
    '<table><caption>&lt;b&gt;</caption><tr><th>regions</th><td>400</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"
