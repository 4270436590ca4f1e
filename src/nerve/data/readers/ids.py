"""One spelling per participant: ids of files and of tables are compared in one normal form.

Where that is not enough, `match_ids` tries the ways in which programs change ids (leading zeros,
case …) and takes one only if it makes the match one to one; the plan says which.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from nerve._utils.errors import listed

#: What programs do to ids → the function that undoes it on both sides.
ID_CHANGES: dict[str, Callable[[str], str]] = {
    "without .0 at the end": lambda word: re.sub(r"\.0+$", "", word),
    "without sub- and ses-": lambda word: re.sub(
        r"^sub(?:[-_]|(?=[0-9]))|[-_]ses[-_][a-z0-9]+$", "", word, flags=re.IGNORECASE
    ),
    "without regard to case": str.casefold,
    "without separators": lambda word: re.sub(r"[-_. ]", "", word),
    "without leading zeros": lambda word: re.sub(r"(?<![0-9])0+(?=[0-9])", "", word),
}
_MOST_COMPARED = 300  # ids of each side among which a difference is looked for


def normal_id(participant: object) -> str:
    """The id without `sub-` and without the underscore of `NDAR_INV`; case is kept.

    An accent is one character with its letter, however a file system or a table writes it.

    Parameters
    ----------
    participant : object
        As a file name or a table has it.

    Returns
    -------
    str

    Examples
    --------
    >>> ids = ("NDAR_INV0A", "NDARINV0A", "sub-NDARINV0A", " sub-010 ", "CMU_a_0050642")
    >>> [normal_id(word) for word in ids]
    ['NDARINV0A', 'NDARINV0A', 'NDARINV0A', '010', 'CMU_a_0050642']
    """
    if isinstance(participant, float) and participant.is_integer():
        participant = int(participant)  # of a column of numbers with a gap in it
    word = unicodedata.normalize("NFC", str(participant)).strip()
    word = re.sub(r"^sub-", "", word, flags=re.IGNORECASE)
    return re.sub(r"^NDAR_INV", "NDARINV", word)


@dataclass(frozen=True)
class IdMatch:  # numpydoc ignore=PR02
    """Which id of a table belongs to which id of the data.

    Parameters
    ----------
    pairs : dict
        Id of the data → id of the table, one to one.
    changes : tuple of str
        The names in `ID_CHANGES` that were needed.
    """

    pairs: dict[str, str]
    changes: tuple[str, ...] = ()


def match_ids(data_ids: Sequence[str], table_ids: Iterable[str]) -> IdMatch:
    """Match ids exactly, or with the fewest changes that match most of them one to one.

    Parameters
    ----------
    data_ids : sequence of str
        Normalised, each once.
    table_ids : iterable of str
        Normalised; an id may occur several times.

    Returns
    -------
    IdMatch

    Examples
    --------
    >>> match_ids(["001", "002"], ["1", "2", "3"])
    IdMatch(pairs={'001': '1', '002': '2'}, changes=('without leading zeros',))
    >>> match_ids(["001", "002"], ["1", "01", "2"]).pairs
    {}
    """
    ids_of_table = dict.fromkeys(table_ids)
    best = IdMatch({word: word for word in data_ids if word in ids_of_table})
    if len(best.pairs) == len(data_ids):
        return best
    for n_changes in range(1, len(ID_CHANGES) + 1):
        for names in itertools.combinations(ID_CHANGES, n_changes):
            pairs = _one_to_one(data_ids, ids_of_table, names)
            if pairs is not None and len(pairs) > len(best.pairs):
                best = IdMatch(pairs, names)
        if len(best.pairs) == len(data_ids):
            break
    return best


def _commonest_difference(data_ids: Sequence[str], table_ids: Sequence[str]) -> str:
    """Say what most often tells the ids of the data from those of the table.

    Parameters
    ----------
    data_ids, table_ids : sequence of str
        Those that found no partner.

    Returns
    -------
    str

    Examples
    --------
    >>> _commonest_difference(["A01", "A02"], ["01", "02"])
    "the ids of the data have 'A' before those of the table"
    >>> _commonest_difference(["17"], ["x"])
    'the ids of the data look like 99, those of the table like a'
    """
    differences: Counter[str] = Counter()
    for ours in data_ids[:_MOST_COMPARED]:
        for theirs in table_ids[:_MOST_COMPARED]:
            for long, short, side, other in (
                (ours, theirs, "data", "table"),
                (theirs, ours, "table", "data"),
            ):
                if len(short) < 2 or long == short or short not in long:
                    continue
                before, _, after = long.partition(short)
                parts = []
                if before:
                    parts.append(f"{before!r} before")
                if after:
                    parts.append(f"{after!r} after")
                words = " and ".join(parts)
                differences[f"the ids of the {side} have {words} those of the {other}"] += 1
    for difference, n_pairs in differences.most_common(1):
        if n_pairs > 1 or len(data_ids) == 1:
            return difference
    ours = _commonest_shape(data_ids)
    theirs = _commonest_shape(table_ids)
    if ours == theirs:
        return f"both look like {ours}, but no id is the same"
    return f"the ids of the data look like {ours}, those of the table like {theirs}"


def both_sides(data_ids: Sequence[str], table_ids: Sequence[str]) -> str:
    """Show three ids of each side and what tells them apart, for errors.

    Parameters
    ----------
    data_ids, table_ids : sequence of str
        Those that found no partner.

    Returns
    -------
    str
    """
    ours = listed(data_ids, most=3)
    theirs = listed(table_ids, most=3)
    if not theirs:
        return f"without a partner are {ours} of the data, and the table has no further ids"
    difference = _commonest_difference(data_ids, table_ids)
    return f"without a partner are {ours} of the data and {theirs} of the table: {difference}"


def counted(n: int, noun: str = "participant") -> str:
    """`1 participant`, `2 participants`."""
    return f"1 {noun}" if n == 1 else f"{n} {noun}s"


def natural_key(word: str) -> tuple[tuple[int, str], ...]:
    """Sort key under which `run-2` stands before `run-10`.

    Parameters
    ----------
    word : str

    Returns
    -------
    tuple

    Examples
    --------
    >>> sorted(["ses-10", "ses-2", "ses-A"], key=natural_key)
    ['ses-2', 'ses-10', 'ses-A']
    """
    parts = re.findall(r"([0-9]+)|([^0-9]+)", word)
    return tuple((int(number), "") if number else (1 << 62, letters) for number, letters in parts)


def _one_to_one(
    data_ids: Iterable[str], table_ids: Iterable[str], names: Sequence[str]
) -> dict[str, str] | None:
    """The pairs that are the same after some changes; None where two ids of a side become one."""
    changed_data = _changed(data_ids, names)
    changed_table = _changed(table_ids, names)
    pairs = {}
    for changed, words in changed_data.items():
        partners = changed_table.get(changed, [])
        if not partners:
            continue
        if len(words) > 1 or len(partners) > 1:
            return None
        pairs[words[0]] = partners[0]
    return pairs


def _changed(words: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Changed id → the ids that become it."""
    originals: dict[str, list[str]] = {}
    for word in words:
        changed = word
        for name in names:
            changed = ID_CHANGES[name](changed)
        originals.setdefault(changed, []).append(word)
    return originals


def _commonest_shape(words: Iterable[str]) -> str:
    """The commonest pattern of ids, with 9 for each digit and a or A for each letter."""
    shapes = Counter(
        re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", re.sub(r"[0-9]", "9", word))) for word in words
    )
    return shapes.most_common(1)[0][0] if shapes else "nothing"
