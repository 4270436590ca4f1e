"""One spelling per participant: ids of files and of tables are compared in one normal form."""

from __future__ import annotations

import re
import unicodedata


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
    >>> [normal_id(word) for word in ("NDAR_INV0A", "NDARINV0A", "sub-NDARINV0A", " sub-010 ", "CMU_a_0050642")]
    ['NDARINV0A', 'NDARINV0A', 'NDARINV0A', '010', 'CMU_a_0050642']
    """
    if (
        isinstance(participant, float) and participant.is_integer()
    ):  # a column of numbers with a gap in it
        participant = int(participant)
    word = unicodedata.normalize("NFC", str(participant)).strip()
    word = re.sub(r"^sub-", "", word, flags=re.IGNORECASE)
    return re.sub(r"^NDAR_INV", "NDARINV", word)


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
