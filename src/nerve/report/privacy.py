"""No identifiers on a page that is mailed around: ids of participants and folders are taken out of all text."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BIDS = re.compile(r"\bsub-[A-Za-z0-9]+")  # what BIDS calls a participant, known here or not
_PATH = re.compile(r"(?<![\w.])(?:/[^\s/:,;'\"<>()]+){2,}")  # two folders at least: "and/or" is no path


class Scrubber:
    """Replaces ids by "[participant]" and absolute paths by their last part.

    Examples
    --------
    >>> Scrubber(["sub-01"]).clean("sub-01: /data/study/sub-01/fc.tsv is empty")
    '[participant]: […]/fc.tsv is empty'
    """

    def __init__(self, ids: Iterable[str]) -> None:
        known = {str(one) for one in ids} - {""}
        self._words = known
        # an id of letters may stand inside a longer word (a file name); a number only counts as a word of its own
        self._inside = sorted((one for one in known if len(one) > 3 and not one.isdigit()), key=len, reverse=True)

    def clean(self, text: object) -> str:
        """The text without identifiers."""
        said = _PATH.sub(lambda path: "[…]/" + path[0].rpartition("/")[2], str(text))
        for one in self._inside:
            if one in said:
                said = said.replace(one, "[participant]")
        said = _BIDS.sub("[participant]", said)
        return re.sub(r"[\w.-]+", lambda word: "[participant]" if self._is_id(word[0]) else word[0], said)

    def _is_id(self, word: str) -> bool:
        return word in self._words and (len(word) > 3 or not word.isdigit())
