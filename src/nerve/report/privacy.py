"""No identifiers on a page that is mailed around: ids of participants and folders are taken out of every text.

Too much is taken rather than too little. A path is whatever begins like one; blanks, commas and brackets may stand in
its folders. What stays of it is the name of the file, and of that only the ending if there are digits in it, as in ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PARTICIPANT = "[participant]"
_BIDS = re.compile(r"\bsub-[A-Za-z0-9]+")  # what BIDS calls a participant, known here or not
# a folder in a path may be "Li, Ann (old)": anything but a sign that ends a path, or the name of a file and a blank
_PART = r"[^\s/\\:;\"<>](?:(?!\.[A-Za-z]\w{0,5}[\s,'])[^/\\:;\"<>\n]){0,80}"
_NAME = r"[^\s/\\:,;'\"<>()]+(?: [^\s/\\:,;'\"<>()]+){0,3}"
_LAST = rf"(?:{_NAME}\.\w{{1,6}}\b|[^\s/\\:,;'\"<>()]*)"  # a name with blanks is known by its ending
_PATH = re.compile(
    rf"(?<![\w.…\]/\\])(?:[A-Za-z]:[/\\]|\\\\|~/|\.{{1,2}}/|/)(?:{_PART}[/\\])+{_LAST}"  # from a root, or . or ~
    r"|(?<![\w.…\]/\\])(?:[\w.~-]+[/\\])+[\w.~-]+\.[A-Za-z]\w{0,5}\b"  # relative: "and/or" is none, "a/b.tsv" is
)
_WHO = re.compile(r"\b(?:participant|person|people|subject)s? [\w.-]+(?:, [\w.-]+)*|^[\w.-]+(?=: )", re.IGNORECASE)


class Scrubber:
    """Replaces ids by "[participant]" and paths by the name of their file.

    Examples
    --------
    >>> Scrubber(["sub-01"]).clean("sub-01: /data/my study/sub-01/fc.tsv is empty")
    '[participant]: […]/fc.tsv is empty'
    """

    def __init__(self, ids: Iterable[str]) -> None:
        given = {str(one) for one in ids}
        self._words = known = (given | {one.removeprefix("sub-") for one in given}) - {""}
        self._folded = {_folded(one) for one in known if len(_folded(one)) > 3}
        # an id of letters may stand inside a longer word (a file name), and one with blanks is no word
        long = (one for one in known if (len(one) > 3 and not one.isdigit()) or not re.fullmatch(r"[\w.-]+", one))
        self._inside = sorted(long, key=len, reverse=True)

    def clean(self, text: object) -> str:
        """The text without identifiers."""
        said = str(text)
        for one in self._inside:
            said = said.replace(one, PARTICIPANT)
        said = _BIDS.sub(PARTICIPANT, said)
        said = _PATH.sub(lambda path: _shortened(path[0]), said)
        said = _WHO.sub(lambda found: re.sub(r"[\w.-]*[\w-]", self._named, found[0]), said)
        said = re.sub(r"[\w.-]*[\w-]", self._whole, said)
        return re.sub(r"[^\W_]+", self._part, said)

    def _named(self, word: re.Match[str]) -> str:
        """A word where a participant is named: every id."""
        return PARTICIPANT if word[0] in self._words else word[0]

    def _whole(self, word: re.Match[str]) -> str:
        """A word anywhere: an id, but a short number may be a count."""
        return PARTICIPANT if word[0] in self._words and (len(word[0]) > 3 or not word[0].isdigit()) else word[0]

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
    name = re.split(r"[/\\]", path)[-1]
    stem, dot, ending = name.rpartition(".")
    if any(character.isdigit() for character in stem or name):
        name = f"[file]{dot}{ending}" if dot else "[folder]"
    return f"[…]/{name}"
